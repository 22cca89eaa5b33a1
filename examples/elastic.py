"""Ranks come and go:  torchrun --nnodes 1:3 --max-restarts 3 --rdzv-backend c10d … elastic.py

When a node is lost, torchrun starts the others again as a smaller group. What waited on all ranks
is in one file, and goes on with those that are there. Where there are cards, over NCCL.
"""

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, EVERY, PATIENCE = 100, 10, timedelta(minutes=1)  # the last: with a peer that is silent
FILE = Path(tempfile.gettempdir()) / f"elastic-{os.environ['TORCHELASTIC_RUN_ID']}.pt"


def waiting(state: dict[str, Any]) -> float:
    owns = (own for of_rank in state["ranks"] for own in of_rank["tensors"].values())
    return sum(float(own["feedback/residual"].double().sum()) for own in owns)


def main() -> None:
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE))
    rank, ranks, first = dist.get_rank(), dist.get_world_size(), 0
    ddp = DistributedDataParallel(torch.nn.Linear(64, 64, bias=False).to(DEVICE))
    handle = tw.compress(ddp, "topk(0.01)", timeout=PATIENCE)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    if FILE.exists():
        first, model, state = torch.load(FILE, weights_only=True)
        ddp.module.load_state_dict(model)
        handle.load_state_dict(state)  # of any number of ranks
        there = waiting(handle.state_dict(gather=True))
        print(f"{ranks} ranks loaded step {first}, waiting {there:.6f}", flush=True)

    for step in range(first + 1, STEPS + 1):
        data = torch.Generator().manual_seed(1000 * step + rank)
        optimizer.zero_grad()
        ddp(torch.randn(8, 64, generator=data).to(DEVICE)).square().mean().backward()
        optimizer.step()
        if step % EVERY == 0:
            state = handle.state_dict(gather=True)
            if rank == 0:
                torch.save((step, ddp.module.state_dict(), state), FILE.with_suffix(".new"))
                FILE.with_suffix(".new").replace(FILE)  # never half a file
                print(f"{ranks} ranks saved step {step}, waiting {waiting(state):.6f}", flush=True)
    FILE.unlink(missing_ok=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
