"""Indices in the narrowest of three integer types, read and checked; see `reference.py`."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.raw_indices import reference


def widen(narrow: Tensor, rows: int, ordered: bool) -> tuple[Tensor, Tensor]:
    """The indices of lists in rows, which may lie apart, as int64; and (0-D bool) if all are sound.

    They have to be below `rows`, and ascend if they are `ordered`. All bits set are `PADDING`, but
    for the last of 2^16 rows in ordered lists: there only what comes behind another such one is.
    """
    return implementation(reference.widen, narrow.device)(narrow, rows, ordered)
