"""All ranks begin with the first one's model, however its tensors lie in memory."""

import pytest
import torch
from torch import nn

import thinwire as tw


class Odd(nn.Module):
    """Tensors that are expanded, transposed, channels last, of no elements, a part of others."""

    def __init__(self, rank):
        super().__init__()
        torch.random.default_generator.manual_seed(rank)
        self.linear = nn.Linear(3, 2)
        self.weight = nn.Parameter(torch.randn(4, 500).t())
        self.last = nn.Parameter(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
        self.nothing = nn.Parameter(torch.empty(0))
        self.register_buffer("expanded", torch.randn(1, 4).expand(3000, 4))
        self.register_buffer("number", torch.randn(()).expand(7))
        self.register_buffer("part", torch.randn(6, 6)[1:3, ::2])


def begun(group, rank, size, front):
    model = Odd(rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if front == "wrap":
        handle = tw.wrap(optimizer, model, "topk")
    else:
        handle = tw.outer(model, optimizer, "topk")
    handle.close()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def other_buffers(group, rank, size, front):
    model = nn.BatchNorm1d(4)
    model.register_buffer("table", torch.ones(3 + rank))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tw.wrap(optimizer, model, "topk") if front == "wrap" else tw.outer(model, optimizer, "topk")


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_all_ranks_have_the_firsts(cluster, front):
    """Sent as it lies there, an expanded buffer was written beyond its memory."""
    expected = Odd(0).state_dict()
    for found in cluster.run(begun, 3, front):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_buffers_that_differ_are_told(cluster, front):
    for raised in cluster.run(other_buffers, 2, front, expect=tw.DisagreementError):
        assert "table: (3,)" in raised.text and "table: (4,)" in raised.text
