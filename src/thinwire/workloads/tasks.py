"""Small models on data that is already on the machine, for `bench train` and the demo.

text    a byte-level transformer reads the source code of Python's standard library
digits  a convolutional network reads scikit-learn's handwritten digits
words   an embedding of many rows, of which a batch reads few, predicts the library's next word

Every batch is a function of (seed, step, rank), so all recipes see the same data in the same order.
"""

import re
import sysconfig
from abc import ABC, abstractmethod
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinwire.rng import generator, stream_seed

CPU = torch.device("cpu")
Batch = tuple[Tensor, Tensor]


class Task(ABC):
    """A model, its data, and how it is trained. The defaults fit a few seconds on two cores."""

    name: ClassVar[str]
    learning_rate: ClassVar[float]
    steps: ClassVar[int]
    batch: ClassVar[int]  # examples per rank and step

    @abstractmethod
    def model(self) -> nn.Module:
        """A fresh model; its weights come from torch's global generator."""

    @abstractmethod
    def train_batch(self, rng: torch.Generator) -> Batch:
        """One rank's examples for one step."""

    def batch_at(self, seed: int, step: int, rank: int) -> Batch:
        """The same examples for every recipe."""
        return self.train_batch(generator(stream_seed(seed, step, self.name, "batch", rank), CPU))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        mixed: Tensor = x + self.down(F.gelu(self.up(self.norm_mlp(x))))
        return mixed


class ByteTransformer(nn.Module):
    """Predicts the next byte from those before it."""

    def __init__(self, width: int = 128, layers: int = 1, context: int = 64) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
        nn.init.zeros_(self.head.weight)  # starts at the uniform guess: ln 256 = 5.55 nats per byte
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.place(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.blocks(self.embed(tokens) + places)
        logits: Tensor = self.head(self.norm(x))
        return logits.transpose(1, 2)  # (batch, class, position), as cross_entropy wants it


@lru_cache(maxsize=1)
def standard_library() -> Tensor:
    """The top-level modules of Python's standard library, one after another, as bytes."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    source = b"\n".join(file.read_bytes() for file in files)
    return torch.from_numpy(np.frombuffer(source, dtype=np.uint8).copy())


class Text(Task):
    name = "text"
    learning_rate = 0.3
    steps = 50
    batch = 8
    context = 64

    def model(self) -> nn.Module:
        return ByteTransformer(context=self.context)

    def windows(self, starts: Tensor) -> Batch:
        positions = starts[:, None] + torch.arange(self.context + 1)
        text = standard_library()[positions].long()
        return text[:, :-1], text[:, 1:]

    def train_batch(self, rng: torch.Generator) -> Batch:
        end = self.boundary() - self.context
        return self.windows(torch.randint(end, (self.batch,), generator=rng))

    def boundary(self) -> int:
        """Training reads what is before, evaluation what is after."""
        return len(standard_library()) * 9 // 10


@lru_cache(maxsize=1)
def digit_images() -> tuple[Batch, Batch]:
    """Training and held-out images (1797 in all, 8 × 8), shuffled the same way every time."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = (torch.tensor(data.images, dtype=torch.float32)[:, None] - 4.9) / 6.0  # mean, spread
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=generator(0, CPU))
    train, rest = order[360:], order[:360]
    return (images[train], labels[train]), (images[rest], labels[rest])


class Digits(Task):
    name = "digits"
    learning_rate = 0.1
    steps = 80
    batch = 16

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def train_batch(self, rng: torch.Generator) -> Batch:
        images, labels = digit_images()[0]
        chosen = torch.randint(len(labels), (self.batch,), generator=rng)
        return images[chosen], labels[chosen]


class NextWord(nn.Module):
    """The mean of the last words' vectors, and a layer that names the next one.

    The gradient of the embedding is sparse by itself (S2 Reducer, section 4), and PyTorch keeps it
    so if it is told to; AdamW and SGD's momentum want it dense.
    """

    def __init__(self, rows: int, width: int, targets: int, sparse: bool = True) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(rows, width, mode="mean", sparse=sparse)
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


class Words(Task):
    name = "words"
    learning_rate = 2.0  # of a mean over 8 words and the batch: rows see little of it
    steps = 100
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

    def places(self) -> Tensor:
        """Where the next word is one of the commonest."""
        return (library_words(self.rows)[self.context :] < self.targets).nonzero().flatten()


TASKS: dict[str, Task] = {task.name: task for task in (Text(), Digits(), Words())}
