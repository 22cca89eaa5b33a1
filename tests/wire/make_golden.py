"""Writes the golden files: `python -m tests.wire.make_golden` from the repository's root.

A golden file freezes a version of the wire format; what is written is the newest. Run this for a
codec that is new; an old file that would change means the format changed, and then the container's
version must change too. Existing files are therefore kept unless they are deleted first.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch

from thinwire.codec import Joint, Pair
from thinwire.codec.container import VERSION, address_of, pack, unpack
from thinwire.codec.index.bloom import POLICIES, BloomIndex
from thinwire.codec.value import Centroid2Value, ChunkedValue, Fp8Value, QsgdValue
from thinwire.cookbook.registry import pieces
from thinwire.types import (
    Communicator,
    ExchangeContext,
    IndexCodec,
    Layout,
    Selection,
    Sparse,
    ValueCodec,
)

GOLDEN = Path(__file__).parent / "golden"


@dataclass
class Peer:
    """A rank that only has a number."""

    rank: int = 1
    size: int = 2


CONTEXT = ExchangeContext("layer.weight", step=5, seed=42, comm=cast(Communicator, Peer()))

# Every value is a small multiple of a power of two, so that no library's rounding is in the files.
RAMP = torch.tensor([0.0, 1.0, -2.0, 0.5, 0.0, -0.25, 3.0, 1.5, -1.0, 0.125, 2.5, -0.5, 0.75])

SELECTIONS: dict[str, Selection] = {
    "sparse": Sparse(torch.arange(13) * 7 + 2, RAMP, 100),
    "unordered": Sparse(torch.tensor([70, 3, 41]), RAMP[1:4].double(), 90, ordered=False),
    "rows": Sparse(torch.tensor([1, 4]), RAMP[:6].reshape(2, 3), 18),
    "dense": RAMP,
    "empty": Sparse(torch.empty(0, dtype=torch.int64), torch.empty(0), 10),
}

INDICES: dict[str, Callable[[], IndexCodec]] = {
    **pieces("index"),
    **{f"bloom-{policy}": partial(BloomIndex, policy, fpr=0.2) for policy in POLICIES},
}
VALUES: dict[str, Callable[[], ValueCodec]] = {
    **pieces("value"),
    "qsgd-3-max": partial(QsgdValue, bits=3, bucket=4, norm="max"),
    "fp8-e5m2": partial(Fp8Value, "e5m2", chunk=4),
    "chunked-2-nearest": partial(ChunkedValue, bits=2, chunk=4),
    "centroid2-4": partial(Centroid2Value, group=4),
    "chunked-2": partial(ChunkedValue, bits=2, chunk=4, rounding="stochastic"),
}
CODECS = sorted({f"raw+{name}" for name in VALUES} | {f"{name}+raw" for name in INDICES})


def pair_of(codec: str) -> Pair:
    """Made when it is used: some need a package of an extra."""
    index, _, value = codec.partition("+")
    return Pair(INDICES[index](), VALUES[value]())


READ_ONLY = {"raw+deflate", "raw+zstd", "raw+fit_dexp", "pco+raw", "zstd+raw", "ans+raw"}
"""Codecs that lean on a library (zlib, zstd, exp) whose next version may write other bytes.

Theirs are frozen for reading: what was written once must decode to the same for ever.
"""

# What the policies draw is not in a wire, but computed from it: frozen on its own.
BLOOM_FILE = GOLDEN.parent / "golden_bloom_v1.json"
BLOOM = (torch.arange(40) * 97 + 13, 4000, 0.01)  # indices, rows, FPR

NAMES = [(codec, form) for codec in CODECS for form in SELECTIONS]

# Five tensors in one wire: two that travel whole, one of them without elements, and three others.
JOINT_LAYOUT = Layout(
    ("a", "b", "nothing", "c", "d"), (5, 3, 0, 20, 11), (False, True, True, False, False), each=True
)
JOINT_CONTEXT = replace(CONTEXT, tensor="a+4", layout=JOINT_LAYOUT)
JOINT_DENSE = torch.cat((RAMP, -2 * RAMP, RAMP))
_CHOSEN = torch.tensor([1, 5, 6, 7, 10, 19, 20, 27, 30, 33, 38])  # 5 to 7: let past
JOINT_SPARSE = Sparse(_CHOSEN, JOINT_DENSE[_CHOSEN], 39)
JOINTS: dict[str, Selection] = {
    **dict.fromkeys(("raw+sign", "raw+tern", "raw+qsgd", "raw+3lc"), JOINT_DENSE),
    **dict.fromkeys(("varint+quantile", "huffman+quantile", "bloom+fit_poly"), JOINT_SPARSE),
}
"""What the recipes' codecs that share no part of a payload are frozen with."""


def path(codec: str, form: str, version: int = VERSION) -> Path:
    return GOLDEN / f"{codec}_{form}_v{version}.bin"


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for codec, form in NAMES:
        if not path(codec, form).exists():
            wire = _wire(codec, form)
            path(codec, form).write_bytes(wire.numpy().tobytes())
            print("wrote", path(codec, form).name, wire.numel(), "bytes")
    for codec in JOINTS:
        if not path(codec, "joint").exists():
            wire = Joint(pair_of(codec)).encode(JOINTS[codec], JOINT_CONTEXT)
            path(codec, "joint").write_bytes(wire.numpy().tobytes())
            print("wrote", path(codec, "joint").name, wire.numel(), "bytes")
    if not BLOOM_FILE.exists():
        BLOOM_FILE.write_text(json.dumps(bloom_parts(), indent=1) + "\n")
        print("wrote", BLOOM_FILE.name)


def _wire(codec: str, form: str) -> torch.Tensor:
    """As it is written now; where a library's next version may differ, with the parts that were."""
    earlier = path(codec, form, VERSION - 1)
    if codec in READ_ONLY and earlier.exists():
        old = unpack(torch.frombuffer(bytearray(earlier.read_bytes()), dtype=torch.uint8))
        address = address_of(CONTEXT.tensor, CONTEXT.step)
        return pack(old.header, address, old.index_part, old.value_part)
    return pair_of(codec).encode(SELECTIONS[form], CONTEXT)


def bloom_parts() -> dict[str, dict[str, str | list[int]]]:
    """For each policy the part, and the indices that it stands for."""
    indices, rows, fpr = BLOOM
    parts: dict[str, dict[str, str | list[int]]] = {}
    for policy in POLICIES:
        codec = BloomIndex(policy, fpr)
        part = codec.encode(indices, rows, True)
        support = codec.support(part, indices.numel(), rows)
        if support is None:  # a naive filter does not say: its receivers find so many
            support = codec.decode(part, indices.numel(), rows)
        parts[policy] = {"part": bytes(part.tolist()).hex(), "support": support.tolist()}
    return parts


if __name__ == "__main__":
    main()
