"""Hierarchical exchange keeps the laws with every recipe: dense in a node, sparse between nodes."""

import pytest
import torch
import torch.distributed as dist

import thinwire as tw
from support.contracts.ranks import TIMEOUT
from thinwire.comm import node_size_of

MOMENTUM = ("dgc", "dragonn")  # what they conserve is not the gradient
CONSERVING = [n for n in tw.recipes() if tw.recipe(n).conserves and n not in MOMENTUM]


def steps(group, rank, size, name, node_size, dtype):
    sync = tw.Synchronizer(tw.recipe(name, bypass=0), group, node_size=node_size, timeout=TIMEOUT)
    keeps_state = rank % node_size == 0
    left = torch.zeros(600, dtype=torch.float64)
    for step in range(3):
        generator = torch.Generator().manual_seed(100 * step + rank)
        grad = torch.randn(20, 30, generator=generator).to(dtype)
        inflow = grad.reshape(-1).double() + left
        update = sync.average("w", grad)
        assert update is grad
        saved = sync.state_dict()["tensors"]["w"]
        assert ("feedback/residual" in saved) == (keeps_state and name not in DENSE)
        left = saved.get("feedback/residual", torch.zeros(600)).double()
        outflow = left.clone()
        dist.all_reduce(inflow, group=group)
        dist.all_reduce(outflow, group=group)
        outflow += size * update.reshape(-1).double()
        tolerance = 1e-5 if dtype == torch.float32 and name not in DENSE else 5e-2
        torch.testing.assert_close(outflow, inflow, atol=tolerance, rtol=tolerance)
        everyone = [torch.empty_like(update) for _ in range(size)]
        dist.all_gather(everyone, update, group=group)
        assert all(torch.equal(other, update) for other in everyone)
    stats = sync.stats()["total"]
    sync.close()
    return stats["bytes_sent"], stats["k"]


DENSE = ("dense", "auto", "fp16", "bf16", "parallax")  # auto: while it is undecided


@pytest.mark.parametrize("name", CONSERVING)
@pytest.mark.parametrize(("size", "node_size"), [(4, 2), (6, 3), (4, 4)])
def test_loses_nothing_and_agrees(cluster, name, size, node_size):
    results = cluster.run(steps, size, name, node_size, torch.float32)
    selected = [k for _, k in results]
    assert all((k > 0) == (rank % node_size == 0) for rank, k in enumerate(selected))


def test_half_precision_sums_inside_the_node_in_float32(cluster):
    cluster.run(steps, 4, "topk", 2, torch.bfloat16)


def test_a_node_size_that_does_not_divide_is_refused_everywhere(cluster):
    for raised in cluster.run(steps, 4, "topk", 3, torch.float32, expect=tw.RecipeError):
        assert "node_size=3 must divide the 4 ranks" in raised.text


@pytest.mark.parametrize("node_size", [0, -2, 2.0, "all"])
def test_what_is_no_number_of_ranks(node_size):
    with pytest.raises(tw.RecipeError, match="must be a number of ranks"):
        node_size_of(node_size)


def disagree(group, rank, size):
    tw.Synchronizer("topk", group, node_size=1 + rank % 2)


def test_ranks_that_disagree_on_nodes_are_told(cluster):
    for raised in cluster.run(disagree, 2, expect=tw.DisagreementError):
        assert "node_size=1" in raised.text
        assert "node_size=2" in raised.text


def rows_of(group, rank, size, recipe, node_size):
    """A COO gradient with a row of its own, a shared one, and none at all on rank 1."""
    sync = tw.Synchronizer(recipe, group, node_size=node_size, timeout=TIMEOUT)
    picks = [] if rank == 1 else [rank, 20]
    grad = torch.sparse_coo_tensor(
        torch.tensor([picks], dtype=torch.int64), torch.full((len(picks), 3), 2.0), (30, 3)
    )
    mean = sync.average("rows", grad)
    sync.close()
    return mean.is_coalesced(), mean.to_dense()


@pytest.mark.parametrize("recipe", ["topk", "union", "ok-topk", "gtopk", "dense"])
@pytest.mark.parametrize(("size", "node_size"), [(4, 2), (6, 3), (4, 4)])
def test_sparse_gradients_go_through_the_nodes_too(cluster, recipe, size, node_size):
    expected = torch.zeros(30, 3)
    for rank in range(size):
        expected[rank] += 2.0 * (rank != 1)
        expected[20] += 2.0 * (rank != 1)
    for coalesced, mean in cluster.run(rows_of, size, recipe, node_size):
        assert coalesced
        torch.testing.assert_close(mean, expected / size)
