"""Which elements reach a threshold: compaction, alone or with an accumulation before it.

`reference.py` says what is computed; all implementations give the same bits. Each is one pass over
memory: 4 bytes per element of float32, 12 with a gradient to add, 20 with a velocity.
"""

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.compact import reference
from thinwire.kernels.compact.found import Found

__all__ = ["Found", "compact"]


def compact(x: Tensor, threshold: Tensor, capacity: int, addend: Addend | None = None) -> Found:
    """The non-zero elements with |x| ≥ `threshold`, up to `capacity` of them; first adds `addend`.

    `threshold` is 0-D, on x's device, and compared in x's precision. Zero never passes: it carries
    nothing, and a threshold of zero would let all of them through. Nor does NaN.
    """
    check(x, threshold, addend)
    if capacity < 0:
        raise RecipeError(f"capacity={capacity} must not be negative")
    return implementation(reference.compact, x.device)(x, threshold.to(x.dtype), capacity, addend)
