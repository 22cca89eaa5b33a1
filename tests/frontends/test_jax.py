"""JAX: a pytree's mean is the true one, between two jits and inside one; NumPy arrays too."""

import numpy as np
import pytest
import torch

import thinwire as tw
from support.extras import needs

SPARSE = tw.recipe("topk", density=0.25, bypass=0)


def tree(rank):
    import jax.numpy as jnp

    draw = np.random.default_rng(rank)
    return {
        "dense": {"kernel": jnp.asarray(draw.normal(size=(4, 3)), jnp.float32)},
        "half": [jnp.asarray(draw.normal(size=8), jnp.bfloat16)],
    }


def flat(leaves):
    import jax

    return np.concatenate([np.asarray(x, np.float32).reshape(-1) for x in jax.tree.leaves(leaves)])


# What the ranks do.


def mean_of_trees(group, rank, size, inside):
    import jax

    from thinwire.frontends.jax import average, average_in_jit

    sync, mine = tw.Synchronizer("dense", group), tree(rank)
    before = flat(mine)
    step = jax.jit(lambda grads: average_in_jit(sync, grads)) if inside else None
    mean = jax.block_until_ready(step(mine)) if inside else average(sync, mine)
    truth = np.mean([flat(tree(r)) for r in range(size)], axis=0)
    kinds = [leaf.dtype.name for leaf in jax.tree.leaves(mean)]
    names = list(sync.stats()["tensors"])
    sync.close()
    return float(abs(flat(mean) - truth).max()), np.array_equal(before, flat(mine)), kinds, names


def learns(group, rank, size):
    """Training by a sparse recipe, gradient and update jitted: ranks stay the same and learn."""
    import jax
    import jax.numpy as jnp

    from thinwire.frontends.jax import average

    target = jnp.arange(12.0).reshape(4, 3)
    sync = tw.Synchronizer(SPARSE, group)

    @jax.jit
    def gradient(params, x):
        return jax.value_and_grad(lambda p: jnp.mean((x @ p["w"] - x @ target) ** 2))(params)

    @jax.jit
    def update(params, grads):
        return jax.tree.map(lambda p, g: p - 0.2 * g, params, grads)

    params, losses = {"w": jnp.zeros((4, 3))}, []
    for step in range(40):
        x = jnp.asarray(np.random.default_rng(100 * step + rank).normal(size=(16, 4)), jnp.float32)
        loss, grads = gradient(params, x)
        params = update(params, average(sync, grads))
        losses.append(float(loss))
    sync.close()
    return losses[0], losses[-1], np.asarray(params["w"]).tobytes()


# The tests.


@needs("jax")
@pytest.mark.parametrize("inside", [False, True], ids=["between", "inside"])
def test_the_mean_is_the_true_one_and_the_given_tree_stays(frameworks, inside):
    for gap, untouched, kinds, names in frameworks.run(mean_of_trees, 2, inside):
        assert gap < 0.01  # of bfloat16
        assert untouched
        assert kinds == ["float32", "bfloat16"]
        assert names == ["['dense']['kernel']", "['half'][0]"]


@needs("jax")
def test_a_sparse_recipe_learns_and_ranks_stay_the_same(frameworks):
    one, two = frameworks.run(learns, 2)
    assert one[1] < 0.01 * one[0]
    assert one[2] == two[2]


def test_numpy_arrays_share_their_memory_with_selections_and_codecs():
    array = np.arange(8, dtype=np.float32)
    sync = tw.Synchronizer(SPARSE)
    sync.average("w", torch.from_numpy(array))
    assert array.tolist() == [0, 0, 0, 0, 0, 0, 6, 7]
    pipeline = tw.recipe("topk(0.25) | raw+bf16 | allgather | none")
    total = tw.sparse_all_reduce(torch.from_numpy(np.array([1.0, -4.0, 2.0, 3.0])), pipeline)
    assert total.numpy().tolist() == [0, -4, 0, 0]
