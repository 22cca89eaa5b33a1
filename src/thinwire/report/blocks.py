"""Tables in Markdown pages that are made from result files.

A page says what belongs where, and everything between the two comments is made anew:

    <!-- table: steps results/train-gpu.json gpt2 -->
    <!-- end of table -->

The path is as seen from the page. Where there is no such file, there is no table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thinwire.errors import ThinwireError
from thinwire.report.converge import converge_table
from thinwire.report.steps import steps_table
from thinwire.results.file import Row
from thinwire.results.rows import read

Table = Callable[[Sequence[Row], str, Mapping[str, Any]], str]
TABLES: dict[str, Table] = {"steps": steps_table, "converge": converge_table}
BLOCK = re.compile(r"(<!-- table: (\S+) (\S+) (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def renewed(text: str, folder: Path) -> str:
    """A page's text with all its tables made anew; `folder` is the page's."""

    def fill(block: re.Match[str]) -> str:
        opening, kind, file, what, closing = block.groups()
        if kind not in TABLES:
            raise ThinwireError(f"unknown table {kind!r}; there are: {', '.join(TABLES)}")
        path = folder / file
        if not path.exists():
            return f"{opening}{closing}"
        results = read([path])
        table = TABLES[kind](results.rows, what, results.origins.get(path.name, {}))
        return f"{opening}\n{table}\n\n{closing}"

    return BLOCK.sub(fill, text)
