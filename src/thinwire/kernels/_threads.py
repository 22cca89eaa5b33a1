"""Numba kernels on several threads: contiguous pieces of one tensor, results in their order.

Numba's own `parallel=True` aborts the process when two Python threads enter its work queue; these
kernels release the interpreter's lock instead, and a few threads of ours run them side by side.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")

LEAST_PIECE = 1 << 19  # elements: waking a thread for fewer takes as long as it saves
_ALIGN = 64  # elements that a kernel compares at once


def pieces(numel: int) -> list[tuple[int, int]]:
    """[0, numel) as (first, end) of equal pieces, one for each of torch's threads at most."""
    count = max(1, min(torch.get_num_threads(), numel // LEAST_PIECE))
    length = -(-numel // (count * _ALIGN)) * _ALIGN
    starts = range(0, numel, length) if numel else [0]
    return [(first, min(first + length, numel)) for first in starts]


def run(work: Callable[[int, int, int], T], parts: list[tuple[int, int]]) -> list[T]:
    """work(which, first, end) for each part: the first one on this thread, the others beside it."""
    others = [_pool().submit(work, which, *part) for which, part in enumerate(parts) if which]
    return [work(0, *parts[0]), *(other.result() for other in others)]


@cache
def _pool() -> ThreadPoolExecutor:
    """Starts threads as they are needed."""
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="thinwire-kernels")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the threads
