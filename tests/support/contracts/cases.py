"""What a law is tried on: small enough to send to a worker, which makes the tensors itself."""

import dataclasses
import hashlib
import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import thinwire as tw
from thinwire.cookbook import RECIPES
from thinwire.rng import generator, stream_seed

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
LAYOUTS = ("contiguous", "transposed", "strided")
CONTENTS = ("normal", "heavy", "tied", "zeros", "one rank only", "signs")

# Recipes are covered by being in tw.recipes(); these are pieces that no recipe uses yet.
MIXTURES = (
    "topk(0.1) | raw | allgather | ef21",
    "topk(0.1) | raw+bf16 | allgather | momentum",
    "block(0.25, 16) | raw+fp16 | allgather | residual",
    "topk(0.1) | none | dense | residual",
    "topk(0.1) | none | few-bits(8, 32) | residual",
    "everything | none | few-bits(4, 16, 'stochastic') | ef21",
    "everything | none | few-bits(4, 64) | momentum",
    "topk(0.1) | bloom('p2', 0.1)+qsgd | allgather | momentum",
    "topk(0.1) | bloom('naive', 0.1)+fp16 | allgather | ef21",
    "topk(0.1) | bloom('p1', 0.05)+raw | gtopk(0.1) | residual",
    "topk(0.1) | bloom('leftmost', 0.05)+bf16 | sparcml | residual",
    "block(0.25, 16) | bloom('p0', 0.1)+raw | omnireduce(16) | residual",
    "everything | none | lowrank | residual",
    "everything | none | lowrank(2, 'bf16') | residual",
    "topk(0.1) | raw | allgather | ef21(0.9)",
    "topk(0.1) | raw+bf16 | gtopk | residual(0.9, reset_every=2)",
    "block(0.25, 16) | none | union(16) | momentum",
    "topk(0.1) | raw | ok-topk | momentum(0.5, masking=False)",
    "topk(0.1) | raw+bf16 | allgather | adam(workers=3)",
    "block(0.25, 16) | none | union(16) | adam(0.5, 0.9)",
    "everything | raw+sign | allgather | adam(refresh=2)",
)


def everything() -> list[str]:
    """Every recipe by name, and every mixture."""
    return [*tw.recipes(), *MIXTURES]


def one_per(role: str) -> list[str]:
    """Of `everything`, the first with each collective, or each feedback."""
    pieces = ((type(getattr(Case(name, ()).pipeline(), role)), name) for name in everything())
    return list(dict(reversed(list(pieces))).values())


def with_every_size() -> list[tuple[str, int]]:
    """What depends on P is the collective: one with each at P = 1 to 8, and all recipes at 5."""
    thorough = one_per("collective")
    others = [(name, 5) for name in everything() if name not in thorough]
    return [(name, size) for name in thorough for size in range(1, 9)] + others


def with_two_sizes() -> list[tuple[str, int]]:
    """For laws that do not depend on P: everything at 2, and one with each collective at 5."""
    return [(name, 2) for name in everything()] + [(name, 5) for name in one_per("collective")]


def with_a_density() -> list[str]:
    """The recipes that take one; of the others, and of mixtures, the setting would be dropped."""
    return [r for r in tw.recipes() if "density" in inspect.signature(RECIPES[r]).parameters]


@dataclass(frozen=True)
class Layer:
    """One gradient: its form, its layout in memory, and what is in it."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "contiguous"
    content: str = "normal"
    scale: float = 1.0


@dataclass(frozen=True)
class Case:
    """A model's gradients over some steps, under a recipe."""

    recipe: str
    layers: tuple[Layer, ...]
    steps: int = 3
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def pipeline(self) -> tw.Pipeline:
        """The recipe with the settings that it has; nothing bypasses it unless asked."""
        settings = {"bypass": 0} | self.settings
        if "|" in self.recipe:
            fields = {f.name for f in dataclasses.fields(tw.Pipeline)}
            chosen = {k: v for k, v in settings.items() if k in fields}
            return dataclasses.replace(tw.recipe(self.recipe), **chosen)
        if "density" not in inspect.signature(RECIPES[self.recipe]).parameters:
            settings.pop("density", None)
        return tw.recipe(self.recipe, **settings)

    def names(self) -> list[str]:
        return [f"layer.{i}" for i in range(len(self.layers))]

    def gradients(self, step: int, rank: int, size: int) -> dict[str, Tensor]:
        """One rank's gradients; the same case, step and rank always give the same."""
        return {
            name: gradient(
                layer, stream_seed(self.seed, step, name, "test", rank), rank, size, self.device
            )
            for name, layer in zip(self.names(), self.layers, strict=True)
        }


def gradient(layer: Layer, seed: int, rank: int, size: int, device: str = "cpu") -> Tensor:
    g = generator(seed, torch.device("cpu"))
    x = torch.randn(layer.shape, generator=g, dtype=torch.float64)
    if layer.content == "heavy":
        x = x**5
    elif layer.content == "tied":
        x = x.round()
    elif layer.content == "zeros" or (layer.content == "one rank only" and rank != size - 1):
        x = torch.zeros_like(x)
    elif layer.content == "signs":
        x = x.sign()
    return laid_out((x * layer.scale).to(device, DTYPES[layer.dtype]), layer.layout)


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers, otherwise in memory."""
    if layout == "transposed":
        backwards = tuple(reversed(range(x.dim())))
        return x.permute(backwards).contiguous().permute(backwards)
    if layout == "strided" and x.dim():
        apart = x.new_full((*x.shape, 2), torch.nan)  # reading a gap would be noticed
        apart[..., 0] = x
        return apart[..., 0]
    return x


def digest(*tensors: Tensor) -> str:
    """A name for the exact bits."""
    hasher = hashlib.blake2b(digest_size=12)
    for t in tensors:
        hasher.update(f"{t.dtype} {tuple(t.shape)};".encode())
        packed = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1).cpu()
        hasher.update(packed.view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def state_digest(sync: tw.Synchronizer) -> str:
    tensors = sync.state_dict()["tensors"]
    entries = [(f"{n}/{k}", v) for n, state in tensors.items() for k, v in state.items()]
    names = ",".join(name for name, _ in sorted(entries))
    return names + digest(*(value for _, value in sorted(entries, key=lambda entry: entry[0])))
