"""Dense allreduce, whole or rounded to 16 bits."""

import pytest
import torch

from support.collective import ranks
from thinwire.collective import Dense
from thinwire.errors import RecipeError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", range(1, 9))
def test_adds_in_its_own_dtype(cluster, size, dtype):
    values = [[1.0, r, -0.25 * r] for r in range(size)]
    expected = [sum(column) for column in zip(*values, strict=True)]
    results = cluster.run(ranks.dense, size, "fp32", values, dtype)
    for rank, (total, delivered, sent) in enumerate(results):
        assert total == expected
        assert delivered == values[rank]
        assert sent == 2 * 3 * dtype.itemsize * (size - 1) // size


def test_adds_a_sparse_selection(cluster):
    for rank, (total, delivered) in enumerate(cluster.run(ranks.dense_of_sparse, 4)):
        assert total == [1, 2, 3, 4]
        assert delivered == [rank + 1 if r == rank else 0 for r in range(4)]


@pytest.mark.parametrize(
    ("wire", "wire_dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
@pytest.mark.parametrize("size", range(1, 9))
def test_half_precision_charges_each_rank_its_own_rounding(cluster, size, wire, wire_dtype):
    values = [[0.1 * (r + 1), 1 / 3, 1000.5] for r in range(size)]
    results = cluster.run(ranks.dense, size, wire, values, torch.float32)
    precision = torch.finfo(wire_dtype).eps
    for rank, (total, delivered, sent) in enumerate(results):
        mine = torch.tensor(values[rank])
        assert delivered == ((mine / size).to(wire_dtype).float() * size).tolist()
        # Each of the P additions rounds once more.
        everyone = torch.tensor([r[1] for r in results], dtype=torch.float64).sum(0)
        bound = size * precision * everyone.abs()
        assert bool(((torch.tensor(total).double() - everyone).abs() <= bound).all())
        assert sent == 2 * 3 * 2 * (size - 1) // size


@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("magnitude", [60_000.0, 1e6, 1e12])
def test_half_precision_saturates(cluster, size, magnitude, wire):
    """Whatever is finite stays finite, keeps its sign, and is the same on every rank."""
    values = [[magnitude, -magnitude]] * size
    results = cluster.run(ranks.dense, size, wire, values, torch.float32)
    for total, delivered, _ in results:
        assert torch.tensor(total).isfinite().all(), total
        assert torch.tensor(delivered).isfinite().all(), delivered
        assert total[0] > 0 > total[1]
        assert total == results[0][0]


def test_fp16_holds_a_mean_within_its_range(cluster):
    """A sum beyond float16's range is no reason to saturate when the mean is within it."""
    for total, _, _ in cluster.run(ranks.dense, 8, "fp16", [[32_768.0]] * 8, torch.float32):
        assert total == [8 * 32_768.0]


def test_refuses_an_unknown_dtype():
    with pytest.raises(RecipeError, match="dtype='int4' must be one of fp32, fp16, bf16"):
        Dense("int4")
