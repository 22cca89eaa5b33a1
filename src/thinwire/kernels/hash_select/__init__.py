"""Selection by hashing instead of compaction (DRAGONN, sections 4.1 and 4.2).

Every element that reaches the threshold writes itself into the slot that its index hashes to; no
element waits for the number of those before it. `reference.py` says what is computed.
"""

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.compact.found import Found
from thinwire.kernels.hash_select import reference
from thinwire.rng import Seed

MOST_SLOTS = 2**31 - 1  # so that a 31-bit hash times the slots is still an int64


def hash_select(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    """For each slot the index (int64) of the element that won it, -1 where it is empty, and its
    value, 0 where it is empty. First adds `addend`, in the same pass.

    The non-zero elements with |x| ≥ `threshold` (0-D, on x's device) write themselves to slot
    `rng.hash_to_range(index, slots, seed)`. Deviation: the paper lets timing decide between the
    writers of one slot; here the largest index wins, so that the result is always the same.
    """
    _check(x, threshold, slots, addend)
    select = implementation(reference.hash_select, x.device)
    return select(x, threshold.to(x.dtype), slots, seed, addend)


def hash_slots(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> tuple[Tensor, Tensor]:
    """As `hash_select`, with `PADDING` for the index of an empty slot: the slots as they are."""
    _check(x, threshold, slots, addend)
    select = implementation(reference.hash_slots, x.device)
    return select(x, threshold.to(x.dtype), slots, seed, addend)


def hash_list(
    x: Tensor, threshold: Tensor, slots: int, seed: Seed, addend: Addend | None = None
) -> Found:
    """The winners of the slots in ascending order, with their values; see `hash_select`.

    There is room for as many as there are slots. Behind the `count` of them, which is told on the
    device, indices are `PADDING` and values 0.
    """
    _check(x, threshold, slots, addend)
    list_winners = implementation(reference.hash_list, x.device)
    return list_winners(x, threshold.to(x.dtype), slots, seed, addend)


def _check(x: Tensor, threshold: Tensor, slots: int, addend: Addend | None) -> None:
    check(x, threshold, addend)
    if not 0 < slots <= MOST_SLOTS:
        raise RecipeError(f"slots={slots} must be in [1, {MOST_SLOTS}]")
