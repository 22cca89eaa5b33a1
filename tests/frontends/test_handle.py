"""A handle in the middle of a step, and with another loss scale: states that are loaded, `close()`.

Covers engine/backward.py, engine/synchronizer.py.
"""

import threading
from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from support.contracts.cases import state_digest
from thinwire.engine.backward import BackwardPass

RECIPE = tw.recipe("topk", density=0.05, bypass=10)
PATIENCE = timedelta(seconds=15)


class Trained:
    """A model of several buckets behind DDP."""

    def __init__(self, group):
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 8))
        self.ddp = DDP(self.model, process_group=group, bucket_cap_mb=0.002)
        self.handle = tw.compress(self.ddp, RECIPE, timeout=PATIENCE)

    def backward(self, rank, step):
        draw = torch.Generator().manual_seed(100 * step + rank)
        self.ddp.zero_grad()
        self.ddp(torch.randn(16, 20, generator=draw)).square().mean().backward()
        return [p.grad.clone() for p in self.model.parameters()]

    def breaks_off(self, rank, step):
        """A backward pass of which all but the last bucket comes."""

        def fail(grad):
            raise KeyError("in the middle of backward")

        hook = self.model.get_parameter("0.weight").register_hook(fail)
        with pytest.raises(KeyError):
            self.backward(rank, step)
        hook.remove()

    def digest(self):
        return state_digest(self.handle.synchronizer)


def loaded_in_the_middle(group, rank, size):
    """Alone nothing is given up: the state that was loaded is there, and when it is saved again."""
    trained = Trained(group)
    for step in range(2):
        trained.backward(rank, step)
    saved, then = trained.handle.state_dict(), trained.digest()
    trained.backward(rank, 2)
    trained.breaks_off(rank, 3)
    trained.handle.synchronizer.runner.worker.drain()  # it is in the middle of the step
    trained.handle.load_state_dict(saved)
    return [trained.digest() == then for _ in range(2)]


def test_a_state_that_is_loaded_after_a_broken_backward_pass_stays(cluster):
    assert cluster.run(loaded_in_the_middle, 1) == [[True, True]]


def loaded_by_several(group, rank, size):
    trained = Trained(group)
    for step in range(2):
        trained.backward(rank, step)
    saved, before = trained.handle.state_dict(), trained.digest()
    trained.breaks_off(rank, 2)
    with pytest.raises(tw.ExchangeError) as caught:
        trained.handle.load_state_dict(saved)
    return str(caught.value), trained.digest() == before


def test_several_ranks_are_told_that_the_group_was_given_up(cluster):
    for said, kept in cluster.run(loaded_by_several, 2):
        assert "save it, and load it into a new group" in said
        assert kept


def loaded_and_taken_back(group, rank, size):
    sync = tw.Synchronizer(RECIPE, group)
    sync.average("w", torch.randn(40, 30))
    saved, then = sync.state_dict(), state_digest(sync)
    for _ in range(2):
        sync.average("w", torch.randn(40, 30))
    sync.load_state_dict(saved)
    sync.take_back()
    return state_digest(sync) == then


def test_a_step_from_before_a_load_is_not_taken_back(cluster):
    assert cluster.run(loaded_and_taken_back, 1) == [True]


def closed_beside_the_worker(group, rank, size):
    """`close()` comes while the worker is in the middle of a unit: when that step is taken back."""
    trained = Trained(group)
    for step in range(3):
        trained.backward(rank, step)
    before, sync = trained.digest(), trained.handle.synchronizer
    in_the_middle, go_on, busy, found = threading.Event(), threading.Event(), [], []
    run, give_up, undo = sync.runner.run, sync.runner.give_up, sync.roster.undo

    def slow(unit, parts):
        busy.append(unit)
        in_the_middle.set()
        go_on.wait(timeout=20)
        run(unit, parts)
        busy.pop()

    def told(why):
        give_up(why)
        go_on.set()

    def look():
        found.append(list(busy))
        undo()

    sync.runner.run, sync.runner.give_up, sync.roster.undo = slow, told, look
    trained.breaks_off(rank, 3)
    assert in_the_middle.wait(timeout=20)
    trained.handle.close()
    return found, trained.digest() == before


def test_close_takes_a_step_back_when_the_worker_is_out_of_it(cluster):
    assert cluster.run(closed_beside_the_worker, 1) == [([[]], True)]


def begun_after_close(group, rank, size):
    """The first bucket was queued, and the worker comes to it when all is closed."""
    trained = Trained(group)
    trained.backward(rank, 0)
    sync, before = trained.handle.synchronizer, trained.digest()
    sync.closed = True
    with pytest.raises(tw.ClosedError):
        sync.average_all({"w": torch.ones(2000)})
    step = BackwardPass(sync)
    step.add({"0.weight": torch.ones(64, 20)})
    with pytest.raises(tw.ClosedError):
        step.finish()
    return trained.digest() == before


def test_nothing_is_sent_of_a_step_that_begins_after_close(cluster):
    assert cluster.run(begun_after_close, 2) == [True] * 2


def scale_changes_after_a_broken_step(group, rank, size):
    """What waited before the step, and what waits then."""
    sync = tw.Synchronizer(RECIPE, group)
    sync.follow_scale(4.0)
    sync.average("w", torch.randn(40, 30))
    before = sync.state_dict()["tensors"]["w"]["feedback/residual"]
    BackwardPass(sync).add({"w": torch.randn(40, 30)})
    sync.follow_scale(8.0)
    BackwardPass(sync)
    state = sync.state_dict()
    return before, state["tensors"]["w"]["feedback/residual"], state["scale"]


def test_what_waits_follows_the_scale_also_after_a_broken_step(cluster):
    ((before, after, scale),) = cluster.run(scale_changes_after_a_broken_step, 1)
    assert torch.equal(after, 2 * before) and scale == 8.0


def scaled(group, rank, size, before, after):
    """Three steps, with a loss scale and without one, saved and gone on from in the other way."""

    def start(scale):
        model = nn.Linear(20, 64)
        nn.init.constant_(model.weight, 0.25)
        nn.init.zeros_(model.bias)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return model, tw.wrap(optimizer, model, RECIPE, grad_scaler=scaler), scale or 1.0

    def step(model, handle, scale, number):
        draw = torch.Generator().manual_seed(10 * number + rank)
        model.zero_grad()
        (model(torch.randn(4, 20, generator=draw)).square().mean() * scale).backward()
        handle.average()
        return model.weight.grad / scale

    trained, never_saved = start(before), start(None)
    for number in range(3):
        step(*trained, number)
        step(*never_saved, number)
    later = start(after)
    later[1].load_state_dict(trained[1].state_dict())
    same = [torch.equal(step(*later, n), step(*never_saved, n)) for n in range(3, 6)]
    for _, handle, _ in (trained, never_saved, later):
        handle.close()
    return same


@pytest.mark.parametrize(
    ("before", "after"), [(1024.0, None), (None, 1024.0), (1024.0, 256.0), (None, None)]
)
def test_a_run_goes_on_with_another_loss_scale_or_none(cluster, before, after):
    """Scales are powers of two, so that all is the same to the last bit."""
    assert cluster.run(scaled, 2, before, after) == [[True] * 3] * 2
