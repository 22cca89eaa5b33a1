"""A large embedding with sparse gradients: which word comes next in Python's standard library?

torchrun --nproc-per-node 2 examples/embedding.py union       (or parallax, s2, ok-topk, dense, ...)

Only the rows of words that were looked up travel, by the recipe's own collective.
"""

import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

ROWS, WIDTH, CONTEXT, TARGETS = 50_000, 64, 8, 512
STEPS, BATCH = 100, 128


class NextWord(nn.Module):
    """The mean of the last words' vectors, and a layer that names the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True)
        self.out = nn.Linear(WIDTH, TARGETS)

    def forward(self, context: Tensor) -> Tensor:
        logits: Tensor = self.out(self.words(context))
        return logits


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
    words = text()
    places = (words[CONTEXT:] < TARGETS).nonzero().flatten()  # where a common word is next
    draw = torch.Generator().manual_seed(rank)

    ddp = DistributedDataParallel(NextWord())
    handle = tw.compress(ddp, sys.argv[1] if len(sys.argv) > 1 else "union")
    embedding = torch.optim.SparseAdam(ddp.module.words.parameters(), lr=0.01)
    output = torch.optim.Adam(ddp.module.out.parameters(), lr=0.01)
    for step in range(STEPS):
        at = places[torch.randint(places.numel(), (BATCH,), generator=draw)]
        context = words[at[:, None] + torch.arange(CONTEXT)]
        loss = nn.functional.cross_entropy(ddp(context), words[at + CONTEXT])
        ddp.zero_grad()
        loss.backward()
        embedding.step()
        output.step()
        if rank == 0 and (step + 1) % 20 == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.3f}")

    cost = handle.stats()["tensors"]["words.weight"]
    if rank == 0:
        print(
            f"embedding: sent {cost['bytes_sent'] / STEPS:,.0f} bytes per rank and step, "
            f"dense would have sent {cost['dense_bytes'] / STEPS:,.0f}"
        )
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
