"""DDP inside of each node, local steps between nodes:

    thinwire lab --workers 4 --nodes 2 --rate 100mbit -- torchrun examples/outer.py

Gradients are averaged inside a node at every step; every 15 steps the nodes exchange how far they
went, 1.6 % of it in 2 bits.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

STEPS = 120


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    data = torch.Generator().manual_seed(rank)  # each rank sees other samples

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    ddp = DistributedDataParallel(
        model,
        process_group=dist.new_subgroups(2)[0],  # the two ranks of this node
    )
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.003)
    tw.outer(ddp, optimizer, "sparseloco", every=15, node_size="auto")  # the one line

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
