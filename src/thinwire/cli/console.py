"""What a long command shows: how far it has come (nothing in a pipe), and tables at the end."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from thinwire.bench.timing import Quiet, Watcher
from thinwire.errors import ThinwireError

PLAIN_WIDTH = 140  # a pipe has no width of its own
WIDEST = 1000  # more than any table needs


class Bar:
    """One bar over all steps of all cases."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress, self._what = progress, ""
        self._task = progress.add_task("starting the workers", total=steps)

    def start(self, what: str) -> None:
        self._what = what
        self._progress.update(self._task, description=what)

    def advance(self, note: str = "", steps: int = 1) -> None:
        text = f"{self._what}  {note}" if note else self._what
        self._progress.update(self._task, advance=steps, description=text)


class Bars:
    """A bar for each case, by its name; each has as many steps."""

    def __init__(self, progress: Progress, steps: int, names: Sequence[str]) -> None:
        self._progress = progress
        self._tasks = {
            name: progress.add_task(name, start=False, total=steps, note="") for name in names
        }
        self._now: TaskID | None = None

    def start(self, what: str) -> None:
        if what in self._tasks:
            self._end()
            self._now = self._tasks[what]
            self._progress.start_task(self._now)

    def advance(self, note: str = "", steps: int = 1) -> None:
        if self._now is not None:
            self._progress.update(self._now, advance=steps, note=note)

    def _end(self) -> None:
        """The last bar is full: what a rank only reports every so often may be missing."""
        if self._now is not None:
            self._progress.update(self._now, completed=self._progress.tasks[self._now].total)


def plain_console(width: int = PLAIN_WIDTH) -> Console:
    """The terminal; or, in a pipe, plain text that is wide enough for the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def watch(
    console: Console, steps: int, names: Sequence[str] = ()
) -> tuple[AbstractContextManager[object], Watcher]:
    """A context to show progress in, and whom to tell; with names a bar for each that fits."""
    if not console.is_terminal:
        return nullcontext(), Quiet()
    if 0 < len(names) < console.height:
        each = (
            *(
                TextColumn("{task.description:44}"),
                BarColumn(),
                TextColumn("{task.fields[note]:12}"),
            ),
            TimeElapsedColumn(),
        )
        progress = Progress(*each, console=console)
        return progress, Bars(progress, steps, names)
    columns = (
        SpinnerColumn(),  # a step may take long, and so may the start
        *(TextColumn("{task.description:44}"), BarColumn(), MofNCompleteColumn()),
        *(TextColumn("steps,"), TimeRemainingColumn(compact=True), TextColumn("left")),
    )
    progress = Progress(*columns, console=console, transient=True)
    return progress, Bar(progress, steps * max(1, len(names)))


@contextmanager
def activity(console: Console, what: str, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Say what goes on for as long as it lasts, where no steps are counted; nothing in a pipe.

    What comes out of it is told more: which part is under way.
    """
    if not (shown and console.is_terminal):
        yield lambda part: None
        return
    with console.status(what) as status:
        yield lambda part: status.update(f"{what}: {part}")


def carry_out(
    steps: int,
    measure: Callable[[Watcher], list[str]],
    show: Callable[[Console], None],
    names: Sequence[str] = (),
) -> None:
    """Measure in so many steps, or cases of so many each, and show what there is however it ends.

    `measure` returns what failed, in words; that is raised, after all else was measured.
    """
    console = plain_console()
    progress, watcher = watch(console, steps, names)
    failures: list[str] = []
    try:
        with progress:
            failures = measure(watcher)
    finally:
        show(console)
    if failures:
        raise ThinwireError("\n".join(failures))


def show_table(
    console: Console, title: str | None, headings: Iterable[str], lines: Iterable[Sequence[str]]
) -> None:
    """First column left, numbers right.

    Where that is too wide, headings are folded and columns move together; no cell is ever cut.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for cells in lines:
        table.add_row(*cells)
    any_width = console.options.update(width=WIDEST)
    if console.measure(table, options=any_width).maximum > console.width:
        table.padding = (0, 1, 0, 0)
        for column in table.columns:
            words = (*str(column.header).split(), *map(str, column.cells))
            column.no_wrap, column.width = False, max(map(cell_len, words))
        table.width = console.measure(table, options=any_width).maximum
    console.print(table, crop=False)
