"""A unit whose tensors are selected from apart, or let past: one after the other."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thinwire.types.context import StepContext
from thinwire.types.data import PADDING, Layout, Sparse, State, TensorSpec

if TYPE_CHECKING:
    from thinwire.types.pieces import Sparsifier


def init_parts(sparsifier: "Sparsifier", spec: TensorSpec) -> State:
    """Its state, with a row for each tensor that has a selection of its own."""
    if spec.layout is None or not spec.layout.each:
        return sparsifier.init(spec)
    states = [
        sparsifier.init(TensorSpec(name, end - start, spec.dtype, spec.device))
        for name, start, end, past in spec.layout.parts()
        if not past
    ]
    return {key: torch.stack([state[key] for state in states]) for key in states[0]}


def part_by_part(sparsifier: "Sparsifier", x: Tensor, state: State, ctx: StepContext) -> Sparse:
    """All that a sparsifier chooses from the parts of `x`, and whole those let past, in order."""
    assert ctx.layout is not None
    chosen = [_all(x, start, end) for _, start, end, past in ctx.layout.parts() if past]
    if ctx.layout.each:
        chosen += _from_each(sparsifier, x, state, ctx, ctx.layout)
    else:
        chosen.append(_from_the_rest(sparsifier, x, state, ctx, ctx.layout))
    indices = torch.cat([part.indices for part in chosen])
    values = torch.cat([part.values for part in chosen])
    padded = any(part.padded for part in chosen)
    return Sparse(indices, values, x.numel(), ordered=False, padded=padded).sorted()


def _from_each(
    sparsifier: "Sparsifier", x: Tensor, state: State, ctx: StepContext, layout: Layout
) -> list[Sparse]:
    chosen, after = [], []
    selected = [part for part in layout.parts() if not part[3]]
    for row, (name, start, end, _) in enumerate(selected):
        own = {key: value[row] for key, value in state.items()}
        alone = replace(ctx, tensor=name, layout=None, shapes=())
        part = sparsifier.select(x[start:end], own, alone)
        assert isinstance(part, Sparse)
        indices = part.indices + start
        if part.padded:
            indices.masked_fill_(part.indices == PADDING, PADDING)
        chosen.append(Sparse(indices, part.values, x.numel(), part.ordered, part.padded))
        after.append(own)
    state |= {key: torch.stack([own[key] for own in after]) for key in state}
    return chosen


def _from_the_rest(
    sparsifier: "Sparsifier", x: Tensor, state: State, ctx: StepContext, layout: Layout
) -> Sparse:
    """One selection over what lies between the tensors let past."""
    places = torch.cat(
        [
            torch.arange(start, end, device=x.device)
            for _, start, end, past in layout.parts()
            if not past
        ]
    )
    part = sparsifier.select(x[places], state, replace(ctx, layout=None, shapes=(), steady=False))
    assert isinstance(part, Sparse)
    return Sparse(places[part.indices], part.values, x.numel(), part.ordered)


def _all(x: Tensor, start: int, end: int) -> Sparse:
    return Sparse(torch.arange(start, end, device=x.device), x[start:end], x.numel())
