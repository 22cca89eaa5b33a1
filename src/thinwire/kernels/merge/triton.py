"""Sums of ordered sparse vectors on CUDA, where only the size of a sum makes the host wait.

The largest are split off in torch: an exact selection and a list of the rest took as long.
"""

from thinwire.kernels.merge.reference import split_top
from thinwire.kernels.region_reduce.triton import sum_runs
from thinwire.types import Sparse

__all__ = ["merge", "split_top"]


def merge(a: Sparse, b: Sparse) -> Sparse:
    return sum_runs((a, b), a.numel, from_zero=False)
