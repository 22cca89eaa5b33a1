"""Save and resume, bit for bit:  torchrun --nproc-per-node 2 examples/checkpoint.py

What waits in the residuals differs by rank, so every rank saves its own file.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw


def start() -> dict[str, Any]:
    """All that has a state."""
    torch.random.default_generator.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(64, 64))
    return {
        "model": ddp,
        "optimizer": torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9),
        "thinwire": tw.compress(ddp, "topk(0.01)"),  # the one line
    }


def train(parts: dict[str, Any], steps: range) -> None:
    for step in steps:
        data = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        parts["optimizer"].zero_grad()
        parts["model"](torch.randn(8, 64, generator=data)).square().mean().backward()
        parts["optimizer"].step()


def main() -> None:
    dist.init_process_group("gloo")
    never_stopped = start()
    train(never_stopped, range(20))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"rank{dist.get_rank()}.pt"
        first, second = start(), start()
        train(first, range(10))
        torch.save({name: part.state_dict() for name, part in first.items()}, file)
        for name, state in torch.load(file, weights_only=True).items():
            second[name].load_state_dict(state)
        train(second, range(10, 20))

    weights = [parts["model"].module.weight for parts in (second, never_stopped)]
    same = torch.equal(*weights)
    print(f"rank {dist.get_rank()}: resumed run equals the one that never stopped: {same}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
