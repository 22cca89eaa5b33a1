"""Without DDP: average gradients by name.  torchrun --nproc-per-node 2 examples/without_ddp.py"""

import torch
import torch.distributed as dist
from torch import nn

import thinwire as tw


def main() -> None:
    dist.init_process_group("gloo")
    torch.random.default_generator.manual_seed(0)  # the same model on every rank
    model = nn.Linear(64, 64)
    sync = tw.Synchronizer("topk(0.05) | raw+bf16 | allgather | residual")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(50):
        x = torch.randn(16, 64, generator=data)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        sync.average_all({name: p.grad for name, p in model.named_parameters()})  # in place
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step:2d}  loss {loss.item():.4f}")
    sync.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
