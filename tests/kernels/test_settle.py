"""What was delivered leaves the residual: the same from every implementation."""

import pytest
import torch

from support.implementations import Case, cases, normal
from thinwire.kernels.settle import settle
from thinwire.types import PADDING, Sparse

each = pytest.mark.parametrize("case", cases("settle"))


@each
@pytest.mark.parametrize("with_velocity", [False, True])
def test_what_was_delivered_is_taken(case: Case, with_velocity: bool) -> None:
    residual, velocity = normal(3000).to(case.device), torch.ones(3000, device=case.device)
    before = residual.clone()
    indices = torch.arange(0, 2999, 3, device=case.device)
    delivered = Sparse(indices, before[indices] / 2, 3000)
    with case.chosen():
        settle(delivered, residual, velocity if with_velocity else None)
    expected, masked = before.clone(), torch.ones_like(velocity)
    expected[indices] = before[indices] - before[indices] / 2
    masked[indices] = 0
    assert torch.equal(residual, expected)
    assert torch.equal(velocity, masked if with_velocity else torch.ones_like(velocity))


@each
def test_padding_and_marks_touch_nothing(case: Case) -> None:
    residual, velocity = torch.ones(10, device=case.device), torch.ones(10, device=case.device)
    indices = torch.tensor([2, 9, PADDING, PADDING], device=case.device)
    values = torch.tensor([torch.nan, 0.25, 0.0, 0.0], device=case.device)
    with case.chosen():
        settle(Sparse(indices, values, 10, padded=True), residual, velocity)
    assert residual.tolist() == [1.0] * 9 + [0.75]
    assert velocity.tolist() == [1.0, 1.0, 0.0, *[1.0] * 6, 0.0]
