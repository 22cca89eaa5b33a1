"""Selections to encode: uniform, clustered, and of gradients recorded from the tasks' models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from thinwire.kernels.exact_topk import largest
from thinwire.rng import generator, stream_seed
from thinwire.settings import target_count
from thinwire.types import Sparse
from thinwire.workloads.tasks import TASKS

SYNTHETIC = ("uniform", "clustered")
RUN = 32  # neighbours in a cluster, on average
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Sample:
    """A selection and where it is from: "uniform", "clustered" or "text, step 20"."""

    distribution: str
    density: float
    selection: Sparse


def synthetic(kind: str, n: int, density: float, seed: int) -> Sample:
    """`density`·n elements, about so many if in clusters, with heavy-tailed values."""
    draw = generator(stream_seed(seed, 0, kind, "bench codecs"), CPU)
    count = target_count(n, density, None)
    if kind == "uniform":
        # Of a little more than enough draws, each index once, and then any `count` of them.
        drawn = torch.randint(n, (count + count // 2 + 64,), generator=draw).unique()
        drawn = drawn if drawn.numel() >= count else torch.arange(n)
        indices = drawn[torch.randperm(drawn.numel(), generator=draw)[:count]].sort().values
    else:
        starts = torch.randint(n, (max(1, count // RUN),), generator=draw)
        lengths = torch.randint(1, 2 * RUN, starts.shape, generator=draw)
        runs = starts.repeat_interleave(lengths) + _within(lengths)
        indices = (runs % n).unique()
    values = torch.randn(indices.numel(), generator=draw)
    scales = torch.empty(indices.numel()).log_normal_(0.0, 1.0, generator=draw)
    return Sample(kind, density, Sparse(indices, values * scales, n))


def recorded(
    model: str, steps: Sequence[int], densities: Sequence[float], seed: int
) -> Iterator[Sample]:
    """The largest elements of a model's gradient at some steps of training it on one process."""
    for step, gradient in gradients(model, frozenset(steps), seed):
        for density in densities:
            indices, values, _ = largest(gradient, target_count(gradient.numel(), density, None))
            selection = Sparse(indices, values, gradient.numel())
            yield Sample(f"{model}, step {step}", density, selection)


def gradients(name: str, steps: frozenset[int], seed: int) -> Iterator[tuple[int, Tensor]]:
    """The flat gradient at each of the steps, counted from 1."""
    task = TASKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = task.model()
    for step in range(1, max(steps) + 1):
        inputs, labels = task.batch_at(seed, step, rank=0)
        loss = F.cross_entropy(model(inputs), labels)
        gradients = [g.to_dense() for g in torch.autograd.grad(loss, list(model.parameters()))]
        if step in steps:
            yield step, torch.cat([gradient.reshape(-1) for gradient in gradients])
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(gradient, alpha=task.learning_rate)


def _within(lengths: Tensor) -> Tensor:
    """0, 1, … within each run."""
    ends = lengths.cumsum(0)
    return torch.arange(int(lengths.sum())) - (ends - lengths).repeat_interleave(lengths)
