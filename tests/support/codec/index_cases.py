"""Sets of indices, and the codecs that are tried on them."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from thinwire.cookbook.registry import pieces

EVERY_NAME = [name for name, piece in pieces("index").items() if piece.lossless]
ASCENDING = [name for name in EVERY_NAME if name != "raw"]  # all but raw write gaps or bits
FOREIGN = ["pco", "zstd", "ans"]  # whose bytes another library makes
EVERY_ROW = ["bitmap"]  # of a size that grows with the rows
LARGE = [2**16, 2**16 + 1, 2**20, 2**31, 2**31 + 8, 2**40, 2**62]


@dataclass(frozen=True)
class Case:
    """Ascending indices below `rows`."""

    indices: Tensor
    rows: int

    def __repr__(self) -> str:
        return f"Case({self.indices.tolist()[:20]}…, rows={self.rows})"


def uniform(rows: int, count: int, seed: int = 0) -> Tensor:
    """`count` distinct indices, or nearly so many where rows are too many to permute."""
    draw = torch.Generator().manual_seed(seed)
    if rows <= 2**24:
        return torch.randperm(rows, generator=draw)[:count].sort().values
    return distinct(torch.randint(rows, (count,), generator=draw))


def clustered(rows: int, runs: int, length: int, seed: int = 0) -> Tensor:
    """A few runs of neighbours."""
    near = uniform(rows, runs, seed)[:, None] + torch.arange(length)
    return distinct(near[near < rows])


def distinct(indices: Tensor) -> Tensor:
    """Ascending, each once."""
    return torch.tensor(sorted(set(indices.view(-1).tolist())), dtype=torch.int64)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any set, of few rows or many: none, all, one, the first and the last, runs, uniform."""
    rows = draw(st.one_of(st.integers(0, 70), st.integers(71, 6000), st.sampled_from(LARGE)))
    form = draw(st.sampled_from(["uniform", "clustered", "full", "single", "edges", "empty"]))
    seed = draw(st.integers(0, 2**32))
    size = draw(st.integers(0, min(rows, 700)))
    if rows == 0 or form == "empty":
        return Case(torch.empty(0, dtype=torch.int64), rows)
    if form == "uniform":
        return Case(uniform(rows, size, seed), rows)
    if form == "clustered":
        return Case(clustered(rows, max(1, size // 20), 1 + size % 40, seed), rows)
    if form == "full":
        return Case(torch.arange(min(rows, 6000)), rows)
    if form == "single":
        return Case(torch.tensor([seed % rows]), rows)
    return Case(distinct(torch.tensor([0, rows // 2, max(0, rows - 2), rows - 1])), rows)
