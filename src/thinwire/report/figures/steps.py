"""Step time over the rate of the links, and one step as a timeline."""

from collections.abc import Iterator, Mapping, Sequence

from thinwire.format import duration, rate, setting
from thinwire.report.charts.drawing import Axis, Plot
from thinwire.report.charts.lines import Line, line_chart
from thinwire.report.charts.palette import BASELINES, Look
from thinwire.report.charts.timeline import Band, timeline_chart
from thinwire.report.panels import Panel, by_series, number, panels
from thinwire.report.steps import COMPUTE, rates, short_name
from thinwire.results.file import Row

RATE = Axis("rate of each link", rate, log=True, at_values=True)
SECONDS = Axis("time per step", duration, log=True)
ALONE = Look("faint", (2, 2.5), 2.0)
ALWAYS = (*BASELINES[:1], "auto")
COLOURS = {
    "forward": "hue-5",
    "backward": "hue-0",
    "select": "hue-1",
    "encode": "hue-6",
    "exchange": "hue-3",
    "decode": "hue-2",
    "optimizer": "hue-4",
    "other": "rule",
}


def steps_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    """One for each model and number of workers; links without a rate have no place in it."""
    for panel in panels(rows, ("model", "workers", "device")):
        at = rates(panel.rows)
        if len(at) < 2:
            continue
        matter = _that_matter(panel)
        lines = [
            Line(
                short_name(recipe),
                look[recipe] if recipe in matter else look[recipe].in_the_background(),
                sorted((row["rate"], number(row["step_seconds"])) for row in members),
            )
            for recipe, members in by_series(_on_links(panel.rows), "recipe").items()
            if recipe != COMPUTE
        ]
        alone = [row["step_seconds"] for row in panel.rows if row["recipe"] == COMPUTE]
        if alone and alone[0] is not None:
            lines.append(Line(COMPUTE, ALONE, [(at[0], alone[0]), (at[-1], alone[0])]))
        yield from line_chart(panel.title("Step time"), "step-time", RATE, SECONDS, lines)


def _on_links(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["rate"] is not None]


def _that_matter(panel: Panel) -> set[str]:
    """The baseline and auto, and at each rate the fastest peer and the fastest of ours."""
    matter = set(ALWAYS)
    measured = [row for row in _on_links(panel.rows) if row["step_seconds"] is not None]
    for at in rates(panel.rows):
        for peer in (True, False):
            there = [
                row
                for row in measured
                if row["rate"] == at and row["peer"] == peer and row["recipe"] != COMPUTE
            ]
            if there:
                matter.add(min(there, key=lambda row: row["step_seconds"])["recipe"])
    return matter


def timeline_figures(rows: Sequence[Row], look: Mapping[str, Look]) -> Iterator[Plot]:
    """One for each step."""
    for panel in panels(rows, ("recipe", "model", "workers", "rate")):
        recipe, model, workers, at = panel.settings.values()
        bands = [
            Band(stream, [(_colour(span["what"]), span["start"], span["end"]) for span in spans])
            for stream, spans in by_series(panel.rows, "stream").items()
        ]
        where = "unshaped links" if at is None else rate(at)
        title = f"One step of {short_name(recipe)}: {model}, {setting('workers', workers)}, {where}"
        yield from timeline_chart(title, "timeline", Axis("time", duration), COLOURS, bands)


def _colour(what: str) -> str:
    return what if what in COLOURS else "other"
