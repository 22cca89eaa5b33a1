"""The operations that `bench kernels` times: one entry each, with what it must move at least."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from thinwire.codec.index import BitmapIndex, RegionalIndex, RiceIndex
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.density import target_count
from thinwire.kernels import batched_decode, compact, exact_topk, hash_select
from thinwire.kernels.merge import merge
from thinwire.kernels.region_reduce import region_reduce
from thinwire.types import Sparse

FloorKind = Literal["read", "rmw", "fill"]
Work = Callable[[], object]

WORKERS = 16
SAMPLE = 0.01  # DGC's, of the elements
SMALL = 1e-6  # a gradient that changes no residual much, however often it is added
GUESS = 0.98  # of the k-th magnitude: what last step's threshold is to this step's


@dataclass(frozen=True)
class Inputs:
    """What the operations work on: made once for a size and density, on the device."""

    n: int
    density: float
    device: torch.device

    @cached_property
    def k(self) -> int:
        return min(target_count(self.n, self.density, None), self.n - 1)

    @cached_property
    def x(self) -> Tensor:
        return self.random(0)

    @cached_property
    def residual(self) -> Tensor:
        return self.x.clone()

    @cached_property
    def velocity(self) -> Tensor:
        return self.x * SMALL

    @cached_property
    def grad(self) -> Tensor:
        return self.random(1) * SMALL

    @cached_property
    def threshold(self) -> Tensor:
        return self.x.abs().topk(self.k).values[-1]

    @cached_property
    def parts(self) -> list[Sparse]:
        """Payloads of all workers, of this density each."""
        return [self.part(worker) for worker in range(WORKERS)]

    @cached_property
    def indices(self) -> Tensor:
        return self.parts[0].indices

    @cached_property
    def values(self) -> Tensor:
        return self.parts[0].values

    def random(self, seed: int, numel: int | None = None) -> Tensor:
        draw = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(numel or self.n, generator=draw, device=self.device)

    def part(self, worker: int) -> Sparse:
        draw = torch.Generator(self.device).manual_seed(worker)
        drawn = torch.randint(self.n, (self.k,), generator=draw, device=self.device)
        indices = drawn.unique()
        return Sparse(indices, self.random(worker, indices.numel()), self.n)


@dataclass(frozen=True)
class Op:
    """An operation, ours or a baseline, and the least it moves, as bytes of a plain pass."""

    name: str
    impl: str  # "ours": whichever implementation the device gets; else a baseline
    floor: FloorKind
    bytes: Callable[[Inputs], int]
    prepare: Callable[[Inputs], Work]
    package: str | None = None  # of the kernel, which says who "ours" is


def _elements(bytes_each: int) -> Callable[[Inputs], int]:
    return lambda i: bytes_each * i.n


def _selected(bytes_each: int, parts: int = 1) -> Callable[[Inputs], int]:
    return lambda i: bytes_each * parts * i.k


def _dgc(i: Inputs) -> Tensor:
    """Deep Gradient Compression's selection in torch operations: sample, mask, nonzero."""
    sample = i.x[:: max(1, round(1 / SAMPLE))].abs()
    threshold = sample.topk(max(1, round(i.density * sample.numel()))).values[-1]
    return i.x[(i.x.abs() >= threshold).nonzero().flatten()]


def _dense_decode(i: Inputs) -> Work:
    out = torch.empty_like(i.x)

    def decode() -> Tensor:
        out.zero_()
        for part in i.parts:
            out.add_(part.to_dense())
        return out

    return decode


def _scattered(i: Inputs) -> Work:
    out = torch.empty_like(i.x)

    def decode() -> Tensor:
        out.zero_()
        for part in i.parts:
            part.add_to(out)
        return out

    return decode


def _decode(i: Inputs) -> Work:
    out, parts = torch.empty_like(i.x), i.parts
    return lambda: batched_decode.decode_sum(parts, out, 1 / WORKERS)


def _decode_sgd(i: Inputs) -> Work:
    param, parts = i.x.clone(), i.parts
    return lambda: batched_decode.decode_sgd(parts, param, SMALL, 1 / WORKERS)


def _decode_adam(i: Inputs) -> Work:
    param, first, second, parts = i.x.clone(), i.x * SMALL, i.x.abs(), i.parts
    settings: dict[str, Any] = {
        "step": 3, "lr": SMALL, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01,
    }  # fmt: skip
    return lambda: batched_decode.decode_adam(
        parts, param, first, second, **settings, scale=1 / WORKERS
    )


def _index_codec(codec: Any) -> tuple[Callable[[Inputs], Work], Callable[[Inputs], Work]]:
    def decode(i: Inputs) -> Work:
        part = codec.encode(i.indices, i.n, True)
        return lambda: codec.decode(part, i.indices.numel(), i.n)

    return lambda i: lambda: codec.encode(i.indices, i.n, True), decode


def _qsgd_decode(i: Inputs) -> Work:
    part = QsgdValue().encode(i.values, 1)
    return lambda: QsgdValue().decode(part, i.values.numel(), i.values.dtype)


OPS: tuple[Op, ...] = (
    Op("compact", "ours", "read", _elements(4),
       lambda i: lambda: compact.compact(i.x, i.threshold, 2 * i.k), "compact"),
    Op("compact", "torch dgc", "read", _elements(4), lambda i: lambda: _dgc(i)),
    Op("accumulate", "ours", "rmw", _elements(12),
       lambda i: lambda: compact.accumulate(i.residual, i.grad, i.threshold, 2 * i.k), "compact"),
    Op("accumulate momentum", "ours", "rmw", _elements(20),
       lambda i: lambda: compact.accumulate_momentum(
           i.velocity, i.residual, i.grad, 0.9, i.threshold, 2 * i.k), "compact"),
    Op("exact top-k", "ours", "read", _elements(4),
       lambda i: lambda: exact_topk.largest(i.x, i.k), "exact_topk"),
    Op("exact top-k, guess", "ours", "read", _elements(4),
       lambda i: lambda: exact_topk.largest(i.x, i.k, i.threshold * GUESS), "exact_topk"),
    Op("exact top-k", "torch.topk", "read", _elements(4),
       lambda i: lambda: i.x.abs().topk(i.k)),
    Op("hash select", "ours", "read", _elements(4),
       lambda i: lambda: hash_select.hash_select(i.x, i.threshold, i.k, 7), "hash_select"),
    Op(f"decode {WORKERS}", "ours", "fill", _elements(4), _decode, "batched_decode"),
    Op(f"decode {WORKERS}", "torch, one by one", "fill", _elements(4), _scattered),
    Op(f"decode {WORKERS}", "torch dense", "fill", _elements(4), _dense_decode),
    Op(f"decode {WORKERS} sgd", "ours", "rmw", _selected(20, WORKERS), _decode_sgd,
       "batched_decode"),
    Op(f"decode {WORKERS} adam", "ours", "rmw", _elements(24), _decode_adam, "batched_decode"),
    Op("merge", "ours", "rmw", _selected(48),
       lambda i: lambda: merge(i.parts[0], i.parts[1]), "merge"),
    Op(f"region reduce {WORKERS}", "ours", "rmw", _selected(24, WORKERS),
       lambda i: lambda: region_reduce(i.parts, i.n), "region_reduce"),
    *(
        Op(f"{codec.name} {way}", "ours", "read", _selected(8), prepare, codec.name)
        for codec in (RiceIndex(), BitmapIndex(), RegionalIndex())
        for way, prepare in zip(("encode", "decode"), _index_codec(codec), strict=True)
    ),
    Op("qsgd encode", "ours", "read", _selected(4),
       lambda i: lambda: QsgdValue().encode(i.values, 1), "pack_bits"),
    Op("qsgd decode", "ours", "read", _selected(4), _qsgd_decode, "pack_bits"),
)  # fmt: skip
