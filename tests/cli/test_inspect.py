"""`thinwire inspect`: what is in a file of payloads, sound and broken."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

from typer.testing import CliRunner

from support.codec.cases import context, random_sparse, random_values
from thinwire.cli.app import app
from thinwire.cli.inspect import wires_in
from thinwire.codec import BloomIndex, Pair, QsgdValue, RiceIndex
from thinwire.errors import ThinwireError
from thinwire.types import Sparse

runner = CliRunner()


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
    rows = list(wires_in(bytearray(b"".join(wires))))
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
    rows = list(wires_in(data))
    assert [row["ok"] for row in rows] == [True, False, False, True, False]
    assert rows[1]["offset"] == len(wires[0])
    assert "checksum" in rows[1]["reason"]
    assert rows[2]["bytes"] == len(nonsense)
    assert "length" in rows[4]["reason"]


def test_unknown_codec(wires: list[bytes]) -> None:
    from thinwire.codec.container import Header, pack

    empty = torch.empty(0, dtype=torch.uint8)
    wire = pack(Header(999, 1, torch.float32, 5, 0), empty, empty)
    (row,) = wires_in(bytearray(wire.numpy().tobytes()))
    assert "999" in row["reason"]


def test_command(wires: list[bytes], tmp_path: Path) -> None:
    file, result = tmp_path / "payload.bin", tmp_path / "out.json"
    torch.frombuffer(bytearray(wires[0]), dtype=torch.uint8).numpy().tofile(file)
    shown = runner.invoke(app, ["inspect", str(file), "--json", str(result)])
    assert shown.exit_code == 0, shown.output
    for word in ("rice+raw", "checksum ok", "bits an index", "numel", "1000", "first"):
        assert word in shown.output
    (row,) = json.loads(result.read_text())["rows"]
    assert row["count"] == 30


def test_command_on_what_cannot_be_read(wires: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    file.write_bytes(wires[0] + wires[0][:60])
    shown = runner.invoke(app, ["inspect", str(file)])
    assert isinstance(shown.exception, ThinwireError)
    assert "1 of 2" in str(shown.exception)
    assert f"offset {len(wires[0])}" in shown.output
    file.write_bytes(b"")
    assert "empty" in str(runner.invoke(app, ["inspect", str(file)]).exception)
    missing = runner.invoke(app, ["inspect", str(tmp_path / "none.bin")])
    assert "cannot read" in str(missing.exception)
