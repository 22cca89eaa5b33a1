"""What each collective sends, in the α-β form: rounds, messages and bytes of one exchange.

These are the costs of what the code here does, header and lengths included, not of the papers'
formulas, which leave those out; `docs/papers/communication.md` has both side by side. What differs:

- Payloads of up to 1 MiB carry their size of 8 bytes; larger ones are two messages, one after the
  other. (NCCL's are always two.) Ok-Topk's sizes go ahead, in a round of their own.
- Gloo's allreduce is a ring: 2·(P-1) rounds, 2·(P-1)/P of the tensor. (It cuts the tensor into
  two segments a rank or more, and has two in flight: no more rounds on the critical path.)
- Messages to all peers leave together: P - 1 messages, but one round; see `network.Link`.
- Over NCCL every size is known beforehand, and a gather is a ring of P - 1 rounds.

Indices are taken to be spread evenly over the tensor, and shares over the ranks. `sent` leaves out
what Gloo writes around a message; `framed` has it, and so have predicted bytes. Predicted times
have it in α, which is what a message of no length takes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from math import ceil

from thinwire.codec.sketch import CountSketch
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
from thinwire.collective._factoring import factoring
from thinwire.collective._tree import tree_rounds
from thinwire.collective.dense import value_bytes
from thinwire.collective.oktopk import Counts
from thinwire.collective.oktopk.regions import Consensus, expected_sums
from thinwire.collective.oktopk.split import buckets
from thinwire.collective.oktopk.steady import region_room
from thinwire.collective.oktopk.threshold import histogram_sizes
from thinwire.collective.touched import asks_lengths, method_of
from thinwire.comm.messages import LENGTH, rounds
from thinwire.cost.exchange import (
    Load,
    Pattern,
    Stage,
    allreduce,
    by_owners,
    equal_to_all,
    equal_to_each,
    gather,
    gather_numbers,
    inside_nodes,
    survivors,
    to_all,
)
from thinwire.cost.network import Network
from thinwire.cost.shared_support import cltk, micro, spardl, zen
from thinwire.cost.wire_size import dense_wire_bytes, joint_wire_bytes, wire_bytes
from thinwire.errors import RecipeError
from thinwire.types import AnyCodec, Codec, Collective

WORD = 8  # bytes of a count in a sum


@singledispatch
def pattern(collective: Collective, codec: AnyCodec, load: Load) -> Pattern:
    """What `collective` does with such a load, through `codec`.

    A collective that is not ours gets its model by `pattern.register`, as those below do.
    """
    raise RecipeError(
        f"{collective!r} has no cost model, which auto, plan and doctor need: register a function "
        "(collective, codec, load) -> Pattern with thinwire.cost.patterns.pattern.register"
    )


def check_modelled(collective: Collective) -> None:
    """Refuse a collective without a cost model, before anything is measured for it."""
    if pattern.dispatch(type(collective)) is pattern.dispatch(object):
        pattern(collective, None, Load(1, 1, 1))


@pattern.register
def _dense(collective: Dense, codec: AnyCodec, load: Load) -> Pattern:
    wire = value_bytes(collective.dtype) * load.n
    return Pattern((allreduce(load.workers, wire),), load.n, load.n)


@pattern.register
def _few_bits(collective: FewBits, codec: AnyCodec, load: Load) -> Pattern:
    """Shards of one size to their owners, and their sums back.

    A rank reads as many codes of others as it writes, whatever the number of ranks.
    """
    workers, wire = load.workers, collective.form(load.n, load.workers).row_bytes
    stages = equal_to_each(workers, wire), equal_to_all(workers, wire, load.backend)
    return Pattern(stages, load.n, load.n)


@pattern.register
def _allgather(collective: AllGather, codec: AnyCodec, load: Load) -> Pattern:
    wire = _wire(codec, load, load.k)
    return Pattern((gather(load, wire),), load.k, load.workers * load.k)


@pattern.register
def _gtopk(collective: GTopK, codec: AnyCodec, load: Load) -> Pattern:
    """Up and down a binomial tree: each rank but one sends up once and is sent to once.

    The longest path has ⌈log2 P⌉ hops each way.
    """
    hops, k = 2 * tree_rounds(load.workers), survivors(collective.density, load)
    wire = _wire(codec, load, k)
    sent = wire if load.backend == "nccl" else LENGTH + wire
    turns = hops * (1 if load.backend == "nccl" else rounds(wire))
    climbed = Stage(turns, turns, 2 * (load.workers - 1) / load.workers * sent, hops * sent)
    # The root decodes and prunes what comes up in each round, and everyone what comes down.
    return Pattern((climbed,), 2 * k, (hops / 2 + 1) * k)


@pattern.register
def _sparcml(collective: SparCML, codec: AnyCodec, load: Load) -> Pattern:
    """A region's sum has the entries of the union in it, or all, whichever is shorter."""
    assert isinstance(codec, Codec)
    workers, region = load.workers, load.n / load.workers
    filled = load.union(load.n, load.k) / workers
    dense, sparse = dense_wire_bytes(codec, region), wire_bytes(codec, filled, region)
    fills = load.dense or collective.goes_dense(filled, region, sparse, dense)
    total = dense if fills else sparse
    part = dense if load.dense else wire_bytes(codec, load.k / workers, region)
    return Pattern(by_owners(load, part, total), load.k + filled, load.k + workers * filled)


@pattern.register
def _omnireduce(collective: OmniReduce, codec: AnyCodec, load: Load) -> Pattern:
    assert isinstance(codec, Codec)
    workers, block = load.workers, collective.block
    blocks, mine, union = _blocks(load, block)
    part = wire_bytes(codec, mine / workers, blocks / workers, block)
    total = wire_bytes(codec, union / workers, blocks / workers, block)
    return Pattern(
        by_owners(load, part, total), (mine + union / workers) * block, (mine + union) * block
    )


@pattern.register
def _union(collective: UnionAllReduce, codec: AnyCodec, load: Load) -> Pattern:
    _, _, union = _blocks(load, collective.block)
    values = union * collective.block
    stages = (
        *_agreement(load, collective.block),
        allreduce(load.workers, value_bytes(collective.dtype) * values),
    )
    return Pattern(stages, values, values)


pattern.register(CltK, cltk)
pattern.register(Micro, micro)
pattern.register(Zen, zen)
pattern.register(SparDL, spardl)


@pattern.register
def _sketch(collective: SketchAllReduce, codec: AnyCodec, load: Load) -> Pattern:
    if not isinstance(codec, CountSketch):
        raise RecipeError(f"{codec!r} has no cost model: how long its payload is, is not known")
    _, _, union = _blocks(load, collective.block)
    values = union * collective.block
    table = 4 * codec.rows * codec.buckets(round(values))
    stages = (*_agreement(load, collective.block), allreduce(load.workers, table))
    return Pattern(stages, load.k, values)


@pattern.register
def _lowrank(collective: LowRank, codec: AnyCodec, load: Load) -> Pattern:
    """Of tensors whose shapes are not known all is sent, as the collective would."""
    plan, width = factoring(load.shapes, collective.rank), value_bytes(collective.dtype)
    if not plan.groups:
        return _dense(Dense(collective.dtype), codec, load)
    rows = (plan.left_size + plan.whole_size, plan.right_size)
    rings = tuple(allreduce(load.workers, width * elements) for elements in rows)
    return Pattern(rings, load.n, load.n)


@pattern.register
def _oktopk(collective: OkTopK, codec: AnyCodec, load: Load) -> Pattern:
    """Steps that evaluate thresholds and boundaries anew are shared out over all steps.

    Both phases are taken as balanced, which boundaries see to; then a rank sends (P-1)/P of its
    selection and of the survivors: 4k·(P-1)/P words if both are k, where the paper's bound is
    6k·(P-1)/P. Regions are taken to be n/P wide: where that is near 2^16, some are wider and some
    not, and raw indices take 4 bytes or 2. Parts without entries have no bytes. On a GPU
    indices are not counted from a region's beginning, and there is room for the fullest region.
    """
    assert isinstance(codec, Codec)
    workers, peers = load.workers, load.workers - 1
    kept, region = survivors(collective.density, load), load.n / workers
    part = wire_bytes(codec, load.k / workers, region) if load.k else 0.0
    total = wire_bytes(codec, kept / workers, region) if kept else 0.0
    if load.backend == "nccl":
        if load.k and collective.is_steady(codec):
            part = wire_bytes(codec, region_room(round(load.k), workers), load.n)
            total = wire_bytes(codec, kept / workers, load.n)
        stages = by_owners(load, part, total)
        return Pattern(stages, load.k + kept / workers, load.k + kept)
    split = (
        Stage(1, peers, peers * LENGTH, peers * LENGTH),
        Stage(len(buckets(workers, collective.in_flight)), peers, peers * part, peers * part),
    )
    boundaries = boundary_stages(workers, collective.consensus)
    stages = (
        *split,
        gather_numbers(workers, len(Counts._fields)),
        *(stage.times(1 / collective.threshold_interval) for stage in threshold_stages(workers)),
        *(stage.times(1 / collective.boundary_interval) for stage in boundaries),
        to_all(workers, total),
    )
    return Pattern(stages, load.k + kept / workers, load.k + kept)


def threshold_stages(workers: int) -> list[Stage]:
    """How Ok-Topk finds a threshold among float32 sums, and how many pass it on each rank."""
    histograms = [allreduce(workers, WORD * counts) for counts in histogram_sizes(32)]
    return [*histograms, gather_numbers(workers, 2)]


def boundary_stages(workers: int, consensus: Consensus) -> list[Stage]:
    """How Ok-Topk agrees on its regions."""
    return [allreduce(workers, WORD * counts) for counts in expected_sums(workers, consensus)]


def exchange_cost(
    collective: Collective, codec: AnyCodec, load: Load, network: Network
) -> tuple[float, float, Pattern]:
    """Seconds, mean bytes per rank, and the pattern of the exchange that the network sees.

    Bytes are those on the sockets, the frames of Gloo's messages included. A dense ring needs no
    second level: it crosses each node's link once each way.
    """
    if network.node_size == 1 or isinstance(collective, Dense):
        flat = pattern(collective, codec, load) if load.workers > 1 else Pattern(())
        return flat.seconds(network), flat.written(network.backend), flat
    if load.workers % network.node_size:
        raise RecipeError(f"{load.workers} workers do not fill nodes of {network.node_size}")
    leaders = replace(load, workers=load.workers // network.node_size)
    between = pattern(collective, codec, leaders) if leaders.workers > 1 else Pattern(())
    inside = inside_nodes(load, network.node_size)
    seconds = inside.seconds(network.within) + between.seconds(network)
    shared = between.written(network.backend) / network.node_size
    return seconds, inside.written(network.backend) + shared, between


def _blocks(load: Load, block: int) -> tuple[int, float, float]:
    """How many blocks there are, those that a rank touches, and those that any does."""
    blocks = ceil(load.n / block)
    picks = load.k / load.width
    together = max(1.0, load.width / block)  # blocks that one pick touches
    scattered = blocks * (1 - (1 - 1 / blocks) ** picks) if load.width < block else picks
    mine = min(blocks, scattered * together)
    return blocks, mine, load.union(blocks, mine)


def _agreement(load: Load, block: int) -> tuple[Stage, ...]:
    """How the ranks find the blocks that anyone touches (`collective.touched`)."""
    workers = load.workers
    blocks, mine, _ = _blocks(load, block)
    if load.backend == "nccl":
        return (equal_to_all(workers, ceil(blocks / 8), load.backend),)
    asks = asks_lengths(blocks)
    method, size = method_of(workers, blocks, mine if asks else None)
    by_method: dict[str, Callable[[int, float], Stage]] = {
        "flags": allreduce, "bitmaps": equal_to_all, "lists": to_all
    }  # fmt: skip
    agreed = by_method[method](workers, size)
    return (gather_numbers(workers, 1), agreed) if asks else (agreed,)


def _wire(codec: AnyCodec, load: Load, count: float) -> float:
    """The payload of `count` entries, or of a whole tensor."""
    assert isinstance(codec, Codec)
    if load.apart:
        return joint_wire_bytes(codec, load.n, count, load.apart)
    return dense_wire_bytes(codec, load.n) if load.dense else wire_bytes(codec, count, load.n)
