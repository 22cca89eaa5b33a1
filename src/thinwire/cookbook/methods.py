"""Each method of the papers, and each baseline, as a few lines of the same pieces."""

import dataclasses

from thinwire.auto import Auto, dense_pipeline
from thinwire.codec import CountSketch, Pair
from thinwire.codec.index import Chunk12Index, HuffmanIndex, VarintIndex
from thinwire.codec.value import (
    Centroid2Value,
    QsgdValue,
    QuantileValue,
    SignValue,
    TernValue,
    ThreeLcValue,
)
from thinwire.collective import (
    AllGather,
    CltK,
    Dense,
    FewBits,
    GTopK,
    LowRank,
    Micro,
    OkTopK,
    OmniReduce,
    SketchAllReduce,
    SparCML,
    SparDL,
    UnionAllReduce,
    Zen,
)
from thinwire.collective.oktopk.balance import Balance
from thinwire.collective.oktopk.regions import Consensus
from thinwire.cookbook.notation import build_pieces
from thinwire.feedback import Momentum, NoFeedback, Residual
from thinwire.kernels.count_sketch import Hashing
from thinwire.pipeline import Pipeline
from thinwire.sparsify import (
    BlockTopK,
    ChunkTopK,
    Everything,
    GaussianK,
    HashedSlots,
    MultiStage,
    Nonzero,
    PartitionTopK,
    RandomK,
    ReusedThreshold,
    SampledThreshold,
    TopK,
)


def dense() -> Pipeline:
    """Allreduce of the whole gradient: what all others are measured against."""
    return dense_pipeline(NoFeedback())


def fp16() -> Pipeline:
    """Allreduce in float16, as PyTorch's fp16 hook does, but saturating instead of overflowing."""
    return dataclasses.replace(dense(), collective=Dense("fp16"))


def bf16() -> Pipeline:
    """Allreduce in bfloat16."""
    return dataclasses.replace(dense(), collective=Dense("bf16"))


def int8(group: int = 128, rounding: str = "nearest", rotate: bool = False) -> Pipeline:
    """Allreduce in 8 bits with a scale for each group: half of bfloat16's bytes, and a residual.

    What both roundings lose, the senders' and that of the sum, is sent with later gradients.
    """
    collective = FewBits(8, group, rounding, rotate)
    return Pipeline(Everything(), None, collective, Residual(), unit="bucket", bypass=0)


def int4(group: int = 128, rounding: str = "nearest", rotate: bool = False) -> Pipeline:
    """As `int8` in 4 bits: a quarter of bfloat16's bytes (SDP4Bit, LoCo)."""
    return dataclasses.replace(int8(), collective=FewBits(4, group, rounding, rotate))


def topk(density: float = 0.01) -> Pipeline:
    """TopkA: exact local top-k, allgather, residual (baseline in gTop-k and Ok-Topk)."""
    return Pipeline(TopK(density))


def chunk_topk(density: float = 1 / 64, chunk: int = 4096) -> Pipeline:
    """The largest of every 4096 elements, in 12 bits for where and 2 for what they are.

    How DeMo selects (64 × 64 elements at a time) and SparseLoCo sends: 1.56 % in 14.4 bits each,
    a 142nd of dense float32. What two bits cannot say stays in the residual.
    """
    codec = Pair(Chunk12Index(), Centroid2Value())
    return Pipeline(ChunkTopK.of_density(density, chunk), codec, unit="model")


def randomk(density: float = 0.01, shared: bool = True) -> Pipeline:
    """Random elements without replacement, the same on every rank or each its own."""
    return Pipeline(RandomK(density, shared=shared))


def dgc(density: float = 0.001, momentum: float = 0.9, clip_norm: float | None = None) -> Pipeline:
    """Deep Gradient Compression: sampled threshold, momentum correction. Use plain SGD with it."""
    return Pipeline(SampledThreshold(density), feedback=Momentum(momentum, clip_norm=clip_norm))


def dragonn(
    density: float = 0.001,
    momentum: float = 0.9,
    slots: float = 1.0,
    selective: bool = False,
    batched: bool = True,
) -> Pipeline:
    """DRAGONN: hashing instead of compaction, momentum correction. Use plain SGD with it.

    `selective` compresses only the tensors for which calibrated costs say that it pays (section
    4.2). It is off by default, unlike in the paper: what is sent then depends on the network and
    on measured times, and not on the recipe alone. `batched` is the decoding of section 4.3.
    """
    gather, feedback = AllGather(batched), Momentum(momentum)
    hashed = Pipeline(HashedSlots(density, slots), collective=gather, feedback=feedback)
    if not selective:
        return hashed
    chosen = Auto.between(dense_pipeline(feedback), {"dragonn": hashed}, trial=0)
    return dataclasses.replace(chosen, unit="tensor", bypass=hashed.bypass)


def mstopk(density: float = 0.001) -> Pipeline:
    """MSTopk: the threshold by multi-stage search instead of sorting (baseline in DRAGONN)."""
    return Pipeline(MultiStage(density))


def gaussiank(density: float = 0.01) -> Pipeline:
    """Gaussiank: the threshold from the normal quantile (baseline in Ok-Topk)."""
    return Pipeline(GaussianK(density))


def signsgd() -> Pipeline:
    """One bit per element and one scale per tensor (baseline in DRAGONN).

    With residual feedback: plain SignSGD need not converge (Karimireddy et al., ICML 2019).
    """
    return Pipeline(Everything(), Pair(value=SignValue()), AllGather(), Residual())


def terngrad() -> Pipeline:
    """Three levels an element, unbiased, 1.6 bits."""
    return Pipeline(Everything(), Pair(value=TernValue()), AllGather(), NoFeedback())


def qsgd(bits: int = 8, bucket: int = 512) -> Pipeline:
    """Stochastic quantisation to `bits` bits per element, unbiased (baseline in DRAGONN)."""
    codec = Pair(value=QsgdValue(bits=bits, bucket=bucket))
    return Pipeline(Everything(), codec, AllGather(), NoFeedback())


def gtopk(density: float = 0.001, exact: bool = True) -> Pipeline:
    """gTop-k: local top-k, then the global top-k by a tree. `exact=False` is the paper's loss.

    Over the whole model, as in the paper; `unit="tensor"` or `unit="bucket"` selects layer by layer
    instead, and exchanges each while the backward pass goes on.
    """
    return Pipeline(TopK(density), collective=GTopK(exact=exact), unit="model")


def ok_topk(
    density: float = 0.01,
    interval: int = 32,
    consensus: Consensus = "histogram",
    balance: Balance = "bound",
) -> Pipeline:
    """Ok-Topk: reused thresholds and a sparse allreduce of O(k) volume.

    `consensus="equal"` has regions of equal width, `balance="never"` gathers directly, both have no
    balancing at all: what the paper compares with in figure 7.
    """
    collective = OkTopK(threshold_interval=interval, consensus=consensus, balance=balance)
    return Pipeline(
        ReusedThreshold(density, interval=interval), collective=collective, unit="model"
    )


def topk_dsa(density: float = 0.01) -> Pipeline:
    """TopkDSA: SparCML's dynamic sparse allreduce, dense where filled in (baseline in Ok-Topk)."""
    return Pipeline(TopK(density), collective=SparCML(), unit="model")


def omnireduce(density: float = 0.01, block: int = 256) -> Pipeline:
    """OmniReduce: exchange of non-zero blocks, here those of largest norm (baseline in S2)."""
    return Pipeline(BlockTopK(density, block=block), collective=OmniReduce(block), unit="model")


def union(density: float = 0.01, block: int = 64, dtype: str = "fp32") -> Pipeline:
    """Ours: agree on the union of the ranks' blocks, then one dense allreduce over just these."""
    blocks = BlockTopK(density, block=block)
    return Pipeline(blocks, None, UnionAllReduce(block, dtype), unit="model")


def clt_k(density: float = 0.01, dtype: str = "fp32") -> Pipeline:
    """ScaleCom: the indices of one rank, each in turn, and one allreduce of all values there."""
    return Pipeline(TopK(density), None, CltK(dtype), unit="model")


def micro(density: float = 0.01, dtype: str = "fp32") -> Pipeline:
    """MiCRO: each rank selects in its own partition, another in each step; values by allreduce."""
    return Pipeline(PartitionTopK(density), None, Micro(dtype), unit="model")


def zen(density: float = 0.01) -> Pipeline:
    """Zen: owners by hash add up the ranks' top-k, and return the sums with a hash bitmap."""
    return Pipeline(TopK(density), collective=Zen(), unit="model")


def spardl(density: float = 0.01) -> Pipeline:
    """SparDL: k/P of each of P blocks, pruned in every hop of a reduce-scatter, then gathered."""
    return Pipeline(PartitionTopK(density, own=False), collective=SparDL(), unit="model")


def s2(
    density: float = 1 / 32,
    block: int = 64,
    ratio: float = 0.5,
    rows: int = 3,
    hashing: Hashing = "mix64",
) -> Pipeline:
    """S2 Reducer: the blocks of largest norm, and a count sketch of those that anyone chose.

    What was not chosen stays in the residual. What was comes with unbiased noise of about 1/`ratio`
    times its own squared norm, which is not fed back: that would diverge.

    `union` is cheaper wherever its blocks, which have no noise, do as well: at `ratio` ≥ 1 it sends
    no more for the same blocks, and below for `density`·`ratio` of them. Embeddings with
    `sparse=True` go the same two ways, their rows as blocks. `hashing="four-wise"` is the family
    with a proof.
    """
    blocks, codec = BlockTopK(density, block=block), CountSketch(ratio, rows, hashing=hashing)
    return Pipeline(blocks, codec, SketchAllReduce(block), unit="model")


def powersgd(rank: float = 4, dtype: str = "fp32", start: int = 2) -> Pipeline:
    """PowerSGD: every matrix as two factors of `rank` columns, which allreduce can add.

    A rank below 1 is a share of the model's width, the smaller side of its matrices, and at least
    16 columns. An eighth in 16 bits, `powersgd(0.125, 'bf16')`, kept bf16's loss on models of width
    512 and 768.

    `dtype="bf16"` halves the bytes. The first `start` steps are dense: two, as PyTorch's hook needs
    with DDP, end better than none; with Adam some more pay on all but slow networks.

    The model is one unit: layers of one shape are one product, and the factors are so few that
    they need not travel during the backward pass.
    """
    factors = LowRank(rank, dtype, start)
    rows = AllGather()
    return Pipeline(
        Everything(), None, factors, Residual(), unit="model", bypass=0, row_collective=rows
    )


def parallax() -> Pipeline:
    """Parallax's split: dense gradients by allreduce, sparse ones by allgather (baseline in S2)."""
    return dataclasses.replace(dense(), row_collective=AllGather())


def sketchml(density: float = 0.01, bits: int = 6) -> Pipeline:
    """SketchML: 2^bits quantile buckets and delta keys, of the largest elements."""
    return Pipeline(TopK(density), Pair(VarintIndex(), QuantileValue(bits=bits)))


def skcompress(density: float = 0.01, bits: int = 6) -> Pipeline:
    """SKCompress: SketchML with Huffman's code on the keys.

    DeepReduce (section 3) names a Huffman code for the values as well. The buckets are equally
    full, so that no code for their numbers takes fewer bits than they have: it is left out.
    """
    return Pipeline(TopK(density), Pair(HuffmanIndex(), QuantileValue(bits=bits)))


def three_lc(sparsity: float = 1.0) -> Pipeline:
    """3LC: three values, five to a byte, runs of zeros as one byte; with error feedback."""
    codec = Pair(value=ThreeLcValue(sparsity))
    return Pipeline(Everything(), codec, AllGather(), Residual())


def deepreduce(
    density: float = 0.01, index: str = "bloom", value: str = "fit_poly", sparse: bool = False
) -> Pipeline:
    """DeepReduce: any index codec with any value codec, over top-k or, `sparse`, what is not zero.

    >>> deepreduce(index="bloom('p2', fpr=0.01)", value="qsgd(7)", sparse=True).sparsifier
    Nonzero()
    """
    pieces = build_pieces({"codec": {"index": index, "value": value}})
    return Pipeline(Nonzero() if sparse else TopK(density), **pieces)
