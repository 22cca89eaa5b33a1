"""Blocks side by side and back: the same from every implementation, the last one short."""

import pytest
import torch

from support.implementations import Case, cases, normal
from thinwire.kernels.blocks import block_elements, gather_blocks, scatter_blocks
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("blocks"))


@each
@pytest.mark.parametrize("block", [1, 16, 64])
@pytest.mark.parametrize("numel", [64, 1000, 4096])
def test_there_and_back(case: Case, block: int, numel: int) -> None:
    x = normal(numel).to(case.device)
    count = -(-numel // block)
    blocks = torch.tensor([0, count // 2 + 1, count - 1, count, count], device=case.device).unique()
    with case.chosen():
        values = gather_blocks(x, blocks, block)
        back = scatter_blocks(values, blocks, block, torch.zeros_like(x))
    expected = torch.zeros_like(x)
    for number in blocks.tolist():
        expected[number * block : (number + 1) * block] = x[number * block : (number + 1) * block]
    assert torch.equal(back, expected)
    assert values.numel() == blocks.numel() * block


def test_elements_of_blocks() -> None:
    indices = block_elements(torch.tensor([0, 2, 3]), 4, 10)
    assert indices.tolist() == [0, 1, 2, 3, 8, 9, *[PADDING] * 6]
