"""The largest magnitudes of each chunk of a flat tensor: as many of each as a density says.

A chunk is read once and chosen from where it lies, in a cache or in registers: no threshold is
carried from step to step, and nothing is sorted. `reference.py` says what is computed; all
implementations give the same bits, and none makes the host wait for the device.
"""

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.chunk_topk import reference
from thinwire.kernels.chunk_topk.chunks import MOST_CHUNK, Chunks

__all__ = ["MOST_CHUNK", "Chunks", "chunk_topk"]


def chunk_topk(x: Tensor, chunks: Chunks, addend: Addend | None = None) -> tuple[Tensor, Tensor]:
    """Ascending indices and values of what the chunks choose; among equals the lower index.

    First adds `addend`, in the same pass: 12 bytes an element of float32. NaN must not occur.
    """
    check(x, addend=addend)
    if chunks.numel != x.numel():
        raise RecipeError(f"chunks of {chunks.numel} elements do not share out {x.numel()}")
    return implementation(reference.chunk_topk, x.device)(x, chunks, addend)
