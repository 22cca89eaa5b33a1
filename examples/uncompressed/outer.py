"""DDP over two nodes:

thinwire lab --workers 4 --nodes 2 --rate 100mbit -- torchrun examples/uncompressed/outer.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 120


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    data = torch.Generator().manual_seed(rank)  # each rank sees other samples

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    ddp = DistributedDataParallel(
        model,
    )
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.003)

    for step in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 30 == 29:
            print(f"step {step:3d}  loss {loss.item():8.3f}")

    weights = sum(p.detach().double().sum().item() for p in model.parameters())
    print(f"rank {rank}: the weights' sum is {weights:.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
