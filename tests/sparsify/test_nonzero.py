"""Nonzero: exactly what is not zero."""

import torch

from support.sparsify import select
from thinwire.sparsify import Nonzero


def test_selects_what_is_not_zero_and_nothing_else() -> None:
    x = torch.tensor([0.0, 1.0, -0.0, 1e-45, torch.nan, -torch.inf, 0.0])
    chosen = select(Nonzero(), x)
    assert chosen.indices.tolist() == [1, 3, 4, 5]
    assert torch.equal(chosen.values.nan_to_num(7), x[[1, 3, 4, 5]].nan_to_num(7))


def test_all_zero_and_none_zero() -> None:
    assert select(Nonzero(), torch.zeros(9)).count == 0
    assert select(Nonzero(), torch.ones(9)).count == 9
