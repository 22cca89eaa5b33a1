"""Seconds and bytes of one exchange over a network of one level or two."""

from dataclasses import replace
from math import ceil, log2

from thinwire.collective import Dense
from thinwire.cost.load import Load, Pattern, Stage
from thinwire.cost.network import Network
from thinwire.cost.patterns import allreduce, pattern
from thinwire.errors import RecipeError
from thinwire.types import AnyCodec, Collective


def dragonn_saving(workers: int, numel: int, gamma: float, alpha: float, beta: float) -> float:
    """Seconds that an allgather of γ times the bytes saves over a dense ring (DRAGONN, eq. 2).

    (P-1)·(α + (2/P - γ)·4nβ). The paper has 1/P in place of 2/P, though its dense ring sends
    2·(P-1)/P; and its γ is the density, where that of the wire counts the indices too.
    """
    return (workers - 1) * (alpha + (2 / workers - gamma) * 4 * numel * beta)


def two_level(between: Pattern, load: Load, network: Network) -> tuple[float, float]:
    """Seconds and mean bytes a rank: summed inside nodes, exchanged by their leaders, handed out.

    `between` is the leaders' exchange. As in `collective.nodes`: a dense allreduce and a broadcast
    inside, in the accumulator's 4 bytes an element.
    """
    ranks, size = network.node_size, 4 * load.n
    hand_out = Stage(ceil(log2(ranks)), ceil(log2(ranks)), (ranks - 1) / ranks * size, size)
    inside = Pattern((allreduce(ranks, size), hand_out))
    seconds = inside.seconds(network.within) + between.seconds(network)
    return seconds, inside.sent + between.sent / ranks


def exchange_cost(
    collective: Collective, codec: AnyCodec, load: Load, network: Network
) -> tuple[float, float, Pattern]:
    """Seconds, mean bytes a rank, and the pattern of the exchange that the network sees.

    A dense ring needs no second level: it crosses each node's link once each way.
    """
    if network.node_size == 1 or isinstance(collective, Dense):
        flat = pattern(collective, codec, load) if load.workers > 1 else Pattern(())
        return flat.seconds(network), flat.sent, flat
    if load.workers % network.node_size:
        raise RecipeError(f"{load.workers} workers do not fill nodes of {network.node_size}")
    leaders = replace(load, workers=load.workers // network.node_size)
    between = pattern(collective, codec, leaders) if leaders.workers > 1 else Pattern(())
    return *two_level(between, load, network), between
