"""Allreduce in few bits: nothing is lost by either rounding, whatever feedback catches it."""

import dataclasses

import pytest
import torch

import thinwire as tw
from support.collective import laws
from support.collective.laws import DENSE, SPARSE, Case, check_conservation, digest
from thinwire.collective import Dense, FewBits
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError, WireFormatError
from thinwire.feedback import Ef21, Momentum, NoFeedback, Residual
from thinwire.kernels.addend import Addend
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify import Everything
from thinwire.types import ExchangeContext, Sparse

WAYS = (
    FewBits(8),
    FewBits(4),
    FewBits(4, group=16),
    FewBits(8, rounding="stochastic"),
    FewBits(4, 32, "stochastic"),
)
ROTATED = (FewBits(4, rotate=True), FewBits(8, 64, "stochastic", rotate=True))


def pipeline(collective, feedback=Residual()):  # noqa: B008, a frozen piece
    return tw.Pipeline(Everything(), None, collective, feedback, unit="bucket", bypass=0)


@pytest.mark.parametrize("size", range(1, 9))
def test_what_ranks_deliver_is_the_total(cluster, size):
    cases = (*DENSE, Case("dense", dtype=torch.float64), *SPARSE)
    trials = [(way, None, laws.in_turn(cases, size)[place % 3]) for place, way in enumerate(WAYS)]
    seen = cluster.run(laws.exchange_each, size, trials)
    for number, (_, _, share) in enumerate(trials):
        laws.assert_laws(share, [results[number] for results in seen], lossless=False)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("numel", [1, 129, 500])
def test_law_1_whatever_the_settings(cluster, size, numel):
    check_conservation(cluster, size, [pipeline(way) for way in (*WAYS, *ROTATED)], numel)


def mean_and_updates(group, rank, size, recipe, steps):
    """The same gradient in each step: its mean over the ranks, and the sum of all updates."""
    sync = tw.Synchronizer(recipe, group)
    grad = torch.randn(3000, generator=torch.Generator().manual_seed(rank))
    grad *= torch.linspace(0.01, 3, 3000)
    total, errors = torch.zeros(3000, dtype=torch.float64), []
    mean = laws_mean(grad, group, size)
    for step in range(steps):
        total += sync.average("w", grad.clone()).double()
        errors.append(float((total / (step + 1) - mean).norm() / mean.norm()))
    return errors


def laws_mean(grad, group, size):
    mean = grad.double()
    if group is not None:
        torch.distributed.all_reduce(mean, group=group)
    return mean / size


@pytest.mark.parametrize(
    ("recipe", "once"),
    [
        ("int8", 0.02),
        ("int4", 0.3),
        ("int4(128, 'stochastic')", 0.5),
        ("int4(128, rotate=True)", 0.3),
    ],
)
def test_what_rounding_takes_comes_later(cluster, recipe, once):
    """The error of the mean of n updates falls as 1/n: it is what waits, over n."""
    for errors in cluster.run(mean_and_updates, 4, recipe, 20):
        assert 0 < errors[0] < once
        assert errors[-1] < errors[0] / 8


def unbiased(group, rank, size, collective, steps):
    sync = tw.Synchronizer(pipeline(collective, NoFeedback()), group)
    grad = torch.randn(512, generator=torch.Generator().manual_seed(rank))
    updates = [sync.average("w", grad.clone()).double() for _ in range(steps)]
    drawn = torch.stack(updates)
    return laws_mean(grad, group, size), drawn.mean(0), drawn.var(0)


@pytest.mark.parametrize("rotate", [False, True])
def test_without_a_residual_stochastic_rounding_is_right_on_average(cluster, rotate):
    collective = FewBits(4, 64, "stochastic", rotate)
    assert not pipeline(collective, NoFeedback()).conserves
    assert pipeline(collective).conserves
    for mean, found, variance in cluster.run(unbiased, 3, collective, 200):
        deviation = (variance.sum() / 200).sqrt()
        assert deviation > 0
        assert (found - mean).norm() <= 1.3 * deviation
        assert (found - mean).sum().abs() <= 6 * deviation


def all_feedbacks(group, rank, size):
    """Each feedback for a few steps, digests of the updates; and of the same, added up first."""
    seen = []
    for feedback in (Residual(), Momentum(), Momentum(clip_norm=1.0), Ef21(), NoFeedback()):
        for lazily in (True, False):
            sync = tw.Synchronizer(pipeline(FewBits(8, 32), feedback), group)
            with pytest.MonkeyPatch.context() as patch:
                if not lazily:
                    patch.setattr(FewBits, "adds_lazily", False)
                    patch.setattr(type(feedback), "settles_in_place", False)
                for step in range(3):
                    draw = torch.Generator().manual_seed(10 * step + rank)
                    update = sync.average("w", torch.randn(700, generator=draw))
                seen.append(digest(update))
    return seen


def test_every_feedback_and_adding_first_makes_no_difference(cluster):
    """Also whether it is settled in place: but for the last bit of a residual, see below."""
    results = cluster.run(all_feedbacks, 3)
    assert all(seen == results[0] for seen in results)
    for in_one_pass, first_added in zip(results[0][2::2], results[0][3::2], strict=True):
        assert in_one_pass == first_added


def in_place_or_not(group, rank, size):
    """The same exchange with and without a residual to leave the rest in."""
    comm, rests = GroupCommunicator(group), []
    for in_place in (True, False):
        x = torch.randn(900, generator=torch.Generator().manual_seed(rank))
        ctx = ExchangeContext("w", 0, 7, comm, in_place=in_place, gradients=size)
        lazy = LazySum(torch.zeros(900), Addend(x)) if in_place else None
        residual = lazy.accumulator if lazy else x
        reduced = FewBits(4).exchange(residual, None, dataclasses.replace(ctx, lazy=lazy))
        assert (reduced.delivered is None) == in_place
        rests.append((reduced.total, residual if in_place else x - reduced.delivered))
    return rests


def test_in_place_is_what_was_there_less_what_was_delivered(cluster):
    for (total, rest), (same, expected) in cluster.run(in_place_or_not, 3):
        assert torch.equal(total, same)
        torch.testing.assert_close(rest, expected, rtol=0, atol=1e-6)


def steadily(group, rank, size, bad_rank):
    """As on a GPU: what was noted, the update and the residual of a rank with NaN among others."""
    comm, noted = GroupCommunicator(group), []
    grad = torch.randn(900, generator=torch.Generator().manual_seed(rank))
    if rank == bad_rank:
        grad[13] = torch.nan
    bad, residual = torch.zeros((), dtype=torch.int32), torch.zeros(900)
    ctx = ExchangeContext(
        "w", 0, 7, comm, steady=True, bad=bad, note_bad=noted.append, in_place=True,
        lazy=LazySum(residual, Addend(grad, bad=bad)), gradients=size,
    )  # fmt: skip
    reduced = FewBits(8).exchange(residual, None, ctx)
    return any(noted), reduced.total, residual


@pytest.mark.parametrize("bad_rank", [None, 0, 2])
def test_everyone_hears_of_a_gradient_that_is_not_finite(cluster, bad_rank):
    for noted, total, residual in cluster.run(steadily, 3, bad_rank):
        assert noted == (bad_rank is not None)
        assert residual.isfinite().all() and residual.any()
        assert bool(total.isfinite().all()) == (bad_rank is None)


class Damaged(GroupCommunicator):
    """A rank alone, which flips a bit of what comes by one of the two ways."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def all_to_all_equal(self, rows):
        return self._damaged(super().all_to_all_equal(rows), "to owners")

    def all_gather_equal(self, tensor):
        return self._damaged(super().all_gather_equal(tensor), "from owners")

    def _damaged(self, rows, way):
        rows[0, 5] ^= way == self.way
        return rows


@pytest.mark.parametrize("way", ["to owners", "from owners"])
def test_damage_is_refused(way):
    x = torch.randn(900, generator=torch.Generator().manual_seed(0))
    FewBits(8).exchange(x, None, ExchangeContext("w", 0, 7, Damaged("none")))
    with pytest.raises(WireFormatError, match="damaged"):
        FewBits(8).exchange(x, None, ExchangeContext("w", 0, 7, Damaged(way)))


class Replaying(GroupCommunicator):
    """A rank alone, which hears what it said the first time by one of the two ways."""

    def __init__(self, way):
        super().__init__()
        self.way, self.first = way, {}

    def all_to_all_equal(self, rows):
        return self._heard(super().all_to_all_equal(rows), "to owners")

    def all_gather_equal(self, tensor):
        return self._heard(super().all_gather_equal(tensor), "from owners")

    def _heard(self, rows, way):
        first = self.first.setdefault(way, rows.clone())
        return first if way == self.way else rows


@pytest.mark.parametrize("way", ["to owners", "from owners"])
@pytest.mark.parametrize(("step", "tensor"), [(1, "w"), (0, "b")])
def test_shards_of_another_step_or_tensor_are_refused(way, step, tensor):
    x, comm = torch.randn(900, generator=torch.Generator().manual_seed(0)), Replaying(way)
    for _ in range(2):
        FewBits(8).exchange(x, None, ExchangeContext("w", 0, 7, comm))
    with pytest.raises(WireFormatError, match="another step or tensor"):
        FewBits(8).exchange(x, None, ExchangeContext(tensor, step, 7, comm))


def test_a_sparse_selection_travels_whole():
    """Rows of an embedding do not: they have no residual, and go by dense allreduce."""
    assert FewBits(4).without_loss() == Dense()
    sync = tw.Synchronizer("topk(0.1) | none | few-bits(8) | residual")
    grad = torch.randn(1100, generator=torch.Generator().manual_seed(0))
    update = sync.average("w", grad.clone())
    rest = sync.state_dict()["tensors"]["w"]["feedback/residual"]
    torch.testing.assert_close(update + rest, grad)
    assert 100 <= int((update != 0).sum()) <= 110


def test_a_selection_that_is_marked_marks_no_residual():
    noted, values = [], torch.randn(30, generator=torch.Generator().manual_seed(0))
    values[0] = torch.nan
    s = Sparse(torch.arange(30) * 3, values, 100)
    bad = torch.ones((), dtype=torch.int32)
    ctx = ExchangeContext(
        "w", 0, 7, GroupCommunicator(), steady=True, bad=bad, note_bad=noted.append
    )
    reduced = FewBits(8).exchange(s, None, ctx)
    assert any(noted)
    assert not reduced.delivered.isnan().any()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bits": 5}, "bits=5 must be one of 4, 8"),
        ({"group": 100}, "group=100 must be a power of two"),
        ({"group": 8}, r"group=8 must be an integer in 16 … 4096"),
        ({"rounding": "up"}, "rounding='up' must be one of nearest, stochastic"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(RecipeError, match=reason):
        FewBits(**settings)
