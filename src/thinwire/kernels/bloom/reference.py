"""Bloom filters in torch, and DeepReduce's Algorithm 1 step by step."""

import torch
from torch import Tensor

from thinwire.kernels.bitmap import reference as bitmap
from thinwire.kernels.bloom.filter import Filter, drawn_order
from thinwire.rng import mix64

_CHUNK = 1 << 22  # rows that are asked about at once
_HALF = (1 << 32) - 1


def probes(rows: Tensor, size: int, hashes: int, salt: int) -> Tensor:
    """The bits of each row, one row of the result each."""
    mixed = mix64(rows >> 6, salt)
    a, b = mixed & _HALF, (mixed >> 32) & _HALF | 1
    turns = torch.arange(hashes, device=rows.device)
    return _turned((((a[:, None] + turns * b[:, None]) & _HALF) * size) >> 32, rows[:, None])


def _turned(bit: Tensor, row: Tensor) -> Tensor:
    """A group's bit for one of its rows: of the same word."""
    return (bit & ~63) | ((bit + row) & 63)


def insert(rows: Tensor, size: int, hashes: int, salt: int) -> Tensor:
    return bitmap.set_bits(probes(rows, size, hashes, salt).view(-1), size)


def positives(filter: Filter, rows: int, limit: int) -> Tensor:
    """A row is out at the first of its bits that is not set."""
    chunks: list[Tensor] = []
    total = 0
    for start in range(0, rows if filter.size else 0, _CHUNK):
        if total > limit:
            break
        asked = torch.arange(start, min(rows, start + _CHUNK), device=filter.words.device)
        mixed = mix64(asked >> 6, filter.salt)
        a, b = mixed & _HALF, (mixed >> 32) & _HALF | 1
        for _ in range(filter.hashes):
            bit = _turned((a * filter.size) >> 32, asked)
            held = ((filter.words[bit >> 6] >> (bit & 63)) & 1).bool()
            asked, b, a = asked[held], b[held], ((a + b) & _HALF)[held]
        chunks.append(asked)
        total += asked.numel()
    return torch.cat(chunks) if chunks else filter.words.new_empty(0)


def resolve(filter: Filter, rows: Tensor, count: int) -> Tensor:
    """`count` of the positives by DeepReduce's policy P2 (Algorithm 1), ascending.

    Two positives that share a bit conflict: it may have been set for either. A positive that has
    a bit of its own was certainly put in. So each bit is a set of the positives that have it, and
    sets are visited from the smallest on, each giving one of its positives a turn.

    Deviation: where the algorithm draws at random from what is left of a set, a set hands out its
    positives in an order that was drawn once for all (by their hashes). Any of them is as likely,
    and the time stays proportional to the sizes of the sets.
    """
    in_order = rows[drawn_order(rows, filter.salt)]
    members: dict[int, list[int]] = {}
    for row, bits in zip(
        in_order.tolist(),
        probes(in_order, filter.size, filter.hashes, filter.salt).tolist(),
        strict=True,
    ):
        for bit in set(bits):
            members.setdefault(bit, []).append(row)
    sets = [members[bit] for bit in sorted(members, key=lambda bit: (len(members[bit]), bit))]
    chosen: set[int] = set()
    while len(chosen) < count:
        for conflict in sets:
            while conflict and conflict[0] in chosen:
                conflict.pop(0)
            if conflict and len(chosen) < count:
                chosen.add(conflict.pop(0))
        sets = [conflict for conflict in sets if conflict]
    return torch.tensor(sorted(chosen), dtype=torch.int64)
