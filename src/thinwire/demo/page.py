"""Rows of training runs as one HTML page that fetches nothing: no script, font or image."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from thinwire.demo import table
from thinwire.demo.chart import Look, Point, line_chart, looks
from thinwire.demo.results import summarise
from thinwire.results import Row

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfb; --ink: #1b1c1e; --faint: #63666b;
  --rule: #dcddda; --hue-0: #1f5fd0; --hue-1: #d1480b; --hue-2: #23803a; --hue-3: #b8237a;
  --hue-4: #7a4ce0; --hue-5: #0b7f8f; --hue-6: #98700a; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181a; --ink: #ecebe7; --faint: #a0a3a7;
  --rule: #383a3d; --hue-0: #6ea4ff; --hue-1: #ff8a4c; --hue-2: #5cc678; --hue-3: #f57ebd;
  --hue-4: #b296ff; --hue-5: #4cc8d8; --hue-6: #e0b545; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; }
h2 { margin: 2.5rem 0 .25rem; font-size: 1.15rem; }
p { max-width: 44rem; margin: .5rem 0; }
.faint, footer { color: var(--faint); font-size: .9rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  gap: 1rem; }
.chart { display: block; width: 100%; height: auto; }
.chart text { fill: var(--faint); font: 12.5px system-ui, sans-serif; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--faint); stroke-width: 1; }
.line { stroke-linejoin: round; stroke-linecap: butt; transition: opacity .12s; }
.focused .line:not(.on) { opacity: .1; }
.focused tr[data-recipe]:not(.on) { opacity: .45; }
.scroll { overflow-x: auto; margin-top: .75rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th { color: var(--faint); font-weight: 500; }
th, td { padding: .28rem .9rem .28rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--paper); }
tr[data-recipe] { cursor: pointer; }
tr.on td { font-weight: 600; }
@media (max-width: 34rem) { table { font-size: .78rem; } th { white-space: normal; }
  th, td { padding-right: .5rem; } th:last-child, td:last-child { padding-right: 0; }
  .chart text { font-size: 15px; } }
.swatch { width: 28px; height: 10px; margin-right: .5rem; vertical-align: middle; }
"""

# Pointing at a row shows its line alone; a tap or click keeps it so.
SCRIPT = """
let kept = null;
const show = name => {
  document.body.classList.toggle('focused', name !== null);
  for (const e of document.querySelectorAll('[data-recipe]'))
    e.classList.toggle('on', e.dataset.recipe === name);
};
for (const e of document.querySelectorAll('[data-recipe]')) {
  e.addEventListener('mouseenter', () => show(e.dataset.recipe));
  e.addEventListener('mouseleave', () => show(kept));
  e.addEventListener('click', () => {
    kept = kept === e.dataset.recipe ? null : e.dataset.recipe;
    show(kept);
  });
}
"""


def page(
    rows: Sequence[Row],
    title: str,
    introduction: Sequence[str] = (),
    model_titles: Mapping[str, str] | None = None,
    baseline: str = "dense",
    footer: str = "",
) -> str:
    """The whole page: for each model its curves, against steps and against bytes, and its table."""
    look = looks((row["recipe"] for row in rows), baseline)
    models = dict.fromkeys(row["model"] for row in rows)
    sections = "".join(
        _section([row for row in rows if row["model"] == model], name, look, baseline)
        for model in models
        for name in [(model_titles or {}).get(model, model)]
    )
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in introduction)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{paragraphs}\n{sections}\n"
        f"<footer><p>{escape(footer)}</p></footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def curves(rows: Iterable[Row], x: str) -> dict[str, list[Point]]:
    """Loss against the field `x`, one line a recipe; a missing loss (diverged) breaks the line."""
    lines: dict[str, list[Point]] = {}
    for row in rows:
        loss = float("nan") if row["loss"] is None else row["loss"]
        lines.setdefault(row["recipe"], []).append((row[x], loss))
    return lines


def _section(rows: Sequence[Row], title: str, look: dict[str, Look], baseline: str) -> str:
    # A recipe that diverges must not flatten the others: nothing is shown far above the start.
    starts = [row["loss"] for row in rows if row["step"] == rows[0]["step"] and row["loss"]]
    limit = 1.1 * max(starts) if starts else None
    by_step = line_chart(curves(rows, "step"), look, "step", "training loss, nats", y_limit=limit)
    by_bytes = line_chart(
        curves(rows, "bytes_sent_per_rank"),
        look,
        "bytes sent by a rank so far",
        "training loss, nats",
        logarithmic_x=True,
        y_limit=limit,
    )
    return (
        f'<section><h2>{escape(title)}</h2>\n<div class="pair">{by_step}{by_bytes}</div>\n'
        f"{_table(rows, look, baseline)}</section>\n"
    )


def _table(rows: Sequence[Row], look: dict[str, Look], baseline: str) -> str:
    (summaries,) = summarise(rows).values()
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings(summaries))
    body = "".join(
        f'<tr data-recipe="{escape(name)}"><td>{look[name].swatch()}{escape(name)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for name, *cells in table.rows(summaries, baseline)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )
