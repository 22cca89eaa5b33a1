"""JAX: a pytree of gradients averaged through a `Synchronizer`, between two jits or inside one.

    sync = thinwire.Synchronizer("topk(0.01)")           # torch.distributed has the ranks
    loss, grads = jax.jit(jax.value_and_grad(f))(params, batch)
    grads = average(sync, grads)                         # between two jits
    grads = average_in_jit(sync, grads)                  # or inside one

Every recipe works. Names are the tree's paths, as `['dense']['kernel']`.
"""

from typing import Any

import jax
import numpy as np
import torch
from jax.experimental import io_callback

from thinwire.engine.synchronizer import Synchronizer


def average(synchronizer: Synchronizer, tree: Any) -> Any:
    """The mean of a pytree over the ranks, by the recipe; `tree` itself stays as it is."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    grads = {jax.tree_util.keystr(path): _tensor(leaf) for path, leaf in leaves}
    means = synchronizer.average_all(grads).values()
    return jax.tree_util.tree_unflatten(structure, map(_array, means, (x for _, x in leaves)))


def average_in_jit(synchronizer: Synchronizer, tree: Any) -> Any:
    """The same inside a jitted function, by a callback; those of one function keep their order."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    return io_callback(lambda given: average(synchronizer, given), shapes, tree, ordered=True)


def _tensor(leaf: Any) -> torch.Tensor:
    """A copy: JAX's arrays never change. The bits of bfloat16, which NumPy has not, are carried."""
    array = np.array(leaf)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _array(mean: torch.Tensor, like: Any) -> Any:
    if mean.dtype == torch.bfloat16:
        return mean.view(torch.uint16).numpy().view(np.asarray(like).dtype)
    return mean.numpy()
