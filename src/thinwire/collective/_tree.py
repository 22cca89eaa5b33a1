"""A binomial tree over the ranks: who is whose parent, and how bytes come down from the root."""

from torch import Tensor

from thinwire.types import ExchangeContext


def tree_rounds(size: int) -> int:
    """In how many rounds partial sums reach the root of a tree of `size` ranks: ⌈log2 P⌉."""
    return (size - 1).bit_length()


def neighbours(rank: int, size: int) -> tuple[int | None, list[int]]:
    """A rank's parent in the binomial tree of `size` ranks, and its children, nearest first."""
    children: list[int] = []
    for distance in (1 << hop for hop in range(tree_rounds(size))):
        if rank & distance:
            return rank - distance, children
        if rank + distance < size:
            children.append(rank + distance)
    return None, children


def hand_down(wire: Tensor, ctx: ExchangeContext, root: int = 0) -> Tensor:
    """The root's bytes on every rank, passed on as they are, the largest subtree first.

    Only the root's `wire` counts, of any length; the others' say on which device it is wanted.
    """
    comm = ctx.comm
    parent, children = neighbours((comm.rank - root) % comm.size, comm.size)
    if parent is not None:
        source = (parent + root) % comm.size
        wire = comm.exchange_sized({}, (source,), wire.device)[source]
    for child in reversed(children):
        comm.exchange_sized({(child + root) % comm.size: wire}, (), wire.device)
    return wire
