"""The exact k largest magnitudes on CUDA: a grouped selection of one group."""

import torch
from torch import Tensor

from thinwire.kernels.compact import Found
from thinwire.kernels.exact_topk import Largest
from thinwire.kernels.exact_topk.sample import sample
from thinwire.kernels.grouped_topk.groups import Chosen, Groups
from thinwire.kernels.grouped_topk.triton import among, grouped_topk

SAMPLE_FROM = 1 << 21  # below this many elements all are looked at sooner than a sample is taken


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> Largest:
    if guess is None:
        guess = _proposed(x, k)
    return _largest(grouped_topk(x, Groups(((0, x.numel(), 0),), (k,)), guess.view(1)))


def largest_of(candidates: Found, x: Tensor, k: int) -> Largest:
    return _largest(among(candidates, x, k))


def _proposed(x: Tensor, k: int) -> Tensor:
    """What a sample says, or that there is no idea."""
    sampled = sample(x, k) if x.numel() >= SAMPLE_FROM else None
    if sampled is None:
        return torch.full((), torch.inf, dtype=x.dtype, device=x.device)
    some, rank = sampled
    return largest(some, rank, torch.full((), torch.inf, dtype=x.dtype, device=x.device))[2]


def _largest(chosen: Chosen) -> Largest:
    return chosen.indices, chosen.values, chosen.kth[0]
