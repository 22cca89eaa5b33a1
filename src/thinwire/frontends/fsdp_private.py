"""What FSDP shows only by private names: all of it that its front end uses is here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's part of one parameter, and where its gradient is in a reduce-scatter's output."""

    module: nn.Module
    name: str  # in the module
    parameter: nn.Parameter
    offset: int  # elements
    shape: torch.Size


class ShardedModule:
    """One call of `fully_shard`: parameters whose gradients are reduced together."""

    def __init__(self, module: FSDPModule) -> None:
        self.module = module
        self.groups = _parameter_groups(module)
        self._reached: set[int] = set()

    @property
    def has_hook(self) -> bool:
        """Whether a hook was set after the reduce-scatter."""
        return any(group._all_reduce_hook is not None for group in self.groups)

    @property
    def shard_group(self) -> dist.ProcessGroup:
        """The ranks that hold the other shards."""
        info = self.groups[0].mesh_info
        assert isinstance(info, FSDPMeshInfo)
        return info.shard_process_group

    @property
    def replicate_group(self) -> dist.ProcessGroup | None:
        """The ranks that hold the same shard; None on a mesh of one dimension."""
        infos = [group.mesh_info for group in self.groups]
        groups = {i.replicate_process_group for i in infos if isinstance(i, HSDPMeshInfo)}
        return groups.pop() if groups else None

    def leave_replicas_alone(self) -> None:
        """Let FSDP reduce over the shards alone, and not add up the replicas itself."""
        for group in self.groups:
            before = group.mesh_info
            if isinstance(before, HSDPMeshInfo):
                group.mesh_info = FSDPMeshInfo(before.mesh, shard_mesh_dim=before.shard_mesh_dim)
                if group.post_forward_mesh_info is before:
                    group.post_forward_mesh_info = group.mesh_info

    def note_gradients(self) -> None:
        """From now on remember which parameters a backward pass reached: others are left out."""
        for group in self.groups:
            noting = partial(self._post_backward, group, group.post_backward)
            group.post_backward = noting  # type: ignore[method-assign]

    def _post_backward(
        self, group: FSDPParamGroup, original: Callable[..., None], *unused: object
    ) -> None:
        self._reached = {id(one) for one in group.fsdp_params if _has_gradient(one)}
        original(*unused)

    def shards(self, reached: bool = False) -> list[Shard]:
        """In the order in which a reduce-scatter has them, each padded to its neighbours' size.

        All that are trained, or those that this backward pass has `reached`.
        """
        shards, offset = [], 0
        for one in (one for group in self.groups for one in group.fsdp_params):
            if id(one) in self._reached if reached else one.sharded_param.requires_grad:
                info = one._module_info
                at = (info.module, info.param_name, one.sharded_param, offset)
                shards.append(Shard(*at, one.sharded_size))
                offset += one.padded_sharded_param_size.numel()
        return shards

    @property
    def is_offloaded(self) -> bool:
        """Whether gradients move to the host when they are reduced."""
        return any(one.offload_to_cpu for group in self.groups for one in group.fsdp_params)


def _parameter_groups(module: FSDPModule) -> list[FSDPParamGroup]:
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):  # one for each mesh that parameters are on
        return list(state._fsdp_param_groups)
    only = state._fsdp_param_group  # before torch 2.12
    return [] if only is None else [only]


def _has_gradient(parameter: FSDPParam) -> bool:
    """As FSDP asks before it reduces."""
    if not hasattr(parameter, "_unsharded_param"):
        return False
    accumulated = parameter.unsharded_accumulated_grad
    return accumulated is not None or parameter.unsharded_param.grad is not None


def sharded_modules(model: nn.Module) -> list[ShardedModule]:
    """All calls of `fully_shard` in a model that found parameters, and not only other calls."""
    calls = [ShardedModule(module) for module in model.modules() if isinstance(module, FSDPModule)]
    return [call for call in calls if call.groups]


def local_gradient(parameter: nn.Parameter) -> Tensor | None:
    """This rank's part of a sharded parameter's gradient; None if there is none."""
    grad = parameter.grad
    return grad._local_tensor if isinstance(grad, DTensor) else None
