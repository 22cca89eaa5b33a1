"""What a command shows: plain text in a pipe, a bar on a terminal, tables at the end."""

import io
import re

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from rich.console import Console

from thinwire.bench.timing import Quiet, Watcher
from thinwire.cli.console import Bar, Bars, activity, carry_out, plain_console, show_table, watch
from thinwire.errors import ThinwireError


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=160, height=25)


def test_a_pipe_is_wide_enough_for_tables_and_has_no_colours() -> None:
    console = plain_console(width=150)
    assert not console.is_terminal
    assert console.width == 150


def test_in_a_pipe_nobody_is_told() -> None:
    _, watcher = watch(Console(file=io.StringIO()), steps=3)
    assert isinstance(watcher, Quiet)


def test_on_a_terminal_the_bar_says_what_and_how_far() -> None:
    console = terminal()
    progress, watcher = watch(console, steps=4)
    assert isinstance(watcher, Bar)
    with progress:
        watcher.start("topk × 4")
        watcher.advance("loss 2.5", steps=3)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "topk × 4  loss 2.5" in written
    assert "3/4" in written


def test_a_bar_for_each_where_they_fit_and_one_for_all_where_not() -> None:
    names = [f"recipe {i}" for i in range(30)]
    _, few = watch(terminal(), 4, names[:3])
    progress, many = watch(terminal(), 4, names)
    assert isinstance(few, Bars) and isinstance(many, Bar)
    assert [task.total for task in progress.tasks] == [120]  # type: ignore[attr-defined]


def test_a_table_has_names_left_and_numbers_right() -> None:
    console = Console(file=io.StringIO(), width=80)
    show_table(console, "Title", ("recipe", "ms"), [("topk", "1.5"), ("dense", "10.25")])
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("Title")
    topk, dense = (next(line for line in lines if name in line) for name in ("topk", "dense"))
    assert topk.index("topk") == dense.index("dense")
    assert len(topk.rstrip()) == len(dense.rstrip())


@pytest.mark.parametrize("width", [80, 40, 20])
def test_a_narrow_terminal_cuts_no_cell(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    cells = ("powersgd(0.125,'bf16')", "411 ms", "315 ms … 506 ms", "17.2M", "2.48")
    headings = ("recipe", "step", "from … to", "bytes sent by each rank", "times dense, in all")
    show_table(console, "Title", headings, [cells])
    written = console.file.getvalue()  # type: ignore[attr-defined]
    (row,) = [line for line in written.splitlines() if "powersgd" in line]
    assert "  ".join(cells) == re.sub("  +", "  ", row.strip())
    if width == 80:
        assert max(map(len, written.splitlines())) <= width


def test_what_takes_long_is_said_on_a_terminal_and_nowhere_else() -> None:
    for console, shown, said in (
        (terminal(), True, True),
        (terminal(), False, False),
        (Console(file=io.StringIO()), True, False),
    ):
        with activity(console, "measuring", shown) as tell:
            tell("recipe 1 of 5")
        written = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("measuring: recipe 1 of 5" in written) == said
        assert said or not written


def test_what_was_measured_is_shown_and_failures_are_raised_after_it() -> None:
    shown: list[str] = []

    def measure(watcher: Watcher) -> list[str]:
        watcher.start("one")
        watcher.advance()
        return ["one failed", "two failed"]

    with pytest.raises(ThinwireError, match="one failed\ntwo failed"):
        carry_out(1, measure, lambda console: shown.append("table"))
    assert shown == ["table"]


def test_an_interrupted_run_shows_what_there_is() -> None:
    shown: list[str] = []

    def measure(watcher: Watcher) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(1, measure, lambda console: shown.append("table"))
    assert shown == ["table"]
