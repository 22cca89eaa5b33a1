"""Tables in Markdown pages that are made from result files.

A page says what belongs where, and everything between the two comments is made anew:

    <!-- table: steps results/train-gpu.json gpt2 -->
    <!-- end of table -->

The path is as seen from the page, and may be a pattern. Where there is no such file, there is no
table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thinwire.errors import ThinwireError
from thinwire.report.compared import auto_table, seeds_table, simulate_table
from thinwire.report.converge import converge_table
from thinwire.report.measured import (
    codecs_table,
    encode_table,
    kernels_table,
    sync_table,
    train_table,
)
from thinwire.report.papers import paper_section, verdicts
from thinwire.report.steps import steps_table
from thinwire.results.file import Row
from thinwire.results.rows import read

Table = Callable[[Sequence[Row], str, Mapping[str, Any]], str]
TABLES: dict[str, Table] = {
    "steps": steps_table,
    "converge": converge_table,
    "codecs": codecs_table,
    "kernels": kernels_table,
    "encode": encode_table,
    "sync": sync_table,
    "auto": auto_table,
    "seeds": seeds_table,
    "simulate": simulate_table,
    "train": train_table,
    "paper": paper_section,
    "verdicts": verdicts,
}
BLOCK = re.compile(r"(<!-- table: (\S+) (\S+) (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str, folder: Path) -> str:
    """A page's text with all its tables made anew; `folder` is the page's."""

    def fill(block: re.Match[str]) -> str:
        opening, kind, file, what, closing = block.groups()
        if kind not in TABLES:
            raise ThinwireError(f"unknown table {kind!r}; there are: {', '.join(TABLES)}")
        paths = sorted((folder / file).parent.glob(Path(file).name))
        if not paths:
            return f"{opening}{closing}"
        results = read(paths)
        table = TABLES[kind](results.rows, what, results.origins.get(paths[0].name, {}))
        return f"{opening}\n{table}\n\n{closing}"

    return BLOCK.sub(fill, text)
