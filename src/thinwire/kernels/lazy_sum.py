"""A sum that is still to be added up, so that adding and selecting can be one pass over memory.

Feedback hands it out, a sparsifier takes from it. Whatever is asked first does the adding as it
goes (12 bytes an element of float32 instead of 16); from then on the sum is there.

A sum that is told to `clear` leaves zeros where the gradient was, in the same pass.
"""

import torch
from torch import Tensor

from thinwire.kernels.block_norms import accumulate_block_norms, block_norms
from thinwire.kernels.compact import Found, accumulate, accumulate_momentum, compact
from thinwire.kernels.hash_select import accumulate_hash, hash_select


class LazySum:
    """The sum as it is: nothing waits to be added."""

    def __init__(self, sum: Tensor) -> None:
        self._sum = sum
        self._added = True

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

    def peek(self, where: slice) -> Tensor:
        """Some elements of the sum, the rest of it left alone."""
        return self._sum[where]

    def dense(self) -> Tensor:
        """All of the sum."""
        if not self._added:
            self._add()
            self._added = True
        return self._sum

    def compact(self, threshold: Tensor, capacity: int) -> Found:
        """What reaches `threshold`; see `kernels.compact`."""
        if self._added:
            return compact(self._sum, threshold, capacity)
        found = self._add_and_compact(threshold, capacity)
        self._added = True
        return found

    def hashed(self, threshold: Tensor, slots: int, seed: int) -> tuple[Tensor, Tensor]:
        """The winners of the slots; see `kernels.hash_select`."""
        return hash_select(self.dense(), threshold, slots, seed)

    def block_norms(self, block: int) -> Tensor:
        """The L2 norm of each block; see `kernels.block_norms`."""
        return block_norms(self.dense(), block)

    def _add(self) -> None:
        raise NotImplementedError

    def _add_and_compact(self, threshold: Tensor, capacity: int) -> Found:
        raise NotImplementedError


class ResidualSum(LazySum):
    """residual + gradient, which will lie in the residual's memory."""

    def __init__(self, residual: Tensor, grad: Tensor, clear: bool = False) -> None:
        self._sum, self._grad, self._clear = residual, grad, clear
        self._added = False

    def peek(self, where: slice) -> Tensor:
        """As above; a sample of both summands, while they are two."""
        return self._sum[where] if self._added else self._sum[where] + self._grad[where]

    def hashed(self, threshold: Tensor, slots: int, seed: int) -> tuple[Tensor, Tensor]:
        """As above, in one pass."""
        if self._added:
            return hash_select(self._sum, threshold, slots, seed)
        self._added = True
        return accumulate_hash(self._sum, self._grad, threshold, slots, seed, self._clear)

    def block_norms(self, block: int) -> Tensor:
        """As above, in one pass."""
        if self._added:
            return block_norms(self._sum, block)
        self._added = True
        return accumulate_block_norms(self._sum, self._grad, block, self._clear)

    def _add(self) -> None:
        self._sum.add_(self._grad)
        if self._clear:
            self._grad.zero_()

    def _add_and_compact(self, threshold: Tensor, capacity: int) -> Found:
        return accumulate(self._sum, self._grad, threshold, capacity, self._clear)


class MomentumSum(LazySum):
    """residual + (factor · velocity + gradient), which will lie in the residual's memory."""

    def __init__(
        self, velocity: Tensor, residual: Tensor, grad: Tensor, factor: float, clear: bool = False
    ) -> None:
        self._velocity, self._sum, self._grad, self._factor = velocity, residual, grad, factor
        self._clear = clear
        self._added = False

    def peek(self, where: slice) -> Tensor:
        """As above; a sample of all summands, while they are three."""
        if self._added:
            return self._sum[where]
        return self._sum[where] + (self._velocity[where] * self._factor).add_(self._grad[where])

    def _add(self) -> None:
        self._velocity.mul_(self._factor).add_(self._grad)
        self._sum.add_(self._velocity)
        if self._clear:
            self._grad.zero_()

    def _add_and_compact(self, threshold: Tensor, capacity: int) -> Found:
        return accumulate_momentum(
            self._velocity, self._sum, self._grad, self._factor, threshold, capacity, self._clear
        )
