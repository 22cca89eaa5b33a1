"""CLT-k: the leader's indices count for all ranks, and everyone leads in turn.

Covers collective/_lists.py, collective/_tree.py.
"""

import pytest
import torch

from support.collective import laws
from support.collective.laws import Case
from thinwire.collective import CltK
from thinwire.collective._lists import LENGTH, list_bytes, pack_list, unpack_list
from thinwire.collective._tree import hand_down
from thinwire.collective.cltk import leader_of
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError, WireFormatError
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.sparsify import ChunkTopK, Everything, SampledThreshold, TopK
from thinwire.types import ExchangeContext

CASES = (*laws.SPARSE, *laws.DENSE)
ADDING = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_in_every_wire_dtype(cluster, size):
    shares = laws.in_turn(CASES, size)
    trials = [(CltK(dtype), None, cases) for dtype, cases in zip(ADDING, shares, strict=True)]
    seen = cluster.run(laws.exchange_each, size, trials)
    for number, adding in enumerate(ADDING.values()):
        by_rank = [results[number] for results in seen]
        laws.assert_laws(shares[number], by_rank, lossless=False, adding=adding)


def totals(group, rank, size, case):
    """Where the total is not zero, by step, and whose selection that is."""
    seen = laws.exchange_over(GroupCommunicator(group), CltK(), None, [case] * (size + 1))
    return [one.total.nonzero().flatten().tolist() for one in seen]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_everyone_leads_in_turn(cluster, size):
    case = Case("disjoint")
    chosen = [case.selection(rank, size).indices.tolist() for rank in range(size)]
    for by_step in cluster.run(totals, size, case):
        assert by_step == [chosen[leader_of(step, size)] for step in range(size + 1)]


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes(cluster, size):
    """The list at most once from each parent to each child, and the ring's share of k values."""
    cases = [Case("uniform", 8000, k) for k in (10, 200, 4000)]
    by_rank = cluster.run(laws.exchange, size, CltK(), None, cases)
    for number, case in enumerate(cases):
        ring = 2 * (size - 1) * case.k * 4 // size
        listed = 8 + LENGTH + list_bytes(case.k, case.numel)
        sent = [results[number].sent for results in by_rank]
        assert sum(sent) == size * ring + (size - 1) * listed
        assert all(results[number].received <= ring + listed for results in by_rank)


@pytest.mark.parametrize("numel", [500, 5000])
def test_conserves_over_steps(cluster, numel):
    choices = (TopK(0.05), ChunkTopK(4, 64), SampledThreshold(0.1), Everything())
    pipelines = [Pipeline(s, None, CltK(), Residual(), bypass=0) for s in choices]
    laws.check_conservation(cluster, 3, pipelines, numel)


def handed_down(group, rank, size):
    ctx = ExchangeContext(tensor="w", step=0, seed=0, comm=GroupCommunicator(group))
    wires = [torch.full((3 + root,), rank, dtype=torch.uint8) for root in range(size)]
    return [hand_down(wire, ctx, root).tolist() for root, wire in enumerate(wires)]


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_bytes_come_down_from_any_root(cluster, size):
    assert cluster.run(handed_down, size) == [[[r] * (3 + r) for r in range(size)]] * size


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_a_list_comes_back_and_a_damaged_one_is_refused(count):
    indices = torch.randperm(100_000, generator=torch.Generator().manual_seed(count))[:count]
    indices = indices.sort().values
    wire = pack_list(indices, 100_000)
    assert torch.equal(unpack_list(wire, 100_000), indices)
    assert wire.numel() == LENGTH + list_bytes(count, 100_000) <= LENGTH + 2 * count + 8 + 7
    for broken in (wire[:-1], wire[:5], torch.cat((wire, wire[:1]))):
        with pytest.raises(WireFormatError):
            unpack_list(broken, 100_000)
    if count:
        wire[LENGTH] += 1  # one more in a region
        with pytest.raises(WireFormatError):
            unpack_list(wire, 100_000)


def test_rows_travel_whole_and_settings_are_checked():
    assert CltK().without_loss().name == "union"
    with pytest.raises(RecipeError, match="dtype"):
        CltK("int8")
