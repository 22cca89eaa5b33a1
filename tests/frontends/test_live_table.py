"""A table that is rewritten in place."""

import io

import pytest

pytest.importorskip("rich")

from rich.console import Console

from thinwire.frontends.live_table import TITLE, LiveTable


def test_the_last_lines_stay() -> None:
    written = io.StringIO()
    table = LiveTable(("step", "sent"), Console(file=written, width=60, force_terminal=True))
    table.show([("1", "10 kB")])
    table.show([("1", "10 kB"), ("2", "20 kB")])
    table.close()
    last = written.getvalue().rpartition(TITLE)[2]
    assert "10 kB" in last and "20 kB" in last
