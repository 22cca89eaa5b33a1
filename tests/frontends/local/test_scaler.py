"""Several handles around one GradScaler: each counts its own steps, whoever is closed first."""

import pytest
import torch
from torch import nn

import thinwire as tw


def made(scaler):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return model, optimizer, tw.outer(model, optimizer, "dense", every=10, grad_scaler=scaler)


def step(scaler, model, optimizer, left_out=False):
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    if left_out:
        model.weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    scaler.update()


def counted(handle):
    return handle.stats()["local"]["steps"]


@pytest.mark.parametrize("first", [0, 1], ids=["the first is closed", "the second is closed"])
def test_one_goes_on_where_the_other_is_closed(first):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    given = scaler.step
    both = [made(scaler), made(scaler)]
    for model, optimizer, handle in both:
        step(scaler, model, optimizer)
        step(scaler, model, optimizer, left_out=True)
        assert counted(handle) == 2
    ended, (model, optimizer, handle) = both[first][2], both[1 - first]
    ended.close()
    step(scaler, model, optimizer, left_out=True)
    step(scaler, *both[first][:2], left_out=True)
    assert (counted(handle), counted(ended)) == (3, 2)
    handle.close()
    handle.close()
    assert scaler.step == given


def test_what_others_put_around_the_steps_stays_there():
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    model, optimizer, handle = made(scaler)
    ours = scaler.step

    def around(*args):
        return ours(*args)

    scaler.step = around
    again, theirs, second = made(scaler)
    handle.close()
    second.close()
    assert scaler.step is around
    step(scaler, model, optimizer, left_out=True)
    step(scaler, again, theirs, left_out=True)
    assert counted(handle) == counted(second) == 0


def test_what_is_no_scaler():
    with pytest.raises(TypeError, match="grad_scaler=True must be the GradScaler itself"):
        made(True)
