"""`torch.set_default_device`: what ranks tell each other is in host memory all the same.

A script that sets "cuda" is played by "meta", whose tensors hold nothing.

Covers engine/given.py.
"""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw

RECIPES = ["topk(0.1)", "ok-topk(0.1)", "int8", "powersgd", "auto"]


def trained(group, rank, size, recipe, door, device):
    """Weights after three steps, the second of which was saved and loaded."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 8))
    draw = torch.Generator().manual_seed(rank)
    batches = [torch.randn(4, 20, generator=draw) for _ in range(3)]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    net = DDP(model, process_group=group) if door == "ddp" else model
    torch.set_default_device(device)
    try:
        handle = tw.compress(net, recipe) if door == "ddp" else tw.wrap(optimizer, model, recipe)
        for batch in batches:
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
            handle.load_state_dict(handle.state_dict(gather=True))
        handle.stats()
        tw.sparse_all_reduce(model[0].weight.detach(), "topk", group)
        handle.close()
    finally:
        torch.set_default_device(None)
    return model[0].weight.detach()


@pytest.mark.parametrize("door", ["ddp", "wrap"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_training_is_the_same_with_another_default_device(cluster, recipe, door):
    there = cluster.run(trained, 2, recipe, door, "meta")
    here = cluster.run(trained, 2, recipe, door, "cpu")
    assert all(map(torch.equal, there, here)) and torch.equal(*there)
