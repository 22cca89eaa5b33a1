"""FSDP2 and HSDP: shards are reduced by PyTorch, replicas averaged by a recipe.

FSDP calls a hook with what each reduce-scatter brought, which the ordered worker takes from there
while the backward pass goes on; all is finished when that is over. A gradient's memory is averaged
in place where FSDP does no more with it, else in a copy that takes its place at the end.
"""

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from thinwire.comm import GroupCommunicator
from thinwire.engine.backward import BackwardPass
from thinwire.engine.saved import Saved, pack, seal, states_in, unpack
from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import ClosedError, RecipeError, StateError
from thinwire.frontends.fsdp_private import ShardedModule, local_gradient, sharded_modules
from thinwire.frontends.handle import Handle, plain, trained
from thinwire.frontends.reshard import resharded
from thinwire.frontends.torch_private import after_backward, backward_pass
from thinwire.pipeline import Pipeline


def compress_sharded(
    model: nn.Module,
    pipeline: Pipeline,
    replicas: dist.ProcessGroup | None,
    seed: int,
    grad_scaler: "torch.amp.GradScaler | None",
    settings: Mapping[str, Any],
) -> "FSDPHandle":
    """Exchange what the reduce-scatters bring over the replicas; see `compress`.

    `settings` are those of `Synchronizer`.
    """
    modules = sharded_modules(model)
    if any(module.has_hook for module in modules):
        raise RecipeError(
            "this fully_shard model has an all-reduce hook already: go on with the handle of the "
            "first compress(), or shard the model anew"
        )
    of_mesh = modules[0].replicate_group
    if (of_mesh is None) == (replicas is None):
        raise RecipeError(
            "this model is sharded on a 1-D mesh: pass replicas=, the group of ranks that hold the "
            "same shard, or shard it on a mesh of replicas × shards"
            if of_mesh is None
            else "replicas= is for a 1-D mesh; this model's mesh knows its replicas"
        )
    same_shard = replicas if of_mesh is None else of_mesh
    mesh = _everyone(modules[0].shard_group, same_shard, settings["timeout"])
    sync = Synchronizer(pipeline, same_shard, seed, mesh=mesh, **settings)
    return FSDPHandle(model, modules, sync, grad_scaler)


def _everyone(
    shards: dist.ProcessGroup, replicas: dist.ProcessGroup | None, timeout: timedelta | None
) -> GroupCommunicator:
    """All ranks of the mesh: every shard's replicas."""
    row = GroupCommunicator(shards, timeout)
    ranks = row.all_gather_meta(dist.get_process_group_ranks(replicas))
    row.close()
    return GroupCommunicator(None, timeout, sorted({rank for column in ranks for rank in column}))


@dataclass(slots=True)
class Step:
    """One backward pass under way."""

    number: int
    engine: BackwardPass
    kept: list[Tensor] = field(default_factory=list)  # memory that is being averaged
    later: list["Copy"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Copy:
    """An average that takes its gradient's place at the end, added to what was there `before`."""

    parameter: nn.Parameter
    average: Tensor
    before: Tensor | None

    def put(self) -> None:
        grad = local_gradient(self.parameter)
        assert grad is not None
        grad.copy_(self.average)
        if self.before is not None:
            grad.add_(self.before)


class FSDPHandle(Handle):
    """The hooks of a sharded model."""

    def __init__(
        self,
        model: nn.Module,
        modules: Sequence[ShardedModule],
        synchronizer: Synchronizer,
        grad_scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        self._model = weakref.ref(model)
        self._prefixes = {id(module): name for name, module in model.named_modules()}
        shards = {self._name(s.module, s.name) for module in modules for s in module.shards()}
        if strangers := trained(model).keys() - shards:
            raise RecipeError(
                f"{sorted(strangers)[0]!r} is in no module that fully_shard was called on: call it "
                "on the whole model last"
            )
        super().__init__(synchronizer, _local(trained(model)), grad_scaler)
        group = modules[0].shard_group
        self._shard, self._shards = dist.get_rank(group), dist.get_world_size(group)
        self._step: Step | None = None
        for module in modules:
            module.leave_replicas_alone()
            module.note_gradients()
            module.module.set_all_reduce_hook(partial(self._hook, module))

    def state_dict(self, gather: bool = False) -> dict[str, Any]:
        """What this rank must remember, and which shard it is of; every rank saves its own.

        `gather`: what all ranks of the mesh must, on every rank; all must call.
        """
        state = self.synchronizer.state_dict()
        mine = seal({"shard": self._shard, "shards": self._shards, "replica": state})
        if not gather:
            return mine
        return {"ranks": list(map(unpack, self.synchronizer.everyone.gather(pack(mine))))}

    @property
    def place(self) -> str:
        """Which replica and shard this rank has."""
        return f"{super().place}.shard{self._shard}of{self._shards}"

    def load_state_dict(
        self, state: Saved, *, recipe_changed: bool = False, lost: Collection[int] = ()
    ) -> None:
        """Go on from a saved state: this rank's own, or all ranks', on this mesh or another."""
        if lost:
            raise RecipeError(f"{lost=}: of a sharded model the states of all ranks are needed")
        self.synchronizer.end_step()
        own: list[Any] = []
        refusal = ""
        try:
            states = states_in(state)
            own = self._own(states)
        except StateError as error:
            refusal = str(error)
        except Exception as error:  # numbers, texts and tensors in each other's places
            refusal = f"this is no state that thinwire saved: {error!r}"
        bad = self.synchronizer.everyone.agree("the load", "a sharded state", flag=bool(refusal))
        if bad:  # all of them, also where only one was given what is not its own
            ranks = ", ".join(map(str, bad))
            raise StateError(refusal or f"ranks {ranks} of the mesh refused their states")
        alone = len(states) == 1
        super().load_state_dict(own[0] if alone else own, recipe_changed=recipe_changed)

    def _own(self, states: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The states of this shard, of one replica or of all; cut anew of other shards."""
        if not all("shard" in one for one in states):
            raise StateError("the state is of a model that is not sharded, and this one is")
        shards, found = {one.get("shards") for one in states}, [one["shard"] for one in states]
        if shards == {self._shards}:
            if self._shard not in found:
                raise StateError(f"the state is of shard {found[0]}, this is {self._shard}")
            return [one["replica"] for one in states if one["shard"] == self._shard]
        if len(states) < 2 or len(shards) != 1:
            raise StateError(
                f"the state is of {shards.pop()} shards and this mesh has {self._shards}: pass the "
                "list of all ranks' states"
            )
        return list(resharded(states, self.synchronizer.roster.forms, self._shard, self._shards))

    def _name(self, module: nn.Module, name: str) -> str:
        prefix = self._prefixes[id(module)]
        return plain(f"{prefix}.{name}" if prefix else name)

    def _hook(self, module: ShardedModule, output: Tensor) -> None:
        """Called by FSDP with the flat output of a reduce-scatter."""
        if self.synchronizer.closed:
            raise ClosedError(
                "close() ended the exchange of this model, which keeps its hooks: shard the "
                "module anew to train on"
            )
        if output.dtype == torch.float16:
            raise RecipeError(
                "FSDP divides float16 gradients after they are averaged: reduce in bfloat16 or "
                "float32, by MixedPrecisionPolicy(reduce_dtype=...)"
            )
        step = self._this_step()
        grads = {}
        for shard in module.shards(reached=True):
            piece = output[shard.offset : shard.offset + shard.shape.numel()].view(shard.shape)
            before = local_gradient(shard.parameter)
            settled = before is None and piece.dtype == shard.parameter.dtype
            if not settled or module.is_offloaded:
                piece = piece.clone()
                old = None if before is None else before.clone()
                step.later.append(Copy(shard.parameter, piece, old))
            grads[self._name(shard.module, shard.name)] = piece
        step.kept.append(output)
        self.synchronizer.runner.worker.submit_in_turn(output.device, step.engine.add, grads)

    def _this_step(self) -> Step:
        """The step of this backward pass; one that broke off is given up."""
        number = backward_pass()
        if self._step is None or self._step.number != number:
            self._follow_scale()
            step = self._step = Step(number, BackwardPass(self.synchronizer))
            after_backward(partial(self._finish, step))
        return self._step

    def _finish(self, step: Step) -> None:
        self._step = None
        worker = self.synchronizer.runner.worker
        worker.submit_in_turn(step.kept[0].device, step.engine.finish).result()
        worker.join_streams()
        model = self._model()
        if self.synchronizer.audit.is_due() and model is not None:
            self.synchronizer.audit.compare("the replicas' parameters", _local(trained(model)))
        for copy in step.later:
            copy.put()
        self.synchronizer.tell()


def _local(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """This rank's part of each."""
    return {n: p.to_local() for n, p in parameters.items() if isinstance(p, DTensor)}
