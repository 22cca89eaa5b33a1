"""Parameters that a front end was not told of are refused by name: each rank would have its own."""

import pytest
import torch
from torch import nn

import thinwire as tw


def begun(front, model, *more):
    optimizer = torch.optim.SGD([*model.parameters(), *more], 0.1)
    if front == "wrap":
        return optimizer, tw.wrap(optimizer, model, "topk")
    return optimizer, tw.outer(model, optimizer, "topk", every=10)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def net():
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))


END = {"wrap": r": close\(\) the", "outer": r": synchronize\(\) and close\(\) the"}


@pytest.mark.parametrize("front", ["wrap", "outer"])
@pytest.mark.parametrize("told", [True, False], ids=["optimiser told", "optimiser not told"])
def test_a_head_that_is_made_anew(front, told):
    """Also where nobody trains it: each rank has drawn its own."""
    model = net()
    optimizer, handle = begun(front, model)
    step(model, optimizer)
    model[1] = nn.Linear(6, 3)
    if told:
        optimizer.add_param_group({"params": list(model[1].parameters())})
    says = rf"'1\.weight' was not the model's when {front}\(\) was called.*{END[front]}"
    with pytest.raises(tw.RecipeError, match=says):
        step(model, optimizer)
    handle.close()


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_a_layer_that_is_trained_later(front):
    model = net()
    model[0].requires_grad_(False)
    optimizer, handle = begun(front, model)
    step(model, optimizer)
    model[0].requires_grad_(True)
    with pytest.raises(tw.RecipeError, match=rf"'0\.weight' was frozen when {front}\(\) was"):
        step(model, optimizer)
    handle.close()


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_what_only_the_optimiser_knows(front):
    """As a loss of its own parameters: before the first step and after it."""
    model, scale = net(), nn.Parameter(torch.ones(3))
    with pytest.raises(tw.RecipeError, match=r"that are not the model's.*has them all"):
        begun(front, model, scale)
    optimizer, handle = begun(front, model)
    optimizer.add_param_group({"params": [scale]})
    scale.sum().backward()
    with pytest.raises(tw.RecipeError, match=r"a parameter of shape \(3,\) was not the model's"):
        optimizer.step()
    handle.close()


@pytest.mark.parametrize("front", ["wrap", "outer"])
def test_what_is_frozen_or_has_no_gradient_may_come(front):
    model = net()
    optimizer, handle = begun(front, model)
    model.append(nn.Linear(2, 2).requires_grad_(False))
    model.register_parameter("unused", nn.Parameter(torch.ones(1)))
    step(model, optimizer)
    handle.close()
