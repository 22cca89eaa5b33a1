"""AdamW in a DDP script.

torchrun --nproc-per-node 2 examples/uncompressed/adam.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = torch.Generator().manual_seed(rank)  # each rank sees other samples
    torch.set_num_threads(1)

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    for step in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():8.3f}")

    if rank == 0:
        print(f"loss {loss.item():.3f} after {STEPS} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
