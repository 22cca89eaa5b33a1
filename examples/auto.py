"""Let thinwire choose, and see why. On links like yours (Linux):

thinwire lab --workers 4 --rate 100mbit -- torchrun examples/auto.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

STEPS = 80


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = torch.Generator().manual_seed(rank)
    torch.set_num_threads(1)

    model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.Linear(512, 1))
    ddp = DistributedDataParallel(model)
    handle = tw.compress(ddp, "auto")  # the one line
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.002)

    began = time.perf_counter()
    for step in range(STEPS):
        x = torch.randn(32, 64, generator=data)
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            if rank == 0:
                took_ms = 100 * (time.perf_counter() - began)  # 1000 ms, over 10 steps
                print(f"step {step + 1:3d}  loss {loss.item():8.3f}  {took_ms:6.1f} ms per step")
            began = time.perf_counter()

    if rank == 0:
        print(f"loss {loss.item():.3f} after {STEPS} steps")
        print(handle.explain())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
