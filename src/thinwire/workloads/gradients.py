"""Gradients to exchange: heavy-tailed, alike but not equal on all ranks, new at every step."""

import torch
from torch import Tensor

from thinwire.rng import stream_seed

ROW = 1024  # elements that share a scale, as the weights of one neuron do
SCALE_SPREAD = 1.5  # of the rows' scales, a log-normal; its mixture with normals has heavy tails
NOISE = 1.0  # what differs between ranks and steps, against what all have in common
SHIFTS = 4096  # rows of spare noise to choose a window from


class SyntheticGradient:
    """scale[row] · (signal + noise). Signal and scales are shared; noise is a rank's own.

    `fill` writes a step's gradient into `grad` and allocates nothing: the noise of a step is a
    window into noise made once.
    """

    def __init__(
        self, n: int, rank: int, seed: int = 0, device: torch.device | None = None
    ) -> None:
        rows = -(-n // ROW)
        device = device or torch.device("cpu")
        shared, own = (
            torch.Generator(device).manual_seed(stream_seed(seed, 0, "gradient", purpose, of_rank))
            for purpose, of_rank in (("signal", None), ("noise", rank))
        )
        spare = min(SHIFTS, rows)
        with device:
            self._scales = torch.empty(rows, 1).log_normal_(0.0, SCALE_SPREAD, generator=shared)
            self._signal = torch.empty(rows, ROW).normal_(generator=shared)
            self._noise = torch.empty(rows + spare, ROW).normal_(0.0, NOISE, generator=own)
            self._buffer = torch.empty(rows, ROW)
        self._windows, self._rows, self._own = spare + 1, rows, own
        self.grad = self._buffer.view(-1)[:n]

    def fill(self) -> Tensor:
        """The next step's gradient, in the same memory as the last one's."""
        device = self._own.device
        start = int(torch.randint(self._windows, (), generator=self._own, device=device))
        torch.add(self._signal, self._noise[start : start + self._rows], out=self._buffer)
        self._buffer.mul_(self._scales)
        return self.grad
