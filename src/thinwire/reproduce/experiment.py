"""What an experiment of a paper is here: what it measures, and what its numbers say of the paper.

A measurement is made once and kept as rows. Judging reads these rows alone, so that a file can be
judged again without being measured again.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from thinwire.errors import ThinwireError
from thinwire.report.papers import IN_PART, NO, UNTESTED, YES
from thinwire.reproduce.measures import Measures, seeds_apart
from thinwire.results.file import ResultFile, Row
from thinwire.results.origin import commit

PAPER = "the paper"  # as a curve's source: its own numbers
COMPUTED = "computed"  # by the α-β model, not measured


@dataclass(frozen=True)
class Curve:
    """Numbers of one series. `source` is "here", the paper, or how it was computed."""

    series: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    source: str = "here"

    def at(self, x: float | str) -> float:
        """The number there, which must be one."""
        value = self.y[list(self.x).index(x)]
        assert value is not None
        return value

    @property
    def last(self) -> float:
        return self.at(self.x[-1])


@dataclass(frozen=True)
class Panel:
    """Curves that are drawn together; `unit` is of y: "s", "bytes", "share", "×" or none."""

    name: str
    x: str
    unit: str
    curves: Sequence[Curve] = field(default_factory=list)

    def curve(self, series: str, source: str = "here") -> Curve:
        return next(c for c in self.curves if (c.series, c.source) == (series, source))


APART = "how far two seeds are apart at the end"


def apart(runs: Mapping[str, Sequence[Row]], shown: Mapping[str, str], what: str) -> Panel:
    """What is chance: no statement can be finer."""
    unit = "share" if what == "held_out_hits" else ""
    far = [seeds_apart(runs[name], what) for name in shown]
    return Panel(APART, "", unit, [Curve("", list(shown.values()), far)])


@dataclass(frozen=True)
class Finding:
    """One statement of the paper, with its numbers and ours."""

    says: str
    theirs: str
    ours: str
    verdict: str


@dataclass(frozen=True)
class Experiment:
    """A figure or a table of the paper, measured here."""

    item: str  # "figure 9"
    title: str
    how: str
    measure: Callable[[Measures], list[Panel]]
    judge: Callable[[dict[str, Panel]], list[Finding]]


@dataclass(frozen=True)
class Untested:
    """A figure or a table that is not measured, and why."""

    item: str
    title: str
    why: str
    verdict: str = UNTESTED


@dataclass(frozen=True)
class Paper:
    """All figures and tables of a paper."""

    name: str
    experiments: Sequence[Experiment]
    others: Sequence[Untested] = ()

    def named(self, only: Sequence[str]) -> list[Experiment]:
        """The experiments that are asked for, by `fig5` or `table1`; all if none is."""
        known = {short(experiment.item): experiment for experiment in self.experiments}
        for name in only:
            if short(name) not in known:
                raise ThinwireError(f"{self.name} has no {name!r} here; it has {', '.join(known)}")
        wanted = {short(name) for name in only} or set(known)
        return [experiment for name, experiment in known.items() if name in wanted]


def short(item: str) -> str:
    """`Figure 5` as it is typed: `fig5`."""
    return "".join(item.lower().replace("figure", "fig").split())


def verdict(good: Iterable[bool]) -> str:
    """Of several statements."""
    checked = list(good)
    return YES if all(checked) else IN_PART if any(checked) else NO


def run(paper: Paper, only: Sequence[str], results: ResultFile, measures: Measures) -> list[str]:
    """Measure and judge, one experiment after the other, into `results`; what failed, in words."""
    failures = []
    for experiment in paper.named(only):
        measures.watcher.start(f"{experiment.item}: {experiment.title}")
        started = time.monotonic()
        try:
            panels = experiment.measure(measures)
        except ThinwireError as error:
            failures.append(f"{experiment.item}: {error}")
            continue
        taken = {"commit": commit(), "took_seconds": round(time.monotonic() - started, 1)}
        results.add(_panel_row(paper, experiment, panel) | taken for panel in panels)
        results.add(_findings(paper, experiment, panels))
        measures.watcher.advance()
    results.add(_unmeasured(paper))
    return failures


def others(paper: Paper, only: Sequence[str], rows: Iterable[Row]) -> list[Row]:
    """What a file has of the experiments that are not asked for."""
    wanted = {experiment.item for experiment in paper.named(only)}
    return [row for row in rows if "how" not in row or row["says"] if row["item"] not in wanted]


def judged(paper: Paper, rows: Iterable[Row]) -> list[Row]:
    """A file's rows with everything but its numbers made anew."""
    measured = [row for row in rows if "curves" in row]
    anew: list[Row] = []
    for experiment in paper.experiments:
        of_this = [row for row in measured if row["item"] == experiment.item]
        if of_this:
            anew += of_this + _findings(paper, experiment, list(map(_panel, of_this)))
    return anew + _unmeasured(paper)


def _panel_row(paper: Paper, experiment: Experiment, panel: Panel) -> Row:
    about = {"paper": paper.name, "item": experiment.item, "panel": panel.name, "x": panel.x}
    curves = [
        asdict(curve) | {"x": list(curve.x), "y": [_rounded(y) for y in curve.y]}
        for curve in panel.curves
    ]
    return about | {"unit": panel.unit, "curves": curves}


def _panel(row: Row) -> Panel:
    curves = [Curve(**curve) for curve in row["curves"]]
    return Panel(row["panel"], row["x"], row["unit"], curves)


def _findings(paper: Paper, experiment: Experiment, panels: Sequence[Panel]) -> list[Row]:
    found = experiment.judge({panel.name: panel for panel in panels})
    about = _about(paper, experiment.item, experiment.title) | {"how": experiment.how}
    return [about | asdict(finding) for finding in found]


def _unmeasured(paper: Paper) -> list[Row]:
    return [
        _about(paper, other.item, other.title)
        | {"how": other.why, "says": "", "theirs": "", "ours": "", "verdict": other.verdict}
        for other in paper.others
    ]


def _about(paper: Paper, item: str, title: str) -> dict[str, Any]:
    return {"paper": paper.name, "item": item, "title": title}


def _rounded(value: float | None) -> float | None:
    """To six digits: more were not measured."""
    return None if value is None else float(f"{value:.6g}")
