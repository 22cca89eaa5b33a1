"""The private names of PyTorch that the front ends lean on mean what we take them for.

A failure here says that PyTorch has moved something: mend `frontends/torch_private.py` or
`frontends/fsdp_private.py` alone.

Covers frontends/fsdp_private.py.
"""

import re
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from thinwire.frontends.fsdp_private import sharded_modules
from thinwire.frontends.torch_private import (
    after_backward,
    all_threads,
    backward_pass,
    calls_hooks,
    composed_by,
    has_hook,
    is_inner_step,
)

SOURCE = Path(__file__).parents[2] / "src" / "thinwire"
PRIVATE = re.compile(r"(?:\btorch(?:\.\w+)*?|\bc10d)\.(_\w+(?:\.\w+)*)")


def hooks_of_ddp(group, rank, size):
    ddp = DDP(nn.Linear(2, 2), process_group=group)
    before = has_hook(ddp)
    ddp.register_comm_hook(None, lambda state, bucket: None)
    return before, has_hook(ddp)


def places_of_shards(group, rank, size):
    """9 rows on two ranks: 5 and 4, padded to 5; the bias of 9 alike."""
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("replicas", "shards"))
    whole = nn.Sequential(fully_shard(nn.Linear(3, 9), mesh=mesh), nn.ReLU())
    (module,) = sharded_modules(fully_shard(whole, mesh=mesh))
    shards = [(shard.name, shard.offset, tuple(shard.shape)) for shard in module.shards()]
    native = module.replicate_group is not None
    module.leave_replicas_alone()
    groups = dist.get_world_size(module.shard_group), module.replicate_group
    return shards, native, groups, module.has_hook, module.is_offloaded


def numbers_of_passes(group, rank, size):
    """Each backward pass has its own number, and callbacks come when it is over."""
    x, seen = torch.ones(2, requires_grad=True), []
    outside = backward_pass()

    def look(grad):
        number = backward_pass()
        after_backward(lambda: seen.append(("over", number)))
        seen.append(("under way", number))

    for _ in range(2):
        y = x * 2
        y.register_hook(look)
        y.sum().backward()
    words, numbers = zip(*seen, strict=True)
    return words, numbers[0] == numbers[1] != numbers[2] == numbers[3], outside in numbers


def test_a_sharded_module_tells_where_its_shards_are(cluster):
    rows = [5, 4]
    for rank, told in enumerate(cluster.run(places_of_shards, 2)):
        shards = [("weight", 0, (rows[rank], 3)), ("bias", 15, (rows[rank],))]
        assert told == (shards, True, (2, None), False, False)


def test_backward_passes_are_told_apart(cluster):
    words = ("under way", "over") * 2
    assert cluster.run(numbers_of_passes, 1) == [(words, True, False)]


def test_a_ddp_model_tells_of_its_hook(cluster):
    assert cluster.run(hooks_of_ddp, 2) == [(False, True)] * 2


def test_what_made_a_module_is_known():
    assert composed_by(nn.Linear(2, 2)) == set()
    assert composed_by(replicate(nn.Linear(2, 2))) == {"replicate"}


def test_hooks_are_called_and_tell_a_step_within_a_step():
    class Subclass(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    torch.optim.SGD([torch.ones(1)], 0.1)  # its step calls hooks from now on
    optimizer, inner = Subclass([torch.ones(1)], 0.1), []
    optimizer.register_step_post_hook(lambda one, *_: inner.append(is_inner_step(one)))
    optimizer.step()
    assert inner == [True, False]
    assert not is_inner_step(optimizer)
    assert calls_hooks(optimizer) and not calls_hooks(nn.Linear(2, 2))


def test_the_profiler_takes_what_makes_it_see_all_threads():
    with torch.profiler.profile(experimental_config=all_threads()) as profiler:
        torch.ones(2).add(1)
    assert any(event.key == "aten::add" for event in profiler.key_averages())


def test_a_private_name_of_pytorch_is_in_one_file():
    """So that there is one to mend. `_dynamo` is named only to be imported early."""
    files = defaultdict(set)
    for file in SOURCE.rglob("*.py"):
        for name in PRIVATE.findall(file.read_text()):
            files[name].add(str(file.relative_to(SOURCE)))
    assert files.pop("_dynamo", None)
    assert files and {name: sorted(at) for name, at in files.items() if len(at) > 1} == {}
