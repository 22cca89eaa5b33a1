"""The demo's page: a report's page and figures, with the demo's own words and tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import count

from thinwire.bench.train.tuning import tuning
from thinwire.demo import table
from thinwire.demo.plan import BASELINE, MODELS, WARM_UP, Settings
from thinwire.report.charts.drawing import Plot
from thinwire.report.charts.palette import Look, looks
from thinwire.report.figures.train import loss_figure
from thinwire.report.page import describe, document, figures, section
from thinwire.report.panels import Panel, panels
from thinwire.results.file import ResultFile, Row
from thinwire.workloads.tasks import TASKS

CAVEAT = (
    "These workers talk over loopback, which is faster than any real network: the time a step "
    "here shows what compression costs, not what it gains."
)


def demo_page(results: ResultFile, settings: Settings) -> str:
    """The page of a run, finished or not."""
    recipes = dict.fromkeys(row["recipe"] for row in results.rows)
    return page(
        results.rows,
        title="thinwire: the same training over a thinner wire",
        introduction=[
            f"{settings.workers} workers trained two small models with plain gradient averaging "
            f"({BASELINE}) and with {len(recipes) - 1} ways to send less: same seed, same data in "
            "the same order, same steps. Point at a row or a line to see it alone; tap to keep it.",
            "KB per step is what one rank sends; losses and accuracies in the tables were measured "
            "on data that was never trained on. " + CAVEAT,
            training_notes(results.rows, settings),
        ],
        model_titles={name: TASKS[name].title for name in MODELS},
        baseline=BASELINE,
        footer=describe(results.machine),
    )


def training_notes(rows: Sequence[Row], settings: Settings) -> str:
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


def differences(recipes: Iterable[str]) -> str:
    """In words, where a recipe was not trained exactly as the baseline was."""
    notes = {recipe: tuning(recipe).differences() for recipe in recipes}
    return "; ".join(f"{recipe}: {note}" for recipe, note in notes.items() if note)


def page(
    rows: Sequence[Row],
    title: str,
    introduction: Sequence[str] = (),
    model_titles: Mapping[str, str] | None = None,
    baseline: str = "dense",
    footer: str = "",
) -> str:
    """The whole page: for each model its curves, against steps and against bytes, and its table."""
    look = looks(row["recipe"] for row in rows)
    numbers = count(1)
    sections = "".join(
        section(
            (model_titles or {}).get(model, model),
            figures(plot.numbered(next(numbers)) for plot in _curves(panel, look))
            + _table(panel.rows, look, baseline),
        )
        for panel in panels(rows, ("model",))
        for model in [panel.settings["model"]]
    )
    return document(title, introduction, sections, [footer])


def _curves(panel: Panel, look: Mapping[str, Look]) -> Iterator[Plot]:
    # Not against time: these workers share one machine, and time shows its cores.
    yield from loss_figure(panel, look, "step")
    yield from loss_figure(panel, look, "bytes_sent_per_rank")


def _table(rows: Sequence[Row], look: Mapping[str, Look], baseline: str) -> str:
    (summaries,) = table.summarise(rows).values()
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings(summaries))
    body = "".join(
        f'<tr data-recipe="{escape(name)}"><td>{look[name].swatch()}{escape(name)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for name, *cells in table.lines(summaries, baseline)
    )
    return (
        f'<div class="scroll"><table class="summary"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
