"""`thinwire bench codecs`. Hooked into `bench` by `bench.command()(codecs)`."""

from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from thinwire.bench.timing import Watcher
from thinwire.cli.console import carry_out, table
from thinwire.cli.options import Densities, JsonPath, PngPath, Seconds
from thinwire.cli.parse import elements, listed, number, split, whole
from thinwire.report.charts.png import refuse_without_matplotlib, save_sheet
from thinwire.results.file import ResultFile, Row

HEADINGS = ("bits", "entropy", "distance", "encode M/s", "decode M/s", "error")


def codecs(
    index: Annotated[
        str, typer.Option(help="Index codecs, separated by commas; all if not set.")
    ] = "",
    value: Annotated[
        str, typer.Option(help="Value codecs, separated by commas; all if not set.")
    ] = "",
    distributions: Annotated[
        str, typer.Option(help="Made-up selections: uniform,clustered; none if empty.")
    ] = "uniform,clustered",
    models: Annotated[
        str, typer.Option(help="Also selections from gradients of: text,digits; none if empty.")
    ] = "text,digits",
    steps: Annotated[
        str, typer.Option(help="At which steps of the models' training: 1,30.")
    ] = "1,30",
    n: Annotated[
        str, typer.Option("--n", help="Elements that made-up selections are from: 1m,25.6m.")
    ] = "4m",
    density: Densities = "0.01",
    seconds: Seconds = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of indices, values, weights and data.")] = 0,
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

    def show_all(console: Console) -> None:
        show(console, results.rows)
        for line in left_out:
            console.print(f"left out: {line}", markup=False)

    carry_out(total, measure, show_all)
    if png_path is not None:
        from thinwire.report.figures.codecs import codec_bits

        save_sheet(codec_bits(results.rows), png_path)


def show(console: Console, rows: list[Row]) -> None:
    """One table for each part and distribution, the fewest bits first."""

    def panel(row: Row) -> tuple[str, str, int, float]:
        return row["part"], row["distribution"], row["n"], row["density"]

    for (part, distribution, n, density), members in groupby(sorted(rows, key=panel), key=panel):
        title = f"{part}: {distribution}, {n:,} elements, density {density:g}"
        shown = table(title, "codec", *HEADINGS)
        for row in sorted(members, key=lambda row: row["bits_per_item"]):
            shown.add_row(*_cells(row))
        console.print(shown)


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
