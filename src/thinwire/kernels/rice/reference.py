"""Rice's numbers in torch: differences and running sums."""

import torch
from torch import Tensor


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, bool]:
    """See the package."""
    gaps = indices.diff(prepend=indices.new_full((1,), -1)) - 1
    numbers = (gaps >> low_bits).cumsum(0) << low_bits | gaps & ((1 << low_bits) - 1)
    return numbers, not bool((gaps < 0).any())


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, bool]:
    """See the package. A sum that passes 2^63 shows: the first one to do so is negative."""
    high = (numbers >> low_bits).diff(prepend=numbers.new_zeros(1))
    gaps = high << low_bits | numbers & ((1 << low_bits) - 1)
    indices = (gaps + 1).cumsum(0) - 1
    sound = not numbers.numel() or bool(
        torch.stack((gaps.amin() >= 0, indices.amin() >= 0, indices[-1] < rows)).all()
    )
    return indices, sound
