"""More elements than 32 bits can count, on a GPU: planted ones are found where they are."""

import pytest
import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.batched_decode import decode_sum
from thinwire.kernels.compact import Found, compact
from thinwire.kernels.exact_topk import largest, largest_of
from thinwire.kernels.hash_select import hash_select
from thinwire.rng import hash_to_range
from thinwire.types import Sparse

NUMEL = 2**31 + 1000
PLANTED = {5: 3.0, 2**31 - 1: -4.0, 2**31: 5.0, 2**31 + 7: -6.0, NUMEL - 1: 7.0}
PLACES, VALUES = list(PLANTED), list(PLANTED.values())
SMALL = 2.0**-10  # everywhere else, so that there are ties
NEEDED_GIB = 40


def _free_gib() -> float:
    return torch.cuda.mem_get_info()[0] / 2**30 if torch.cuda.is_available() else 0.0


pytestmark = pytest.mark.skipif(
    _free_gib() < NEEDED_GIB, reason=f"needs a GPU with {NEEDED_GIB} GiB free"
)


@pytest.fixture(scope="module")
def x() -> Tensor:
    x = torch.full((NUMEL,), SMALL, device="cuda")
    x[torch.tensor(PLACES, device="cuda")] = torch.tensor(VALUES, device="cuda")
    return x


@pytest.fixture
def grad() -> Tensor:
    """What makes `x` of a tensor that is zero where it is planted, rounded by nothing."""
    grad = torch.zeros(NUMEL, dtype=torch.bfloat16, device="cuda")
    grad[torch.tensor(PLACES, device="cuda")] = torch.tensor(VALUES, device="cuda").bfloat16()
    return grad


def number(value: float) -> Tensor:
    return torch.tensor(value, device="cuda")


def check(found: Found) -> None:
    indices, values = found.trim()
    assert (indices.tolist(), values.tolist()) == (PLACES, VALUES)


def test_compaction(x: Tensor, grad: Tensor) -> None:
    check(compact(x, number(1.0), 16))
    residual = torch.zeros(NUMEL, device="cuda")
    check(compact(residual, number(1.0), 16, Addend(grad)))
    assert int(residual.count_nonzero()) == len(PLACES)


@pytest.mark.parametrize("guess", [2.0, float("inf"), 0.0])
def test_the_largest(x: Tensor, guess: float) -> None:
    indices, values, kth = largest(x, 3, number(guess))
    assert (indices.tolist(), values.tolist(), float(kth)) == (PLACES[2:], VALUES[2:], 5.0)
    indices, _, kth = largest_of(compact(x, number(guess), 16), x, 7)
    assert (indices.tolist(), float(kth)) == ([0, 1, *PLACES], SMALL)


def test_selection_by_hashing(x: Tensor, grad: Tensor) -> None:
    slots = hash_to_range(torch.tensor(PLACES), 64, 11).tolist()
    expected = dict(zip(slots, PLACES, strict=True))  # the largest index of a slot comes last
    for winners, values in (
        hash_select(x, number(1.0), 64, 11),
        hash_select(torch.zeros(NUMEL, device="cuda"), number(1.0), 64, 11, Addend(grad)),
    ):
        filled = (winners >= 0).nonzero().flatten().tolist()
        assert {slot: int(winners[slot]) for slot in filled} == expected
        assert [float(values[slot]) for slot in filled] == [PLANTED[expected[s]] for s in filled]


def test_batched_decoding() -> None:
    places, values = (torch.tensor(each, device="cuda") for each in (PLACES, VALUES))
    parts = [Sparse(places, values, NUMEL), Sparse(places[2:], values[2:], NUMEL)]
    expected = [3.0, -4.0, 10.0, -12.0, 14.0]
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.full((NUMEL,), float("nan"), dtype=dtype, device="cuda")
        decode_sum(parts, out)
        assert out[places].tolist() == expected
        assert int(out.count_nonzero()) == len(PLACES)  # NaN would count
