"""NaN and Inf: found wherever they are, and answered as the policy says."""

import math

import pytest
import torch

from thinwire.engine.finite import largest_magnitudes, look_at, refuse
from thinwire.errors import NonFiniteError


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_tensor_is_named(poison: float, dtype: torch.dtype) -> None:
    grads = {name: torch.ones(50, dtype=dtype) for name in "abc"}
    assert look_at(grads)[0] == []
    grads["b"][17] = poison
    assert look_at(grads)[0] == ["b"]


def test_in_a_bucket_and_apart() -> None:
    bucket = torch.ones(30)
    grads = {"a": bucket[:10], "b": bucket[10:]}
    assert look_at(grads)[0] == []
    bucket[29] = math.nan
    assert look_at(grads)[0] == ["b"]


def test_coo_gradients() -> None:
    values = torch.tensor([[1.0, math.nan]])
    coo = torch.sparse_coo_tensor(torch.tensor([[2]]), values, (5, 2))
    assert look_at({"dense": torch.ones(3), "rows": coo})[0] == ["rows"]


def test_nothing_to_look_at() -> None:
    assert look_at({})[0] == largest_magnitudes({}) == []
    assert look_at({"empty": torch.ones(0), "integers": torch.ones(3, dtype=torch.int64)})[0] == []


def test_the_largest_magnitude_of_each() -> None:
    grads = {"a": torch.tensor([1.0, -3.0]), "b": torch.tensor([[2.0]])}
    assert largest_magnitudes(grads) == [3, 2]


def test_raise_names_ranks_and_tensors() -> None:
    with pytest.raises(NonFiniteError, match=r"rank 1, 3 \(here in a, b\)"):
        refuse("raise", [], ["a", "b"], [1, 3])
    with pytest.raises(NonFiniteError, match=r"rank 2 \(not on this rank\)"):
        refuse("raise", [], [], [2])


@pytest.mark.parametrize(("policy", "value"), [("skip", 0.0), ("propagate", math.nan)])
def test_the_others_fill_every_gradient(policy: str, value: float) -> None:
    dense = torch.ones(3)
    coo = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1), (4,))
    refuse(policy, [dense, coo], ["a"], [0])  # type: ignore[arg-type]
    expected = torch.full((3,), value)
    torch.testing.assert_close(dense, expected, equal_nan=True)
    torch.testing.assert_close(coo._values(), expected[:1], equal_nan=True)
