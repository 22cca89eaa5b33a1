"""The demo's page: the sentence, loss over seconds and over bytes, two steps as they went by."""

from collections.abc import Sequence
from html import escape

from thinwire.bench.peers import BASELINE
from thinwire.demo.outcome import HEADINGS, Outcome, outcome
from thinwire.demo.plan import Settings, examples
from thinwire.format import rate
from thinwire.lab.links import bits_per_second
from thinwire.report.charts.palette import looks
from thinwire.report.converge import shown
from thinwire.report.figures.converge import converge_figures
from thinwire.report.figures.steps import timeline_figures
from thinwire.report.page import describe, document, figures, section
from thinwire.report.table import filters
from thinwire.results.curves import is_run
from thinwire.results.file import ResultFile, Row

TITLE = "thinwire: the same loss, sooner"
QUESTION = "thinwire: who has the loss first?"  # where that was not so
LOOPBACK = (
    "These workers talked over the loopback, whose links are not shaped and faster than any "
    "network: the seconds show what compression costs, not what it gains."
)
NEXT = (
    ("Is it worth it for my script? 30 steps of it, as it is", "thinwire doctor -- train.py"),
    ("The one line in my script", 'handle = thinwire.compress(ddp_model, "auto")'),
    ("Every recipe, beside each other", "thinwire demo --all"),
    (
        "My own training over a slow link",
        "thinwire lab --workers 2 --rate 100mbit -- torchrun train.py",
    ),
)


def demo_page(results: ResultFile, settings: Settings) -> str:
    """The page of a run, finished or not."""
    reached = outcome(results.rows)
    return document(
        TITLE if reached.gains else QUESTION,
        [reached.sentence(), introduction(results.rows, settings)],
        _sections(results.rows, reached),
        [describe(results.machine)],
    )


def introduction(rows: Sequence[Row], settings: Settings) -> str:
    """What was trained where, and what a fair reader must know."""
    first = next((row for row in rows if is_run(row)), None)
    if first is None:
        return "No run has ended yet."
    where = (
        LOOPBACK
        if settings.rate is None
        else f"Each worker has a link of {rate(bits_per_second(settings.rate) / 1e6)}, for real: "
        "a network namespace with a shaped interface."
    )
    return (
        f"{settings.workers} workers train {first['model']} ({first['parameters']:,} parameters, "
        f"AdamW, {examples(settings)} examples a step) on {first['data']}: same seed, same data "
        f"in the same order, {first['steps']} steps, one learning rate for all. {where} Losses are "
        "of text that was never trained on. One seed and a short run: hundredths may be chance."
    )


def _sections(rows: Sequence[Row], reached: Outcome) -> str:
    runs = [_as_curve(row) for row in rows if is_run(row) and row["error"] is None]
    steps = [row for row in rows if "stream" in row]
    look = looks(row["recipe"] for row in runs)
    curves = figures(converge_figures(runs, look, BASELINE)) if runs else ""
    went_by = figures(timeline_figures(steps, look)) if steps else ""
    return "".join(
        section(title, content)
        for title, content in (
            ("Loss over seconds, and over bytes", curves),
            ("When each was there", _table(reached) if runs else ""),
            ("One step, as it went by on one worker", went_by),
            ("What next?", _next()),
        )
        if content
    )


def _as_curve(row: Row) -> Row:
    """A single run as the figures want means and bands."""
    points = row["points"]
    losses = points["held_out_loss"]
    return row | {"points": points | {"loss": losses, "low": losses, "high": losses}}


def _table(reached: Outcome) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in HEADINGS)
    body = "".join(
        f'<tr data-recipe="{escape(shown(finish.row))}">'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for finish, cells in zip(reached.ranking, reached.lines(), strict=True)
    )
    return (
        f"{filters(len(reached.finishes))}\n"
        f'<div class="scroll"><table class="summary"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _next() -> str:
    items = (f"<dt>{escape(why)}</dt><dd><code>{escape(what)}</code></dd>" for why, what in NEXT)
    return f"<dl>{''.join(items)}</dl>"
