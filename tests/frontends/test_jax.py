"""JAX: a pytree's mean is the true one, between two jits and inside one; NumPy arrays too."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

import thinwire as tw
from support.extras import needs
from support.stage import Stage

SCRIPT = Path(__file__).parents[1] / "support" / "jax_pmean.py"
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


def resumes(group, rank, size, state):
    """Two steps, a clipped sum of two trees in each; from a state of any number of ranks."""
    import jax

    from thinwire.frontends.jax import average

    sync = tw.Synchronizer(SPARSE, group)
    if state is not None:
        sync.load_state_dict(state)
    before = mass_of(sync.state_dict())
    means = []
    for step in range(2):
        summed = jax.tree.map(lambda a, b: (a + b).clip(-1, 1), tree(rank), tree(9 + step))
        means.append(flat(average(sync, summed)))
    gathered = sync.state_dict(gather=True)
    poisoned = jax.tree.map(lambda x: x * np.nan if rank == 1 else x, tree(rank))
    with pytest.raises(tw.NonFiniteError, match="rank 1"):
        average(sync, poisoned)
    sync.close()
    again = tw.Synchronizer(SPARSE, group)
    again.load_state_dict(gathered)
    same = mass_of(again.state_dict()) == mass_of(gathered["ranks"][rank])
    again.close()
    return before, gathered, same, np.concatenate(means)


def mass_of(state):
    tensors = state["tensors"].values()
    return sum(float(one["feedback/residual"].double().sum()) for one in tensors)


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
def test_two_processes_have_the_bits_of_pmean():
    with closing(Stage()) as stage:
        done = stage.run(SCRIPT, 2)
    assert done.codes == [0, 0], done.printed
    assert all(f"rank {rank} of 2 has the bits of pmean" in done.printed for rank in (0, 1))


@needs("jax")
def test_a_sparse_recipe_learns_and_ranks_stay_the_same(frameworks):
    one, two = frameworks.run(learns, 2)
    assert one[1] < 0.01 * one[0]
    assert one[2] == two[2]


@needs("jax")
def test_it_resumes_at_another_size_and_nan_is_told_on_every_rank(frameworks):
    two = frameworks.run(resumes, 2, None)
    assert all(same and np.array_equal(means, two[0][3]) for *_, same, means in two)
    saved = two[0][1]
    three = frameworks.run(resumes, 3, saved)
    assert sum(before for before, *_ in three) == pytest.approx(
        sum(map(mass_of, saved["ranks"])), rel=1e-5
    )
    assert all(np.array_equal(means, three[0][3]) for *_, means in three)


def test_numpy_arrays_share_their_memory_with_selections_and_codecs():
    array = np.arange(8, dtype=np.float32)
    sync = tw.Synchronizer(SPARSE)
    sync.average("w", torch.from_numpy(array))
    assert array.tolist() == [0, 0, 0, 0, 0, 0, 6, 7]
    pipeline = tw.recipe("topk(0.25) | raw+bf16 | allgather | none")
    total = tw.sparse_all_reduce(torch.from_numpy(np.array([1.0, -4.0, 2.0, 3.0])), pipeline)
    assert total.numpy().tolist() == [0, -4, 0, 0]
