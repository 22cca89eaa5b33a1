"""What `outer` gives back: the ends of rounds, of handles, and of groups with a message under way.

Covers frontends/local/shared.py.
"""

import copy
from concurrent.futures import Future
from functools import partial

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist
from torch import nn

import thinwire as tw

PLAIN = partial(torch.optim.SGD, lr=1.0)
NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
KEEPING = tw.recipe("chunk-topk(0.1, 64)", bypass=20)


def build(dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3)).to(dtype)


def train(model, optimizer, rank, steps):
    for step in steps:
        draw = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(6, 8, generator=draw).to(model[0].weight.dtype)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


def flat(parameters):
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def identical(model, group, size):
    parts = [torch.empty_like(flat(model.parameters())) for _ in range(size)]
    dist.all_gather(parts, flat(model.parameters()), group=group)
    return all(torch.equal(parts[0], other) for other in parts[1:])


def begun(rank, steps, recipe="dense", dtype=torch.float32, **settings):
    model = build(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = tw.outer(model, optimizer, recipe, **settings)
    train(model, optimizer, rank, range(steps))
    return model, optimizer, handle


def ended_twice(group, rank, size, dtype, settings):
    """How far the shared copy goes in rounds of no steps; whether all ranks then have one model."""
    model, _, handle = begun(rank, 8, dtype=dtype, outer=NESTEROV, **settings)
    if settings.get("delay"):
        handle.shared.step(handle.state_dict()["under_way"][0]["means"])
        expected = flat(handle.shared.parameters.values())
        model, _, handle = begun(rank, 8, dtype=dtype, outer=NESTEROV, **settings)
    else:
        expected = flat(handle.shared.parameters.values())
    far = []
    for _ in range(2):
        handle.synchronize()
        far.append(float((flat(handle.shared.parameters.values()) - expected).abs().max()))
    same = identical(model, group, size)
    handle.close()
    return far, same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "settings",
    [{"every": 4}, {"every": 4, "delay": 2}, {"every": 4, "delay": 2, "hold": 0.5}],
    ids=str,
)
def test_where_no_rank_has_moved_there_is_no_round(cluster, settings, dtype):
    """Momentum alone would move the copy, as at the end of training."""
    for far, same in cluster.run(ended_twice, 2, dtype, settings):
        assert far == [0, 0]
        assert same


def saved_under_way(group, rank, size, settings):
    """A state with messages under way, and where the copy is once they are applied."""
    _, _, handle = begun(rank, 9, KEEPING, **settings)
    state = handle.state_dict()
    assert state["under_way"]
    handle._apply_until(None, None, 0.0)
    copy = flat(handle.shared.parameters.values())
    handle.close()
    return state, copy


def joined(group, rank, size, states, settings):
    model, _, handle = begun(rank, 0, KEEPING, **settings)
    handle.load_state_dict(states)
    met = flat(handle.shared.parameters.values())
    assert torch.equal(flat(model.parameters()), met)
    handle.close()
    return met


@pytest.mark.parametrize(
    "settings",
    [
        {"every": 4, "delay": 3, "outer": NESTEROV},
        {"every": 8, "fragments": 2, "delay": 7, "hold": 0.5, "own": 0.5, "outer": NESTEROV},
    ],
    ids=str,
)
def test_what_was_under_way_is_not_lost_where_other_ranks_go_on(cluster, settings):
    """It has left the residuals, and is in no rank's model yet."""
    (first, copy), (second, _) = cluster.run(saved_under_way, 2, settings)
    for met in cluster.run(joined, 3, [first, second], settings):
        assert torch.equal(met, copy)


def waits_in(state):
    tensors = state["exchange"]["tensors"].values()
    return torch.cat([one["feedback/residual"] for one in tensors if "feedback/residual" in one])


def after_a_loss(group, rank, size, states, settings, lost):
    """What waits of all ranks, where they met, and whether they still do after another round."""
    model, optimizer, handle = begun(rank, 0, KEEPING, **settings)
    handle.load_state_dict(states, lost=lost)
    waits = waits_in(handle.state_dict())
    met = flat(handle.shared.parameters.values())
    train(model, optimizer, rank, range(settings["every"]))
    handle.synchronize()
    same = identical(model, group, size)
    handle.close()
    return waits, met, same


@pytest.mark.parametrize("size", [2, 3])
def test_survivors_go_on_with_all_that_waits_on_them(cluster, size):
    """And who comes in the lost one's place gets the model."""
    settings = {"every": 4, "delay": 3, "outer": NESTEROV}
    (first, copy), _, (third, _) = cluster.run(saved_under_way, 3, settings)
    waited = waits_in(first) + waits_in(third)
    outcome = cluster.run(after_a_loss, size, [first, third], settings, [1])
    assert torch.equal(sum(waits for waits, _, _ in outcome), waited) and waited.any()
    assert all(torch.equal(met, copy) and same for _, met, same in outcome)


def shorter_rounds(group, rank, size):
    """How far the copy went beside what all ranks walked, by rounds that are shorter after a load.

    A message is under way then, that would have arrived before its fragment was sent again.
    """
    model, optimizer, handle = begun(rank, 5, every=4, delay=3, outer=PLAIN)
    start, state = flat(build().parameters()), handle.state_dict()
    handle.close()
    reached = copy.deepcopy(model.state_dict())
    handle = tw.outer(model, optimizer, "dense", every=2, outer=PLAIN)
    model.load_state_dict(reached)
    handle.load_state_dict(state)
    walked = start - flat(model.parameters())
    optimizer.param_groups[0]["lr"] = 0.0
    train(model, optimizer, rank, range(5, 9))
    handle.synchronize()
    dist.all_reduce(walked, group=group)
    far = (start - walked / size - flat(model.parameters())).abs().max()
    handle.close()
    return float(far)


def test_rounds_that_are_shorter_after_a_load_count_nothing_twice(cluster):
    assert max(cluster.run(shorter_rounds, 2)) < 1e-6


def closed(group, rank, size):
    _, _, handle = begun(rank, 5, every=4, delay=3)
    state = handle.state_dict()
    handle.close()
    handle.close()
    assert handle.stats()["local"]["steps"] == 5
    assert handle.state_dict()["checksum"] == state["checksum"]
    for call in (handle.synchronize, partial(handle.load_state_dict, state)):
        with pytest.raises(tw.ClosedError, match="was closed"):
            call()
    return True


def scaled(group, rank, size):
    """Rank 1's scaler leaves out its second step; whether ranks meet, and load what they saved."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    given = scaler.step
    handle = tw.outer(model, optimizer, "dense", every=3, grad_scaler=scaler)
    met = []
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.full((2, 8), 1.0 + rank + step)).square().sum()).backward()
        if (rank, step) == (1, 1):
            model[0].weight.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        met.append(identical(model, group, size))
    handle.load_state_dict(handle.state_dict())
    handle.synchronize()
    met.append(identical(model, group, size))
    handle.close()
    assert scaler.step == given
    return met, scaler.get_scale()


def test_a_step_that_a_scaler_leaves_out_counts_all_the_same(cluster):
    """Else its rank would be a step behind the others for ever."""
    met = [False, False, True, False, True]
    assert cluster.run(scaled, 2) == [(met, 4.0), (met, 2.0)]


@pytest.mark.parametrize("size", [1, 2])
def test_what_was_closed_says_so(cluster, size):
    assert all(cluster.run(closed, size))


class Preempted(Exception):
    pass


@pytest.mark.parametrize("raised", [Preempted, KeyboardInterrupt])
def test_who_is_interrupted_while_waiting_still_has_the_message(monkeypatch, raised):
    """As by a signal that ends a job, which then saves what it has: the others have applied it."""
    model, optimizer, handle = begun(0, 3, every=4, outer=NESTEROV)

    def preempt(*_):
        raise raised

    with monkeypatch.context() as waiting, pytest.raises(raised):
        waiting.setattr(Future, "exception", preempt)
        train(model, optimizer, 0, [3])
    met = flat(handle.shared.parameters.values())
    assert [one["fragment"] for one in handle.state_dict()["under_way"]] == [0]
    handle.synchronize()
    assert not torch.equal(flat(handle.shared.parameters.values()), met)
    handle.close()


def test_a_count_of_steps_is_not_kept_short():
    """In bfloat16 it would end at 256, also where a parameter is a single number."""
    model = nn.ParameterDict({"scale": torch.ones(()), "row": torch.ones(3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    adam = partial(torch.optim.Adam, lr=0.01)
    short = torch.bfloat16
    handle = tw.outer(model, optimizer, "dense", every=1, outer=adam, keep_dtype=short)
    for p in model.values():
        p.grad = torch.ones_like(p)
    for _ in range(258):
        optimizer.step()
    kept = handle.shared.optimizer.state.values()
    assert [int(own["step"]) for own in kept] == [258, 258]
    handle.close()


def in_a_mode(group, rank, size, mode, settings):
    """The weights after a story of which all that `outer` offers is done in this mode."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with mode():
        handle = tw.outer(model, optimizer, KEEPING, every=4, outer=NESTEROV, **settings)
    train(model, optimizer, rank, range(6))
    with mode():
        handle.load_state_dict(handle.state_dict())
        handle.synchronize()
    train(model, optimizer, rank, range(6, 12))
    handle.synchronize()
    handle.close()
    return flat(model.parameters())


@pytest.mark.parametrize("settings", [{}, {"delay": 3, "hold": 0.5, "own": 0.4}], ids=str)
def test_what_is_done_in_inference_mode_is_trained_on(cluster, settings):
    """As where the model is evaluated: what torch makes there can never be stepped."""
    plain, _ = cluster.run(in_a_mode, 2, torch.enable_grad, settings)
    for mode in (torch.inference_mode, torch.no_grad):
        for weights in cluster.run(in_a_mode, 2, mode, settings):
            assert torch.equal(weights, plain)
