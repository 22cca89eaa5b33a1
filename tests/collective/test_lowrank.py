"""Low rank by one power iteration: what it finds, what it keeps, and what it sends."""

from dataclasses import replace

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

import thinwire as tw
from support.collective.laws import Threads
from support.contracts import ranks
from support.contracts.cases import Case, Layer
from support.contracts.laws import check
from thinwire.bench.peers import Bucket
from thinwire.collective import LowRank
from thinwire.collective._factoring import factoring
from thinwire.comm import GroupCommunicator
from thinwire.cost.wire_size import alone
from thinwire.errors import RecipeError
from thinwire.feedback import Ef21, NoFeedback
from thinwire.types import ExchangeContext, Products, StepContext, TensorSpec

SHAPES = ((40, 60), (40,), (40, 60), (5, 7), (30, 4, 5))
LAYERS = tuple(Layer(shape) for shape in SHAPES)


def of_rank(shape, rank, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape[0], rank, generator=draw) @ torch.randn(rank, shape[1], generator=draw)


def context(comm, memory, step=0, shapes=SHAPES, **more):
    return ExchangeContext("w", step, 0, comm, shapes=shapes, memory=memory, **more)


def flat(seed):
    numel = sum(torch.Size(shape).numel() for shape in SHAPES)
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(
    "settings",
    [{"rank": 1}, {"rank": 4}, {"rank": 2, "dtype": "bf16"}, {"rank": 0.1}],
)
def test_nothing_is_lost_and_replicas_agree(cluster, settings, size):
    contents = ("normal", "heavy", "tied", "zeros", "one rank only")
    layers = [replace(one, content=c) for one, c in zip(LAYERS, contents, strict=True)]
    layers += [Layer((40, 30), "bfloat16", "transposed"), Layer((50, 40), "float64", "strided")]
    check(
        cluster.run(
            ranks.train, size, Case("powersgd", tuple(layers), settings=settings | {"start": 0})
        )
    )


def exchanged(comm, collective, steps, memory=None, settled=True):
    """Each step's total, this rank's share and what it was of; residual feedback by hand."""
    memory, waits, seen = {} if memory is None else memory, torch.zeros_like(flat(0)), []
    for step in range(steps):
        waits += flat(10 * step + comm.rank)
        before = waits.clone()
        ctx = context(comm, memory, step, gradients=comm.size)
        reduced = collective.exchange(waits, None, ctx)
        assert isinstance(reduced.delivered, Products)
        share = reduced.delivered.add_to(torch.zeros_like(waits))
        reduced.delivered.add_to(waits, alpha=-1)
        seen.append((before, reduced.total, share, waits.clone()))
    return seen


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("size", [1, 3])
def test_shares_add_up_to_the_total_and_leave_nothing_of_themselves(size, dtype):
    by_rank = Threads(size).run(exchanged, LowRank(3, dtype), 3)
    for step in zip(*by_rank, strict=True):
        _, means, shares, _ = zip(*step, strict=True)
        assert all(torch.equal(mean, means[0]) for mean in means)
        within = 1e-5 if dtype == "fp32" else 0.05 * size
        torch.testing.assert_close(size * means[0], sum(shares), rtol=0, atol=within)


def test_the_total_is_a_projection_of_the_sum():
    """P̂·P̂ᵀ·Σ M: of the given rank, nothing of it left, and vectors whole."""
    for before, mean, _, waits in exchanged(alone(), LowRank(3), 2):
        for number, (x, u, left) in enumerate(
            zip(*(t.split([2400, 40, 2400, 35, 600]) for t in (before, mean, waits)), strict=True)
        ):
            if number in (1, 3):  # a vector, and a matrix too small
                assert torch.equal(u, x) and not left.any()
                continue
            rows = SHAPES[number][0]
            u, left = u.view(rows, -1), left.view(rows, -1)
            assert torch.linalg.matrix_rank(u, rtol=1e-4) == 3
            assert (u.T @ left).abs().max() < 1e-3  # what is left is orthogonal to what went


def test_power_iterations_find_the_best_approximation():
    """The same matrix again and again: the error falls to that of the singular vectors."""
    draw = torch.Generator().manual_seed(1)
    matrix = of_rank((60, 50), 3) + 0.1 * torch.randn(60, 50, generator=draw)
    best = torch.linalg.svdvals(matrix)[3:].square().sum().sqrt()
    memory, errors = {}, []
    for step in range(6):
        ctx = context(alone(), memory, step, ((60, 50),))
        mean = LowRank(3).exchange(matrix.reshape(-1).clone(), None, ctx).total
        errors.append(float((matrix - mean.view(60, 50)).norm() / best))
    assert errors[-1] == pytest.approx(1, abs=1e-3)
    assert errors[0] > errors[-1]


def test_a_gradient_of_lower_rank_comes_whole():
    matrix = of_rank((60, 50), 2)
    ctx = context(alone(), {}, 0, ((60, 50),))
    mean = LowRank(4).exchange(matrix.reshape(-1).clone(), None, ctx).total
    torch.testing.assert_close(mean.view(60, 50), matrix, rtol=0, atol=1e-4)


@pytest.mark.parametrize("first", [torch.zeros(60, 50), of_rank((60, 50), 1)])
def test_what_was_zero_or_of_low_rank_once_is_no_obstacle_later(first):
    """A column of Q that nothing came of must not stay zero."""
    memory, later = {}, of_rank((60, 50), 3, seed=5)
    for step, matrix in enumerate((first, first, later)):
        ctx = context(alone(), memory, step, ((60, 50),))
        mean = LowRank(3).exchange(matrix.reshape(-1).clone(), None, ctx).total
        torch.testing.assert_close(mean.view(60, 50), matrix, rtol=0, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_the_scale_of_gradients_does_not_matter(scale):
    matrix, memory = of_rank((60, 50), 2), {}
    for step in range(3):
        ctx = context(alone(), memory, step, ((60, 50),))
        mean = LowRank(2).exchange(matrix.reshape(-1) * scale, None, ctx).total / scale
        torch.testing.assert_close(mean.view(60, 50), matrix, rtol=0, atol=1e-4)


def test_dense_until_the_start():
    for step, (before, mean, *_) in enumerate(steps_of(tw.recipe("powersgd", rank=2, start=2), 3)):
        assert torch.equal(mean, before) == (step < 2)


def test_dense_steps_teach_what_low_rank_begins_with():
    """As good as the power iterations that were made of them."""
    draw = torch.Generator().manual_seed(1)
    matrix = of_rank((60, 50), 3) + 0.3 * torch.randn(60, 50, generator=draw)
    best = torch.linalg.svdvals(matrix)[3:].square().sum().sqrt()

    def error(start):
        memory = {}
        for step in range(start + 1):
            ctx = context(alone(), memory, step, ((60, 50),))
            mean = LowRank(3, start=start).exchange(matrix.reshape(-1).clone(), None, ctx).total
        return float((matrix - mean.view(60, 50)).norm() / best)

    assert error(0) > error(1) > error(4)
    assert error(4) == pytest.approx(1, abs=1e-3)


def steps_of(pipeline, steps, state=None):
    spec = TensorSpec("w", flat(0).numel(), torch.float32, torch.device("cpu"), SHAPES)
    state = pipeline.init(spec) if state is None else state
    for step in range(steps):
        grad = flat(step)
        before = grad + state["feedback"].get("residual", 0)
        ctx = StepContext("w", step, 0, alone(), shapes=SHAPES)
        yield before, pipeline.step(grad, state, ctx), state


@pytest.mark.parametrize("feedback", [NoFeedback(), Ef21()])
def test_other_feedbacks(feedback):
    """The update may be written over what it is computed from; EF21's estimate is the update."""
    plain = tw.recipe("powersgd", rank=3, start=0, feedback=feedback)
    for _, update, state in steps_of(plain, 3):
        for key in ("estimate", "mean_estimate"):
            if key in state["feedback"]:
                torch.testing.assert_close(state["feedback"][key], update, rtol=0, atol=1e-5)
    first = next(steps_of(plain, 1))[1]
    assert torch.equal(first, next(steps_of(tw.recipe("powersgd", rank=3, start=0), 1))[1])


def test_without_feedback_it_loses_and_says_so():
    assert tw.recipe("powersgd").conserves
    assert not tw.recipe("powersgd", feedback="none").conserves


def beside_pytorch(group, rank, size, columns):
    """How far its hook's updates and ours are apart, both from the hook's state after a step."""
    hook = PowerSGDState(group, matrix_approximation_rank=columns)
    hook.iter = hook.start_powerSGD_iter
    ours, shape = tw.recipe("powersgd", rank=columns, start=0), (60, 80)
    spec = TensorSpec("w", 4800, torch.float32, torch.device("cpu"), (shape,))
    state, comm, apart = ours.init(spec), GroupCommunicator(group), []
    for step in range(6):
        theirs = (of_rank(shape, 5) + of_rank(shape, 60, seed=10 * step + rank)).reshape(-1)
        mine = theirs.clone()
        powerSGD_hook(hook, Bucket(theirs, [theirs.view(shape)])).wait()
        if step:
            ours.step(mine, state, StepContext("w", step, 0, comm, shapes=(shape,)))
            apart.append(float((mine - theirs).norm() / theirs.norm()))
        else:
            state["feedback"]["residual"].copy_(hook.error_dict[0])
            theirs_q = hook.q_memory_dict[0].view(80, columns)
            state["collective"]["factor/w.0"] = theirs_q.T.flatten().clone()
    return apart


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("size", [1, 3])
def test_updates_are_those_of_pytorch_s_hook(cluster, size, columns):
    """Whichever share of the error a rank keeps: only their sum counts."""
    for apart in cluster.run(beside_pytorch, size, columns):
        assert max(apart) < 1e-4


def sent(group, rank, size, dtype):
    comm = GroupCommunicator(group)
    exchanged(comm, LowRank(4, dtype), 1)
    return comm.traffic.sent


@pytest.mark.parametrize(("dtype", "width"), [("fp32", 4), ("bf16", 2)])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_two_rings_of_factors_and_small_tensors(cluster, size, dtype, width):
    """(n + m)·r for each matrix, and the others whole."""
    left, right = 4 * (40 + 40 + 30), 4 * (60 + 60 + 20)
    rings = [2 * (size - 1) * width * count // size for count in (left + 40 + 35, right)]
    assert cluster.run(sent, size, dtype) == [sum(rings)] * size
    plan = factoring(SHAPES, 4)
    assert (plan.left_size + plan.whole_size, plan.right_size) == (left + 75, right)


# What is remembered belongs to the tensor.


def factors(sync):
    return {
        name: {key: value for key, value in state.items() if key.startswith("collective")}
        for name, state in sync.state_dict()["tensors"].items()
    }


def gradients(step, names="abc"):
    draw = torch.Generator().manual_seed(step)
    return {name: torch.randn(30, 40, generator=draw) for name in names} | {"v": torch.ones(9)}


def test_a_factor_goes_with_its_tensor_into_other_units():
    together, regrouped = (tw.Synchronizer("powersgd(2, start=1)") for _ in range(2))
    for step in range(4):
        grads = gradients(step)
        expected = together.average_all({name: g.clone() for name, g in grads.items()})
        order = reversed(list(grads.items())) if step % 2 else grads.items()
        seen = regrouped.average_all(dict(order))
        for name, update in expected.items():
            torch.testing.assert_close(seen[name], update, rtol=0, atol=1e-5)
    kept = factors(regrouped)
    assert {name: set(own) for name, own in kept.items()} == {
        name: set() if name == "v" else {f"collective/factor/{name}"} for name in kept
    }
    assert not torch.equal(*(kept[name][f"collective/factor/{name}"] for name in "ab"))


def test_another_rank_or_unit_goes_on_with_what_waits_if_that_is_said():
    sync = tw.Synchronizer("powersgd(2, start=1)")
    for step in range(3):
        sync.average_all(gradients(step))
    saved = sync.state_dict()
    for recipe in ("powersgd(2)", "powersgd(2, unit='tensor')", "powersgd(3)"):
        other = tw.Synchronizer(recipe)
        with pytest.raises(tw.StateError, match="another recipe"):
            other.load_state_dict(saved)
        other.load_state_dict(saved, recipe_changed=True)
        kept = other.state_dict()["tensors"]
        for name, own in saved["tensors"].items():
            assert {k for k in kept[name] if k.startswith("collective/")} == set()
            key = "feedback/residual"
            assert torch.equal(kept[name][key], own[key])
        other.average_all(gradients(3))


# Steps that ask the host nothing.


def steadily(comm, bad_rank, dtype):
    memory, noted = {}, []
    bad = torch.tensor(int(comm.rank == bad_rank), dtype=torch.int32)
    ctx = context(comm, memory, steady=True, bad=bad, note_bad=noted.append, gradients=comm.size)
    reduced = LowRank(2, dtype).exchange(flat(comm.rank), None, ctx)
    return noted, reduced.total, memory


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("bad_rank", [None, 0, 2])
def test_everyone_hears_of_a_gradient_that_is_not_finite(bad_rank, dtype):
    for noted, total, memory in Threads(3).run(steadily, bad_rank, dtype):
        assert noted == [int(bad_rank is not None)]
        assert total.isfinite().all() and all(factor.isfinite().all() for factor in memory.values())


def test_on_a_gpu_only_whole_tensors_are_steady():
    cuda = torch.device("cuda")
    assert tw.recipe("powersgd").is_steady(cuda)
    assert tw.recipe("powersgd(1, 'bf16')", unit="model").is_steady(cuda)
    assert not tw.recipe("topk(0.1) | none | lowrank | residual").is_steady(cuda)


@pytest.mark.parametrize("settings", [{"rank": 0}, {"rank": 2.5}, {"dtype": "fp16"}, {"start": -1}])
def test_refuses_nonsense(settings):
    with pytest.raises(RecipeError, match=next(iter(settings))):
        LowRank(**settings)


def test_ways_to_write_it():
    written = tw.recipe("powersgd", rank=8, dtype="bf16")
    assert written == tw.recipe("powersgd(8, 'bf16')") == tw.recipe(written.to_dict())
    assert written.collective == LowRank(8, "bf16", start=2) and written.conserves
    assert tw.recipe("everything | none | lowrank(8) | residual").collective == LowRank(8)


@pytest.mark.parametrize("rank", [0, -1, 1.5, 0.0, True, "4", float("nan")])
def test_ranks_that_are_none_are_refused(rank):
    with pytest.raises(RecipeError, match="rank="):
        LowRank(rank)
