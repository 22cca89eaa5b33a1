"""Exactly the k largest magnitudes, in about one pass when a threshold near the k-th is known.

If at least k elements reach the guessed threshold, the k largest of all are among them; so the
guess decides how long it takes, never what comes out. `reference.py` says what is computed.
"""

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import check
from thinwire.kernels.compact import Found
from thinwire.kernels.exact_topk import reference

Largest = tuple[Tensor, Tensor, Tensor]


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> Largest:
    """Ascending int64 indices of exactly the `k` largest magnitudes (0 < k < numel), among equals
    the lower index; their values; and the k-th magnitude (0-D, on the device).

    `guess` is a threshold (0-D, on the device) expected somewhat below the k-th magnitude: that of
    the last step, say. Without one, a sample of `x` proposes it. NaN must not occur.
    """
    _check(x, k, guess)
    proposed = None if guess is None else guess.to(x.dtype)
    return implementation(reference.largest, x.device)(x, k, proposed)


def largest_of(candidates: Found, x: Tensor, k: int) -> Largest:
    """As `largest`, where the compaction of `x` by some threshold was already done.

    Uses up the `candidates`: where they do not help, their memory is taken for what does.
    """
    _check(x, k)
    if candidates.values.dtype != x.dtype or candidates.values.device != x.device:
        raise RecipeError(
            f"candidates of {candidates.values.dtype} on {candidates.values.device} were not found "
            f"in {x.dtype} on {x.device}: pass what `compact` made of these elements"
        )
    return implementation(reference.largest_of, x.device)(candidates, x, k)


def _check(x: Tensor, k: int, guess: Tensor | None = None) -> None:
    check(x, guess)
    if not 0 < k < x.numel():
        raise RecipeError(f"k={k} must be in [1, {x.numel() - 1}], below the number of elements")
