"""The k largest magnitudes of each group: exactly those, whatever the guesses, from everywhere."""

import math
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from support.implementations import HAS_GPU, Case, awkward, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels import _threads, grouped_topk, use
from thinwire.kernels.addend import Addend
from thinwire.kernels.grouped_topk import Chosen, Groups, numba

everywhere = pytest.mark.parametrize("case", cases("grouped_topk"))
select = grouped_topk.grouped_topk


def apart(sizes: list[int], counts: list[int]) -> Groups:
    """Each group in one piece, one behind the other."""
    ends = [0, *torch.tensor(sizes).cumsum(0).tolist()]
    return Groups(
        tuple((start, end, g) for g, (start, end) in enumerate(pairwise(ends))), tuple(counts)
    )


def expected(x: Tensor, groups: Groups) -> tuple[list[int], list[float]]:
    """The contract: the larger magnitude first, then the lower index; and each k-th magnitude."""
    magnitudes, chosen, kth = x.abs().tolist(), [], []
    for group, k in enumerate(groups.counts):
        own = [i for start, end, g in groups.ranges if g == group for i in range(start, end)]
        best = sorted(own, key=lambda i: (-magnitudes[i], i))[:k]
        chosen += best
        kth.append(magnitudes[best[-1]] if k else math.inf)
    return sorted(chosen), kth


def reached(x: Tensor, groups: Groups, guess: Tensor) -> list[int]:
    passed = [0 if groups.chooses(g) else k for g, k in enumerate(groups.counts)]
    for start, end, g in groups.ranges:
        if groups.chooses(g):
            own = x[start:end].abs()
            passed[g] += int(((own >= guess[g]) & (own > 0)).sum())
    return passed


def check(chosen: Chosen, x: Tensor, groups: Groups, guess: Tensor) -> None:
    indices, kth = expected(x, groups)
    assert chosen.indices.dtype == chosen.passed.dtype == torch.int64
    assert chosen.values.dtype == chosen.kth.dtype == x.dtype
    assert chosen.indices.tolist() == indices
    assert bits(chosen.values) == bits(x[indices])
    assert bits(chosen.kth) == bits(torch.tensor(kth, dtype=x.dtype))
    assert chosen.passed.tolist() == reached(x, groups, guess)


def guesses(x: Tensor, groups: Groups) -> list[Tensor]:
    """Good ones, none, too low, too high, and some of each."""
    kth = torch.tensor(expected(x, groups)[1], dtype=x.dtype)
    mixed = kth * 0.9
    mixed[::2] = math.inf
    return [kth * 0.9, mixed, torch.full_like(kth, math.inf), kth, kth * 0, kth * 1.1, -kth]


SHARED = {
    "one": Groups(((0, 3001, 0),), (30,)),
    "one in adjacent ranges": Groups(((0, 7, 0), (7, 1500, 0), (1500, 3001, 0)), (30,)),
    "one amid others that give all": Groups(
        ((0, 5, 1), (5, 1000, 0), (1000, 1064, 2), (1064, 1065, 0), (1065, 1100, 1),
         (1100, 2990, 0), (2990, 3001, 3)),
        (40, 40, 64, 11),
    ),
    "one amid others that give nothing": Groups(
        ((0, 1, 0), (1, 1500, 1), (1500, 1700, 0), (1700, 3001, 2)), (50, 0, 1301)
    ),
    "several": apart([1, 1000, 63, 1037, 900], [1, 13, 62, 1, 0]),
    "numbered otherwise": Groups(
        ((0, 900, 3), (900, 1000, 1), (1000, 2000, 0), (2000, 3001, 2)), (5, 100, 7, 9)
    ),
    "an empty one": Groups(((0, 3001, 1),), (0, 20)),
    "all of it": Groups(((0, 2000, 1), (2000, 3001, 0)), (1001, 2000)),
    "none of it": Groups(((0, 2000, 1), (2000, 3001, 0)), (0, 0)),
    "many": apart([120] * 25 + [1], [3] * 25 + [1]),
}  # fmt: skip


@everywhere
@pytest.mark.parametrize("name", SHARED)
def test_exactly_the_largest_of_each(case: Case, name: str) -> None:
    groups, x = SHARED[name], normal(3001)
    for guess in case.some(guesses(x, groups)):
        check(case.run(select, x, groups, guess), x, groups, guess)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elements_that_one_may_stumble_over(case: Case, dtype: torch.dtype) -> None:
    """Of each kind a third, in a group of its own."""
    kinds = list(awkward(dtype).values())
    x = torch.cat(kinds)
    groups = apart([each.numel() for each in kinds], [each.numel() // 3 or 1 for each in kinds])
    for guess in case.some(guesses(x, groups)):
        check(case.run(select, x, groups, guess), x, groups, guess)


@everywhere
@pytest.mark.parametrize("k", [1, 19_999, 200])
def test_more_than_one_block(case: Case, k: int) -> None:
    x = normal(20_011, seed=k)
    groups = Groups(((0, 20_011, 0),), (k,))
    for guess in guesses(x, groups)[:3:2]:  # of one group the second is the third
        check(case.run(select, x, groups, guess), x, groups, guess)


def misleading() -> dict[str, Tensor]:
    """Ties across blocks, and all that counts in one place."""
    ties, cluster = torch.ones(20_011), normal(20_011) * 1e-6
    ties[::97] = -2
    cluster[9_000:9_100] += 1
    return {"ties": ties, "cluster": cluster, "zeros": torch.zeros(20_011)}


@everywhere
@pytest.mark.parametrize("name", misleading())
def test_ties_and_clusters(case: Case, name: str) -> None:
    x = misleading()[name]
    amid = Groups(((0, 9_050, 0), (9_050, 9_060, 1), (9_060, 20_011, 0)), (1500, 10))
    for groups in case.some([amid, Groups(((0, 20_011, 0),), (150,))]):
        for guess in guesses(x, groups)[:3:2]:
            check(case.run(select, x, groups, guess), x, groups, guess)


# Every way to fuse with some groups, and with the others as little and as much as can be.
WAYS = list(product((False, True), (False, True), (torch.float32, torch.bfloat16)))
FUSED = [
    *(("one amid others that give all", *way) for way in WAYS),
    *((name, *way) for name in ("several", "none of it") for way in (WAYS[0], WAYS[-1])),
]


@everywhere
@pytest.mark.parametrize(("name", "momentum", "clear", "grad_dtype"), FUSED)
def test_fused_is_unfused(
    case: Case, name: str, momentum: bool, clear: bool, grad_dtype: torch.dtype
) -> None:
    groups, grad = SHARED[name], normal(3001, seed=1).to(grad_dtype)
    step = normal(3001, seed=2).mul_(0.9).add_(grad) if momentum else grad
    total = normal(3001).add_(step)
    residual, spent = case.place(normal(3001)), case.place(grad.clone())
    velocity = case.place(normal(3001, seed=2)) if momentum else None
    guess = guesses(total, groups)[1]
    chosen = case.run(select, residual, groups, guess, Addend(spent, velocity, 0.9, clear))
    assert bits(residual) == bits(total)
    assert velocity is None or bits(velocity) == bits(step)
    assert bits(spent) == bits(torch.zeros_like(grad) if clear else grad)
    check(chosen, total, groups, guess)


@everywhere
def test_nothing_at_all(case: Case) -> None:
    for groups in (Groups((), ()), Groups((), (0, 0))):
        guess = torch.ones(len(groups.counts))
        check(case.run(select, normal(0), groups, guess), normal(0), groups, guess)


@pytest.mark.parametrize("wrong", [[0], [1], [0, 2], [3]])
def test_a_large_group_that_looks_again_takes_nothing_from_the_others(wrong: list[int]) -> None:
    large = numba.LARGE + 1000
    groups = apart([4096, large, 3000, large + 7], [41, 3200, 30, 1000])
    x = normal(groups.numel)
    guess = torch.tensor(expected(x, groups)[1]) * 0.9
    guess[wrong] = 1e-3  # far more than there is room for
    with use("numba"):
        check(select(x, groups, guess), x, groups, guess)


def test_large_groups_on_several_threads() -> None:
    """Larger than what one compiled loop does on the CPU, in one piece and in several."""
    numel = 3 * _threads.LEAST_PIECE
    x = normal(numel)
    cut = numel // 2 + 5
    both = apart([cut, numel - cut], [5000, 100])
    amid = Groups(((0, cut, 0), (cut, cut + 50, 1), (cut + 50, numel, 0)), (3000, 50))
    for groups in (both, amid):
        kth = select(x, groups, torch.zeros(2)).kth
        for guess in (kth * 0.9, kth * torch.inf, kth * 0):
            with use("reference"):
                plain = select(x, groups, guess)
            for threads in (1, 3):
                with Case("numba", threads=threads).chosen():
                    chosen = select(x, groups, guess)
                assert all(map(torch.equal, chosen, plain))


@pytest.mark.parametrize(
    ("ranges", "counts", "complaint"),
    [
        (((1, 4, 0),), (1,), r"range \(1, 4, 0\) must begin at 0"),
        (((0, 4, 0), (5, 6, 0)), (1,), r"range \(5, 6, 0\) must begin at 4"),
        (((0, 0, 0),), (0,), "end behind it"),
        (((0, 4, 1),), (1,), "one of 1 groups"),
        (((0, 4, 0),), (5,), r"k=5 of group 0 must be in \[0, 4\]"),
        (((0, 4, 0),), (-1,), "k=-1"),
        (((0, 4, 0), (4, 8, 1), (8, 12, 0)), (1, 1), "group 0 lies in several pieces"),
    ],
)
def test_what_shares_out_nothing_is_refused(
    ranges: tuple[tuple[int, int, int], ...], counts: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(RecipeError, match=complaint):
        Groups(ranges, counts)


def test_what_does_not_fit_is_refused() -> None:
    groups = Groups(((0, 4, 0),), (1,))
    with pytest.raises(RecipeError, match="groups of 4 elements do not share out 5"):
        select(normal(5), groups, torch.ones(1))
    for guess in (torch.ones(2), torch.tensor(1.0)):
        with pytest.raises(RecipeError, match="does not fit 1 groups"):
            select(normal(4), groups, guess)


def test_equal_groups_are_planned_once() -> None:
    ranges = ((0, 4, 0), (4, 9, 1))
    one, other = Groups(ranges, (1, 2)), Groups(ranges, (1, 2))
    assert one == other and hash(one) == hash(other)
    assert one != Groups(ranges, (2, 1))
    assert (one.numel, one.total) == (9, 3)


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_the_host_asks_a_cuda_device_nothing() -> None:
    x = normal(100_000).cuda()
    groups = apart([50_000, 50_000], [500, 50_000])
    guess = torch.full((2,), 2.0, device="cuda")
    select(x, groups, guess, Addend(x.clone()))  # compiled, and the tables put there
    torch.cuda.set_sync_debug_mode("error")
    try:
        select(x, groups, guess, Addend(x.clone()))
    finally:
        torch.cuda.set_sync_debug_mode("default")
