"""States of a sharded model for another number of shards: what waits is cut anew, none is lost.

`fully_shard` cuts a parameter along its first dimension, as `torch.chunk` does, so that the shards'
elements, one behind the other, are those of the whole. What waits is kept; thresholds and the like
are of a shard that is no more, and start anew.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from thinwire.engine.saved import SEAL, State, seal
from thinwire.errors import StateError

Forms = Mapping[str, Sequence[Any]]


def resharded(
    states: Sequence[Mapping[str, Any]], forms: Forms, shard: int, shards: int
) -> list[State]:
    """Of each replica that saved, its state for one of `shards` shards, with these forms there."""
    by_replica: dict[int, list[Mapping[str, Any]]] = {}
    for one in sorted(states, key=lambda one: one["shard"]):
        by_replica.setdefault(one["replica"]["rank"], []).append(one["replica"])
    for replica in range(states[0]["replica"]["world"]):
        found = len(by_replica.get(replica, []))
        if found != states[0]["shards"]:
            raise StateError(
                f"of replica {replica} there are the states of {found} shards, and "
                f"{states[0]['shards']} saved one: all are needed for another number of shards"
            )
    return [_cut(parts, forms, shard, shards) for _, parts in sorted(by_replica.items())]


def _cut(parts: Sequence[Mapping[str, Any]], forms: Forms, shard: int, shards: int) -> State:
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, (_, shape) in forms.items():
        olds = [(part["forms"][name][1], part["tensors"].get(name, {})) for part in parts]
        steps = [own["step"] for _, own in olds if own]
        if not steps:
            continue  # no gradient came for it yet
        start = _start(name, sum(old[0] for old, _ in olds), shape, shard, shards)
        tensors[name] = {"step": max(steps)}
        for key in sorted({k for _, own in olds for k in own if k.startswith("feedback/")}):
            like = next(own[key] for _, own in olds if key in own)
            whole = torch.cat([own.get(key, like.new_zeros(prod(old))) for old, own in olds])
            tensors[name][key] = whole[start : start + prod(shape)].clone()
    first = {key: value for key, value in parts[0].items() if key != SEAL}
    return seal(first | {"forms": dict(forms), "buckets": [], "tensors": tensors})


def _start(name: str, rows: int, shape: Sequence[int], shard: int, shards: int) -> int:
    """The element of the whole at which a shard begins."""
    most = -(-rows // shards)
    first = min(shard * most, rows)
    if shape[0] != min(most, rows - first):
        raise StateError(
            f"{name!r} is not cut along its first dimension of {rows}: shard {shard} of {shards} "
            f"has {shape[0]}; only such states go on with another number of shards"
        )
    return first * prod(shape[1:])
