"""The shared parts that no sparsifier's result shows."""

import pytest
import torch

from support.sparsify import DEVICES
from thinwire.kernels.lazy_sum import LazySum
from thinwire.sparsify._common import odd_stride, reaching


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_threshold_lets_zeros_through(dtype: torch.dtype, device: str) -> None:
    """A threshold of zero, as a mostly-zero gradient suggests, would take all of them."""
    smallest = torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    x = torch.tensor([0.0, smallest, -0.0, -smallest, 0.0], dtype=dtype, device=device)
    assert reaching(LazySum(x), 0.0, 1).indices.tolist() == [1, 3]
    none = torch.zeros((), dtype=dtype, device=device)
    assert reaching(LazySum(x), none, 1).indices.tolist() == [1, 3]


@pytest.mark.parametrize(("numel", "samples"), [(1, 5), (10, 10), (1000, 10), (1 << 20, 1 << 13)])
def test_a_stride_is_odd_and_takes_about_what_is_wanted(numel: int, samples: int) -> None:
    stride = odd_stride(numel, samples)
    assert stride % 2 == 1
    assert min(numel, samples) * 0.9 <= len(range(0, numel, stride)) <= max(numel, samples)
