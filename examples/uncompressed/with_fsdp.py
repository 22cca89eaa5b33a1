"""FSDP2: shards inside a node, replicas between nodes, and these by a recipe.

torchrun --nproc-per-node 4 examples/uncompressed/with_fsdp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 60


def main() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    rank = dist.get_rank()
    torch.random.default_generator.manual_seed(0)  # the same model on every rank
    torch.set_num_threads(1)
    data = torch.Generator().manual_seed(rank)

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    for step in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # replicas are averaged beside this
        optimizer.step()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1}  loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
