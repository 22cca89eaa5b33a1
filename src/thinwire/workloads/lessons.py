"""What `bench converge` trains: models, what they read, and what is held out.

gpt2            GPT-2 124 M reads words of Python's standard library, sources and documentation
transformer25m  a transformer of 25 M reads its bytes
resnet18        reads scikit-learn's digits
embedding       an embedding of 50,000 rows, of which a batch reads few, names the next word
ratings         a neural collaborative filter ranks what a user may like; its data are made

and small ones that finish on a CPU. Every batch is a function of (seed, step, rank), so all
recipes see the same data in the same order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from thinwire.rng import generator, stream_seed
from thinwire.workloads import corpus
from thinwire.workloads.corpus import Arrays
from thinwire.workloads.gpt import Gpt
from thinwire.workloads.ratings import NeuralFilter, Ratings
from thinwire.workloads.resnet import Basic, ResNet
from thinwire.workloads.tasks import CPU, Batch, NextWord

Optimizer = Literal["adamw", "sgd"]
Source = Literal["text", "images", "made"]
Tensors = dict[str, Tensor]
ADAM_BETAS = (0.9, 0.95)  # as language models are trained since GPT-3
FEWER_BYTES = 1 << 22  # for small models: words take time to count


class Reader(Protocol):
    """How examples are made of arrays."""

    @property
    def source(self) -> Source: ...

    def prepare(self, source: Path | None) -> Arrays:
        """The arrays, made once."""

    def batch(self, data: Tensors, count: int, rng: torch.Generator) -> Batch:
        """Examples to train on."""

    def held_out(self, data: Tensors, count: int) -> Batch:
        """So many that are never trained on, the same every time."""


@dataclass(frozen=True, slots=True)
class NextToken:
    """Windows of text, and at every place what comes next; without a vocabulary, of bytes."""

    context: int
    vocabulary: int | None = None
    source: Source = "text"

    def prepare(self, source: Path | None) -> Arrays:
        if self.vocabulary is None:
            return corpus.as_bytes(source)
        return corpus.as_words(source, self.vocabulary)

    def windows(self, stream: Tensor, starts: Tensor) -> Batch:
        text = stream[starts[:, None] + torch.arange(self.context + 1)].long()
        return text[:, :-1], text[:, 1:]

    def batch(self, data: Tensors, count: int, rng: torch.Generator) -> Batch:
        stream = data["train"]
        starts = torch.randint(len(stream) - self.context, (count,), generator=rng)
        return self.windows(stream, starts)

    def held_out(self, data: Tensors, count: int) -> Batch:
        stream = data["held_out"]
        return self.windows(stream, torch.linspace(0, len(stream) - self.context - 1, count).long())


@dataclass(frozen=True, slots=True)
class WordsBefore:
    """Some words, and the next one where it is among the commonest."""

    rows: int
    targets: int
    context: int = 8
    most: int = corpus.MOST
    source: Source = "text"

    def prepare(self, source: Path | None) -> Arrays:
        arrays = corpus.as_words(source, self.rows, corpus.NAMES, self.most)
        for part in ("train", "held_out"):
            common = arrays[part][self.context :] < self.targets
            arrays[f"{part}_places"] = np.flatnonzero(common)
        return arrays

    def examples(self, words: Tensor, at: Tensor) -> Batch:
        before = words[at[:, None] + torch.arange(self.context)].long()
        return before, words[at + self.context].long()

    def batch(self, data: Tensors, count: int, rng: torch.Generator) -> Batch:
        places = data["train_places"]
        chosen = places[torch.randint(len(places), (count,), generator=rng)]
        return self.examples(data["train"], chosen)

    def held_out(self, data: Tensors, count: int) -> Batch:
        places = data["held_out_places"]
        chosen = places[torch.linspace(0, len(places) - 1, count).long()]
        return self.examples(data["held_out"], chosen)


@dataclass(frozen=True, slots=True)
class Pictures:
    """Images and their classes."""

    source: Source = "images"

    def prepare(self, source: Path | None) -> Arrays:
        return corpus.images(source)

    def examples(self, data: Tensors, part: str, chosen: Tensor) -> Batch:
        pixels = data[part][chosen].float().div_(127.5).sub_(1.0)
        return pixels, data[f"{part}_labels"][chosen].long()

    def batch(self, data: Tensors, count: int, rng: torch.Generator) -> Batch:
        chosen = torch.randint(len(data["train"]), (count,), generator=rng)
        return self.examples(data, "train", chosen)

    def held_out(self, data: Tensors, count: int) -> Batch:
        chosen = torch.linspace(0, len(data["held_out"]) - 1, count).long()
        return self.examples(data, "held_out", chosen)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A model and how it learns; `rates` are the learning rates to choose the best of."""

    model: Callable[..., nn.Module]
    reader: Reader
    examples: int  # per rank and step
    unseen: int  # held-out examples, of all ranks together
    steps: int
    rates: Mapping[Optimizer, tuple[float, ...]]
    top: int = 1  # answers that an unseen example has: a hit if the right one is among them

    def build(self, data: Tensors) -> nn.Module:
        """A fresh model; its weights come from torch's global generator."""
        if self.reader.source == "images":
            return self.model(classes=int(data["train_labels"].max()) + 1)
        return self.model()

    def batch_at(self, data: Tensors, seed: int, step: int, rank: int) -> Batch:
        """The same examples for every recipe."""
        rng = generator(stream_seed(seed, step, "lesson", "batch", rank), CPU)
        return self.reader.batch(data, self.examples, rng)

    def held_out(self, data: Tensors, rank: int, workers: int) -> Batch:
        """This rank's share."""
        inputs, targets = self.reader.held_out(data, self.unseen)
        return inputs[rank::workers], targets[rank::workers]


def make_optimizer(
    name: Optimizer, parameters: list[nn.Parameter], rate: float, momentum: float
) -> torch.optim.Optimizer:
    """Adam's own means are no momentum that a recipe could carry."""
    if name == "adamw":
        return torch.optim.AdamW(parameters, rate, betas=ADAM_BETAS, weight_decay=0.1, fused=True)
    return torch.optim.SGD(parameters, rate, momentum=momentum, weight_decay=1e-4)


def save(arrays: Arrays, path: Path) -> None:
    np.savez(path, allow_pickle=False, **arrays)


@lru_cache(maxsize=2)
def load(path: str) -> Tensors:
    """What `save` wrote."""
    with np.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


_SMALL = partial(Gpt, vocabulary=256, positions=64, width=128, layers=2, heads=4)
_TINY = partial(Gpt, vocabulary=256, positions=32, width=32, layers=1, heads=2)
_ADAM, _SGD = (3e-4, 1e-3, 3e-3), (0.03, 0.1, 0.3)
_RESNET18 = partial(ResNet, (2, 2, 2, 2), block=Basic, small_images=True)
_RESNET_SMALL = partial(ResNet, (1, 1, 1, 1), width=8, block=Basic, small_images=True)

LESSONS: dict[str, Lesson] = {
    "gpt2": Lesson(
        Gpt, NextToken(512, 50257), 8, 64, 300, {"adamw": (3e-4, 6e-4, 1.2e-3), "sgd": _SGD}
    ),
    "transformer25m": Lesson(
        partial(Gpt, vocabulary=256, positions=512, width=512, layers=8, heads=8),
        *(NextToken(256), 16, 128, 300),
        {"adamw": _ADAM, "sgd": _SGD},
    ),
    "resnet18": Lesson(_RESNET18, Pictures(), 32, 360, 200, {"adamw": _ADAM, "sgd": _SGD}),
    "embedding": Lesson(
        partial(NextWord, 50_000, 128, 2_000, sparse=False),
        *(WordsBefore(50_000, 2_000), 256, 8_192, 300),
        {"adamw": (1e-3, 3e-3, 1e-2), "sgd": (1.0, 3.0, 10.0)},
    ),
    "transformer-small": Lesson(_SMALL, NextToken(64), 8, 128, 300, {"adamw": _ADAM, "sgd": _SGD}),
    "resnet-small": Lesson(_RESNET_SMALL, Pictures(), 16, 360, 150, {"adamw": _ADAM, "sgd": _SGD}),
    "embedding-small": Lesson(
        partial(NextWord, 10_000, 32, 512, sparse=False),
        *(WordsBefore(10_000, 512, most=FEWER_BYTES), 128, 2_048, 200),
        {"adamw": (1e-3, 3e-3, 1e-2), "sgd": (1.0, 3.0, 10.0)},
    ),
    "ratings": Lesson(
        partial(NeuralFilter, 256, 512),
        *(Ratings(), 128, 256, 200),
        {"adamw": (1e-2, 3e-2), "sgd": (0.3, 1.0, 3.0)},
        top=10,  # of a hundred
    ),
    "transformer-tiny": Lesson(_TINY, NextToken(32), 4, 32, 40, {"adamw": (3e-3,), "sgd": (0.1,)}),
}
