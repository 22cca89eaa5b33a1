"""Arbitrary bytes for every decoder:

    PYTHONPATH=tests python -m support.codec.fuzz --payloads 200000

Payloads are random, cut short, flipped, spliced from two codecs' or have other numbers in the
header; each is tried with the checksum that then no longer fits, or with one made to fit. What must
come of it is a `WireFormatError` or a selection such as the header says, in bounded time, and with
no more memory than `ROOM` on top of what the process had.
"""

import argparse
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from thinwire.codec import Pair
from thinwire.codec.container import HEADER_BYTES, VERSION, unpack
from thinwire.codec.index import BloomIndex
from thinwire.codec.index.bloom import POLICIES
from thinwire.codec.pair import open_message
from thinwire.cookbook.registry import piece_by_id, pieces
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.checksum import checksum
from thinwire.results.origin import commit
from thinwire.types import PADDING, Selection, Sparse

from .cases import VALUES, at_hand, context, random_sparse, random_values

ROOM = 1 << 29  # bytes; payloads are below 2 KB, and no tensor among them above 3,000 elements
PATIENCE = 10.0  # seconds for one payload
WAYS = ("random", "cut", "flip", "splice", "header", "fill")
FIELDS = ((4, 2), (6, 1), (7, 1), (8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (56, 4), (60, 4))
"""Where the header's are, and of how many bytes; not the parts' sizes, which others alter."""
Bytes = NDArray[np.uint8]

PAIRS: list[Pair] = (
    [Pair(value=value) for value in VALUES.values()]
    + [Pair(index=piece) for piece in at_hand(pieces("index")).values()]
    + [Pair(BloomIndex(policy, 0.05)) for policy in POLICIES]
)


@dataclass(frozen=True)
class Sample:
    """A sound payload and what it means."""

    wire: Bytes
    meaning: Selection


def corpus() -> list[Sample]:
    """Every codec on selections of every kind."""
    padding = torch.full((5,), PADDING)
    some = random_sparse(700, 25, seed=6)
    padded = Sparse(
        torch.cat((some.indices, padding)),
        torch.cat((some.values, torch.zeros(5))),
        some.numel,
        padded=True,
    )
    places = torch.randperm(padded.count, generator=torch.Generator().manual_seed(7))
    in_slots = Sparse(
        padded.indices[places], padded.values[places], some.numel, ordered=False, padded=True
    )
    selections: list[Selection] = [
        random_sparse(900, 40),
        random_sparse(3000, 25, torch.float64, seed=1),
        random_sparse(300, 20, seed=2, ordered=False),
        random_sparse(60, 9, seed=3, width=3),
        random_sparse(50, 50, seed=4),
        random_sparse(10, 0),
        random_values(37, torch.float32, seed=5),
    ]
    samples = []
    for pair in PAIRS:
        for s in (*selections, *([padded, in_slots] if pair.is_steady else [])):
            wire = pair.encode(s, context())
            samples.append(Sample(wire.numpy().copy(), pair.decode(wire, context())))
    return samples


def decode(wire: Bytes) -> Selection:
    """By the codecs that the wire names, as anyone would who reads it."""
    message = unpack(torch.from_numpy(wire))
    h = message.header
    return open_message(
        message, piece_by_id("index", h.index_id)(), piece_by_id("value", h.value_id)()
    )


def seal(wire: Bytes) -> None:
    """Make the checksum fit, in place."""
    words = torch.from_numpy(wire).view(torch.int64)
    front = 6
    words[front] = checksum(words[front + 1 :], first=front + 1) + int(checksum(words[:front]))


def payload(samples: list[Sample], draw: np.random.Generator) -> tuple[str, Bytes]:
    """How it was made, and the bytes: a multiple of 8 of them, for any other number is refused."""
    way = WAYS[draw.integers(len(WAYS))]
    wire = samples[draw.integers(len(samples))].wire.copy()
    if way == "random" and draw.integers(2):
        wire[HEADER_BYTES:] = draw.integers(0, 256, wire.size - HEADER_BYTES, dtype=np.uint8)
        _clear_padding(wire)
    elif way == "random":
        body = draw.integers(0, 256, 8 * draw.integers(0, 40), dtype=np.uint8)
        wire = np.concatenate((wire[:HEADER_BYTES], body))
        _set_sizes(wire, int(draw.integers(0, body.size + 1)), draw)
    elif way == "cut":
        wire = wire[: 8 * draw.integers(0, wire.size // 8)].copy()
        if wire.size >= HEADER_BYTES:
            _set_sizes(wire, int(draw.integers(0, wire.size - HEADER_BYTES + 1)), draw)
    elif way == "flip":
        for bit in draw.integers(0, 8 * wire.size, draw.integers(1, 4)):
            wire[bit // 8] ^= 1 << bit % 8
    elif way == "splice":
        other = samples[draw.integers(len(samples))].wire
        wire[8:12] = other[8:12]  # the codecs' ids
        if draw.integers(2):
            wire = np.concatenate((wire[:HEADER_BYTES], other[HEADER_BYTES:]))
            wire[32:48] = other[32:48]  # the parts' sizes
    elif way == "header":
        for _ in range(draw.integers(1, 3)):
            _lie(wire, draw)
    else:
        start = int(draw.integers(HEADER_BYTES, wire.size + 1))
        wire[start : start + draw.integers(1, 60)] = draw.choice([0, 1, 127, 128, 255])
    return way, wire


def _set_sizes(wire: Bytes, index_bytes: int, draw: np.random.Generator) -> None:
    """Sizes that fill the wire, or nearly so."""
    room = wire.size - HEADER_BYTES
    aligned = (index_bytes + 7) // 8 * 8
    value_bytes = max(0, room - aligned - int(draw.integers(0, 8)))
    wire[32:48] = np.array([index_bytes, value_bytes], dtype="<u8").view(np.uint8)


def _clear_padding(wire: Bytes) -> None:
    """Zeros after each part, so that what is refused is refused for another reason."""
    index_bytes, value_bytes = wire[32:48].view("<u8").tolist()
    index_end = HEADER_BYTES + index_bytes
    value_start = (index_end + 7) // 8 * 8
    wire[index_end:value_start] = 0
    wire[value_start + value_bytes :] = 0


def _lie(wire: Bytes, draw: np.random.Generator) -> None:
    """Another number in some field of the header."""
    numbers = [0, 1, 2, 3, 60, 900, 2**16, 2**20, 2**24, 2**31, 2**32, 2**40, 2**62, 2**63 - 1]
    at, size = FIELDS[draw.integers(len(FIELDS))]
    number = numbers[draw.integers(len(numbers))] + int(draw.integers(0, 2))
    if size == 2:
        number = int(draw.integers(0, 16))
    wire[at : at + size] = list((number % 256**size).to_bytes(size, "little"))


def check(wire: Bytes) -> str:
    """ "refused", "decoded" or that the codec's package is missing.

    An AssertionError for a selection that contradicts the header.
    """
    try:
        out = decode(wire)
    except WireFormatError:
        return "refused"
    except RecipeError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        return "of a codec that is not here"
    h = unpack(torch.from_numpy(wire)).header
    values = out.values if isinstance(out, Sparse) else out
    assert values.dtype == h.dtype
    count = out.count if isinstance(out, Sparse) else h.count
    assert count == h.count or (h.padded and count < h.count)
    assert values.numel() == count * h.width
    if isinstance(out, Sparse):
        if count:
            assert 0 <= int(out.indices.min()) <= int(out.indices.max()) < h.rows
        assert not out.ordered or bool((out.indices[1:] > out.indices[:-1]).all())
        assert out.indices.unique().numel() == count
    return "decoded"


def same(a: Selection, b: Selection) -> bool:
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        return torch.equal(a.indices, b.indices) and torch.equal(a.values, b.values)
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)


def fuzz(payloads: int, seed: int = 0, seconds: float | None = None) -> Counter[str]:
    """Try so many, or as many as fit into the time; how many were made and came out how."""
    samples = corpus()
    for sample in samples:
        assert same(decode(sample.wire), sample.meaning)
    known = {sample.wire.tobytes() for sample in samples}
    draw = np.random.default_rng(seed)
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    with limits():
        for number in range(payloads):
            if seconds is not None and time.monotonic() - started > seconds:
                break
            way, wire = payload(samples, draw)
            sealed = bool(draw.integers(4)) and wire.size >= HEADER_BYTES
            if sealed:
                seal(wire)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            try:
                outcome = check(wire)
                if outcome == "decoded" and not sealed:
                    assert wire.tobytes() in known, "damage passed the checksum"
            except BaseException as error:
                error.add_note(f"payload {number} of seed {seed}, {way}: {wire.tobytes().hex()}")
                raise
            outcomes[f"{way}, {'sealed' if sealed else 'not sealed'}: {outcome}"] += 1
    return outcomes


@contextmanager
def limits() -> Iterator[None]:
    """No more memory than there is room, and no more time for a payload than there is patience."""

    def late(signum: int, frame: FrameType | None) -> Any:
        raise TimeoutError(f"a payload took more than {PATIENCE} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payloads", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop after so many, finished or not")
    given = parser.parse_args()
    print(f"whole payloads of wire version {VERSION}, seed {given.seed}, commit {commit()}:")
    outcomes = fuzz(given.payloads, given.seed, given.seconds)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8,} {outcome}")
    print(f"{outcomes.total():8,} payloads in all, {len(PAIRS)} pairs of codecs\n")


if __name__ == "__main__":
    main()
