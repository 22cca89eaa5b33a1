"""The operations that `bench kernels` times: one entry each, with what it must move at least."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from thinwire.bench.sender import as_sent
from thinwire.codec.index import (
    BitmapIndex,
    BloomIndex,
    EliasFanoIndex,
    RegionalIndex,
    RiceIndex,
)
from thinwire.codec.value.chunked import ChunkedValue
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.kernels import batched_decode, compact, exact_topk, grouped_topk, hash_select, use
from thinwire.kernels.addend import Addend
from thinwire.kernels.checksum import checksum
from thinwire.kernels.grouped_topk import Groups
from thinwire.kernels.merge import merge, merge_topk
from thinwire.kernels.region_reduce import region_reduce
from thinwire.settings import target_count
from thinwire.types import IndexCodec, Sparse, ValueCodec

FloorKind = Literal["read", "rmw", "fill"]
Work = Callable[[], object]

WORKERS = 16
PAYLOADS = (2, 4, 8, WORKERS)  # that hold as many elements together
GROUPS = (1, 148, 2000)  # a model, tensors of one, tensors of one with very many
SAMPLE = 0.01  # DGC's, of the elements
CROWD = 0.02  # of the tensor, where half of the elements of a crowded payload lie
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
        return self.payloads(WORKERS)

    @cached_property
    def indices(self) -> Tensor:
        return self.parts[0].indices

    @cached_property
    def values(self) -> Tensor:
        return self.parts[0].values

    def payloads(self, count: int, crowded: bool = False) -> list[Sparse]:
        """So many, with as many elements together as all workers' payloads, but for repeats."""
        return [self.part(place, self.k * WORKERS // count, crowded) for place in range(count)]

    def random(self, seed: int, numel: int | None = None) -> Tensor:
        draw = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(numel or self.n, generator=draw, device=self.device)

    def part(self, worker: int, count: int, crowded: bool = False) -> Sparse:
        draw = torch.Generator(self.device).manual_seed(worker)
        drawn = torch.randint(self.n, (count,), generator=draw, device=self.device)
        if crowded:
            drawn[::2] //= round(1 / CROWD)
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
    payloads: int | None = None  # that are decoded, for operations that decode several


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


def _decode(payloads: int, crowded: bool = False) -> Callable[[Inputs], Work]:
    def prepare(i: Inputs) -> Work:
        out, parts = torch.empty_like(i.x), i.payloads(payloads, crowded)
        return lambda: batched_decode.decode_sum(parts, out, 1 / payloads)

    return prepare


def _grouped(most: int, accumulate: bool = False, guess: float = GUESS) -> Callable[[Inputs], Work]:
    """A selection from each of so many tensors, as near as possible of one size."""

    def prepare(i: Inputs) -> Work:
        groups = min(most, i.n)
        ends = [i.n * place // groups for place in range(groups + 1)]
        ranges = tuple((start, end, place) for place, (start, end) in enumerate(pairwise(ends)))
        shared = Groups(ranges, tuple(target_count(e - s, i.density, None) for s, e, _ in ranges))
        x, addend = (i.residual, Addend(i.grad)) if accumulate else (i.x, None)
        none = torch.full((groups,), math.inf, device=i.device)
        guesses = grouped_topk.grouped_topk(x, shared, none).kth * guess
        return lambda: grouped_topk.grouped_topk(x, shared, guesses, addend)

    return prepare


def _part(codec: IndexCodec | ValueCodec, i: Inputs) -> Tensor:
    if isinstance(codec, ValueCodec):
        return codec.encode(i.values, 1)
    return codec.encode(i.indices, i.n, True)


def _sent(codec: IndexCodec | ValueCodec, i: Inputs) -> object:
    """What a sender does, the search for what receivers will find included."""
    return as_sent(codec, i.indices, i.n) if isinstance(codec, IndexCodec) else _part(codec, i)


def _decoded(codec: IndexCodec | ValueCodec, i: Inputs) -> Work:
    part, count = _part(codec, i), i.indices.numel()
    if isinstance(codec, ValueCodec):
        return lambda: codec.decode(part, count, i.values.dtype)
    _, support = as_sent(codec, i.indices, i.n)
    count = count if support is None else support.numel()
    return lambda: codec.decode(part, count, i.n)


def _in_torch(prepare: Callable[[Inputs], Work]) -> Callable[[Inputs], Work]:
    """The same in torch operations."""

    def prepare_in_torch(i: Inputs) -> Work:
        def work() -> object:
            with use("reference"):
                return ours()

        ours = prepare(i)
        return work

    return prepare_in_torch


def _codec(name: str, codec: IndexCodec | ValueCodec, package: str) -> Iterator[Op]:
    """Both ways, ours and in torch operations, beside what is read and written."""
    item = 4 if isinstance(codec, ValueCodec) else 8

    def moved(i: Inputs) -> int:
        return item * i.indices.numel() + _part(codec, i).numel()

    ways: dict[str, Callable[[Inputs], Work]] = {
        "encode": lambda i: lambda: _sent(codec, i),
        "decode": lambda i: _decoded(codec, i),
    }
    for way, prepare in ways.items():
        yield Op(f"{name} {way}", "ours", "read", moved, prepare, package)
        if name != "bloom":  # which takes a hundred times as long
            yield Op(f"{name} {way}", "torch", "read", moved, _in_torch(prepare))


KERNELS: tuple[Op, ...] = (
    Op("compact", "ours", "read", _elements(4),
       lambda i: lambda: compact.compact(i.x, i.threshold, 2 * i.k), "compact"),
    Op("compact", "torch dgc", "read", _elements(4), lambda i: lambda: _dgc(i)),
    Op("accumulate", "ours", "rmw", _elements(12),
       lambda i: lambda: compact.compact(i.residual, i.threshold, 2 * i.k, Addend(i.grad)),
       "compact"),
    Op("accumulate momentum", "ours", "rmw", _elements(20),
       lambda i: lambda: compact.compact(
           i.residual, i.threshold, 2 * i.k, Addend(i.grad, i.velocity, 0.9)), "compact"),
    Op("exact top-k", "ours", "read", _elements(4),
       lambda i: lambda: exact_topk.largest(i.x, i.k), "exact_topk"),
    Op("exact top-k, guess", "ours", "read", _elements(4),
       lambda i: lambda: exact_topk.largest(i.x, i.k, i.threshold * GUESS), "exact_topk"),
    Op("exact top-k, bad guess", "ours", "read", _elements(4),
       lambda i: lambda: exact_topk.largest(i.x, i.k, i.threshold * math.inf), "exact_topk"),
    Op("exact top-k", "torch.topk", "read", _elements(4),
       lambda i: lambda: i.x.abs().topk(i.k)),
    *(
        Op(f"grouped top-k {count}", "ours", "read", _elements(4), _grouped(count), "grouped_topk")
        for count in GROUPS
    ),
    Op("grouped top-k 1, bad guess", "ours", "read", _elements(4), _grouped(1, False, math.inf),
       "grouped_topk"),
    *(
        Op(f"accumulate grouped top-k {count}", "ours", "rmw", _elements(12),
           _grouped(count, True), "grouped_topk")
        for count in GROUPS
    ),
    Op("hash select", "ours", "read", _elements(4),
       lambda i: lambda: hash_select.hash_select(i.x, i.threshold, i.k, 7), "hash_select"),
    Op("hash list", "ours", "read", _elements(4),
       lambda i: lambda: hash_select.hash_list(i.x, i.threshold, i.k, 7), "hash_select"),
    *(
        Op("decode", "ours", "fill", _elements(4), _decode(count), "batched_decode", count)
        for count in PAYLOADS
    ),
    Op("decode, crowded", "ours", "fill", _elements(4), _decode(WORKERS, True), "batched_decode",
       WORKERS),
    Op("decode", "torch, one by one", "fill", _elements(4), _scattered, payloads=WORKERS),
    Op("decode", "torch dense", "fill", _elements(4), _dense_decode, payloads=WORKERS),
    Op("merge", "ours", "rmw", _selected(48),
       lambda i: lambda: merge(i.parts[0], i.parts[1]), "merge"),
    Op("merge top-k", "ours", "rmw", _selected(48),
       lambda i: lambda: merge_topk(i.parts[0], i.parts[1], i.k), "merge"),
    Op(f"region reduce {WORKERS}", "ours", "rmw", _selected(24, WORKERS),
       lambda i: lambda: region_reduce(i.parts, i.n), "region_reduce"),
    *_codec("rice", RiceIndex(), "rice"),
    *_codec("elias-fano", EliasFanoIndex(), "elias_fano"),
    *_codec("bitmap", BitmapIndex(), "bitmap"),
    *_codec("regional", RegionalIndex(), "regional"),
    *_codec("bloom", BloomIndex("p0"), "bloom"),
    *_codec("qsgd", QsgdValue(), "pack_bits"),
    *_codec("chunked 8", ChunkedValue(), "pack_bits"),
    *_codec("chunked 2", ChunkedValue(bits=2), "pack_bits"),
    Op("checksum", "ours", "read", _selected(8), lambda i: lambda: checksum(i.indices), "checksum"),
    Op("checksum", "torch", "read", _selected(8),
       _in_torch(lambda i: lambda: checksum(i.indices))),
)  # fmt: skip
