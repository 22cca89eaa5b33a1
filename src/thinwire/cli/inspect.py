"""`thinwire inspect`: what saved payloads hold.

Save one with `wire.numpy().tofile(path)`; several may lie back to back in one file.
"""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument

from thinwire.cli.options import JsonPath
from thinwire.codec.container import HEADER_BYTES
from thinwire.cookbook.describe import describe_all
from thinwire.errors import ThinwireError
from thinwire.results.file import ResultFile, Row

FIELDS = ("numel", "count", "width", "dtype", "ordered", "index_bytes", "value_bytes", "checksum",
          "step", "tensor")  # fmt: skip


def inspect(
    file: Annotated[Path, Argument(help="Payloads, as wire.numpy().tofile(path) saves.")],
    json_path: JsonPath = None,
) -> None:
    """Print what a saved payload holds: header, codecs, sizes, checksum, first entries."""
    try:
        data = bytearray(file.read_bytes())
    except OSError as error:
        raise ThinwireError(f"cannot read {file}: {error.strerror}") from None
    if not data:
        raise ThinwireError(f"{file} is empty; a payload has at least {HEADER_BYTES} bytes")
    console = Console(highlight=False, soft_wrap=True)
    results = ResultFile(json_path)
    for row in describe_all(data):
        results.add([row])
        _show(console, row)
    broken = sum(not row["ok"] for row in results.rows)
    if broken:
        raise ThinwireError(f"{broken} of {len(results.rows)} payloads in {file} cannot be read")


def _show(console: Console, row: Row) -> None:
    where = f"offset {row['offset']}, {row['bytes']} bytes"
    if not row["ok"]:
        console.print(f"{where}: broken: {row['reason']}", markup=False)
        return
    codecs = row["value"] if row["index"] is None else f"{row['index']}+{row['value']}"
    console.print(f"{where}: {row['kind']}, {codecs}, checksum ok", markup=False)
    lines = {name: row[name] for name in FIELDS}
    for name, unit in (("index", "per index"), ("value", "per value")):
        if (bits := row[f"bits_per_{name}"]) is not None:
            lines[f"{name}_bytes"] = f"{row[f'{name}_bytes']} ({bits:.4g} bits {unit})"
    if row["settings"] is not None:
        lines["settings"] = row["settings"]
    lines["first"] = ", ".join(f"{index}: {value}" for index, value in row["first"])
    for name, value in lines.items():
        console.print(f"  {name.replace('_', ' '):12} {value}", markup=False)
