"""Parameters that DDP was told to leave alone: each rank's own, of any shape.

Covers frontends/ddp.py.
"""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw


class Sharded(nn.Module):
    """A table of which each rank has some rows, and a layer that all have."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(3 + rank, 20), nn.Linear(20, 64)
        DDP._set_params_and_buffers_to_ignore_for_model(self, ["table.weight"])

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(rows))


def train(group, rank, size, options):
    ddp = DDP(Sharded(rank), process_group=group, **options)
    handle = tw.compress(ddp, tw.recipe("topk", density=0.1, bypass=0), audit=1)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        ddp(torch.tensor([step, rank])).square().sum().backward()
        optimizer.step()
        if step == 1:
            handle.load_state_dict(handle.state_dict())
    return ddp.module.layer.weight.detach(), set(handle.state_dict()["forms"])


@pytest.mark.parametrize("unused", [False, True])
def test_what_ddp_ignores_may_differ_by_rank(cluster, unused):
    (mine, names), (theirs, others) = cluster.run(train, 2, {"find_unused_parameters": unused})
    assert torch.equal(mine, theirs)
    assert names == others == {"layer.weight", "layer.bias"}
