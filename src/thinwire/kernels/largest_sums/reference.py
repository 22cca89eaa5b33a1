"""Adding up in torch: equal indices lie side by side once all lists are sorted into one."""

import torch
from torch import Tensor

from thinwire.types import PADDING

KEY_BITS = 16  # of a magnitude: the exponent, and 8 more of float32, 5 of float64
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def magnitude_keys(values: Tensor) -> Tensor:
    """The leading bits of the magnitudes."""
    integer = _INTEGERS[values.dtype]
    form = torch.iinfo(integer)
    return (values.contiguous().view(integer) & form.max) >> (form.bits - 1 - KEY_BITS)


def largest_sums(indices: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    marked = values.isnan().any()
    index, sums = _add_up(indices, values.nan_to_num(0.0))
    keys = torch.where(sums == 0, -1, magnitude_keys(sums))
    taken = keys.sort(descending=True, stable=True).indices[:count]
    none = sums[taken] == 0
    index, order = index[taken].masked_fill(none, PADDING).sort(stable=True)
    sums = sums[taken][order]
    sums[:1].masked_fill_(marked, torch.nan)
    return index, sums


def _add_up(indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """All indices in order, and at the first of equal ones their sum; zero at the others."""
    ordered, order = indices.flatten().sort(stable=True)
    values = values.flatten()[order]
    total = values.clone()
    for after in range(1, min(len(indices), values.numel())):
        same = ordered[after:] == ordered[:-after]
        total[:-after] += torch.where(same, values[after:], 0)
    total[1:].masked_fill_(ordered[1:] == ordered[:-1], 0)
    return ordered, total
