"""A model by its shapes alone, and the time that a faster machine would take for it.

The gradients are synthetic and the compute time is slept, so that many ranks fit on few cores
and the network is what is measured. DDP sees what it always sees: parameters of the true shapes
whose gradients become ready from the last layer to the first, as time goes by.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from thinwire.rng import generator, stream_seed
from thinwire.workloads.gradients import SyntheticGradient
from thinwire.workloads.shapes import Shape

FORWARD = 1 / 3  # of a step's compute: the backward pass has twice as many products
TILE = 1 << 17  # elements made at a time: they stay in the cache
LAYER_SPREAD = 0.5  # of the layers' scales, a log-normal


class Pace:
    """Lets a step take the declared time, which is slept: it uses no core.

    A parameter's gradient is held back until the moment it would be ready at, counted from the
    start of the step: what the stand-in itself needs meanwhile is not added to the declared time.
    """

    def __init__(
        self, seconds: float, work: Mapping[str, int], parameters: Mapping[str, nn.Parameter]
    ) -> None:
        self._forward, self._started = FORWARD * seconds, 0.0
        total, done = sum(work.values()), 0
        for name in reversed(list(work)):
            done += work[name]
            ready = self._forward + (seconds - self._forward) * done / total
            parameters[name].register_hook(partial(self._hold_back, ready))

    def start(self) -> None:
        self._started = time.perf_counter()

    def end_forward(self) -> None:
        self._sleep_until(self._forward)

    def _hold_back(self, moment: float, grad: Tensor) -> None:
        self._sleep_until(moment)

    def _sleep_until(self, moment: float) -> None:
        left = self._started + moment - time.perf_counter()
        if left > 0:
            time.sleep(left)


class Layer(NamedTuple):
    """Parameters whose gradients are ready together."""

    shapes: tuple[Shape, ...]
    sizes: tuple[int, ...]
    scale: float


class Layers:
    """The layers of a model, and their next gradients, made in one buffer that all share.

    Tiles repeat the signal of `SyntheticGradient`, each with noise of its own.
    """

    def __init__(self, shapes: Mapping[str, Shape], rank: int, seed: int) -> None:
        self.layers = [_layer(members, shapes, seed) for members in _by_module(shapes)]
        largest = max((sum(layer.sizes) for layer in self.layers), default=0)
        self._tile = SyntheticGradient(min(TILE, largest), rank, seed)
        self._buffer = torch.empty(largest)

    def gradients(self, layer: Layer) -> list[Tensor]:
        """Views of the buffer: they last until the next call."""
        flat = self._buffer[: sum(layer.sizes)]
        for piece in flat.split(TILE):
            torch.mul(self._tile.fill()[: piece.numel()], layer.scale, out=piece)
        parts = flat.split(layer.sizes)
        return [part.view(shape) for part, shape in zip(parts, layer.shapes, strict=True)]


def _by_module(shapes: Mapping[str, Shape]) -> Iterator[list[str]]:
    for _, members in groupby(shapes, lambda name: name.rpartition(".")[0]):
        yield list(members)


def _layer(names: list[str], shapes: Mapping[str, Shape], seed: int) -> Layer:
    own = generator(stream_seed(seed, 0, names[0], "scale"), torch.device("cpu"))
    scale = float(torch.empty(()).log_normal_(0.0, LAYER_SPREAD, generator=own))
    members = tuple(tuple(shapes[name]) for name in names)
    return Layer(members, tuple(prod(shape) for shape in members), scale)


class ShapeModel(nn.Module):
    """Layers that own parameters and compute nothing. The output is a zero with a gradient."""

    def __init__(self, shapes: Mapping[str, Shape], rank: int, seed: int) -> None:
        super().__init__()
        self._layers = Layers(shapes, rank, seed)
        for name, shape in shapes.items():
            # Of one zero each: they are neither read nor updated, so they need no memory.
            parameter = nn.Parameter(torch.zeros(()).expand(tuple(shape)))
            self.register_parameter(plain(name), parameter)

    def forward(self) -> Tensor:
        x, parameters = torch.zeros(()), iter(list(self.parameters()))
        for layer in self._layers.layers:
            own = [next(parameters) for _ in layer.shapes]
            x = _Step.apply(x, self._layers, layer, *own)  # type: ignore[no-untyped-call]
        return x


class _Step(torch.autograd.Function):
    """One layer: forward nothing, backward the gradients of its parameters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: Layers, layer: Layer, *own: Tensor) -> Tensor:
        ctx.layers, ctx.layer = layers, layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *outgoing: Tensor) -> Any:
        # DDP copies them into its bucket before the next layer's are made: the accumulation of
        # a gradient comes before everything else that autograd has waiting.
        return (outgoing[0], None, None, *ctx.layers.gradients(ctx.layer))


def plain(name: str) -> str:
    """A module may not have a dot in a parameter's name."""
    return name.replace(".", "/")
