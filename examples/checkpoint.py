"""Save and resume, bit for bit:  torchrun --nproc-per-node 2 examples/checkpoint.py

What waits in the residuals differs by rank, so every rank saves its own file beside the model.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw


def start() -> tuple[DistributedDataParallel, tw.Handle]:
    torch.random.default_generator.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(64, 64))
    return ddp, tw.compress(ddp, "topk(0.01)")


def train(ddp: DistributedDataParallel, steps: range) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in steps:
        data = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        optimizer.zero_grad()
        ddp(torch.randn(8, 64, generator=data)).square().mean().backward()
        optimizer.step()


def main() -> None:
    dist.init_process_group("gloo")
    never_stopped, _ = start()
    train(never_stopped, range(20))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"rank{dist.get_rank()}.pt"
        ddp, handle = start()
        train(ddp, range(10))
        torch.save({"model": ddp.module.state_dict(), "thinwire": handle.state_dict()}, file)

        ddp, handle = start()
        saved = torch.load(file, weights_only=True)
        ddp.module.load_state_dict(saved["model"])
        handle.load_state_dict(saved["thinwire"])
        train(ddp, range(10, 20))

    same = torch.equal(ddp.module.weight, never_stopped.module.weight)
    print(f"rank {dist.get_rank()}: resumed run equals the one that never stopped: {same}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
