"""`thinwire bench codecs`."""

from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.bench.timing import Watcher
from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import Densities, JsonPath, PngPath, Seconds, Seed
from thinwire.cli.parse import elements, listed, number, split, whole
from thinwire.report.charts.png import refuse_without_matplotlib, save_sheet
from thinwire.report.panels import panels
from thinwire.results.file import ResultFile, Row

HEADINGS = ("codec", "bits", "entropy", "distance", "encode M/s", "decode M/s", "error")


def codecs(
    index: Annotated[str, Option(help="Index codecs, separated by commas; all if not set.")] = "",
    value: Annotated[str, Option(help="Value codecs, separated by commas; all if not set.")] = "",
    distributions: Annotated[
        str, Option(help="Made-up selections: uniform,clustered; none if empty.")
    ] = "uniform,clustered",
    models: Annotated[
        str, Option(help="Also selections from gradients of: text,digits; none if empty.")
    ] = "text,digits",
    steps: Annotated[str, Option(help="At which steps of the models' training: 1,30.")] = "1,30",
    n: Annotated[
        str, Option("--n", help="Elements that made-up selections are from: 1m,25.6m.")
    ] = "4m",
    density: Densities = "0.01",
    seconds: Seconds = 0.05,
    seed: Seed = 0,
    json_path: JsonPath = None,
    png_path: PngPath = None,
) -> None:
    """Measure every codec: bits, beside the entropy, speed on one core, and error."""
    from thinwire.bench.codecs.run import Settings, plan, run

    settings = Settings(
        index=split(index),
        value=split(value),
        synthetic=split(distributions),
        models=split(models),
        steps=listed("--steps", whole, steps),
        n=listed("--n", elements, n),
        density=listed("--density", number, density),
        seconds=seconds,
        seed=seed,
    )
    if png_path is not None:
        refuse_without_matplotlib()
    chosen, left_out, total = plan(settings)
    results = ResultFile(json_path)

    def measure(watcher: Watcher) -> list[str]:
        run(settings, chosen, results, watcher)
        return []

    def show(console: Console) -> None:
        _show_panels(console, results.rows)
        for line in left_out:
            console.print(f"left out: {line}", markup=False)
        if png_path is not None:
            from thinwire.report.figures.codecs import codec_bits

            save_sheet(codec_bits(results.rows), png_path)

    carry_out(total, measure, show)


def _show_panels(console: Console, rows: list[Row]) -> None:
    """One table for each part and distribution, the fewest bits first."""
    for panel in sorted(
        panels(rows, ("part", "distribution", "n", "density")),
        key=lambda panel: list(panel.settings.values()),
    ):
        part, distribution, n, density = panel.settings.values()
        title = f"{part}: {distribution}, {n:,} elements, density {density:g}"
        lines = sorted(panel.rows, key=lambda row: row["bits_per_item"])
        show_table(console, title, HEADINGS, map(_cells, lines))


def _cells(row: Row) -> list[str]:
    return [
        row["codec"],
        f"{row['bits_per_item']:.3f}",
        f"{row['entropy_bits']:.3f}",
        f"{row['distance_bits']:+.3f}",
        f"{row['encode_items_per_s'] / 1e6:.1f}",
        f"{row['decode_items_per_s'] / 1e6:.1f}",
        f"{row['relative_error']:.2g}",
    ]
