"""Models of their true size to train on a GPU, and small ones of the same classes for tests.

Language models read Python's standard library; images are random, for their time alone. Every
batch is a function of (seed, step, rank), so all recipes see the same data in the same order.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinwire.rng import generator, stream_seed
from thinwire.workloads.bert import Bert
from thinwire.workloads.gpt import Gpt
from thinwire.workloads.resnet import ResNet
from thinwire.workloads.tasks import CPU, Batch, standard_library

MASKED = 0.15  # of the words (BERT, section 3.1)
UNREAD = -100  # the target of places that cross_entropy leaves out
PIECES = re.compile(r" ?\w+| ?[^\w\s]+|\s+")  # as GPT-2 cuts text before it pairs bytes
IMAGE_BATCHES = 8  # made once and read in turn: images are large


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model, what it reads and how it learns."""

    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    optimizer: Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
    examples: int  # per rank and step
    distinct: int | None = None  # batches; None where every step has its own

    def batch_at(self, seed: int, step: int, rank: int) -> Batch:
        """The same examples for every recipe."""
        step = step % self.distinct if self.distinct else step
        return self.batch(generator(stream_seed(seed, step, "real", "batch", rank), CPU))


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over all that is to be named, in nats."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=UNREAD)


@lru_cache(maxsize=2)
def library_tokens(most: int) -> Tensor:
    """The standard library in words and signs, by how common they are: 0 is the commonest.

    Words beyond the `most` common ones are left out, and 0 stands for a masked word.
    """
    pieces = PIECES.findall(bytes(standard_library().tolist()).decode(errors="ignore"))
    common = Counter(pieces).most_common(most - 1)
    ranks = {piece: rank for rank, (piece, _) in enumerate(common, start=1)}
    return torch.tensor([ranks[piece] for piece in pieces if piece in ranks])


def _windows(stream: Tensor, length: int, count: int, rng: torch.Generator) -> Tensor:
    starts = torch.randint(len(stream) - length, (count, 1), generator=rng)
    return stream[starts + torch.arange(length)].long()


def _next_tokens(vocabulary: int, context: int, count: int, rng: torch.Generator) -> Batch:
    text = _windows(library_tokens(vocabulary), context + 1, count, rng)
    return text[:, :-1], text[:, 1:]


def _next_bytes(context: int, count: int, rng: torch.Generator) -> Batch:
    text = _windows(standard_library(), context + 1, count, rng)
    return text[:, :-1], text[:, 1:]


def _masked_words(vocabulary: int, length: int, count: int, rng: torch.Generator) -> Batch:
    text = _windows(library_tokens(vocabulary), length, count, rng)
    masked = torch.rand(text.shape, generator=rng) < MASKED
    return text.masked_fill(masked, 0), text.masked_fill(~masked, UNREAD)


def _images(side: int, classes: int, count: int, rng: torch.Generator) -> Batch:
    # Channels last is how the tensor cores want them. Weights stay as they are: PowerSGD views
    # their gradients as matrices.
    images = torch.randn(count, 3, side, side, generator=rng)
    images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randint(classes, (count,), generator=rng)


def _adamw(parameters: Iterable[nn.Parameter], momentum: float) -> torch.optim.Optimizer:
    """Its own means are no momentum that a recipe could carry."""
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, fused=True)


def _sgd(parameters: Iterable[nn.Parameter], momentum: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=momentum, weight_decay=1e-4)


_GPT2 = RealModel(Gpt, partial(_next_tokens, 50257, 512, 8), _adamw, 8)
_RESNET50 = RealModel(ResNet, partial(_images, 224, 1000, 32), _sgd, 32, IMAGE_BATCHES)
_BERT = RealModel(Bert, partial(_masked_words, 30522, 128, 32), _adamw, 32)
_SMALL_GPT = partial(Gpt, vocabulary=256, positions=512, width=512, layers=8, heads=8)
_TRANSFORMER = RealModel(_SMALL_GPT, partial(_next_bytes, 256, 16), _adamw, 16)

REAL: dict[str, RealModel] = {
    "gpt2": _GPT2,
    "resnet50": _RESNET50,
    "bert": _BERT,
    "transformer25m": _TRANSFORMER,
    "gpt2-tiny": replace(
        _GPT2,
        build=partial(Gpt, vocabulary=512, positions=64, width=32, layers=2, heads=2),
        batch=partial(_next_tokens, 512, 32, 4),
        examples=4,
    ),
    "resnet50-tiny": replace(
        _RESNET50,
        build=partial(ResNet, blocks=(1, 1, 1, 1), width=8, classes=10),
        batch=partial(_images, 32, 10, 4),
        examples=4,
    ),
    "bert-tiny": replace(
        _BERT,
        build=partial(Bert, vocabulary=512, positions=64, width=32, layers=2, heads=2),
        batch=partial(_masked_words, 512, 32, 4),
        examples=4,
    ),
    "transformer25m-tiny": replace(
        _TRANSFORMER,
        build=partial(Gpt, vocabulary=256, positions=64, width=32, layers=2, heads=2),
        batch=partial(_next_bytes, 32, 4),
        examples=4,
    ),
}
