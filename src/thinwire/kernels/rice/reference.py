"""Rice's numbers in torch: differences and running sums."""

from torch import Tensor


def from_indices(indices: Tensor, low_bits: int) -> tuple[Tensor, Tensor]:
    gaps = indices.diff(prepend=indices.new_full((1,), -1)) - 1
    numbers = (gaps >> low_bits).cumsum(0) << low_bits | gaps & ((1 << low_bits) - 1)
    return numbers, (gaps >= 0).all()


def to_indices(numbers: Tensor, low_bits: int, rows: int) -> tuple[Tensor, Tensor]:
    """A sum that passes 2^63 shows: the first one to do so is negative."""
    high = (numbers >> low_bits).diff(prepend=numbers.new_zeros(1))
    gaps = high << low_bits | numbers & ((1 << low_bits) - 1)
    indices = (gaps + 1).cumsum(0) - 1
    return indices, ((gaps >= 0) & (indices >= 0) & (indices < rows)).all()
