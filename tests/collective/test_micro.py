"""MiCRO: lists are gathered, values added where anyone listed an index."""

import pytest
import torch

from support.collective import laws
from support.collective.laws import Case
from thinwire.collective import Micro
from thinwire.collective._lists import LENGTH, list_bytes
from thinwire.errors import RecipeError
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything, PartitionTopK, TopK

CASES = (*laws.SPARSE, *laws.DENSE)
ADDING = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_in_every_wire_dtype(cluster, size):
    shares = laws.in_turn(CASES, size)
    trials = [(Micro(dtype), None, cases) for dtype, cases in zip(ADDING, shares, strict=True)]
    seen = cluster.run(laws.exchange_each, size, trials)
    for number, (dtype, adding) in enumerate(ADDING.items()):
        by_rank = [results[number] for results in seen]
        laws.assert_laws(shares[number], by_rank, lossless=dtype == "fp32", adding=adding)


@pytest.mark.parametrize("size", range(2, 9))
def test_lists_without_anything_in_common_sum_to_k_values_whatever_p(cluster, size):
    cases = [Case("disjoint", 8000, k // size) for k in (80, 800, 4000)]
    for results in cluster.run(laws.exchange, size, Micro(), None, cases):
        for case, seen in zip(cases, results, strict=True):
            ring = 2 * (size - 1) * size * case.k * 4 // size
            listed = 8 + LENGTH + list_bytes(case.k, case.numel)
            assert seen.sent == seen.received == ring + (size - 1) * listed


@pytest.mark.parametrize("numel", [2, 500])
def test_conserves_over_steps(cluster, numel):
    choices = (PartitionTopK(0.05), PartitionTopK(1.0), TopK(0.05), Everything())
    pipelines = [Pipeline(s, None, Micro(), Residual(), bypass=0) for s in choices]
    laws.check_conservation(cluster, 3, pipelines, numel)


def test_rows_travel_whole_and_settings_are_checked():
    assert Micro().without_loss().name == "union"
    with pytest.raises(RecipeError, match="dtype"):
        Micro("int8")
