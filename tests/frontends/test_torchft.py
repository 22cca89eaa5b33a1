"""torchft: a replica that dies, heals and goes on; examples/with_torchft.py, run and looked at."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist

import thinwire as tw
from support.cluster import HOST
from support.contracts.cases import state_digest
from support.extras import needs

EXAMPLE = Path(__file__).parents[2] / "examples" / "with_torchft.py"
RECIPE = tw.recipe("topk", density=0.1, bypass=0)


class Quorum:
    """In place of torchft's Manager: one that has decided already."""

    commits, error = True, None

    def register_state_dict_fn(self, key, load, save):
        self.load, self.save = load, save

    def wait_quorum(self):
        pass

    def errored(self):
        return self.error

    def report_error(self, error):
        self.error = error

    def should_commit(self):
        error, self.error = self.error, None
        return self.commits and error is None


def backward(model, rank, step, factor=1.0):
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(10 * step + rank))
    (model(x).square().mean() * factor).backward()


def accumulates_and_clips(group, rank, size):
    """Beside `tw.wrap`: the same weights; a step that is not committed, and NaN, leave no trace."""
    from thinwire.frontends.torchft import Group, Replicas

    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = torch.tensor([store.port if store else 0])
    dist.broadcast(port, 0)
    place, quorum = Group(), Quorum()
    replicas = Replicas(quorum, place, RECIPE)
    place.place = (f"{HOST}:{int(port)}/quorum", rank, size)
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        ours, theirs = torch.nn.Linear(20, 8), torch.nn.Linear(20, 8)
    theirs.load_state_dict(ours.state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (ours, theirs)]
    handle = tw.wrap(optimizers[1], theirs, RECIPE)
    for step in range(3):
        for model, average in ((ours, lambda: replicas.average(ours)), (theirs, handle.average)):
            model.zero_grad()
            for turn in range(2):
                backward(model, rank, 2 * step + turn)
            average()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert replicas.should_commit()
        for optimizer in optimizers:
            optimizer.step()
    same = torch.equal(ours.weight, theirs.weight)
    before, quorum.commits = state_digest(replicas.synchronizer), False
    backward(ours, rank, 9)
    replicas.average(ours)
    assert not replicas.should_commit()
    dropped = state_digest(replicas.synchronizer) == before
    with pytest.raises(tw.NonFiniteError, match="rank 1"):
        backward(ours, rank, 9, factor=torch.nan if rank == 1 else 1.0)
        replicas.average(ours)
    handle.close()
    replicas.close()
    dist.barrier()  # the store is rank 0's
    return same, dropped


def address(rank):
    """Where the replicas meet, and what keeps it there."""
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = torch.tensor([store.port if store else 0])
    dist.broadcast(port, 0)
    return f"{HOST}:{int(port)}", store


def model_of(rank):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        return torch.nn.Linear(20, 8)


def quorum_breaks_off(group, rank, size, how):
    """In the second quorum: what was committed before stays, and is not sent again."""
    from thinwire.frontends.torchft import Group, Replicas

    (at, _store), place, quorum = address(rank), Group(timedelta(seconds=3)), Quorum()
    replicas, model = Replicas(quorum, place, RECIPE), model_of(rank)
    place.place = (f"{at}/one", rank, size)
    for step in range(2):
        model.zero_grad()
        backward(model, rank, step)
        replicas.average(model)
        assert replicas.should_commit()
    committed, outcomes = state_digest(replicas.synchronizer), []
    gone = {"no store": f"{HOST}:1/two", "nobody comes": f"{at}/two-{rank}"}
    place.place = (gone[how], rank, size)
    for _ in range(2):  # the same quorum does not get better
        replicas.average(model)
        said = type(quorum.error).__name__
        commits = replicas.should_commit()
        outcomes.append((said, commits, state_digest(replicas.synchronizer) == committed))
    dist.barrier()
    place.place = (f"{at}/three", rank, size)
    replicas.average(model)
    went_on = replicas.should_commit()
    replicas.close()
    dist.barrier()  # the store is rank 0's
    return outcomes, went_on


def after_the_first_quorum(group, rank, size):
    """Replicas of a group that was configured before, and gradients of rows."""
    from thinwire.frontends.torchft import Group, Replicas

    (at, _store), place, quorum = address(rank), Group(), Quorum()
    place.place = (f"{at}/late", rank, size)
    replicas = Replicas(quorum, place, RECIPE)
    embedding = torch.nn.Embedding(30, 4, sparse=True)
    embedding(torch.tensor([rank, 7])).sum().backward()
    replicas.average(embedding)
    with pytest.raises(tw.RecipeError, match="should_commit"):
        replicas.average(embedding)
    replicas.should_commit()
    replicas.close()
    dist.barrier()  # the store is rank 0's
    return embedding.weight.grad.to_dense()


def heals(group, rank, size):
    """Rank 1 is lost, and comes back with what rank 0 ships: two replicas, one, and two again."""
    from thinwire.frontends.torchft import Group, Replicas

    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = torch.tensor([store.port if store else 0])
    dist.broadcast(port, 0)

    def start():
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            model = torch.nn.Linear(20, 8)
        place, quorum = Group(), Quorum()
        return model, place, quorum, Replicas(quorum, place, RECIPE)

    def train(model, replicas, steps):
        for step in steps:
            model.zero_grad()
            backward(model, rank, step)
            replicas.average(model)
            assert replicas.should_commit()
            torch.optim.SGD(model.parameters(), 0.1).step()

    model, place, quorum, replicas = start()
    place.place = (f"{HOST}:{int(port)}/two", rank, 2)
    train(model, replicas, range(2))
    if rank == 1:  # lost, with all that waited there
        replicas.close()
        model, place, quorum, replicas = start()
    else:
        place.place = (f"{HOST}:{int(port)}/one", 0, 1)
        train(model, replicas, range(2, 4))
    waited = residual_of(replicas)
    ships = [(model.state_dict(), quorum.save()) if rank == 0 else None]
    dist.broadcast_object_list(ships)
    if rank == 1:
        model.load_state_dict(ships[0][0])
        quorum.load(ships[0][1])
    place.place = (f"{HOST}:{int(port)}/again", rank, 2)
    kept = residual_of(replicas) == waited
    train(model, replicas, range(4, 6))
    weights, steps = model.weight.detach().clone(), replicas.synchronizer.state_dict()["tensors"]
    replicas.close()
    dist.barrier()  # the store is rank 0's
    return weights, waited, kept, {int(one["step"]) for one in steps.values()}


def residual_of(replicas):
    tensors = replicas.synchronizer.state_dict()["tensors"].values()
    return sum(float(one["feedback/residual"].abs().sum()) for one in tensors if len(one) > 1)


@needs("torchft")
def test_one_goes_on_alone_and_with_one_that_heals(frameworks):
    (mine, waited, kept, steps), (theirs, nothing, _, others) = frameworks.run(heals, 2)
    assert torch.equal(mine, theirs) and steps == others == {6}
    assert waited and kept and not nothing


@needs("torchft")
def test_it_accumulates_and_clips_as_any_loop_and_drops_what_is_not_committed(frameworks):
    assert frameworks.run(accumulates_and_clips, 2) == [(True, True)] * 2


@needs("torchft")
@pytest.mark.parametrize("how", ["no store", "nobody comes"])
def test_what_was_committed_is_not_taken_back_where_the_next_quorum_breaks_off(frameworks, how):
    once = ("ExchangeError", False, True)
    assert frameworks.run(quorum_breaks_off, 2, how) == [([once, once], True)] * 2


@needs("torchft")
def test_who_comes_late_to_a_quorum_averages_with_it_and_rows_too(frameworks):
    mine, theirs = frameworks.run(after_the_first_quorum, 2)
    expected = torch.zeros(30, 4)
    expected[[0, 1]], expected[7] = 0.5, 1.0
    assert torch.equal(mine, expected) and torch.equal(mine, theirs)


@needs("torchft")
@pytest.mark.skipif(
    "THINWIRE_SLOW" not in os.environ,
    reason="quorums wait for heartbeats, which a busy machine loses; THINWIRE_SLOW=1 runs it",
)
def test_a_replica_dies_in_a_step_and_heals_and_both_end_with_the_same_weights():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert "replica 1 died with status 1, and is started again" in done.stdout
    ends = dict(re.findall(r"replica (\d): at the end with the other, weights (\S+)", done.stdout))
    assert set(ends) == {"0", "1"} and ends["0"] == ends["1"], done.stderr
    assert "should_commit=false" in done.stdout + done.stderr  # the step that it died in
