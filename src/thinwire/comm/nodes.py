"""Two levels: dense inside a node, where links are fast; the recipe between nodes."""

import os
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from thinwire.comm.communicator import GroupCommunicator
from thinwire.comm.messages import Traffic
from thinwire.errors import RecipeError


class Nodes:
    """Ranks 0 … L-1 of a group are its first node, the next L its second, and so on.

    Gradients are summed inside each node; the node's first rank, its leader, exchanges that
    sum with the other leaders and hands the update to its node. Only leaders keep state.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        node_size: int,
        timeout: timedelta | None,
        traffic: Traffic,
    ) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if size % node_size:
            raise RecipeError(
                f"node_size={node_size} must divide the {size} ranks of the group into nodes"
            )
        first = rank // node_size * node_size
        self.leads = rank == first
        node, leaders = range(first, first + node_size), range(0, size, node_size)
        self.inside = GroupCommunicator(group, timeout, node, traffic)
        self.between = GroupCommunicator(group, timeout, leaders, traffic) if self.leads else None

    def sum_inside(self, gradient: Tensor) -> Tensor:
        """The node's sum, in place, on every rank of the node."""
        return self.inside.all_reduce(gradient)

    def hand_out(self, update: Tensor) -> Tensor:
        """The leader's update on every rank of its node, in place."""
        return self.inside.broadcast(update)

    def give_up(self, why: str) -> None:
        """Exchange nothing any more."""
        for comm in (self.inside, self.between):
            if comm is not None:
                comm.give_up(why)

    def close(self) -> None:
        """Let go of the groups."""
        self.inside.close()
        if self.between is not None:
            self.between.close()


def node_size_of(given: int | str) -> int:
    """A node's ranks: as given, or as torchrun says (`"auto"`)."""
    if given == "auto":
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if isinstance(given, int) and given > 0:
        return given
    raise RecipeError(f'node_size={given!r} must be a number of ranks or "auto"')
