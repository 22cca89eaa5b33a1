"""A table in the terminal that is rewritten in place: the only one outside of the command line."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

TITLE = "thinwire, this rank"


class LiveTable:
    """From the first line on until `close`, which leaves the last one."""

    def __init__(self, headings: Sequence[str], console: Console | None = None) -> None:
        self._headings = headings
        self._live = Live(console=console, refresh_per_second=4)
        self._live.start()

    def show(self, lines: Iterable[Sequence[str]]) -> None:
        """These, in place of those before."""
        table = Table(*self._headings, title=TITLE)
        for column in table.columns:
            column.justify = "right"
        for cells in lines:
            table.add_row(*cells)
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Stay as it is."""
        self._live.stop()
