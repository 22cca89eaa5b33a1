"""DDP inside of each node, local steps between nodes:

    thinwire lab --workers 4 --nodes 2 --rate 100mbit -- torchrun examples/outer.py

Gradients are averaged inside a node at every step; every 15 steps the nodes exchange how far they
went, 1.6 % of it in 2 bits.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

STEPS, EVERY = 120, 15


def ranks_of_this_node() -> dist.ProcessGroup:
    """torchrun numbers the ranks node by node."""
    size = int(os.environ["LOCAL_WORLD_SIZE"])
    starts = range(0, dist.get_world_size(), size)
    groups = [dist.new_group(list(range(start, start + size))) for start in starts]
    return groups[dist.get_rank() // size]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    data = torch.Generator().manual_seed(rank)  # each rank sees other samples

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    ddp = DistributedDataParallel(model, process_group=ranks_of_this_node())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.003)
    handle = tw.outer(ddp, optimizer, "sparseloco", every=EVERY, node_size="auto")  # the one line

    for step in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # the last of each round also meets the other node
        if rank == 0 and step % 30 == 29:
            print(f"step {step:3d}  loss {loss.item():8.3f}")

    if rank == 0:
        print(f"the nodes met {handle.stats()['local']['rounds']} times in {STEPS} steps")
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
