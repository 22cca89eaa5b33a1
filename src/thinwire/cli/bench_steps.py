"""`thinwire bench train --device …`: real models, on GPUs or on the CPU."""

from pathlib import Path
from typing import Any

from rich.console import Console

from thinwire.cli.console import carry_out, show_table
from thinwire.cli.parse import device_choice, listed, split
from thinwire.format import milliseconds, optional, rate
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row

HEADINGS = ("recipe", "step ms", "p10 … p90", "above compute", "× dense", "MB per step", "MB more")
UNSHAPED = "unshaped links"


def train_real(
    device: str,
    models: str,
    recipes: str,
    json_path: Path | None,
    trace: Path | None,
    **settings: Any,
) -> None:
    """Measure, and show one table for each model, number of workers and rate."""
    from thinwire.bench.steps.plan import Settings, plan
    from thinwire.bench.steps.run import run

    asked = Settings(
        device_choice(device),
        listed("--models", str, models),
        split(recipes),
        trace=trace is not None,
        **settings,
    )
    cases = plan(asked)
    results = ResultFile(json_path)

    def show(console: Console) -> None:
        for panel in panels(results.rows, ("model", "workers", "rate")):
            model, workers, megabits = panel.settings.values()
            where = UNSHAPED if megabits is None else rate(megabits)
            title = f"{model}, {panel.rows[0]['parameters']:,} parameters, {workers} workers, "
            headings = (*HEADINGS, "loss", "steps")
            show_table(console, title + where, headings, map(_cells, panel.rows))
        left_out = [str(case) for case in cases[len(results.rows) :]]
        if left_out:
            console.print(f"left out: {'; '.join(left_out)}", soft_wrap=True)

    total = len(cases) * (asked.steps + asked.warmup) // 10
    carry_out(total, lambda watcher: run(asked, results, watcher, trace), show)


def _cells(row: Row) -> list[str]:
    density = row["density"]
    name = row["recipe"] + ("" if density is None else f"({density:g})")
    if row["error"] is not None:
        return [name, row["error"][:60]]
    sent, more = row["bytes_per_step"], row["memory_above_dense_bytes"]
    return [
        name,
        milliseconds(row["step_seconds"]),
        f"{milliseconds(row['step_seconds_p10'])} … {milliseconds(row['step_seconds_p90'])}",
        milliseconds(row["above_compute_seconds"]),
        optional(row["speedup_over_dense"], ".2f"),
        optional(None if sent is None else sent / 1e6, ",.2f"),
        optional(None if more is None else more / 1e6, ",.0f"),
        optional(row["final_loss"], ".3f"),
        str(row["steps"]),
    ]
