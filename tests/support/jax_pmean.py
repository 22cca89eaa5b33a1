"""What one of two processes of JAX does: a tree's mean by `pmean`, and by thinwire.

Run by `support.stage`; a process can be one of several for JAX only from its beginning.
"""

import socket

import jax
import numpy as np
import torch
import torch.distributed as dist

import thinwire as tw
from thinwire.frontends.jax import average


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    port = torch.zeros(1, dtype=torch.int64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port[0] = free.getsockname()[1]
    dist.broadcast(port, 0)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{int(port)}", size, rank)
    assert jax.process_count() == jax.device_count() == size

    draw = np.random.default_rng(rank)
    tree = {"w": draw.normal(size=(4, 3)).astype("f"), "b": [draw.normal(size=8).astype("f")]}
    by_rank = jax.tree.map(lambda x: x[None], tree)  # one device a process
    pmean = jax.pmap(lambda x: jax.lax.pmean(x, "ranks"), axis_name="ranks")(by_rank)
    ours = average(tw.Synchronizer("dense"), tree)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(pmean), strict=True):
        np.testing.assert_array_equal(mine, np.asarray(theirs.addressable_data(0))[0])
    print(f"rank {rank} of {size} has the bits of pmean", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
