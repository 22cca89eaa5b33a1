"""What the collectives send that let nothing fill in: one support for all, or one owner for each.

`patterns` registers them; there is what all models of this kind take for granted.
"""

from math import ceil

from thinwire.collective import CltK, Micro, SparDL, Zen
from thinwire.collective._lists import LENGTH as LISTED
from thinwire.collective._lists import list_bytes
from thinwire.collective._tree import tree_rounds
from thinwire.collective.dense import value_bytes
from thinwire.collective.spardl import blocks_sent, distances
from thinwire.collective.zen import back_bytes
from thinwire.comm.messages import LENGTH, rounds
from thinwire.cost.exchange import Load, Pattern, Stage, allreduce, by_owners, gather, survivors
from thinwire.cost.wire_size import dense_wire_bytes, wire_bytes
from thinwire.types import AnyCodec, Codec


def cltk(collective: CltK, codec: AnyCodec, load: Load) -> Pattern:
    """The leader's list goes down a tree, over NCCL along a chain; then k values are added."""
    workers, k = load.workers, load.k
    values = allreduce(workers, value_bytes(collective.dtype) * k)
    if load.dense:
        return Pattern((values,), k, k)
    wire, below = list_bytes(ceil(k), load.n), (workers - 1) / workers
    if load.backend == "nccl":
        listed = Stage(workers - 1, workers - 1, below * wire, wire, ring=True)
    else:
        wire += LISTED
        turns, sent = tree_rounds(workers) * rounds(wire), LENGTH + wire
        listed = Stage(turns, turns, below * sent, tree_rounds(workers) * sent)
    return Pattern((listed, values), k, k)


def micro(collective: Micro, codec: AnyCodec, load: Load) -> Pattern:
    """Lists from each to all, and the sum of the values at their union."""
    if load.dense:
        values = allreduce(load.workers, value_bytes(collective.dtype) * load.n)
        return Pattern((values,), load.n, load.n)
    wire = list_bytes(ceil(load.k), load.n)
    union = load.union(load.n, load.k)
    lists = gather(load, wire if load.backend == "nccl" else LISTED + wire)
    values = allreduce(load.workers, value_bytes(collective.dtype) * union)
    return Pattern((lists, values), load.k + union, load.workers * load.k + union)


def zen(collective: Zen, codec: AnyCodec, load: Load) -> Pattern:
    """Elements to their owners, and from these a bit for each element and the sums' values."""
    assert isinstance(codec, Codec)
    workers, rows = load.workers, ceil(load.n / load.workers)
    part = wire_bytes(codec, load.k / workers, rows)
    filled = load.union(load.n, load.k) / workers
    total = back_bytes(rows) + dense_wire_bytes(codec, filled)
    return Pattern(by_owners(load, part, total), load.k + filled, load.k + workers * filled)


def spardl(collective: SparDL, codec: AnyCodec, load: Load) -> Pattern:
    """A message a round, of blocks that are taken to be full; then sums from each to all."""
    assert isinstance(codec, Codec)
    workers, k = load.workers, survivors(collective.density, load)
    kept = k / workers
    stages = []
    for distance in distances(workers):
        wire = wire_bytes(codec, kept * blocks_sent(distance, workers), load.n)
        turns, sent = rounds(wire, load.backend), LENGTH + wire
        stages.append(Stage(turns, turns, sent, sent))
    total = wire_bytes(codec, kept, load.n / workers)
    passed_on = k - kept
    return Pattern((*stages, gather(load, total)), passed_on + kept, passed_on + k)
