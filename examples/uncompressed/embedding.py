"""A large embedding with sparse gradients: which word comes next in Python's standard library?

torchrun --nproc-per-node 2 examples/uncompressed/embedding.py
"""

import re
import sysconfig
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ROWS, WIDTH, CONTEXT, TARGETS, STEPS, BATCH = 50_000, 64, 8, 512, 100, 128


def text() -> Tensor:
    """The library's words by rank: 0 is the commonest."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    words = re.findall(r"\w+", "\n".join(f.read_text(errors="ignore") for f in files))
    ranks = {word: rank for rank, (word, _) in enumerate(Counter(words).most_common(ROWS))}
    return torch.tensor([ranks[word] for word in words if word in ranks])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.random.default_generator.manual_seed(0)  # the same model on every rank
    words, draw = text(), torch.Generator().manual_seed(rank)
    places = (words[CONTEXT:] < TARGETS).nonzero().flatten()  # where a common word is next
    vectors = nn.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True)
    ddp = DistributedDataParallel(nn.Sequential(vectors, nn.Linear(WIDTH, TARGETS)))
    embedding = torch.optim.SparseAdam(ddp.module[0].parameters(), lr=0.01)
    output = torch.optim.Adam(ddp.module[1].parameters(), lr=0.01)
    for step in range(STEPS):
        at = places[torch.randint(places.numel(), (BATCH,), generator=draw)]
        context = words[at[:, None] + torch.arange(CONTEXT)]
        loss = nn.functional.cross_entropy(ddp(context), words[at + CONTEXT])
        ddp.zero_grad()
        loss.backward()
        embedding.step(), output.step()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.3f}")
    if rank == 0:
        print(f"{BATCH * STEPS:,} examples a rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
