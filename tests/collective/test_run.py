"""The mean of what an exchange brought."""

import pytest
import torch

from thinwire.collective._run import mean_of
from thinwire.comm import GroupCommunicator
from thinwire.types import ExchangeContext, Reduced, Sparse

CTX = ExchangeContext("w", 0, 0, GroupCommunicator())
TOTAL = Sparse(torch.tensor([1, 3]), torch.tensor([2.0, 6.0]), 5)


@pytest.mark.parametrize(
    "reduced",
    [
        Reduced(TOTAL, TOTAL),
        Reduced(TOTAL.to_dense(), TOTAL),
        Reduced(TOTAL.to_dense(), TOTAL, support=torch.tensor([1, 3, 1])),
        Reduced(TOTAL.to_dense() / 2, TOTAL, is_mean=True),
    ],
)
def test_a_total_of_any_form(reduced: Reduced) -> None:
    assert mean_of(reduced, 5, 2, CTX).tolist() == [0.0, 1.0, 0.0, 3.0, 0.0]
