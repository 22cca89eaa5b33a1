"""torchft: replicas that die, heal and come back, their gradients averaged by a recipe.

    group = Group()                                       # a ProcessGroupGloo of torchft's
    manager = torchft.Manager(pg=group, ..., use_async_quorum=False)
    replicas = Replicas(manager, group, "topk(0.01)")     # the one line
    ...
    manager.start_quorum()
    loss.backward()
    replicas.average(model)
    if replicas.should_commit():                          # in place of the manager's
        optimizer.step()

A new quorum is a new group, made from the store that torchft names. What waits on a replica stays
there; that of one that died is lost. One that heals gets what replicas share together with the
model, and nothing waits there. A step that is not committed is taken back.
"""

from datetime import timedelta
from typing import Any

import torch
from torchft import Manager
from torchft.process_group import ProcessGroupGloo, create_store_client

from thinwire.comm import GroupCommunicator
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import ExchangeError, RecipeError, ThinwireError
from thinwire.frontends.handle import trained
from thinwire.pipeline import Pipeline


class Group(ProcessGroupGloo):
    """torchft's group, which also notes where the replicas of each quorum meet."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout)
        self.timeout = timeout
        self.place: tuple[str, int, int] | None = None  # address in a store, rank, size

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *more: Any, **named: Any
    ) -> None:
        """As torchft calls it, when the quorum has changed."""
        super().configure(store_addr, replica_id, rank, world_size, *more, **named)
        self.place = (store_addr, rank, world_size)


class Replicas:
    """Averages the gradients of a model over the replicas of torchft's quorum."""

    def __init__(
        self, manager: Manager, group: Group, recipe: Pipeline | str, seed: int = 0
    ) -> None:
        self.manager, self.group = manager, group
        self._place: tuple[str, int, int] | None = None  # of the last quorum that was looked for,
        self._met = False  # and whether all of it came together
        self._averaged = False  # in a step that is neither committed nor taken back
        alone = GroupCommunicator.alone()  # until there is a quorum
        self.synchronizer = Synchronizer(recipe, seed=seed, comm=alone)
        manager.register_state_dict_fn(
            "thinwire", self.synchronizer.load_shared_state, self.synchronizer.shared_state
        )

    def average(self, model: torch.nn.Module) -> None:
        """Replace each gradient by its mean; what goes wrong is told to the manager.

        Once in every step: all that is trained together is one model.
        """
        if self._averaged:
            raise RecipeError(
                "average() came twice, and in between was not asked whether the first commits: "
                "call should_commit() of Replicas, in place of the manager's, after each; of "
                "several models average one nn.ModuleList"
            )
        self.manager.wait_quorum()
        if self.manager.errored():
            return  # the step will not be committed
        parameters = trained(model)
        grads = {n: p.grad for n, p in parameters.items() if p.grad is not None}
        try:
            self._follow_quorum()
            averaged = self.synchronizer.average_all(grads)
        except ExchangeError as error:  # a replica died: the state is as before the step
            self.manager.report_error(error)
            return
        self._averaged = True
        for name, grad in averaged.items():
            parameters[name].grad = grad

    def should_commit(self) -> bool:
        """Whether to step the optimiser; if not, what the step did here is taken back."""
        commits: bool = self.manager.should_commit()
        if self._averaged and not commits:
            self.synchronizer.take_back()
        self._averaged = False
        return commits

    def close(self) -> None:
        """Let go of the last quorum's group. The manager is the caller's."""
        self.synchronizer.close()
        self.synchronizer.comm.close()

    def _follow_quorum(self) -> None:
        """Go on in the group of the quorum. Where that broke off another quorum is waited for:
        others may be in it, and this replica in the group before.
        """
        if self.group.place is not None and self.group.place != self._place:
            self._place, self._met = self.group.place, False
            self._meet(*self._place)
            self._met = True
        if not self._met:
            raise ExchangeError("the replicas of this quorum did not come together")

    def _meet(self, address: str, rank: int, size: int) -> None:
        before, name, timeout = self.synchronizer.comm, f"thinwire/{address}", self.group.timeout
        try:
            store = create_store_client(address, timeout)
        except RuntimeError as error:  # it was on a replica that died
            raise ExchangeError(f"nobody answers for the store at {address}: {error}") from error
        comm = GroupCommunicator.at_store(store, name, rank, size, timeout)
        try:
            self.synchronizer.reconfigure(comm)
        except ThinwireError:
            comm.close()
            raise
        before.close()
