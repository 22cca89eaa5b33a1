"""A model with an embedding of many rows, of which a batch sees few (S2 Reducer, section 4)."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from thinwire.workloads.tasks import TASKS, Batch, Task, standard_library


class NextWord(nn.Module):
    """The mean of the last words' vectors, and a layer that names the next one."""

    def __init__(self, rows: int, width: int, targets: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(rows, width, mode="mean", sparse=True)
        self.out = nn.Linear(width, targets)

    def forward(self, context: Tensor) -> Tensor:
        logits: Tensor = self.out(self.words(context))
        return logits


@lru_cache(maxsize=1)
def library_words(most: int) -> Tensor:
    """The standard library's words by how common they are: 0 is the commonest."""
    words = re.findall(r"\w+", bytes(standard_library().tolist()).decode(errors="ignore"))
    ranks = {word: rank for rank, (word, _) in enumerate(Counter(words).most_common(most))}
    return torch.tensor([ranks[word] for word in words if word in ranks])


@dataclass(frozen=True)
class Words(Task):
    name = "words"
    title = "Next word from an embedding of 50,000 rows, with sparse gradients"
    measure = "loss"
    learning_rate = 2.0  # of a mean over 8 words and the batch: rows see little of it
    steps = 100
    quick_steps = 40
    batch = 128
    rows, width, context, targets = 50_000, 64, 8, 512

    def model(self) -> nn.Module:
        return NextWord(self.rows, self.width, self.targets)

    def examples(self, at: Tensor) -> Batch:
        words = library_words(self.rows)
        return words[at[:, None] + torch.arange(self.context)], words[at + self.context]

    def train_batch(self, rng: torch.Generator) -> Batch:
        places = self.places()
        places = places[: len(places) * 9 // 10]
        return self.examples(places[torch.randint(len(places), (self.batch,), generator=rng)])

    def held_out(self, rank: int, workers: int) -> Batch:
        places = self.places()
        return self.examples(places[len(places) * 9 // 10 :: 64][rank::workers])

    def places(self) -> Tensor:
        """Where the next word is one of the commonest."""
        return (library_words(self.rows)[self.context :] < self.targets).nonzero().flatten()


BENCH_TASKS: dict[str, Task] = TASKS | {"words": Words()}
"""What `bench train` trains: the demo's tasks, and one whose gradients are sparse by themselves."""
