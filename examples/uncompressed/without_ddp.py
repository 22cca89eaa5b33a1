"""Any loop, without DDP: ranks are averaged before each step of the optimiser.

torchrun --nproc-per-node 2 examples/uncompressed/without_ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    dist.init_process_group("gloo")
    torch.random.default_generator.manual_seed(0)  # the same model on every rank
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(50):
        x = torch.randn(16, 64, generator=data)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        [dist.all_reduce(p.grad, dist.ReduceOp.AVG) for p in model.parameters()]
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step:2d}  loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
