"""The demo from start to end: train everything, keep the results as they come, draw the page."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from thinwire.demo.cluster import Cluster
from thinwire.demo.display import Bar, Quiet, Watcher, show_tables
from thinwire.demo.plan import BASELINE, WARM_UP, Job, Settings, differences, plan
from thinwire.demo.worker import Message
from thinwire.errors import ThinwireError
from thinwire.results.file import ResultFile, Row, write_whole
from thinwire.workloads.tasks import TASKS

CAVEAT = (
    "These workers talk over loopback, which is faster than any real network: the time a step "
    "here shows what compression costs, not what it gains."
)


def run(settings: Settings, console: Console, json_path: Path | None = None) -> list[Row]:
    """Run the demo and return its rows. However it ends, what was measured is on disk."""
    for module, package in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if find_spec(module) is None:
            raise ThinwireError(f"the demo needs {package}: pip install 'thinwire[demo]'")
    jobs = plan(settings)
    results = ResultFile(json_path or settings.out / "demo.json")
    page_path = settings.out / "index.html"
    try:
        bar = Bar(console, jobs) if console.is_terminal else None
        with bar.progress if bar else nullcontext(), Cluster(settings.workers) as cluster:
            for job in jobs:
                results.add(_train(cluster, job, bar or Quiet()))
    finally:
        if results.rows:
            write_whole(page_path, demo_page(results, settings))
            show_tables(console, results.rows)
            notes = "\n".join([_tuning(results.rows, settings), CAVEAT])
            console.print(f"{notes}\n\nPage: {page_path}\nNumbers: {results.path}", soft_wrap=True)
    return results.rows


def _train(cluster: Cluster, job: Job, watcher: Watcher) -> list[Row]:
    def on_progress(message: Message) -> None:
        watcher.step(job, message["step"], message["loss"])

    watcher.start(job)
    return cluster.run(job, on_progress)


def _tuning(rows: list[Row], settings: Settings) -> str:
    """What a fair reader must know: how many seeds, and settings that were picked by hand."""
    own = differences(dict.fromkeys(row["recipe"] for row in rows))
    seeds = (
        "One seed, short runs: differences of a few points or hundredths may be noise"
        if settings.seeds == 1
        else f"{settings.seeds} seeds: mean ± deviation between them, and the mean difference "
        "from the same seed's baseline ± its standard error"
    )
    return (
        f"{seeds}. Sparse recipes keep {100 * settings.density:g}% of the gradient, and more in "
        f"the first {WARM_UP:.0%} of the steps. Settings were picked by hand on these very tasks. "
        f"Trained differently from {BASELINE}: {own or 'none'}."
    )


def demo_page(results: ResultFile, settings: Settings) -> str:
    """The page of a run, finished or not."""
    from thinwire.demo.page import page  # brings matplotlib, which no worker needs
    from thinwire.report.page import describe

    recipes = dict.fromkeys(row["recipe"] for row in results.rows)
    return page(
        results.rows,
        title="thinwire: the same training over a thinner wire",
        introduction=[
            f"{settings.workers} workers trained two small models with plain gradient averaging "
            f"({BASELINE}) and with {len(recipes) - 1} ways to send less: same seed, same data in "
            "the same order, same steps. Point at a row or a line to see it alone; tap to keep it.",
            "KB a step is what one rank sends; losses and accuracies in the tables are measured on "
            "data that was never trained on. " + CAVEAT,
            _tuning(results.rows, settings),
        ],
        model_titles={name: task.title for name, task in TASKS.items()},
        baseline=BASELINE,
        footer=describe(results.machine),
    )
