"""A file a rank: what cannot be read on one rank is refused on all, and nothing of it is loaded.

Covers frontends/dcp.py.
"""

from datetime import timedelta
from pathlib import Path

import pytest
import torch

import thinwire as tw
from support.contracts.cases import state_digest
from thinwire.frontends import dcp, rank_files

RECIPE = tw.recipe("topk", density=0.1, bypass=0)


def two_models(group):
    """After a step each, so that something waits."""
    handles = []
    for seed in range(2):
        model = torch.nn.Linear(50, 30)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        handles.append(tw.wrap(optimizer, model, RECIPE, seed=seed, timeout=timedelta(seconds=30)))
        model(torch.randn(4, 50)).square().mean().backward()
        optimizer.step()
    return handles


def save(group, rank, size, folder):
    rank_files.save(folder, two_models(group))


def load(group, rank, size, folder):
    """What was said, and whether each model's state is that before."""
    handles = two_models(group)
    before = [state_digest(handle.synchronizer) for handle in handles]
    with pytest.raises(tw.ThinwireError) as caught:
        rank_files.load(folder, handles)
    kept = [state_digest(h.synchronizer) == b for h, b in zip(handles, before, strict=True)]
    handles[0].average()  # the group was not given up
    return f"{type(caught.value).__name__}: {caught.value}", kept


def wrapped(node_size):
    model = torch.nn.Linear(50, 30)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return model, tw.wrap(optimizer, model, RECIPE, node_size=node_size)


def mass(handle, rank, node_size):
    """What is to be sent: the first rank of a node alone sends what waits."""
    kept = handle.state_dict()["tensors"].values()
    waits = sum(float(own["feedback/residual"].sum()) for own in kept if len(own) > 1)
    return waits if rank % node_size == 0 else 0.0


def at_another_size_of_nodes(group, rank, size, folder, before, after):
    model, handle = wrapped(before)
    model(torch.randn(4, 50)).square().mean().backward()
    handle.average()
    rank_files.save(folder, [handle])
    _, later = wrapped(after)  # all have saved
    rank_files.load(folder, [later])
    return mass(handle, rank, before), mass(later, rank, after)


def order_of_calls(group, rank, size, folder, how):
    """Which comes first as a state is loaded: the worker's last word, or one to the other ranks."""
    handles, calls = two_models(group), []
    for handle in handles:
        worker, comm = handle.synchronizer.runner.worker, handle.synchronizer.comm
        worker.drain = noted(calls, "drained", worker.drain)
        comm.all_gather_meta = noted(calls, "asked", comm.all_gather_meta)
    if how == "dcp":
        torch.distributed.checkpoint.save(dcp.entry(handles[0]), checkpoint_id=folder)
        calls.clear()
        dcp.load(handles[0], folder)
    else:
        rank_files.save(folder, handles)
        calls.clear()
        rank_files.load(folder, handles)
    return calls[: calls.index("asked")]


def noted(calls, what, function):
    def note(*arguments):
        calls.append(what)
        return function(*arguments)

    return note


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def of_one_model(file: Path) -> None:
    torch.save(torch.load(file)[:1], file)


def of_something_else(file: Path) -> None:
    torch.save({"weight": torch.ones(3)}, file)


def altered_in_the_second_model(file: Path) -> None:
    states = torch.load(file)
    states[1]["tensors"]["weight"]["feedback/residual"][3] += 1
    torch.save(states, file)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (cut_off, "thinwire-1-of-2.pt"),
        (emptied, "thinwire-1-of-2.pt"),
        (of_one_model, "has the states of 1 models, here are 2"),
        (of_something_else, "thinwire-1-of-2.pt"),
        (altered_in_the_second_model, "altered since it was saved"),
        (Path.unlink, "ranks disagree on the saved"),
    ],
)
def test_a_file_that_one_rank_refuses_is_refused_by_all(cluster, tmp_path, happens, said):
    cluster.run(save, 2, str(tmp_path))
    happens(tmp_path / "thinwire-1-of-2.pt")
    for told, kept in cluster.run(load, 2, str(tmp_path)):
        assert told.startswith("DisagreementError") and said in told
        assert kept == [True, True]


@pytest.mark.parametrize(("how", "models"), [("rank files", 2), ("dcp", 1)])
def test_no_rank_is_asked_while_a_step_is_under_way(cluster, tmp_path, how, models):
    for before in cluster.run(order_of_calls, 2, str(tmp_path), how):
        assert before == ["drained"] * models


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 2)])
def test_at_another_size_of_nodes_the_sum_of_what_waits_is_kept(cluster, tmp_path, before, after):
    waits = cluster.run(at_another_size_of_nodes, 4, str(tmp_path), before, after)
    there, here = (sum(each) for each in zip(*waits, strict=True))
    assert there and here == pytest.approx(there)
