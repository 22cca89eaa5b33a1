"""What the demo shows on a terminal. In a pipe there is only the final table, as plain text."""

from collections.abc import Iterable
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from thinwire.demo import table
from thinwire.demo.plan import BASELINE, Job
from thinwire.demo.results import summarise
from thinwire.results.file import Row
from thinwire.workloads.tasks import TASKS


class Watcher(Protocol):
    """Is told how far a run has come."""

    def start(self, job: Job) -> None: ...

    def step(self, job: Job, step: int, loss: float) -> None: ...


class Quiet:
    """Says nothing."""

    def start(self, job: Job) -> None:
        pass

    def step(self, job: Job, step: int, loss: float) -> None:
        pass


class Bar:
    """One bar over all runs, with the current loss and the time left."""

    def __init__(self, console: Console, jobs: list[Job]) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps,"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
        )
        self.bar = self.progress.add_task("starting the workers", total=sum(j.steps for j in jobs))
        self.width = max(len(f"{job.recipe} on {job.task}") for job in jobs)

    def start(self, job: Job) -> None:
        self.progress.update(self.bar, description=self._label(job, "       —"))

    def step(self, job: Job, step: int, loss: float) -> None:
        self.progress.update(self.bar, advance=1, description=self._label(job, f"{loss:8.3f}"))

    def _label(self, job: Job, loss: str) -> str:
        return f"{f'{job.recipe} on {job.task}':{self.width}}  loss {loss}"


def show_tables(console: Console, rows: Iterable[Row]) -> None:
    """One table a task; bytes are those that one rank sends."""
    for model, summaries in summarise(rows).items():
        shown = Table(
            title=TASKS[model].title, box=box.SIMPLE, title_justify="left", pad_edge=False
        )
        first, *others = table.headings(summaries)
        shown.add_column(first, no_wrap=True)
        for heading in others:
            shown.add_column(heading, justify="right")
        for cells in table.rows(summaries, BASELINE):
            shown.add_row(*cells)
        console.print(shown)
