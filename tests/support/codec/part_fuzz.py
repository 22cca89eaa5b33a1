"""Arbitrary parts for each index and value codec by itself, as if every checksum fitted:

    PYTHONPATH=src:tests python -m support.codec.part_fuzz --parts 200000

Parts are random, cut short, extended, flipped, filled or spliced from two, and some come with
another count, number of rows or dtype than they were made for. What must come of each is a
`WireFormatError`, or as many values, or as many indices below the rows, as were asked for: in
bounded time, and with no more memory than `fuzz.ROOM` on top of what the process had.
"""

import argparse
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from thinwire.codec.index import BloomIndex
from thinwire.codec.index.bloom import POLICIES
from thinwire.cookbook.registry import pieces
from thinwire.errors import WireFormatError
from thinwire.results.origin import commit
from thinwire.types import IndexCodec, ValueCodec

from .cases import VALUES, at_hand, random_sparse, random_values
from .fuzz import PATIENCE, limits

COUNTS = (0, 1, 2, 63, 64, 65, 4096, 2**20, 2**24, 2**31, 2**40, 2**62)
DTYPES = (torch.float32, torch.float64)
EMPTY = torch.empty(0, dtype=torch.uint8)
KINDS = ("flip", "cut", "extend", "fill", "random", "splice")

INDICES: dict[str, IndexCodec] = at_hand(pieces("index")) | {
    f"bloom-{policy}": BloomIndex(policy, 0.05) for policy in POLICIES
}


@dataclass(frozen=True)
class Part:
    """What a codec is given to decode."""

    codec: IndexCodec | ValueCodec
    data: bytes
    count: int
    rows: int  # of an index part
    dtype: torch.dtype  # of a value part


def families() -> dict[str, list[Part]]:
    """Sound parts of every codec, made with all the settings that there are of it."""
    found = defaultdict(list)
    for index in INDICES.values():
        found[f"index {index.name}"] += _index_parts(index)
    for value in VALUES.values():
        found[f"value {value.name}"] += _value_parts(value)
    return found


def _index_parts(codec: IndexCodec) -> Iterator[Part]:
    for seed, (rows, count) in enumerate([(900, 40), (3000, 25), (50, 50), (10, 0), (70_000, 90)]):
        s = random_sparse(rows, count, seed=seed)
        part = codec.encode(s.indices, rows, True)
        if not codec.lossless and (found := codec.support(part, count, rows)) is not None:
            count = found.numel()  # of which values are sent
        yield Part(codec, bytes(part.tolist()), count, rows, torch.float32)


def _value_parts(codec: ValueCodec) -> Iterator[Part]:
    for seed, count in enumerate((40, 1, 0, 90)):
        for dtype in DTYPES:
            part = codec.encode(random_values(count, dtype, seed), seed)
            yield Part(codec, bytes(part.tolist()), count, count, dtype)


def altered(parts: list[Part], draw: random.Random) -> Part:
    """Other bytes, and now and then another claim about them."""
    part = draw.choice(parts)
    data = altered_bytes(part.data, lambda: draw.choice(parts).data, draw)
    count, rows, dtype = part.count, part.rows, part.dtype
    if not draw.randrange(4):
        count = draw.choice((*COUNTS, draw.randrange(2 * count + 1)))
    if not draw.randrange(8):
        rows, dtype = draw.choice((*COUNTS, rows + 1)), draw.choice(DTYPES)
    return Part(part.codec, bytes(data), count, rows, dtype)


def altered_bytes(sound: bytes, another: Callable[[], bytes], draw: random.Random) -> bytearray:
    """Flipped, cut short, extended, filled, random, or spliced with others."""
    data, kind = bytearray(sound), draw.choice(KINDS)
    if kind == "flip" and data:
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[draw.randrange(len(data) + 1) :]
    elif kind == "extend":
        data += draw.randbytes(draw.randrange(1, 30))
    elif kind == "fill":
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.randrange(1, 30))
        data[start:end] = bytes([draw.choice((0, 1, 127, 128, 255))]) * (end - start)
    elif kind == "random":
        data = bytearray(draw.randbytes(draw.choice((len(data), draw.randrange(200)))))
    else:
        other, cut = another(), draw.randrange(len(data) + 1)
        data = data[:cut] + other[cut:]
    return data


def check(part: Part) -> str:
    """ "refused" or "decoded"; an AssertionError for anything that was not asked for."""
    codec, data = part.codec, EMPTY
    if part.data:
        data = torch.frombuffer(bytearray(part.data), dtype=torch.uint8)
    try:
        if isinstance(codec, ValueCodec):
            values = codec.decode(data, part.count, part.dtype)
            assert values.shape == (part.count,)
            assert values.dtype == part.dtype
            return "decoded"
        # A header whose count is above its rows never gets here.
        indices = codec.decode(data, min(part.count, part.rows), part.rows)
    except WireFormatError:
        return "refused"
    assert indices.shape == (min(part.count, part.rows),)
    if len(indices):
        assert 0 <= int(indices.min()) <= int(indices.max()) < part.rows
    return "decoded"


def fuzz(
    parts: int, seed: int = 0, only: Sequence[str] = ("",)
) -> Iterator[tuple[str, Counter[str], float]]:
    """So many for each codec: its name, what came of them, and the seconds it took."""
    for name, sound in families().items():
        if not any(word in name for word in only):
            continue
        draw, outcomes, began = random.Random(seed), Counter[str](), time.monotonic()
        for part in sound:
            assert check(part) == "decoded"  # and everything is compiled
        with limits():
            for number in range(parts):
                part = altered(sound, draw)
                signal.setitimer(signal.ITIMER_REAL, PATIENCE)
                try:
                    outcomes[check(part)] += 1
                except BaseException as error:
                    error.add_note(f"part {number} of seed {seed} for {name}: {part}")
                    raise
        yield name, outcomes, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=200_000, help="for each codec")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="codecs with this in their names")
    given = parser.parse_args()
    print(f"parts for each codec by itself, seed {given.seed}, commit {commit()}:", flush=True)
    total = 0
    for name, outcomes, seconds in fuzz(given.parts, given.seed, given.only):
        total += outcomes.total()
        counts = " ".join(f"{outcomes[how]:9,} {how}" for how in ("refused", "decoded"))
        print(f"{name:26} {outcomes.total():9,} parts {counts} {seconds:6.0f} s", flush=True)
    print(f"{total:,} parts in all\n")


if __name__ == "__main__":
    main()
