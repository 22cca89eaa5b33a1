"""Index codecs that find other indices than were given: whose values travel, and from where."""

from dataclasses import replace

import pytest
import torch

from support.codec.cases import context, random_sparse, random_values
from thinwire.codec import Pair
from thinwire.codec.container import HEADER_BYTES
from thinwire.codec.index import BitmapIndex, BloomIndex
from thinwire.codec.index.bloom import POLICIES, Policy
from thinwire.codec.value import FitPolyValue, QsgdValue
from thinwire.errors import WireFormatError
from thinwire.types import ExchangeContext, Sparse

EXACT: list[Policy] = ["p0", "p1", "p2", "leftmost"]  # values at their own places
FPR = 0.05


def with_dense(dense: torch.Tensor) -> ExchangeContext:
    plain = context()
    return ExchangeContext(plain.tensor, plain.step, plain.seed, plain.comm, source=dense)


def decoded(pair: Pair, s: Sparse, ctx: ExchangeContext) -> Sparse:
    out = pair.decode(pair.encode(s, ctx), ctx)
    assert isinstance(out, Sparse)
    assert out.ordered
    return out


@pytest.mark.parametrize("policy", EXACT)
@pytest.mark.parametrize("ordered", [True, False])
def test_values_are_read_from_the_dense_tensor(policy: Policy, ordered: bool) -> None:
    dense = random_values(4000, torch.float32, seed=1)
    chosen = random_sparse(4000, 60, ordered=ordered).indices
    s = Sparse(chosen, dense[chosen], 4000, ordered)
    out = decoded(Pair(BloomIndex(policy, FPR)), s, with_dense(dense))
    assert torch.equal(out.values, dense[out.indices])
    assert not torch.isin(out.indices, chosen).all(), "no false positive: nothing was tested"
    if policy == "p0":
        assert torch.isin(chosen, out.indices).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_step_tensor_rank_and_run_has_false_positives_of_its_own(policy: Policy) -> None:
    """An element that is taken for a chosen one now must not be so for ever, nor everywhere."""
    s, here = random_sparse(4000, 60), context()
    elsewhere = [
        replace(here, step=here.step + 1),
        replace(here, tensor=here.tensor + "'"),
        context(rank=here.comm.rank + 1),
        replace(here, seed=here.seed + 1),
    ]
    pair = Pair(BloomIndex(policy, FPR))

    def false(ctx: ExchangeContext) -> frozenset[int]:
        return frozenset(decoded(pair, s, ctx).indices.tolist()) - frozenset(s.indices.tolist())

    assert false(here) == false(here)
    assert len({false(ctx) for ctx in (here, *elsewhere)}) == 1 + len(elsewhere)


@pytest.mark.parametrize("policy", EXACT)
@pytest.mark.parametrize("width", [None, 3])
def test_without_a_dense_tensor_values_outside_are_zero(policy: Policy, width: int | None) -> None:
    s = random_sparse(3000, 50, width=width)
    out = decoded(Pair(BloomIndex(policy, FPR)), s, context())
    grid = s.to_dense().view(s.rows, s.width)
    assert torch.equal(out.values.view(-1, s.width), grid[out.indices])
    assert (out.numel, out.values.dim()) == (s.numel, s.values.dim())


def test_rows_are_read_from_the_dense_tensor() -> None:
    dense = random_values(3000, torch.float64, seed=2)
    rows = torch.tensor([3, 50, 400, 999])
    s = Sparse(rows, dense.view(1000, 3)[rows], 3000)
    out = decoded(Pair(BloomIndex("p0", 0.3)), s, with_dense(dense))
    assert torch.equal(out.values, dense.view(1000, 3)[out.indices])
    assert out.count > 4


def test_naive_sends_the_values_as_they_are() -> None:
    """DeepReduce, section 4: after the first false positive every value is in a wrong place."""
    s = random_sparse(4000, 60)
    out = decoded(Pair(BloomIndex("naive", FPR)), s, with_dense(s.to_dense()))
    assert torch.equal(out.values, s.values)
    right = out.indices == s.indices
    assert not right.all()
    first_wrong = int((~right).nonzero()[0])
    assert right[:first_wrong].all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [0, 200])
def test_none_and_all(policy: Policy, count: int) -> None:
    s = random_sparse(200, count)
    out = decoded(Pair(BloomIndex(policy)), s, context())
    assert torch.equal(out.indices, s.indices)
    assert torch.equal(out.values, s.values)


def test_table_2_of_deepreduce() -> None:
    """NCF: 40 % zeros, P0 at FPR 0.6, QSGD at 7 bits, buckets of 512: 0.2063 of the dense bytes."""
    draw = torch.Generator().manual_seed(0)
    dense = torch.randn(1_000_000, generator=draw)
    dense[torch.randperm(1_000_000, generator=draw)[:400_000]] = 0
    chosen = dense.nonzero().view(-1)
    pair = Pair(BloomIndex("p0", fpr=0.6), QsgdValue(bits=7, bucket=512))
    ctx = with_dense(dense)
    wire = pair.encode(Sparse(chosen, dense[chosen], dense.numel()), ctx)
    assert wire.numel() <= 0.2063 * 4 * dense.numel()
    out = pair.decode(wire, ctx)
    assert isinstance(out, Sparse)
    assert torch.isin(chosen, out.indices).all()
    error = (out.to_dense() - dense).abs()[out.indices]
    assert (error <= pair.value.error_bound(dense[out.indices])).all()


def test_figure_1_of_deepreduce() -> None:
    """A bit for each of 8 rows and the 2 parameters of a line, 72 bits; all else is framing."""
    dense = torch.tensor([0.0, 4.0, 4.6, 0.0, 5.2, 0.0, 0.0, 5.8])
    chosen = dense.nonzero().view(-1)
    pair = Pair(BitmapIndex(), FitPolyValue(degree=1, pieces=1))
    wire = pair.encode(Sparse(chosen, dense[chosen], 8), context())
    out = pair.decode(wire, context())
    assert isinstance(out, Sparse)
    assert torch.equal(out.indices, chosen)
    torch.testing.assert_close(out.to_dense(), dense, rtol=2e-7, atol=0)
    framing = {
        "header": HEADER_BYTES,
        "the bitmap's form, and the rest of its word": 1 + 7,
        "scale, counts and sizes of the fit": 16,
        "degree, pieces, length of the piece": 4 + 4,
        "the order, 2 bits each": 1,
        "up to multiples of 8": 7 + 7,
    }
    assert 8 * wire.numel() == 72 + 8 * sum(framing.values())


def test_an_index_twice_is_refused() -> None:
    """The checksum fits, and yet no sender means it: ranks would add it in any order."""
    twice = Sparse(torch.tensor([7, 3, 7]), torch.ones(3), 10, ordered=False)
    with pytest.raises(WireFormatError, match="distinct"):
        Pair().decode(Pair().encode(twice, context()), context())
