"""The k largest magnitudes of each group by a stable sort, whatever the guess."""

import math

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.grouped_topk.groups import Chosen, Groups


def grouped_topk(x: Tensor, groups: Groups, guess: Tensor, addend: Addend | None = None) -> Chosen:
    if addend:
        addend.add_to(x)
    kth = torch.full_like(guess, math.inf)
    passed = torch.tensor(groups.counts, dtype=torch.int64, device=x.device)
    places: list[list[Tensor]] = [[] for _ in groups.counts]
    for start, end, group in groups.ranges:
        places[group].append(torch.arange(start, end, device=x.device))
    chosen = [x.new_empty(0, dtype=torch.int64)]
    for group, k in enumerate(groups.counts):
        if k == 0:
            continue
        own = torch.cat(places[group])
        magnitudes, order = x[own].abs().sort(descending=True, stable=True)
        chosen.append(own[order[:k]])
        kth[group] = magnitudes[k - 1]
        if groups.chooses(group):
            passed[group] = ((magnitudes >= guess[group]) & (magnitudes > 0)).sum()
    indices = torch.cat(chosen).sort().values
    return Chosen(indices, x[indices], kth, passed)
