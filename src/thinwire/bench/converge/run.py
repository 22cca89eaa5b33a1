"""`thinwire bench converge`: time to a loss, models × optimisers × recipes × seeds × rates.

Rows are of four kinds. A *run* learned over unshaped links: `points` has the held-out loss every so
many steps and the share of hits (the right answer is first, or among the first ten of `ratings`),
with the training loss since the look before, and bytes and seconds since the start (a
rank's, looks not counted); `data_size` counts the bytes, words or images to train on. *Timed steps*
are those of `bench train --device`. From both comes a row for each recipe and rate: `reached` says
by target after how many steps, seconds and bytes per rank the mean over the seeds was there (null:
never), `speedup` is over PyTorch's bf16 hook, `final_gap` is in nats above its last loss and
`gap_allowed` its deviation over the seeds. A run with a `rate` was run there from end to end, and
the last rows say how far the prediction was off.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean

import torch

from thinwire.bench.converge.plan import (
    Book,
    Case,
    Settings,
    cases,
    is_timed,
    order,
    refuse_impossible,
    refuse_other_run,
)
from thinwire.bench.converge.targets import summary, verified
from thinwire.bench.runner import Answers, Place, measure_cases, setting_of
from thinwire.bench.steps.run import MEASURED, References, measured
from thinwire.bench.timing import Watcher
from thinwire.bench.train.tuning import tuning
from thinwire.lab import Lab
from thinwire.lab.links import bits_per_second
from thinwire.results.curves import is_run
from thinwire.results.file import ResultFile, Row
from thinwire.results.rows import read
from thinwire.workloads.lessons import LESSONS, load, save

TARGET = "thinwire.bench.converge.case:measure"
LEARNED = ("points", "final_loss", "cores_busy_with_other_work")


def alike(timed: Row, settings: Settings) -> bool:
    """Whether these steps are of what learns here."""
    model, device = timed["model"], timed["device"]
    if device != settings.device or model not in settings.models:
        return False
    return bool(timed["examples"] == settings.examples_of(model))


def kept(path: Path | None, settings: Settings) -> list[Row]:
    """What a command that goes on need not do again: what was measured, without what failed."""
    if path is None or not path.exists():
        return []
    rows = [
        {field: value for field, value in row.items() if field != "file"}
        for row in read([path]).rows
        if (is_run(row) or is_timed(row)) and row["error"] is None
    ]
    for row in filter(is_run, rows):
        refuse_other_run(row, settings, path)
    return rows


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Measure what the results do not have yet, row by row; what failed, in words."""
    refuse_impossible(settings)
    if settings.device == "cuda":
        results.machine["gpu"] = torch.cuda.get_device_name()
    others = [row for row in read(settings.times).rows if is_timed(row)] if settings.times else []
    book = Book(results.rows, [row for row in others if alike(row, settings)])
    references = References()
    for row in book.times:
        if row["step_seconds"] is not None:
            references.enter(row)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="thinwire-data-")))
        lessons = Prepared(settings, folder)

        def add(case: Case, answers: Answers) -> None:
            row = lessons.setting(case, answers.lab)
            if case.what == "time":
                row |= measured(answers, settings.timed_steps)
                references.enter(row)
            else:
                row |= learned(answers, case, settings)
            results.add([row])

        def fail(case: Case, lab: Lab, error: str) -> None:
            unknown = dict.fromkeys(MEASURED if case.what == "time" else LEARNED)
            last = error.strip().splitlines()[-1]
            results.add([lessons.setting(case, lab) | unknown | {"error": last}])

        place = Place(settings.nodes, settings.check, settings.device, settings.budget_s)
        place = replace(place, links=any(settings.rates))
        try:
            return measure_cases(
                TARGET,
                cases(settings, book),
                lambda case: order(case, settings, lessons.paths),
                add,
                watcher,
                place,
                fail,
            )
        finally:
            conclude(results, book, settings)


def conclude(results: ResultFile, book: Book, settings: Settings) -> None:
    """The rows that follow from the others."""
    rates = [None if rate is None else bits_per_second(rate) / 1e6 for rate in settings.rates]
    runs = [row for row in results.rows if is_run(row)]
    results.add(summary(runs, book.times, rates) + verified(runs, book.times))


class Prepared:
    """The models' data, in files that all ranks read."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self.paths = {model: str(folder / f"{model}.npz") for model in settings.models}
        self._parameters: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        for model, path in self.paths.items():
            lesson = LESSONS[model]
            save(lesson.reader.prepare(self._source(model)), Path(path))
            data = load(path)
            self._sizes[model] = len(data["train"])
            with torch.device("meta"):
                built = lesson.build(data)
            self._parameters[model] = sum(p.numel() for p in built.parameters())

    def _source(self, model: str) -> Path | None:
        own = {"text": self._settings.text, "images": self._settings.images}
        return own.get(LESSONS[model].reader.source)

    def _described(self, model: str) -> str:
        source, kind = self._source(model), LESSONS[model].reader.source
        if source is not None:
            return source.name
        return {"text": "Python's standard library", "images": "scikit-learn's digits"}.get(
            kind, "made ratings"
        )

    def setting(self, case: Case, lab: Lab) -> Row:
        about = setting_of(case, lab) | {
            "model": case.model,
            "parameters": self._parameters[case.model],
            "device": self._settings.device,
            "data": self._described(case.model),
            "data_size": self._sizes[case.model],
            "examples": self._settings.examples_of(case.model),
        }
        if case.what == "time":
            return about
        name = case.recipe.partition("(")[0]
        return about | {
            "optimizer": case.optimizer,
            "momentum": tuning(name).momentum if case.optimizer == "sgd" else None,
            "learning_rate": case.learning_rate,
            "seed": case.seed,
            "steps": self._settings.steps_of(case.model),
            "samples_per_step": case.workers * self._settings.examples_of(case.model),
        }


def learned(answers: Answers, case: Case, settings: Settings) -> Row:
    ranks = answers.ranks
    points = ranks[0]["points"]
    steps = [point["step"] for point in points]
    losses = ranks[0]["losses"]
    means = [fmean(losses[early:late]) for early, late in pairwise(steps)]
    seconds = [max(at) for at in zip(*(_column(rank, "seconds") for rank in ranks), strict=True)]
    finished = steps[-1] == settings.steps_of(case.model)
    return {
        "points": {
            "step": steps,
            "held_out_loss": [point["held_out_loss"] for point in points],
            "held_out_hits": [point.get("held_out_hits") for point in points],
            "train_loss": [None, *means],
            "seconds": [0.0, *accumulate(seconds)],
            "bytes": _sent(answers),
        },
        "final_loss": points[-1]["held_out_loss"] if finished else None,
        "error": None,
        "seconds_by_phase": {
            phase: fmean(rank["phases"][phase] for rank in ranks) for phase in ranks[0]["phases"]
        },
        "cores_busy_with_other_work": answers.other_load,
    } | ({"series": ranks[0]["series"]} if settings.series else {})


def _column(rank: Row, name: str) -> list[float | None]:
    return [point[name] for point in rank["points"][1:]]


def _sent(answers: Answers) -> list[int | None]:
    """Bytes per rank since the start: what the links carried, else of the ranks' own sockets."""
    ranks = len(answers.ranks)
    for column, places in (("link_bytes", answers.nodes), ("socket_bytes", answers.ranks)):
        counts = [_column(place, column) for place in places]
        if all(count is not None for counted in counts for count in counted):
            per_rank = [round(sum(at) / ranks) for at in zip(*counts, strict=True)]
            return [0, *accumulate(per_rank)]
    return [None] * len(answers.ranks[0]["points"])
