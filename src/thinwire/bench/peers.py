"""What others do, to be measured in the same run: PyTorch's hooks, and plain torch operations.

PyTorch's hooks are its own code, given the one bucket that DDP would give them: nothing of DDP's
own cost is charged to them. Each peer turns `grad` into the mean over the ranks, in place.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import NormalDist
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from thinwire.cookbook import has_density

SAMPLE = 0.01  # DGC, section 3.1: the threshold comes from 1 % of the gradient
MOMENTUM = 0.9
REUSE, REGIONS = 32, 64  # Ok-Topk, section 5.2: steps between new thresholds and new regions
COUNTS = (2 / 3, 4 / 3)  # of k: a threshold that selects fewer or more is stale
SCALED = 0.9  # Gaussiank's threshold, as often as it selects too few
TorchHook = Callable[[Any, Any], torch.futures.Future[Tensor]]


class Method(Protocol):
    """One way to average a gradient, over many steps."""

    @property
    def seconds(self) -> dict[str, float]:
        """By phase, since the start."""

    def step(self, grad: Tensor) -> None:
        """`grad` becomes the mean over the ranks."""


class Bucket:
    """As much of DDP's GradBucket as the hooks look at."""

    def __init__(self, buffer: Tensor, gradients: list[Tensor]) -> None:
        self._buffer, self._gradients = buffer, gradients

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> Tensor:
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        return self._gradients

    def parameters(self) -> list[Tensor]:
        return self._gradients


class Hook:
    """One of PyTorch's communication hooks."""

    def __init__(self, hook: TorchHook, state: Any) -> None:
        self.hook, self.state = hook, state
        self.seconds: dict[str, float] = {}

    def step(self, grad: Tensor) -> None:
        result = self.hook(self.state, Bucket(grad, as_layers(grad))).wait()
        if result.data_ptr() != grad.data_ptr():
            grad.copy_(result)


def as_layers(grad: Tensor) -> list[Tensor]:
    """A square matrix, which is where PowerSGD sends least, and a vector of what is left over."""
    rows = math.isqrt(grad.numel())
    columns = grad.numel() // rows if rows else 0
    matrix, rest = grad[: rows * columns], grad[rows * columns :]
    return [matrix.view(rows, columns)] + ([rest] if rest.numel() else [])


def power_sgd(density: float, rank: int) -> Hook:
    state = PowerSGDState(dist.group.WORLD, matrix_approximation_rank=rank)
    state.iter = state.start_powerSGD_iter  # the dense steps before would only be waited for
    return Hook(powerSGD_hook, state)


class TopKAllGather:
    """Exact top-k, allgather, residual; in plain torch ops, without waste."""

    def __init__(self, density: float) -> None:
        self.density = density
        self.seconds: dict[str, float] = {}
        self.residual = self.magnitudes = torch.empty(0)

    def step(self, grad: Tensor) -> None:
        k = max(1, round(self.density * grad.numel()))
        with self.phase("feedback"):
            x = self.accumulate(grad)
        with self.phase("select"):
            indices = self.select(x, k)
            values = x[indices]
        with self.phase("exchange"):
            all_indices, all_values = self.exchange(indices, values, k)
        with self.phase("decode"):
            grad.zero_().index_add_(0, all_indices, all_values.div_(dist.get_world_size()))
        with self.phase("feedback"):
            self.forget(self.delivered(indices, grad))

    def accumulate(self, grad: Tensor) -> Tensor:
        if self.residual.numel() == 0:
            self.residual, self.magnitudes = torch.zeros_like(grad), torch.empty_like(grad)
        return self.residual.add_(grad)

    def select(self, x: Tensor, k: int) -> Tensor:
        return torch.topk(torch.abs(x, out=self.magnitudes), k, sorted=False).indices

    def exchange(self, indices: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return _gathered(indices.int(), k), _gathered(values, k)

    def delivered(self, indices: Tensor, mean: Tensor) -> Tensor:
        return indices

    def forget(self, indices: Tensor) -> None:
        self.residual[indices] = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


class DgcAllGather(TopKAllGather):
    """DGC: a threshold from a sample, momentum correction and factor masking."""

    def __init__(self, density: float) -> None:
        super().__init__(density)
        self.velocity = torch.empty(0)
        self.sampler = torch.Generator().manual_seed(dist.get_rank())

    def accumulate(self, grad: Tensor) -> Tensor:
        if self.velocity.numel() == 0:
            self.velocity = torch.zeros_like(grad)
        return super().accumulate(self.velocity.mul_(MOMENTUM).add_(grad))

    def select(self, x: Tensor, k: int) -> Tensor:
        size = max(1, round(SAMPLE * x.numel()))
        magnitudes = torch.abs(x, out=self.magnitudes)
        drawn = torch.randint(x.numel(), (size,), generator=self.sampler)
        sample = magnitudes[drawn.to(x.device)]
        threshold = torch.topk(sample, max(1, round(self.density * size))).values[-1]
        candidates = _reaching(magnitudes, threshold)
        if candidates.numel() <= k:
            return candidates
        # Hierarchical selection: exact among the candidates.
        return candidates[torch.topk(magnitudes[candidates], k, sorted=False).indices]

    def forget(self, indices: Tensor) -> None:
        super().forget(indices)
        self.velocity[indices] = 0


class GaussianAllGather(TopKAllGather):
    """Gaussiank: the normal quantile, scaled down until it selects 3k/4 (Ok-Topk, section 5.4)."""

    def select(self, x: Tensor, k: int) -> Tensor:
        deviation, mean = torch.std_mean(x)
        quantile = NormalDist().inv_cdf(1 - min(self.density, 0.99) / 2)
        threshold = mean.abs() + quantile * deviation
        magnitudes = torch.abs(x, out=self.magnitudes)
        indices = _reaching(magnitudes, threshold)
        while indices.numel() < 0.75 * k and float(threshold) > 0:
            threshold = threshold * SCALED
            indices = _reaching(magnitudes, threshold)
        return indices

    def exchange(self, indices: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        size = _agreed(torch.tensor(indices.numel(), device=values.device), dist.ReduceOp.MAX)
        return _gathered(indices.int(), size), _gathered(values, size)


class OkTopK(TopKAllGather):
    """Ok-Topk, Algorithm 1 line by line, its small agreements included; thresholds are reused."""

    def __init__(self, density: float) -> None:
        super().__init__(density)
        self.steps = 0
        self.local_threshold = self.global_threshold = 0.0
        self.edges: list[int] = []

    def select(self, x: Tensor, k: int) -> Tensor:
        magnitudes = torch.abs(x, out=self.magnitudes)
        if self.steps % REUSE:
            indices = _reaching(magnitudes, self.local_threshold)
            if _fits(indices.numel(), k):
                return indices
        self.local_threshold = _kth(magnitudes, k)
        return _reaching(magnitudes, self.local_threshold)

    def exchange(self, indices: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if self.steps % REGIONS == 0:
            self.edges = _balanced_regions(indices, self.residual.numel())
        mine, sums = self.split_and_reduce(indices, values)
        chosen = self.passing(sums, k)
        self.steps += 1
        size = _agreed(chosen.sum(), dist.ReduceOp.MAX)
        return _gathered(mine[chosen].int(), size), _gathered(sums[chosen], size)

    def delivered(self, indices: Tensor, mean: Tensor) -> Tensor:
        return indices[mean[indices] != 0]  # a region is summed before it is pruned

    def split_and_reduce(self, indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Everyone's entries in this rank's region, added up: their indices and sums."""
        edges = torch.tensor(self.edges, device=indices.device)
        counts = torch.searchsorted(indices, edges).diff()
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        lengths, parts = incoming.tolist(), counts.tolist()
        their_indices = indices.new_empty(sum(lengths), dtype=torch.int32)
        their_values = values.new_empty(sum(lengths))
        dist.all_to_all_single(their_indices, indices.int(), lengths, parts)
        dist.all_to_all_single(their_values, values, lengths, parts)
        start, end = self.edges[dist.get_rank() :][:2]
        region = values.new_zeros(end - start).index_add_(0, their_indices - start, their_values)
        places = torch.nonzero(region).squeeze(1)
        return places + start, region[places]

    def passing(self, sums: Tensor, k: int) -> Tensor:
        """Which of the sums reach the global threshold; all ranks decide alike if it is stale."""
        chosen = sums.abs() >= self.global_threshold
        count = _agreed(chosen.sum(), dist.ReduceOp.SUM)
        if self.steps % REUSE and _fits(count, k):
            return chosen
        most = _agreed(torch.tensor(sums.numel(), device=sums.device), dist.ReduceOp.MAX)
        all_sums = _gathered(sums, most)
        self.global_threshold = _kth(all_sums.abs_(), min(k, all_sums.numel()))
        return sums.abs() >= self.global_threshold


def _balanced_regions(indices: Tensor, n: int) -> list[int]:
    """Where to cut so that regions are about equally full: the mean of all ranks' own cuts."""
    ranks = dist.get_world_size()
    cuts = indices[[indices.numel() * rank // ranks for rank in range(1, ranks)]].double()
    dist.all_reduce(cuts)
    return [0, *(cuts / ranks).long().tolist(), n]


def _reaching(magnitudes: Tensor, threshold: Tensor | float) -> Tensor:
    """Where the magnitudes are at least the threshold."""
    return torch.nonzero(magnitudes >= threshold).squeeze(1)


def _kth(magnitudes: Tensor, k: int) -> float:
    return float(torch.topk(magnitudes, k, sorted=False).values.min())


def _fits(count: int, k: int) -> bool:
    return COUNTS[0] * k <= count <= COUNTS[1] * k


def _agreed(count: Tensor, how: dist.ReduceOp.RedOpType) -> int:
    dist.all_reduce(count, how)
    return int(count)


def _gathered(tensor: Tensor, size: int) -> Tensor:
    """All ranks' tensors, each padded with zeros to `size`, so that no lengths are exchanged."""
    mine = torch.cat([tensor, tensor.new_zeros(size - tensor.numel())])
    gathered = mine.new_empty(dist.get_world_size() * size)
    dist.all_gather(list(gathered.split(size)), mine)
    return gathered


def _hook(hook: TorchHook, density: float) -> Hook:
    return Hook(hook, dist.group.WORLD)


BASELINE = "torch-dense"
SPARSE_PEERS = ("torch-topk", "torch-dgc", "torch-gaussiank", "torch-oktopk")
PEERS: dict[str, Callable[[float], Method]] = {
    BASELINE: partial(_hook, default_hooks.allreduce_hook),
    "torch-fp16": partial(_hook, default_hooks.fp16_compress_hook),
    "torch-bf16": partial(_hook, default_hooks.bf16_compress_hook),
    "torch-powersgd-1": partial(power_sgd, rank=1),
    "torch-powersgd-4": partial(power_sgd, rank=4),
    "torch-powersgd-32": partial(power_sgd, rank=32),
    "torch-topk": TopKAllGather,
    "torch-dgc": DgcAllGather,
    "torch-gaussiank": GaussianAllGather,
    "torch-oktopk": OkTopK,
}


def takes_density(name: str) -> bool:
    """Whether a peer, or a recipe given by its name alone, has a density to set."""
    return name in SPARSE_PEERS or has_density(name)
