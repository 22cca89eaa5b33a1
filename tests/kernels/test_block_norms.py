"""Norms of blocks: the same to rounding from all implementations, always the same from each."""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.addend import Addend
from thinwire.kernels.block_norms import block_norms

each = pytest.mark.parametrize("case", cases("block_norms"))
SIZES = [(0, 4), (1, 1), (5, 8), (640, 64), (1000, 7), (1000, 256), (9000, 8999)]


def expected(x: Tensor, block: int) -> Tensor:
    return torch.stack([part.double().norm() for part in x.split(block)]) if len(x) else x.double()


@each
@pytest.mark.parametrize(("numel", "block"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norm_of_each_block(case: Case, numel: int, block: int, dtype: torch.dtype) -> None:
    x = normal(numel, dtype)
    norms = case.run(block_norms, x, block)
    torch.testing.assert_close(norms.cpu().double(), expected(x, block), rtol=1e-5, atol=0)


@each
@pytest.mark.parametrize(("numel", "block"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("clear", [False, True])
def test_fused_is_first_add_then_norms(
    case: Case, numel: int, block: int, dtype: torch.dtype, momentum: bool, clear: bool
) -> None:
    grad, residual = normal(numel, dtype, seed=1), normal(numel)
    step = normal(numel, seed=2).mul_(0.9).add_(grad) if momentum else grad
    whole = residual + step
    placed, spent = case.place(residual), case.place(grad.clone())
    velocity = case.place(normal(numel, seed=2)) if momentum else None
    norms = case.run(block_norms, placed, block, Addend(spent, velocity, 0.9, clear))
    assert velocity is None or bits(velocity) == bits(step)
    assert bits(spent) == bits(torch.zeros_like(grad) if clear else grad)
    assert bits(placed) == bits(whole)
    assert bits(norms) == bits(case.run(block_norms, whole, block))


@each
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_beyond_the_range_of_float32(case: Case, scale: float) -> None:
    x = normal(640) * scale
    norms = case.run(block_norms, x, 64)
    torch.testing.assert_close(norms.cpu().double(), expected(x, 64), rtol=1e-5, atol=0)
