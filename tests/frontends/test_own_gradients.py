"""Gradients that no exchange has seen are not taken for the ranks' mean.

Covers frontends/optimizer.py.
"""

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw


def by_hand(model, loss):
    gradients = torch.autograd.grad(loss(), list(model.parameters()))
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        p.grad = gradient


def without_exchange(model, loss):
    with model.no_sync():
        loss().backward()


def refused(group, rank, size, recipe, how):
    """Whether the weights stay as they were; and the ranks' after a step as ever."""
    torch.random.default_generator.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 40, sparse=True), nn.Linear(40, 30))
    model = DDP(net, process_group=group)
    optimizer = tw.optim(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), model, recipe)

    def loss():
        return model(torch.tensor([rank, 3])).square().sum()

    def weights():
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    loss().backward()
    optimizer.step()
    optimizer.zero_grad()
    before = weights()
    how(model, loss)
    with pytest.raises(tw.RecipeError, match=r"no backward pass of the DDP model has exchanged"):
        optimizer.step()
    unchanged = torch.equal(weights(), before)
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()  # zeros are the same on all ranks
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
    optimizer.handle.close()
    return unchanged, weights()


@pytest.mark.parametrize("recipe", ["topk(0.05)", "dense"])
@pytest.mark.parametrize("how", [by_hand, without_exchange])
def test_a_ranks_own_gradients_are_refused(cluster, recipe, how):
    """By some recipes they would have been taken for steps; replicas came apart by all."""
    (unchanged, ours), (too, theirs) = cluster.run(refused, 2, recipe, how)
    assert unchanged and too and torch.equal(ours, theirs)
