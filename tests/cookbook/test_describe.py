"""What a file of payloads holds, sound and broken."""

from dataclasses import replace

import pytest
import torch

from support.codec.cases import context, random_sparse, random_values
from thinwire.codec import Joint, Pair
from thinwire.codec.container import Address, Header, pack
from thinwire.codec.index import BloomIndex, RiceIndex
from thinwire.codec.value import QsgdValue
from thinwire.cookbook.describe import describe_all
from thinwire.types import Layout, Sparse


@pytest.fixture
def wires() -> list[bytes]:
    sparse = random_sparse(1000, 30)
    made = [
        Pair(RiceIndex()).encode(sparse, context()),
        Pair(value=QsgdValue(bits=4)).encode(random_values(100, torch.float64, 1), context()),
        Pair(BloomIndex("p2", 0.01)).encode(random_sparse(500, 20, width=2), context()),
    ]
    return [wire.numpy().tobytes() for wire in made]


def test_wires_back_to_back(wires: list[bytes]) -> None:
    rows = list(describe_all(bytearray(b"".join(wires))))
    assert [row["bytes"] for row in rows] == [len(wire) for wire in wires]
    assert [row["offset"] for row in rows] == [0, len(wires[0]), len(wires[0]) + len(wires[1])]
    assert [(row["kind"], row["index"], row["value"]) for row in rows] == [
        ("sparse", "rice", "raw"), ("dense", None, "qsgd"), ("rows", "bloom", "raw"),
    ]  # fmt: skip
    assert [row["dtype"] for row in rows] == ["float32", "float64", "float32"]
    first = random_sparse(1000, 30)
    assert isinstance(first, Sparse)
    assert rows[0]["first"][0] == [int(first.indices[0]), float(first.values[0])]
    assert rows[0]["bits_per_value"] == 32
    assert 5 < rows[0]["bits_per_index"] < 12
    assert rows[2]["settings"].startswith("p2, ")


def test_a_broken_one_is_told_by_offset_and_the_rest_is_read(wires: list[bytes]) -> None:
    damaged = bytearray(wires[1])
    damaged[70] ^= 4
    nonsense = b"no payload"
    data = bytearray(wires[0] + damaged + nonsense + wires[2] + wires[0][:-8])
    rows = list(describe_all(data))
    assert [row["ok"] for row in rows] == [True, False, False, True, False]
    assert rows[1]["offset"] == len(wires[0])
    assert "checksum" in rows[1]["reason"]
    assert rows[2]["bytes"] == len(nonsense)
    assert "length" in rows[4]["reason"]


def test_a_payload_of_several_tensors() -> None:
    layout = Layout(("w", "bias", "v"), (300, 8, 700), (False, True, False), each=True)
    ctx = replace(context(), layout=layout)
    dense = Joint(Pair(value=QsgdValue())).encode(random_values(1008, torch.float32, 1), ctx)
    indices = torch.cat((torch.arange(0, 300, 30), torch.arange(300, 308), torch.arange(400, 450)))
    some = Sparse(indices, random_values(68, torch.float32, 2), 1008)
    sparse = Joint(Pair(BloomIndex("p2", 0.01))).encode(some, ctx)
    rows = list(describe_all(bytearray(dense.numpy().tobytes() + sparse.numpy().tobytes())))
    assert [row["ok"] for row in rows] == [True, True]
    assert [row["kind"] for row in rows] == ["joint dense", "joint sparse"]
    assert [(row["numel"], row["first"], row["settings"]) for row in rows] == [(1008, [], None)] * 2
    assert rows[0]["index_bytes"] == 0 < rows[1]["index_bytes"]
    for row in rows:
        sizes = 64 + 2 * 24 + row["index_bytes"] + row["value_bytes"]
        assert sizes == row["bytes"]


def test_unknown_codec() -> None:
    empty = torch.empty(0, dtype=torch.uint8)
    wire = pack(Header(999, 1, torch.float32, 5, 0), Address(1, 2), empty, empty)
    (row,) = describe_all(bytearray(wire.numpy().tobytes()))
    assert "999" in row["reason"]
