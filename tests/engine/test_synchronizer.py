"""The Synchronizer: many tensors over many steps, by name.

Covers engine/backward.py, engine/roster.py, engine/step.py.
"""

import gc
import io
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import thinwire as tw
from support.counting import counted
from thinwire.comm import GroupCommunicator

TIMEOUT = timedelta(seconds=15)
RECIPE = tw.recipe("topk", density=0.25, bypass=0)


def open_sync(recipe, group=None, **settings):
    return tw.Synchronizer(recipe, group, timeout=TIMEOUT, **settings)


def pieces(state, name, key="residual"):
    return state["tensors"][name][f"feedback/{key}"]


# What the ranks do.


def mean_of_ranks(group, rank, size, recipe, shape):
    sync = open_sync(recipe, group)
    grad = torch.full(shape, float(rank))
    mean = sync.average("w", grad)
    return mean.tolist(), mean is grad, mean.data_ptr() == grad.data_ptr()


def top_one_of_each(group, rank, size):
    """Each rank's largest element is its own index; all others wait."""
    sync = open_sync(tw.recipe("topk", density=0.25, bypass=0), group)
    grad = torch.tensor([1.0, 1.0, 1.0, 1.0])
    grad[rank] = 8.0
    update = sync.average("w", grad).tolist()
    return update, pieces(sync.state_dict(), "w").tolist()


def many_tensors(group, rank, size, unit):
    """More tensors than the worker can have in flight, of mixed dtypes and sizes."""
    sync = open_sync(tw.recipe("topk", density=1.0, bypass=20, unit=unit), group)
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    grads = {f"w{i}": torch.full((i,), float(rank), dtype=dtypes[i % 3]) for i in range(40)}
    for _ in range(3):
        means = sync.average_all({name: grad.clone() for name, grad in grads.items()})
        assert list(means) == list(grads)
    return all(
        means[n].dtype == g.dtype and bool((means[n] == (size - 1) / 2).all())
        for n, g in grads.items()
    )


def on_a_subgroup(group, rank, size):
    """Odd and even ranks average among themselves; rank 0 belongs to one group more."""
    dist.new_group([0])
    members = [[r for r in range(size) if r % 2 == parity] for parity in (0, 1)]
    groups = [dist.new_group(m) for m in members]
    sync = open_sync("dense", groups[rank % 2])
    return sync.average("w", torch.tensor([float(rank)])).item(), sync.state_dict()["rank"]


def one_after_the_other(group, rank, size, times):
    """Synchronizers opened and closed in turn, as in a notebook."""
    means = []
    for turn in range(times):
        sync = open_sync("dense", group)
        means.append(sync.average("w", torch.tensor([float(rank + turn)])).item())
        dist.barrier(group)
        sync.close()
    return means


def side_by_side(group, rank, size):
    """Two at once do not hear each other."""
    one, two = open_sync("dense", group), open_sync("topk(1.0)", group, seed=1)
    a = one.average("w", torch.tensor([float(rank)])).item()
    b = two.average("w", torch.tensor([10.0 * rank])).item()
    return a, b


def coo_gradients(group, rank, size, dtype, rows, picks):
    """Embedding gradients: `picks[rank]` are the rows looked up, with repetition."""
    sync = open_sync("topk(0.01)", group)
    indices = torch.tensor(picks[rank], dtype=torch.int64)
    values = torch.full((len(indices), 3), float(rank + 1), dtype=dtype)
    grad = torch.sparse_coo_tensor(indices[None], values, (rows, 3), check_invariants=False)
    dense = torch.ones(5) * rank
    means = sync.average_all({"embedding": grad, "bias": dense})
    mean = means["embedding"]
    return mean.is_sparse, mean.dtype, mean.to_dense().tolist(), means["bias"].tolist()


def messages_of_a_step(group, rank, size, recipe, tensors):
    """How many messages and sums one step hands to the backend, at most in some steps.

    At most: what Ok-Topk evaluates and balances depends on the step and on what was drawn.
    """
    sync, draw = open_sync(recipe, group), torch.Generator().manual_seed(rank)
    most = 0
    for step in range(8):
        with counted() as counts:
            grads = {f"w{i}": torch.randn(1200, generator=draw) for i in range(tensors)}
            sync.average_all(grads)
        most = max(most, counts.gloo.total() if step else 0)
    return most


def unused_in_a_step(group, rank, size):
    """A tensor that no rank brings keeps what waits."""
    sync = open_sync(tw.recipe("topk", density=0.5, bypass=0, unit="model"), group)
    a, b = torch.tensor([4.0, 1.0]), torch.tensor([3.0, 2.0])
    sync.average_all({"a": a.clone(), "b": b.clone()})
    before = sync.state_dict()
    sync.average_all({"a": a.clone()})
    during = sync.state_dict()
    sync.average_all({"a": torch.zeros(2), "b": torch.zeros(2)})
    return (
        pieces(before, "b").tolist(),
        pieces(during, "b").tolist(),
        [pieces(before, "a").tolist(), pieces(during, "a").tolist()],
    )


# The tests.


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize(
    "recipe",
    [
        tw.Pipeline(),
        "topk(1.0)",
        "topk(0.5) | raw | allgather | residual",
        {"recipe": "dense"},
        '{"recipe": "dense", "unit": "model"}',
    ],
    ids=["pipeline", "call", "pieces", "dict", "json"],
)
def test_any_way_to_write_a_recipe(cluster, recipe, size):
    """Twelve elements bypass compression, so the mean is exact."""
    for mean, same, in_place in cluster.run(mean_of_ranks, size, recipe, (3, 4)):
        assert mean == [[(size - 1) / 2] * 4] * 3
        assert same
        assert in_place


def test_what_is_sent_is_averaged_and_what_is_not_waits(cluster):
    for rank, (update, residual) in enumerate(cluster.run(top_one_of_each, 4)):
        assert update == [2, 2, 2, 2]
        assert residual == [0 if i == rank else 1 for i in range(4)]


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_many_tensors_of_many_kinds(cluster, unit):
    assert all(cluster.run(many_tensors, 3, unit))


def test_a_subgroup_of_ranks(cluster):
    results = cluster.run(on_a_subgroup, 5)
    assert results == [(2.0, 0), (2.0, 0), (2.0, 1), (2.0, 1), (2.0, 2)]


@pytest.mark.parametrize("recipe", ["topk", "dgc", "dragonn", "ok-topk", "int8", "dense"])
def test_many_small_tensors_take_no_more_messages_than_a_few(cluster, recipe):
    """2,000 tensors, selected from one by one, took 7.9 s a step when each was an exchange."""
    few, many = (cluster.run(messages_of_a_step, 3, recipe, tensors) for tensors in (4, 200))
    assert few == many
    assert min(few) > 0


def test_one_after_the_other(cluster):
    assert cluster.run(one_after_the_other, 3, 4) == [[1.0, 2.0, 3.0, 4.0]] * 3


def test_two_side_by_side(cluster):
    assert cluster.run(side_by_side, 3) == [(1.0, 10.0)] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_embedding_gradients_come_back_as_coo_without_loss(cluster, dtype):
    picks = [[0, 2, 2], [], [2, 4]]
    expected = [[0.0] * 3 for _ in range(5)]
    for rank, rows in enumerate(picks):
        for row in rows:
            expected[row] = [v + rank + 1 for v in expected[row]]
    mean = (torch.tensor(expected) / 3).to(dtype)
    for sparse, found, values, bias in cluster.run(coo_gradients, 3, dtype, 5, picks):
        assert sparse
        assert found == dtype
        torch.testing.assert_close(torch.tensor(values, dtype=dtype), mean)
        assert bias == [1.0] * 5


def test_embedding_gradients_that_nobody_has(cluster):
    for _, _, values, _ in cluster.run(coo_gradients, 2, torch.float32, 4, [[], []]):
        assert values == [[0.0] * 3] * 4


def test_a_tensor_unused_everywhere_keeps_its_residual(cluster):
    for before, during, residuals_of_a in cluster.run(unused_in_a_step, 2):
        assert before == during == [0.0, 2.0]
        assert residuals_of_a == [[0.0, 1.0], [0.0, 2.0]]


def test_no_gradients_at_all():
    assert open_sync("topk").average_all({}) == {}


def test_what_stats_say():
    sync = open_sync(tw.recipe("topk", density=0.1, bypass=10))
    for _ in range(3):
        sync.average_all({"large": torch.randn(50), "small": torch.randn(10)})
    stats = sync.stats()
    assert set(stats["tensors"]) == {"large", "small"}
    large, small, total = stats["tensors"]["large"], stats["tensors"]["small"], stats["total"]
    assert (large["steps"], large["numel"], large["k"], large["density"]) == (3, 50, 5, 0.1)
    assert (small["steps"], small["numel"], small["k"], small["density"]) == (3, 10, 10, 1.0)
    assert (total["steps"], total["numel"], total["k"], total["density"]) == (3, 60, 15, 0.25)
    assert total["bytes_sent"] == total["bytes_received"] == total["dense_bytes"] == 0  # P = 1
    assert {"feedback", "select", "encode", "exchange", "decode"} == set(large["seconds"])
    assert set(large["first_steps"]["seconds"]) == set(large["seconds"])
    assert total["first_steps"]["steps"] >= 2  # compiling and allocating


def test_what_a_state_dict_holds():
    sync = open_sync(tw.recipe("dgc", density=0.1, bypass=5), seed=3)
    sync.average_all({"large": torch.randn(50), "small": torch.randn(5)})
    state = sync.state_dict()
    assert (state["version"], state["seed"], state["world"], state["rank"]) == (2, 3, 1, 0)
    assert "Momentum" in state["recipe"]
    assert set(state["tensors"]) == {"large", "small"}
    assert pieces(state, "large").shape == pieces(state, "large", "velocity").shape == (50,)
    assert state["tensors"]["large"]["step"].item() == 1
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    torch.load(file, weights_only=True)  # numbers, strings and tensors only


def test_a_state_dict_is_a_copy():
    sync = open_sync(tw.recipe("topk", density=0.1, bypass=0))
    sync.average("w", torch.arange(20.0))
    first = sync.state_dict()
    kept = pieces(first, "w").clone()
    sync.average("w", torch.arange(20.0))
    assert torch.equal(pieces(first, "w"), kept)
    pieces(sync.state_dict(), "w").fill_(torch.nan)
    assert not pieces(sync.state_dict(), "w").isnan().any()


def test_state_follows_the_name_into_another_unit():
    """DDP rebuilds its buckets after the first step."""
    recipe = tw.recipe("topk", density=0.5, bypass=0, unit="model")
    sync = open_sync(recipe)
    sync.average_all({"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([3.0, 2.0])})
    sync.average_all({"b": torch.tensor([0.0, 0.0]), "a": torch.tensor([0.0, 0.5])})
    state = sync.state_dict()
    assert pieces(state, "a").tolist() == [0.0, 0.0]
    assert pieces(state, "b").tolist() == [0.0, 0.0]
    assert state["tensors"]["a"]["step"].item() == 2


def test_a_state_that_was_not_used_yet_is_saved_again():
    """Loading and saving without a step in between loses nothing."""
    recipe = tw.recipe("dgc", density=0.1, bypass=0)
    sync = open_sync(recipe)
    sync.average("w", torch.randn(30))
    saved = sync.state_dict()
    fresh = open_sync(recipe)
    fresh.load_state_dict(saved)
    again = fresh.state_dict()
    assert again["tensors"]["w"].keys() == saved["tensors"]["w"].keys()
    for key, value in saved["tensors"]["w"].items():
        assert torch.equal(again["tensors"]["w"][key], value)


@pytest.mark.parametrize(("size", "dtype"), [(31, torch.float32), (30, torch.float64)])
def test_refuses_a_state_of_another_tensor(size, dtype):
    recipe = tw.recipe("topk", density=0.1, bypass=0)
    sync, other = open_sync(recipe), open_sync(recipe)
    sync.average("w", torch.randn(30))
    other.load_state_dict(sync.state_dict())
    with pytest.raises(tw.StateError, match=rf"saved as \['float32', \[30\]\] and .*{size}"):
        other.average("w", torch.randn(size, dtype=dtype))
    assert torch.equal(pieces(other.state_dict(), "w"), pieces(sync.state_dict(), "w"))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_refuses_what_is_no_gradient(dtype):
    with pytest.raises(tw.ThinwireError, match=str(dtype)):
        open_sync(tw.recipe("topk", bypass=0)).average("w", torch.ones(30, dtype=dtype))


def parameters_themselves(group, rank, size, recipe):
    """Several, so that the worker writes some of them, outside of the caller's no_grad()."""
    sync = open_sync(recipe, group)
    given = {f"w{i}": torch.full((2000,), float(rank), requires_grad=True) for i in range(3)}
    means = sync.average_all(given)
    assert all(means[name] is given[name] for name in given)
    return {mean.unique().item() for mean in means.values()}


@pytest.mark.parametrize("recipe", ["dense", "topk(1.0)", "bf16"])
def test_parameters_may_be_averaged_though_they_require_gradients(cluster, recipe):
    assert cluster.run(parameters_themselves, 2, recipe) == [{0.5}] * 2


def test_close_twice():
    sync = open_sync("topk")
    sync.close()
    sync.close()


def closes_early(group, rank, size):
    """What a closed one says, and that closing goes well whatever was ended before it."""
    sync = open_sync(RECIPE, group)
    grad = torch.arange(40.0)
    sync.average("w", grad.clone())
    saved = sync.state_dict()
    sync.close()
    with pytest.raises(tw.ThinwireError, match="was closed"):
        sync.average("w", grad.clone())
    assert torch.equal(pieces(sync.state_dict(), "w"), pieces(saved, "w"))
    other = open_sync(RECIPE, group)
    dist.destroy_process_group()
    other.close()


def test_closed_is_closed(cluster):
    cluster.run(closes_early, 2)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def dropped(group, rank, size):
    """Threads and descriptors of synchronizers that nobody closed, nor holds any longer."""
    before = threading.active_count(), open_files()
    for _ in range(3):
        sync = open_sync("topk(1.0)", group)
        many = {f"w{i}": torch.ones(1500) for i in range(3)}  # so many that the worker is needed
        sync.average_all(many)
    del sync
    gc.collect()
    deadline = time.monotonic() + 10
    while (threading.active_count(), open_files()) > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the threads end by themselves
    return before, (threading.active_count(), open_files())


def test_what_is_dropped_leaves_nothing_behind(cluster):
    for before, after in cluster.run(dropped, 2):
        assert after <= before


def out_of_step(group, rank, size):
    """One rank's step ends in an error that the others do not have."""
    sync = open_sync(RECIPE, group)
    grad = torch.arange(40.0) + rank
    sync.average("w", grad.clone())
    before = pieces(sync.state_dict(), "w")
    if rank == 1:
        saved = sync.state_dict()["tensors"]["w"] | {"feedback/residual": torch.ones(7)}
        sync.roster.restart({"w": saved}, {})
        with pytest.raises(tw.RecipeError, match="has 7 elements"):
            sync.average("w", grad.clone())
        before = pieces(sync.state_dict(), "w")
        assert before.numel() == 7
    else:
        with pytest.raises(tw.ExchangeError, match=r"AllGather of 'w', step 1: .* \(rank \d "):
            sync.average("w", grad.clone())
    with pytest.raises(tw.ExchangeError, match="given up"):
        sync.average("w", grad.clone())
    return torch.equal(pieces(sync.state_dict(), "w"), before)


def test_an_error_of_one_rank_ends_the_step_of_all_at_once(cluster):
    """The others need not wait for their timeout, and hear who it was."""
    assert cluster.run(out_of_step, 3) == [True] * 3


def watched(group, rank, size):
    sync = tw.Synchronizer(tw.recipe("ok-topk", density=0.05, bypass=0, monitor_xi=2), group)
    seen = []
    for step in range(4):
        grad = torch.randn(2000, generator=torch.Generator().manual_seed(10 * step + rank))
        sync.average("w", grad)
        seen.append(sync.stats()["tensors"]["w"]["xi"])
    return seen


def test_xi_is_measured_when_asked_and_the_same_everywhere(cluster):
    first, *others = cluster.run(watched, 3)
    assert all(other == first for other in others)
    assert first[0] == first[1] != first[2] == first[3]
    assert all(0 < xi < 3 for xi in first)  # below P it does no harm: Ok-Topk, section 5.1


def share_a_communicator(group, rank, size):
    comm = GroupCommunicator(group)
    first, second = (tw.Synchronizer(recipe, comm=comm) for recipe in ("dense", "topk(1.0)"))
    mine = torch.full((3000,), float(rank))
    means = [sync.average("w", mine.clone())[0].item() for sync in (first, second, first)]
    first.close()
    means.append(second.average("w", mine)[0].item())
    second.close()
    comm.close()
    return means


def test_several_may_share_a_communicator(cluster):
    for means in cluster.run(share_a_communicator, 2):
        assert means == [0.5] * 4


def test_a_shared_communicator_brings_its_own_group_and_timeout():
    with pytest.raises(tw.RecipeError, match="comm= brings its own"):
        tw.Synchronizer("dense", comm=GroupCommunicator(), timeout=timedelta(seconds=3))


def test_stats_go_on_after_a_load():
    sync = tw.Synchronizer(RECIPE)
    rows = torch.sparse_coo_tensor([[1, 3]], torch.ones(2, 5), (9, 5), check_invariants=True)
    for step in range(4):
        sync.average_all({"w": torch.arange(40.0), "e": rows})
        if step == 1:
            sync.load_state_dict(sync.state_dict())
    stats = sync.stats()
    assert stats["total"]["steps"] == 4
    assert [stats["tensors"][name]["steps"] for name in "we"] == [4, 4]
    assert [stats["tensors"][name]["k"] for name in "we"] == [10, 10]


@pytest.mark.parametrize("feedback", ["residual", "momentum"])
@pytest.mark.parametrize("unit", ["tensor", "model"])
def test_what_waits_of_a_tensor_that_sits_steps_out_follows_the_loss_scale(feedback, unit):
    recipe = tw.recipe(f"topk(0.1) | raw | allgather | {feedback}")
    sync = tw.Synchronizer(tw.recipe(recipe, unit=unit, bypass=0))
    sync.follow_scale(4.0)
    sync.average_all({"a": torch.arange(40.0), "b": torch.arange(40.0)})
    sync.average_all({"a": torch.arange(40.0)})
    saved = sync.state_dict()
    waits = {name: pieces(saved, name).clone() for name in "ab"}
    assert all(map(torch.any, waits.values()))
    sync.follow_scale(8.0)
    for name, before in waits.items():
        assert torch.equal(pieces(sync.state_dict(), name), 2 * before)
        assert torch.equal(pieces(saved, name), before)  # whoever has it keeps it as it was
    sync.load_state_dict(saved)
    sync.follow_scale(1.0)  # before the first step that makes units of them
    for name, before in waits.items():
        assert torch.equal(pieces(sync.state_dict(), name), before / 4)


def breaks_off(group, rank, size):
    """Without a copy a step that broke off leaves nothing to go on from but a checkpoint."""
    sync = tw.Synchronizer("topk(0.1)", group, undo=False)
    sync.average("a", torch.ones(2000))
    said = []
    sync.runner._begin = failing(sync.runner._begin)  # after the state was touched
    for attempt in (
        lambda: sync.average("a", torch.ones(2000)),
        lambda: sync.average("a", torch.ones(2000)),
        sync.state_dict,
    ):
        try:
            attempt()
            said.append("")
        except (RuntimeError, tw.ThinwireError) as error:
            said.append(f"{type(error).__name__}: {error}")
    sync.close()
    return said


def failing(begin):
    def begin_and_fail(unit, grads):
        begin(unit, grads)
        raise RuntimeError("in the middle")

    return begin_and_fail


def test_without_a_copy_a_broken_step_is_told_and_not_gone_on_from(cluster):
    for said in cluster.run(breaks_off, 2):
        assert "in the middle" in said[0]
        assert said[1].startswith("StateError") and "load the last checkpoint" in said[1]
        assert said[2].startswith("StateError")
