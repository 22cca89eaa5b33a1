"""What each collective sends, in the α-β form: rounds, messages and bytes of one exchange.

These are the costs of what the code here does, header and lengths included, not of the papers'
formulas, which leave those out; `docs/papers/communication.md` has both side by side. What differs:

- Payloads of up to 1 MiB carry their size of 8 bytes; larger ones are two messages, one after the
  other. (NCCL's are always two.) Ok-Topk's sizes go ahead, in a round of their own.
- Gloo's allreduce is a ring: 2·(P-1) rounds, 2·(P-1)/P of the tensor. (It cuts the tensor into
  two segments a rank or more, and has two in flight: no more rounds on the critical path.)
- Messages to all peers leave together: P - 1 messages, but one round; see `network.Link`.

Indices are taken to be spread evenly over the tensor, and shares over the ranks.
"""

from functools import singledispatch
from math import ceil, log2

from thinwire.codec import Pair
from thinwire.codec.sketch import CountSketch
from thinwire.collective import (
    AllGather,
    Dense,
    GTopK,
    OkTopK,
    OmniReduce,
    SketchAllReduce,
    SparCML,
    UnionAllReduce,
)
from thinwire.collective._touched import LISTS_FROM, ROUND
from thinwire.collective.oktopk.regions import PROBES
from thinwire.collective.oktopk.threshold import BINS, DIGIT
from thinwire.comm.messages import EAGER
from thinwire.cost.load import Load, Pattern, Stage
from thinwire.cost.wire_size import dense_wire_bytes, wire_bytes
from thinwire.errors import RecipeError
from thinwire.types import AnyCodec, Codec, Collective

WORD = 8  # bytes of a length, a count or a histogram's bin
HALF = {"fp32": 4, "fp16": 2, "bf16": 2}
_BOUNDARY_ROUNDS = 2  # of Ok-Topk's search, where selections are spread out


@singledispatch
def pattern(collective: Collective, codec: AnyCodec, load: Load) -> Pattern:
    """What `collective` does with such a load, through `codec`."""
    raise RecipeError(
        f"{collective!r} has no cost model; register one with policy.patterns.pattern"
    )


@pattern.register
def _dense(collective: Dense, codec: AnyCodec, load: Load) -> Pattern:
    wire = HALF[collective.dtype] * load.n
    return Pattern((allreduce(load.workers, wire),), load.n, load.n)


@pattern.register
def _allgather(collective: AllGather, codec: AnyCodec, load: Load) -> Pattern:
    wire = _wire(codec, load, load.k, load.n)
    return Pattern((_to_all(load.workers, wire),), load.k, load.workers * load.k)


@pattern.register
def _gtopk(collective: GTopK, codec: AnyCodec, load: Load) -> Pattern:
    """Up and down a binomial tree: each rank but one sends up once and is sent to once.

    The longest path has ⌈log2 P⌉ hops each way.
    """
    hops = 2 * ceil(log2(load.workers))
    wire = _wire(codec, load, load.k, load.n)
    mean = 2 * (load.workers - 1) / load.workers * (WORD + wire)
    rounds = hops * _rounds(wire)
    climbed = Stage(rounds, rounds, mean, hops * (WORD + wire))
    # The root decodes and prunes what comes up in each round, and everyone what comes down.
    return Pattern((climbed,), 2 * load.k, (hops / 2 + 1) * load.k)


@pattern.register
def _sparcml(collective: SparCML, codec: AnyCodec, load: Load) -> Pattern:
    """A region's sum has the entries of the union in it, or all, whichever is shorter."""
    assert isinstance(codec, Pair)
    workers, region = load.workers, load.n / load.workers
    filled = load.union(load.n, load.k) / workers
    dense, sparse = dense_wire_bytes(codec, region), wire_bytes(codec, filled, region)
    limit = collective.dense_above
    fills = dense < sparse if limit is None else filled > limit * region
    total = dense if load.dense or fills else sparse
    part = dense if load.dense else wire_bytes(codec, load.k / workers, region)
    return Pattern(_owned(workers, part, total), load.k + filled, load.k + workers * filled)


@pattern.register
def _omnireduce(collective: OmniReduce, codec: AnyCodec, load: Load) -> Pattern:
    assert isinstance(codec, Pair)
    workers, block = load.workers, collective.block
    blocks, mine, union = _blocks(load, block)
    part = wire_bytes(codec, mine / workers, blocks / workers, block)
    total = wire_bytes(codec, union / workers, blocks / workers, block)
    entries = (mine + union / workers) * block, (mine + union) * block
    return Pattern(_owned(workers, part, total), *entries)


@pattern.register
def _union(collective: UnionAllReduce, codec: AnyCodec, load: Load) -> Pattern:
    _, _, union = _blocks(load, collective.block)
    values = union * collective.block
    stages = (
        *_agreed(load, collective.block),
        allreduce(load.workers, HALF[collective.dtype] * values),
    )
    return Pattern(stages, values, values)


@pattern.register
def _sketch(collective: SketchAllReduce, codec: AnyCodec, load: Load) -> Pattern:
    assert isinstance(codec, CountSketch)
    _, _, union = _blocks(load, collective.block)
    values = union * collective.block
    table = 4 * codec.rows * codec.buckets(round(values))
    stages = (*_agreed(load, collective.block), allreduce(load.workers, table))
    return Pattern(stages, load.k, values)


@pattern.register
def _oktopk(collective: OkTopK, codec: AnyCodec, load: Load) -> Pattern:
    """Steps that evaluate thresholds and boundaries anew are shared out over all steps.

    Both phases are taken as balanced, which boundaries see to; then a rank sends k·(P-1)/P entries
    in each, 4k·(P-1)/P words where the paper's bound is 6k·(P-1)/P. Regions are taken to be n/P
    wide: where that is near 2^16, some are wider and some not, and raw indices take 4 bytes or 2.
    """
    workers, peers = load.workers, load.workers - 1
    part = wire_bytes(_bytes_codec(codec), load.k / workers, load.n / workers) * (load.k > 0)
    split = (
        Stage(1, peers, peers * WORD, peers * WORD),
        Stage(ceil(peers / collective.in_flight), peers, peers * part, peers * part),
    )
    digits = 32 // DIGIT  # of a float32
    threshold = [allreduce(workers, BINS * WORD)] * digits + [meta(workers, 2)]
    boundaries = [allreduce(workers, (PROBES + 1) * peers * WORD)] * _BOUNDARY_ROUNDS
    boundaries.append(allreduce(workers, workers * WORD))
    stages = (
        *split,
        meta(workers, 6),
        *(stage.times(1 / collective.threshold_interval) for stage in threshold),
        *(stage.times(1 / collective.boundary_interval) for stage in boundaries),
        _to_all(workers, part),
    )
    return Pattern(stages, load.k * (1 + 1 / workers), 2 * load.k)


def allreduce(workers: int, size: float) -> Stage:
    """The backend's ring over so many bytes."""
    share = 2 * (workers - 1) / workers * size
    rounds = 2 * (workers - 1) if size else 0
    return Stage(rounds, rounds, share, share, ring=True)


def meta(workers: int, numbers: int) -> Stage:
    """An allgather of a few numbers, from each to each."""
    sent = (workers - 1) * numbers * WORD
    return Stage(1, workers - 1, sent, sent)


def _rounds(wire: float) -> int:
    """Of a payload whose receiver does not know its size."""
    return 1 if wire <= EAGER else 2


def _to_all(workers: int, wire: float) -> Stage:
    """A payload of such a size to each of the others."""
    peers, sent = workers - 1, (workers - 1) * (WORD + wire)
    return Stage(_rounds(wire), _rounds(wire) * peers, sent, sent)


def _owned(workers: int, part: float, total: float) -> tuple[Stage, ...]:
    """Parts to their owners, sums to all (`collective._shares`)."""
    return _to_all(workers, part), _to_all(workers, total)


def _blocks(load: Load, block: int) -> tuple[float, float, float]:
    """How many blocks there are, those that a rank touches, and those that any does."""
    blocks = ceil(load.n / block)
    picks = load.k / load.width
    together = max(1.0, load.width / block)  # blocks that one pick touches
    scattered = blocks * (1 - (1 - 1 / blocks) ** picks) if load.width < block else picks
    mine = min(blocks, scattered * together)
    return blocks, mine, load.union(blocks, mine)


def _agreed(load: Load, block: int) -> tuple[Stage, ...]:
    """How `collective._union` finds the blocks that anyone touches: whichever takes least.

    It counts a round as so many bytes, whatever the network, and so does this.
    """
    workers = load.workers
    blocks, mine, _ = _blocks(load, block)
    bitmap = ceil(blocks / 8)
    flags = blocks * (1 if workers < 256 else 4)
    gathered, summed = (workers - 1) * bitmap, 2 * (workers - 1) / workers * flags
    asked: tuple[Stage, ...] = ()
    if blocks >= LISTS_FROM:
        asked = (meta(workers, 1),)
        if (workers - 1) * mine * 4 <= min(gathered, summed):
            return *asked, _to_all(workers, 4 * mine)
    if summed + 2 * (workers - 1) * ROUND < gathered + ROUND:
        return *asked, allreduce(workers, flags)
    return *asked, _to_all(workers, bitmap)


def _wire(codec: AnyCodec, load: Load, count: float, rows: float) -> float:
    bytes_codec = _bytes_codec(codec)
    return (
        dense_wire_bytes(bytes_codec, rows) if load.dense else wire_bytes(bytes_codec, count, rows)
    )


def _bytes_codec(codec: AnyCodec) -> Codec:
    if not isinstance(codec, Codec):
        raise RecipeError(f"{codec!r} makes no bytes")
    return codec
