"""JAX: gradient and update are jitted, and between them ranks are averaged by a recipe.

torchrun --nproc-per-node 2 examples/with_jax.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch.distributed as dist

import thinwire as tw
from thinwire.frontends.jax import average

STEPS = 40


def loss_of(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ params["in"])
    return jnp.mean((hidden @ params["out"] - x.sum(1, keepdims=True)) ** 2)


def main() -> None:
    dist.init_process_group("gloo")  # has the ranks; JAX sees one process
    rank = dist.get_rank()
    data = np.random.default_rng(rank)  # each rank sees other samples
    keys = jax.random.split(jax.random.key(0))  # the same model on every rank
    params = {
        "in": jax.random.normal(keys[0], (64, 256)) / 8,
        "out": jax.random.normal(keys[1], (256, 1)) / 16,
    }
    gradient = jax.jit(jax.value_and_grad(loss_of))
    update = jax.jit(lambda params, grads: jax.tree.map(lambda p, g: p - 0.01 * g, params, grads))
    sync = tw.Synchronizer("topk(0.05)")

    for step in range(STEPS):
        loss, grads = gradient(params, data.standard_normal((32, 64), dtype=np.float32))
        params = update(params, average(sync, grads))  # the one line
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}  loss {loss:.3f}")
    sync.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
