"""The same bytes on a GPU as on the CPU, and no waiting for the GPU on the way out."""

from dataclasses import replace

import pytest
import torch

from support.codec.cases import PAIRS, bits_of, context, random_sparse, random_values
from thinwire.codec import Pair
from thinwire.codec.index import BloomIndex
from thinwire.codec.index.bloom import POLICIES, Policy
from thinwire.types import Selection, Sparse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SELECTIONS: dict[str, Selection] = {
    "sparse": random_sparse(5000, 1303, extreme=True),
    "unordered": random_sparse(5000, 700, torch.float64, ordered=False, extreme=True),
    "rows": random_sparse(300, 77, width=5),
    "dense": random_values(100_003, torch.float32, seed=8),
    "empty": random_sparse(10, 0),
}


def on_gpu(s: Selection) -> Selection:
    if isinstance(s, Sparse):
        return Sparse(s.indices.cuda(), s.values.cuda(), s.numel, s.ordered)
    return s.cuda()


FITS = {name for name, pair in PAIRS.items() if pair.value.name in ("fit_poly", "fit_dexp")}


@pytest.mark.parametrize("form", SELECTIONS)
@pytest.mark.parametrize("name", sorted(PAIRS.keys() - FITS))
def test_gpu_and_cpu_write_and_read_the_same(name: str, form: str) -> None:
    pair, s = PAIRS[name], SELECTIONS[form]
    wire = pair.encode(s, context())
    gpu_wire = pair.encode(on_gpu(s), context())
    assert gpu_wire.is_cuda
    assert torch.equal(gpu_wire.cpu(), wire)
    out, gpu_out = pair.decode(wire, context()), pair.decode(gpu_wire, context())
    if isinstance(out, Sparse) and isinstance(gpu_out, Sparse):
        assert torch.equal(gpu_out.indices.cpu(), out.indices)
        out, gpu_out = out.values, gpu_out.values
    assert isinstance(out, torch.Tensor)
    assert isinstance(gpu_out, torch.Tensor)
    assert gpu_out.is_cuda
    assert torch.equal(bits_of(gpu_out.cpu()), bits_of(out))


def values_of(s: Selection) -> torch.Tensor:
    return s.values if isinstance(s, Sparse) else s


@pytest.mark.parametrize("form", SELECTIONS)
@pytest.mark.parametrize("name", sorted(FITS))
def test_a_gpu_draws_the_same_curve_and_fits_as_well(name: str, form: str) -> None:
    """It adds in another order: the same bytes are read alike, but not the same are written."""
    pair, s = PAIRS[name], SELECTIONS[form]
    wire = pair.encode(s, context())
    out = values_of(pair.decode(wire, context()))
    same = values_of(pair.decode(wire.cuda(), context()))
    assert same.is_cuda and torch.equal(bits_of(same.cpu()), bits_of(out))
    own = pair.encode(on_gpu(s), context())
    assert own.is_cuda and own.numel() == wire.numel()
    assert torch.equal(own, pair.encode(on_gpu(s), context())), "law 3"
    x, fitted = values_of(s).double(), values_of(pair.decode(own, context())).cpu()
    error, error_here = (fitted - x).norm(), (out - x).norm()
    assert error <= error_here * (1 + 1e-5) + 1e-12 * x.norm()


@pytest.mark.parametrize("policy", POLICIES)
def test_bloom_filters_find_the_same(policy: Policy) -> None:
    """With the values at hand that were not selected."""
    dense = random_values(5000, torch.float32, seed=3)
    indices = random_sparse(5000, 303).indices
    pair = Pair(BloomIndex(policy, fpr=0.01))
    wires, found = [], []
    for device in ("cpu", "cuda"):
        ctx = replace(context(), source=dense.to(device))
        s = Sparse(indices.to(device), dense[indices].to(device), 5000)
        wires.append(pair.encode(s, ctx))
        found.append(pair.decode(wires[-1], ctx))
    assert wires[1].is_cuda and torch.equal(wires[1].cpu(), wires[0])
    ours, theirs = found
    assert isinstance(ours, Sparse) and isinstance(theirs, Sparse)
    assert torch.equal(theirs.indices.cpu(), ours.indices)
    assert torch.equal(bits_of(theirs.values.cpu()), bits_of(ours.values))


SIZED_BY_THEIR_DATA = {"rice+raw", "varint+raw", "rle+raw", "huffman+raw", "raw+3lc"}
ON_THE_HOST = {"deflate", "zstd", "quantile"}
WAITING = FITS | {name for name, pair in PAIRS.items() if pair.value.name in ON_THE_HOST}


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - SIZED_BY_THEIR_DATA - WAITING))
def test_encoding_does_not_wait(name: str) -> None:
    selections = [on_gpu(s) for s in SELECTIONS.values()]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for s in selections:
            PAIRS[name].encode(s, context())
    finally:
        torch.cuda.set_sync_debug_mode("default")
