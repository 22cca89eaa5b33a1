"""Zen: owners by hash, balanced whatever was selected; sums come back with a bitmap."""

import pytest
import torch

from support.codec.cases import context
from support.collective import laws
from support.collective.laws import Case
from thinwire.collective import Zen
from thinwire.collective.zen import Stripes, _open, back_bytes
from thinwire.errors import WireFormatError
from thinwire.feedback import Residual
from thinwire.kernels.bitmap import set_bits
from thinwire.pipeline import Pipeline
from thinwire.sparsify import Everything, TopK
from thinwire.types import Sparse

CASES = (*laws.SPARSE, *laws.DENSE)


@pytest.mark.parametrize("size", range(1, 9))
def test_keeps_the_laws_whatever_the_codec(cluster, size):
    laws.check_codecs(cluster, size, Zen(), laws.in_turn(CASES, size), lossless=True)


@pytest.mark.parametrize("size", [9, 16])
def test_more_ranks(size):
    seen = laws.Threads(size).run(laws.exchange_over, Zen(), laws.RAW, laws.SPREAD)
    laws.assert_laws(laws.SPREAD, seen, lossless=True)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("numel", [0, 1, 7, 1000, 1003])
def test_every_index_has_one_owner_and_comes_back(numel, size):
    stripes = Stripes(numel, size, seed=5)
    everything = Sparse(torch.arange(numel), torch.randn(numel), numel)
    parts = stripes.deal(everything)
    assert len(parts) == size
    assert all((part.indices.diff() > 0).all() for part in parts)
    assert max(part.count for part in parts) - min(part.count for part in parts) <= 1
    back = stripes.collect(parts)
    assert torch.equal(back.indices, everything.indices)
    assert torch.equal(back.values, everything.values)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["scattered", "a run", "a column", "every P-th"])
def test_owners_are_balanced_whatever_was_selected_where(kind, size):
    """The paper has an imbalance below 1.1; of columns a plain index mod P has one of P."""
    numel, k = 1 << 22, 40_000
    indices = {
        "scattered": torch.randperm(numel, generator=torch.Generator().manual_seed(1))[:k],
        "a run": 12_345 + torch.arange(k),
        "a column": torch.arange(k) * 64 + 3,
        "every P-th": torch.arange(k) * size,
    }[kind]
    counts = Stripes(numel, size, seed=11).owners(indices).bincount(minlength=size)
    assert float(counts.max()) / (k / size) < 1.1


def bound(case, size):
    """Its elements to their owners once, and P-1 times its share of the sums and of the bitmap."""
    supports = [laws.dense_of(case.selection(r, size)) != 0 for r in range(size)]
    union = int(torch.stack(supports).any(0).sum())
    k = max(int(support.sum()) for support in supports)
    there = 8 * 1.3 * k * (size - 1) / size + 64
    back = (size - 1) * (4 * (1.3 * union / size + 16) + case.numel / size / 8 + 16)
    return there + back + 2 * (size - 1) * laws.HEADER


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes(cluster, size):
    """k·(P-1)/P pairs there; n/32 words and the union's values back, of all ranks together."""
    cases = [Case(kind, 40_000, k) for kind in ("uniform", "skewed", "disjoint", "identical")
             for k in (800, 8000)]  # fmt: skip
    for results in cluster.run(laws.exchange, size, Zen(), laws.RAW, cases):
        for case, seen in zip(cases, results, strict=True):
            assert seen.sent <= bound(case, size), case


def test_conserves_over_steps(cluster):
    choices = (TopK(0.05), TopK(0.6), Everything())
    pipelines = [Pipeline(s, laws.BF16, Zen(), Residual(), bypass=0) for s in choices]
    laws.check_conservation(cluster, 3, pipelines, 501)


def test_a_bitmap_that_does_not_fit_its_values_is_refused():
    ctx, values = context(), torch.randn(3)
    wire = torch.cat((set_bits(torch.tensor([1, 5, 99]), 100).view(torch.uint8),
                      laws.RAW.encode(values, ctx)))  # fmt: skip
    assert _open(wire, 100, laws.RAW, ctx).indices.tolist() == [1, 5, 99]
    for byte, bits in ((0, 0), (back_bytes(100) - 1, 255), (0, 255)):
        broken = wire.clone()
        broken[byte] = bits
        with pytest.raises(WireFormatError):
            _open(broken, 100, laws.RAW, ctx)
    with pytest.raises(WireFormatError):
        _open(wire[:8], 100, laws.RAW, ctx)
