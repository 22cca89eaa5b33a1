"""Selection by hashing: who wins a slot, and that nothing but indices and the seed decides it.

Covers kernels/_numba.py and kernels/_triton.py.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from support.implementations import Case, awkward_cases, bits, cases, normal
from thinwire.errors import RecipeError
from thinwire.kernels._numba import in_range, mix, offset_of
from thinwire.kernels.addend import Addend
from thinwire.kernels.hash_select import hash_list, hash_select, hash_slots
from thinwire.rng import hash_to_range
from thinwire.types import PADDING

everywhere = pytest.mark.parametrize("case", cases("hash_select"))
awkward_everywhere = pytest.mark.parametrize(("case", "x"), awkward_cases("hash_select"))
SEEDS = [0, 1, 2**63 - 1, 2**64 + 5]


def winners(x: Tensor, threshold: float, slots: int, seed: int) -> list[int]:
    """The contract, one element at a time: later ones overwrite earlier ones."""
    limit = float(torch.tensor(threshold, dtype=x.dtype))
    slot_of = hash_to_range(torch.arange(x.numel()), slots, seed).tolist()
    won = [-1] * slots
    for index, value in enumerate(x.tolist()):
        if value != 0 and abs(value) >= limit:
            won[slot_of[index]] = index
    return won


def check(pair: tuple[Tensor, Tensor], x: Tensor, won: list[int]) -> None:
    indices, values = pair
    assert indices.dtype == torch.int64 and values.dtype == x.dtype
    assert indices.tolist() == won
    padded = torch.cat((x, x.new_zeros(1)))  # index -1 finds the zero
    assert bits(values) == bits(padded[won])


@awkward_everywhere
def test_the_largest_index_wins(case: Case, x: Tensor) -> None:
    for threshold in case.some([float(x.abs().median()), 0.0, math.inf, math.nan]):
        limit = torch.tensor(threshold, dtype=x.dtype)
        check(case.run(hash_select, x, limit, 37, 3), x, winners(x, threshold, 37, 3))


@everywhere
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [1, 1000])
def test_any_number_of_slots_and_any_seed(case: Case, slots: int, seed: int) -> None:
    x = normal(5003)
    found = case.run(hash_select, x, torch.tensor(1.0), slots, seed)
    check(found, x, winners(x, 1.0, slots, seed))


@everywhere
@pytest.mark.parametrize("numel", [0, 1, 63, 64, 65])
def test_any_number_of_elements(case: Case, numel: int) -> None:
    x = normal(numel)
    check(case.run(hash_select, x, torch.tensor(0.5), 20, 9), x, winners(x, 0.5, 20, 9))


@everywhere
def test_slots_as_they_are(case: Case) -> None:
    """Momentum is added in the same pass; what is in no slot is padding."""
    x, grad, velocity = normal(5003), normal(5003, seed=1), normal(5003, seed=2)
    sums = x + (velocity * 0.9 + grad)
    there = [case.place(t.clone()) for t in (x, grad, velocity)]
    addend = Addend(there[1], there[2], 0.9)
    indices, values = case.run(hash_slots, there[0], torch.tensor(2.0), 300, 4, addend)
    won = winners(sums, 2.0, 300, 4)
    assert indices.tolist() == [PADDING if i < 0 else i for i in won] and -1 in won
    assert bits(values) == bits(torch.cat((sums, sums.new_zeros(1)))[won])
    assert bits(there[0]) == bits(sums)
    assert bits(there[2]) == bits(velocity * 0.9 + grad)


@everywhere
def test_nan_does_not_pass(case: Case) -> None:
    x = normal(300)
    x[::2] = math.nan
    check(case.run(hash_select, x, torch.tensor(0.5), 100, 1), x, winners(x, 0.5, 100, 1))


@everywhere
@pytest.mark.parametrize(
    ("dtype", "grad_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("clear", [False, True])
def test_fused_is_unfused(
    case: Case, dtype: torch.dtype, grad_dtype: torch.dtype, momentum: bool, clear: bool
) -> None:
    grad = normal(3001, seed=1).to(grad_dtype)
    step = normal(3001, dtype, seed=2).mul_(0.9).add_(grad) if momentum else grad
    expected = normal(3001, dtype).add_(step)
    residual, spent = case.place(normal(3001, dtype)), case.place(grad.clone())
    velocity = case.place(normal(3001, dtype, seed=2)) if momentum else None
    limit, addend = torch.tensor(1.5, dtype=dtype), Addend(spent, velocity, 0.9, clear)
    found = case.run(hash_select, residual, limit, 256, 5, addend)
    assert velocity is None or bits(velocity) == bits(step)
    assert bits(spent) == bits(torch.zeros_like(grad) if clear else grad)
    assert bits(residual) == bits(expected)  # losers and winners alike: all stay in the residual
    check(found, expected, winners(expected, 1.5, 256, 5))


@everywhere
def test_the_share_of_slots_that_are_filled(case: Case) -> None:
    """n balls in m bins leave (1 - 1/m)^n of them empty: 37 % at m = n."""
    numel, slots, seeds = 1600, 400, case.some(range(12))
    x = torch.empty(numel)
    for passing in case.some([400, 200, 1600]):
        x[:passing], x[passing:] = 1, 0
        filled = sum(
            int((case.run(hash_select, x, torch.tensor(1.0), slots, seed)[0] >= 0).sum())
            for seed in seeds
        )
        trials = slots * len(seeds)
        empty_share = (1 - 1 / slots) ** passing
        deviation = math.sqrt(trials * empty_share * (1 - empty_share))
        assert abs(filled - trials * (1 - empty_share)) < 4 * deviation


@everywhere
def test_another_seed_makes_others_collide(case: Case) -> None:
    x = torch.ones(1000)
    first, again, other = (
        case.run(hash_select, x, torch.tensor(1.0), 500, seed)[0].tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first) != set(other)


@everywhere
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("numel", "slots"), [(3001, 256), (20_011, 1000), (40, 300), (0, 5)])
def test_listed_are_the_winners_in_order(
    case: Case, numel: int, slots: int, dtype: torch.dtype, momentum: bool
) -> None:
    grad, velocity = normal(numel, dtype, seed=1), normal(numel, dtype, seed=2)
    total = normal(numel, dtype).add_(velocity.mul(0.9).add_(grad) if momentum else grad)
    residual, addend = (
        case.place(normal(numel, dtype)),
        Addend(case.place(grad), case.place(velocity) if momentum else None, 0.9),
    )
    found = case.run(hash_list, residual, torch.tensor(1.0, dtype=dtype), slots, 5, addend)
    expected = sorted(index for index in winners(total, 1.0, slots, 5) if index >= 0)
    padding = slots - len(expected)
    assert found.capacity == slots and found.count.dtype == found.indices.dtype == torch.int64
    assert int(found.count) == len(expected)
    assert found.indices.tolist() == expected + [PADDING] * padding
    assert bits(found.values) == bits(torch.cat((total[expected], total.new_zeros(padding))))
    assert bits(residual) == bits(total)


def test_indices_of_more_than_31_bits() -> None:
    """On numbers: the hash that the kernels repeat, without the memory for such a tensor."""
    far = torch.tensor([0, 5, 2**31 - 1, 2**31, 2**31 + 5, 2**33 + 7, 2**40])
    for seed in SEEDS:
        for slots in (1, 1000, 2**31 - 1):
            expected = hash_to_range(far, slots, seed).tolist()
            hashes = [np.uint64(mix(np.uint64(i), offset_of(seed))) for i in far.tolist()]
            assert [in_range(each, np.uint64(slots)) for each in hashes] == expected


@pytest.mark.parametrize("slots", [0, -1, 2**31])
def test_slots_out_of_range_are_refused(slots: int) -> None:
    with pytest.raises(RecipeError, match=f"slots={slots}"):
        hash_select(normal(4), torch.tensor(1.0), slots, 0)
    with pytest.raises(RecipeError, match=f"slots={slots}"):
        hash_list(normal(4), torch.tensor(1.0), slots, 0)
    with pytest.raises(RecipeError, match=f"slots={slots}"):
        hash_select(normal(4), torch.tensor(1.0), slots, 0, Addend(normal(4)))
