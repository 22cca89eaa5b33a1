"""A sum that is still to be added up, so that adding and selecting can be one pass over memory."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.block_norms import block_norms
from thinwire.kernels.chunk_topk import Chunks, chunk_topk
from thinwire.kernels.compact import Found, compact
from thinwire.kernels.grouped_topk import Chosen, Groups, grouped_topk
from thinwire.kernels.hash_select import hash_list, hash_slots
from thinwire.rng import Seed


class LazySum:
    """An accumulator and what waits to be added to it; without an addend, the sum as it is.

    Feedback hands it out, a sparsifier takes from it. Whatever is asked first does the adding as
    it goes (12 bytes per element of float32 instead of 16); from then on the sum is there.
    """

    def __init__(self, accumulator: Tensor, addend: Addend | None = None) -> None:
        self._sum, self._addend = accumulator, addend

    @property
    def numel(self) -> int:
        """How many elements the sum has."""
        return self._sum.numel()

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self._sum.device

    @property
    def dtype(self) -> torch.dtype:
        """The accumulator's."""
        return self._sum.dtype

    @property
    def accumulator(self) -> Tensor:
        """What it is added to, as it is now."""
        return self._sum

    def peek(self, where: slice) -> Tensor:
        """Some elements of the sum, the rest of it left alone."""
        return self._addend.sample(self._sum, where) if self._addend else self._sum[where]

    def take(self) -> tuple[Tensor, Addend | None]:
        """The accumulator and what waits, for whoever adds it in a pass of its own."""
        return self._sum, self._take()

    def dense(self) -> Tensor:
        """All of the sum."""
        if addend := self._take():
            addend.add_to(self._sum)
        return self._sum

    def compact(self, threshold: Tensor, capacity: int) -> Found:
        """What reaches `threshold`; see `kernels.compact`."""
        return compact(self._sum, threshold, capacity, self._take())

    def grouped_topk(self, groups: Groups, guess: Tensor) -> Chosen:
        """The k largest of each group; see `kernels.grouped_topk`."""
        return grouped_topk(self._sum, groups, guess, self._take())

    def chunk_topk(self, chunks: Chunks) -> tuple[Tensor, Tensor]:
        """The largest of each chunk; see `kernels.chunk_topk`."""
        return chunk_topk(self._sum, chunks, self._take())

    def hash_list(self, threshold: Tensor, slots: int, seed: int) -> Found:
        """The winners of the slots in order; see `kernels.hash_select`."""
        return hash_list(self._sum, threshold, slots, seed, self._take())

    def hash_slots(self, threshold: Tensor, slots: int, seed: Seed) -> tuple[Tensor, Tensor]:
        """All slots as they are; see `kernels.hash_select`."""
        return hash_slots(self._sum, threshold, slots, seed, self._take())

    def block_norms(self, block: int) -> Tensor:
        """The L2 norm of each block; see `kernels.block_norms`."""
        return block_norms(self._sum, block, self._take())

    def _take(self) -> Addend | None:
        """The addend, for whoever adds it: it is added once."""
        addend, self._addend = self._addend, None
        return addend
