"""Randomness with an address.

Every random choice is a function of (run, step, tensor, purpose, rank), so that a run can be
repeated bit for bit and ranks that must agree do so without talking. Nothing here, and nothing
that uses it, touches PyTorch's global generator.

`mix64` is the one integer hash of the library. Its constants are the finaliser of SplitMix64
(Steele, Lea and Flood, OOPSLA 2014); kernels in Numba and Triton repeat the same five lines on
unsigned words, the version here does it on int64 tensors, where products wrap the same way.
"""

import hashlib

import torch
from torch import Tensor

MIX_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
MIX_SHIFTS = (30, 27, 31)
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

Seed = int | Tensor
"""A number, or one that lies on a device: 0-D int64."""


def stream_seed(run: int, step: int, tensor: str, purpose: str, rank: int | None = None) -> int:
    """A 63-bit seed for one purpose at one place; `rank=None` where all ranks must agree."""
    address = f"{run}/{step}/{tensor}/{purpose}/{'all' if rank is None else rank}"
    digest = hashlib.blake2b(address.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fingerprint(text: str) -> int:
    """A 63-bit name for a text, the same in every process (unlike `hash`)."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def as_signed(word: int) -> int:
    """The int64 with the same 64 bits as the unsigned `word`."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """A logical shift: torch's >> on int64 copies the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix_offset(seed: int) -> int:
    """What `mix64` adds to a number for a seed, as an unsigned word."""
    return seed * _GOLDEN & _WORD


def offset_on(device: torch.device, seed: Seed) -> Tensor:
    """`mix_offset` on a device, as 0-D int64; nobody waits for it."""
    if isinstance(seed, Tensor):
        return seed * as_signed(_GOLDEN)
    return torch.full((), as_signed(mix_offset(seed)), dtype=torch.int64, device=device)


def mix64(x: Tensor, seed: Seed) -> Tensor:
    """A well mixed 64-bit hash of each int64 in `x`, as int64."""
    x = x + (offset_on(x.device, seed) if isinstance(seed, Tensor) else as_signed(mix_offset(seed)))
    first, second, last = MIX_SHIFTS
    x = (x ^ _shift_right(x, first)) * as_signed(MIX_MULTIPLIERS[0])
    x = (x ^ _shift_right(x, second)) * as_signed(MIX_MULTIPLIERS[1])
    return x ^ _shift_right(x, last)


def hash_to_range(x: Tensor, size: int, seed: Seed) -> Tensor:
    """A slot in [0, size) for each int64 in `x`, from the hash's upper 31 bits (size < 2^31)."""
    return (_shift_right(mix64(x, seed), 33) * size) >> 31


def hash_to_unit(x: Tensor, seed: int) -> Tensor:
    """A float32 in [0, 1) for each int64 in `x`, from the hash's upper 24 bits."""
    return _shift_right(mix64(x, seed), 40).to(torch.float32) * 2.0**-24


def distinct(n: int, k: int, seed: int, device: torch.device) -> Tensor:
    """`k` distinct indices in [0, n), uniformly drawn, in O(k) time and memory.

    A Feistel network is a keyed permutation of [0, 4^b) ⊇ [0, n); walking a value along its
    cycle until it lands in [0, n) makes it a permutation of [0, n) (Black and Rogaway, CT-RSA
    2002). The images of 0 … k-1 are the sample. Since 4^b < 4n, a walk takes fewer than four
    turns on average.
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    rounds = 12 if half <= 2 else 8 if half <= 5 else 4  # few rounds of few bits are biased

    def permute(x: Tensor) -> Tensor:
        left, right = x >> half, x & mask
        for turn in range(rounds):
            left, right = right, left ^ (mix64(right, seed + turn) & mask)
        return (left << half) | right

    out = permute(torch.arange(k, device=device))
    outside = out >= n
    while bool(outside.any()):
        out[outside] = permute(out[outside])
        outside = out >= n
    return out


def generator(seed: int, device: torch.device) -> torch.Generator:
    """A generator of its own for operations that only PyTorch can draw."""
    return torch.Generator(device=device).manual_seed(seed)
