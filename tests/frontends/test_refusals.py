"""What a front door cannot take is refused in one sentence that says what to do, on every rank.

Covers frontends/compress.py, engine/given.py.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.engine.given import no_gradient


def ddp_of(group):
    return DDP(nn.Linear(40, 40), process_group=group)


def groups_made():
    return len(dist.distributed_c10d._world.pg_map)


# What the ranks do.


def after_close(group, rank, size):
    ddp = ddp_of(group)
    handle = tw.compress(ddp, "topk")
    ddp(torch.ones(2, 40)).sum().backward()
    handle.close()
    with pytest.raises(tw.ClosedError, match=r"close\(\) ended the exchange of this model"):
        ddp(torch.ones(2, 40)).sum().backward()
    sync = tw.Synchronizer("dense", group)
    sync.close()
    with pytest.raises(tw.ClosedError, match="make a new Synchronizer"):
        sync.average("w", torch.ones(3))


def twice(group, rank, size):
    ddp = ddp_of(group)
    handle = tw.compress(ddp, "topk")
    before = groups_made()
    with pytest.raises(tw.RecipeError, match="has a communication hook already"):
        tw.compress(ddp, "topk")
    assert groups_made() == before
    ddp(torch.ones(2, 40)).sum().backward()  # the first goes on
    handle.close()


def otherwise_wrapped(group, rank, size, setting):
    """One rank would exchange what it did not use, and others know nothing of that."""
    ddp = DDP(nn.Linear(40, 40), process_group=group, **({setting: True} if rank else {}))
    with pytest.raises(tw.DisagreementError, match=rf"on the model:(.*\n)+.*{setting}=True"):
        tw.compress(ddp, "topk")


def odd_gradients(group, rank, size):
    sync = tw.Synchronizer("dense", group)
    with pytest.raises(tw.RecipeError, match="'w' has no gradient"):
        sync.average_all({"w": None})
    with pytest.raises(tw.DisagreementError, match="w: None"):
        sync.average_all({"w": None if rank else torch.ones(3)})
    mesh = init_device_mesh("cpu", (size,))
    for placement in (Shard(0), Replicate()):
        sharded = DTensor.from_local(torch.ones(3), mesh, [placement])
        with pytest.raises(tw.RecipeError, match=r"'w' is a DTensor.*to_local\(\)"):
            sync.average("w", sharded)
    expanded = torch.ones(1).expand(3)
    with pytest.raises(tw.RecipeError, match=r"'w' was expanded.*contiguous\(\)"):
        sync.average("w", expanded)
    with pytest.raises(tw.DisagreementError, match=r"w: .*, expanded, step 0"):
        sync.average("w", expanded if rank else torch.ones(3))
    return sync.average("w", torch.full((3,), float(rank))).tolist()  # nothing is out of step


def other_wrappers(group, rank, size):
    before = groups_made()
    with pytest.raises(TypeError, match=r"replicate\(\).*DistributedDataParallel"):
        tw.compress(replicate(nn.Linear(2, 2)), "topk")
    with pytest.raises(TypeError, match=r"FullyShardedDataParallel.*fully_shard"):
        sharded = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
        tw.compress(sharded, "topk")
    return groups_made() - before


def wrapped_in_both(group, rank, size):
    model = ddp_of(group)
    with pytest.raises(tw.RecipeError, match=r"already.*thinwire\.compress\(model, recipe\)"):
        tw.wrap(torch.optim.SGD(model.parameters(), 0.1), model, "topk")


# The tests.


@pytest.mark.parametrize("story", [after_close, twice, wrapped_in_both])
def test_a_ddp_model(cluster, story):
    cluster.run(story, 2)


@pytest.mark.parametrize("setting", ["find_unused_parameters", "static_graph"])
def test_ranks_whose_ddp_looks_for_unused_parameters_otherwise(cluster, setting):
    cluster.run(otherwise_wrapped, 2, setting)


def test_gradients_that_are_none_or_sharded(cluster):
    assert cluster.run(odd_gradients, 2) == [[0.5] * 3] * 2


def test_other_wrappers_are_told_before_groups_are_made(cluster):
    assert cluster.run(other_wrappers, 2) == [0, 0]


def test_an_optimizer_is_no_model():
    with pytest.raises(TypeError, match=r"compress\(\) takes .* model first, not SGD"):
        tw.compress(torch.optim.SGD([torch.ones(1)], 0.1), "topk")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model, sgd: tw.wrap(model, sgd, "topk"), r"wrap\(optimizer, model, recipe\)"),
        (lambda model, sgd: tw.optim(model, sgd, "topk"), r"optim\(optimizer, model, recipe\)"),
        (lambda model, sgd: tw.outer(sgd, model, "topk"), r"outer\(model, optimizer, recipe\)"),
    ],
    ids=["wrap", "optim", "outer"],
)
def test_model_and_optimizer_in_each_others_places(call, says):
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=says):
        call(model, torch.optim.SGD(model.parameters(), 0.1))


@pytest.mark.parametrize("recipe", [0.01, nn.Linear(2, 2)])
def test_what_is_no_recipe(recipe):
    kind = type(recipe).__name__
    with pytest.raises(tw.RecipeError, match=rf'a recipe is .* as "topk\(0.01\)", not {kind}'):
        tw.Synchronizer(recipe)


def test_gradients_on_the_cpu_are_none_for_nccl():
    says = no_gradient("w", torch.ones(3), "nccl")
    assert "move the model to its GPU" in says and 'init_process_group("gloo")' in says
    assert not no_gradient("w", torch.ones(3), "gloo")


def test_arrays_and_lists_are_no_gradients_by_name():
    sync = tw.Synchronizer("topk")
    with pytest.raises(tw.RecipeError, match=r"'w' is of type ndarray.*from_numpy\(array\)"):
        sync.average("w", torch.ones(3).numpy())
    with pytest.raises(TypeError, match="by name, as a dict, not as list"):
        sync.average_all([torch.ones(3)])
    assert sync.average("w", torch.ones(3)).tolist() == [1, 1, 1]  # nothing was begun


def test_rows_in_another_layout_are_told_which_one_travels():
    sync = tw.Synchronizer("topk")
    with pytest.raises(tw.RecipeError, match=r"'w' is torch\.sparse_csr: pass grad\.to_sparse_coo"):
        sync.average("w", torch.eye(3).to_sparse_csr())


def test_a_scaler_and_a_timeout_are_objects():
    model = nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match="grad_scaler=True must be the GradScaler itself"):
        tw.wrap(sgd, model, "topk", grad_scaler=True)
    with pytest.raises(tw.RecipeError, match=r"timeout=30 .* datetime\.timedelta\(seconds=60\)"):
        tw.Synchronizer("topk", timeout=30)


def test_an_optimizer_is_wrapped_once_until_it_is_closed():
    model = nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.wrap(sgd, model, "topk")
    with pytest.raises(tw.RecipeError, match=r"would average twice.*close\(\)"):
        tw.wrap(sgd, model, "topk")
    other = torch.optim.Adam([model.bias], 0.1)
    with pytest.raises(tw.RecipeError, match=r"'weight' was wrapped before.*that steps first"):
        tw.wrap(other, model, "topk")
    handle.close()
    tw.wrap(sgd, model, "topk").close()


def test_a_plain_model_is_told_of_wrap():
    with pytest.raises(TypeError, match=r"not Linear.*thinwire\.wrap"):
        tw.compress(nn.Linear(2, 2), "topk")
