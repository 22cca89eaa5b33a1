"""The largest magnitude on the CPU, faster than one stream of memory can be read.

Without their sign, the bits of floating-point numbers are integers in the order of magnitude, and
those of NaN are above all others. Four places are read in turns: a core has then more cache lines
under way than the prefetcher of one stream asks for.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from thinwire.kernels import _threads
from thinwire.kernels._numba import Array
from thinwire.kernels.max_abs import reference

STREAMS, TURN = 4, 1024  # elements a turn: a page of float32
_WORDS = {2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


@njit(cache=True, nogil=True)
def _largest(words: Array, largest: Any, magnitude: Any) -> Any:
    for i in range(words.size):
        largest = max(largest, words[i] & magnitude)
    return largest


@njit(cache=True, nogil=True)
def _max_abs(words: Array, magnitude: Any) -> Any:
    """The greatest of the words, less what `magnitude` masks out."""
    largest = words.dtype.type(0)
    turns = words.size // (STREAMS * TURN)
    for turn in range(turns):
        for stream in range(STREAMS):
            first = (stream * turns + turn) * TURN
            largest = _largest(words[first : first + TURN], largest, magnitude)
    return _largest(words[STREAMS * turns * TURN :], largest, magnitude)


def max_abs(x: Tensor) -> Tensor:
    """What does not lie in one piece torch reads without a copy."""
    if not x.is_contiguous():
        return reference.max_abs(x)
    words: Array = x.detach().view(-1).view(_WORDS[x.element_size()]).numpy()
    magnitude = words.dtype.type(np.iinfo(words.dtype).max >> 1)
    largest = _threads.run(
        lambda _, first, end: _max_abs(words[first:end], magnitude), _threads.pieces(words.size)
    )
    return torch.from_numpy(np.array(max(largest), words.dtype)).view(x.dtype).double()
