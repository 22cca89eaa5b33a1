"""`thinwire inspect`: what it prints and writes, and what it refuses."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from support.codec.cases import context, random_sparse
from thinwire.cli.app import app
from thinwire.codec import Pair
from thinwire.codec.index import RiceIndex
from thinwire.errors import ThinwireError

runner = CliRunner()


@pytest.fixture
def wire() -> bytes:
    return Pair(RiceIndex()).encode(random_sparse(1000, 30), context()).numpy().tobytes()


def test_command(wire: bytes, tmp_path: Path) -> None:
    file, result = tmp_path / "payload.bin", tmp_path / "out.json"
    file.write_bytes(wire)
    shown = runner.invoke(app, ["inspect", str(file), "--json", str(result)])
    assert shown.exit_code == 0, shown.output
    for word in ("rice+raw", "checksum ok", "bits per index", "numel", "1000", "first"):
        assert word in shown.output
    (row,) = json.loads(result.read_text())["rows"]
    assert row["count"] == 30


def test_command_on_what_cannot_be_read(wire: bytes, tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    file.write_bytes(wire + wire[:60])
    shown = runner.invoke(app, ["inspect", str(file)])
    assert isinstance(shown.exception, ThinwireError)
    assert "1 of 2" in str(shown.exception)
    assert f"offset {len(wire)}" in shown.output
    file.write_bytes(b"")
    assert "empty" in str(runner.invoke(app, ["inspect", str(file)]).exception)
    missing = runner.invoke(app, ["inspect", str(tmp_path / "none.bin")])
    assert "cannot read" in str(missing.exception)
