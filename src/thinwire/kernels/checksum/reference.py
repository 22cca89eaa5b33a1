"""The checksum's definition:  Σ fold(word_i) · weight_i  mod 2^64.

weight_i = mix64(i) | 1 is odd, hence invertible, and fold(w) = w ^ (w >>> 32) is a bijection: any
change to a single word changes the sum, with certainty. The fold is there for changes to several:
without it, flipping the top bits of any two words would add 2^63·(weight_i + weight_j) ≡ 0.
Multilinear hashing goes back to Carter and Wegman (1979). This is no defence against forgery.
"""

import torch
from torch import Tensor

from thinwire.rng import Seed, mix64

SEED = 0x7468696E  # "thin": any constant that keeps mix64(0) from being 0


def checksum(words: Tensor, first: Seed = 0) -> Tensor:
    """Integer sums wrap, so that the order of summation does not matter."""
    positions = torch.arange(words.numel(), device=words.device) + first
    folded = words ^ ((words >> 32) & 0xFFFFFFFF)
    return (folded * (mix64(positions, SEED) | 1)).sum()


def checksum_rows(words: Tensor, first: Seed = 0) -> Tensor:
    return torch.stack([checksum(row, first) for row in words])
