"""Sums of ordered sparse vectors: what reduction trees and owners of regions are made of.

All take and give ascending, unique indices. An index that is in one summand only keeps its value's
very bits; one that is in both gets their sum, also where that is zero.
"""

from collections.abc import Sequence

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.merge import reference
from thinwire.types import Sparse


def merge(a: Sparse, b: Sparse) -> Sparse:
    """a + b, in O(|a| + |b|) on the CPU. Values may be rows."""
    if a.numel != b.numel or not (a.ordered and b.ordered):
        raise RecipeError(
            f"only ordered parts of one tensor can be merged, not of {a.numel} and {b.numel} "
            f"elements, ordered {a.ordered} and {b.ordered}"
        )
    if not b.count:
        return a
    if not a.count:
        return b
    if a.values.dim() > 1:
        return reference.merge(a, b)
    return implementation(reference.merge, a.indices.device)(a, b)


def merge_all(parts: Sequence[Sparse]) -> Sparse:
    """The sum of one part or more, by neighbouring pairs: an order that depends on nothing else."""
    while len(parts) > 1:
        pairs = [merge(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + list(parts[len(pairs) * 2 :])
    return parts[0]


def subtract(a: Sparse, b: Sparse) -> Sparse:
    """a - b, without the zeros."""
    return nonzero(merge(a, Sparse(b.indices, -b.values, b.numel, b.ordered)))


def nonzero(s: Sparse) -> Sparse:
    """The elements, or the rows, that are not all zero."""
    keep = s.values != 0 if s.values.dim() == 1 else (s.values != 0).any(1)
    if bool(keep.all()):
        return s
    return Sparse(s.indices[keep], s.values[keep], s.numel, s.ordered)


def split_top(s: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """The k largest magnitudes, and the rest; among equals the lower index. NaN is largest."""
    nothing = Sparse(s.indices[:0], s.values[:0], s.numel)
    if k >= s.count:
        return s, nothing
    if k <= 0:
        return nothing, s
    return implementation(reference.split_top, s.indices.device)(s, k)


def merge_topk(a: Sparse, b: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """gTop-k's ⊤ (definition 1): the k largest of a + b, and what was pruned from it.

    The paper's mask `> thr` would keep k - 1 of k distinct magnitudes, and no ties at all.
    """
    return split_top(merge(a, b), k)
