"""How far a long command has come, and the time left; nothing in a pipe."""

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from thinwire.bench.common import Quiet, Watcher

PLAIN_WIDTH = 140  # a pipe has no width of its own


class Bar:
    """One bar over all steps of all cases."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress = progress
        self._task = progress.add_task("starting the workers", total=steps)

    def start(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def advance(self, steps: int = 1) -> None:
        self._progress.update(self._task, advance=steps)


def plain_console() -> Console:
    """Wide enough for the tables where it is a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def watch(console: Console, steps: int) -> tuple[AbstractContextManager[object], Watcher]:
    """A context to show progress in, and whom to tell."""
    if not console.is_terminal:
        return nullcontext(), Quiet()
    progress = Progress(
        TextColumn("{task.description:44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps,"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        transient=True,
    )
    return progress, Bar(progress, steps)
