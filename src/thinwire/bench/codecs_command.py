"""`thinwire bench codecs`. Hooked into `bench` by `bench.command()(codecs)`."""

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from thinwire.results import Row

HEADINGS = ("bits", "entropy", "distance", "encode M/s", "decode M/s", "error")


def codecs(
    index: Annotated[str, typer.Option(help="Index codecs, by commas; all if empty.")] = "",
    value: Annotated[str, typer.Option(help="Value codecs, by commas; all if empty.")] = "",
    distributions: Annotated[str, typer.Option(help="uniform, clustered.")] = "uniform,clustered",
    models: Annotated[str, typer.Option(help="Gradients of: text, digits.")] = "text,digits",
    steps: Annotated[str, typer.Option(help="At these steps of their training.")] = "1,30",
    n: Annotated[str, typer.Option("--n", help="Elements: 1m,25.6m.")] = "4m",
    density: Annotated[str, typer.Option(help="Of what is selected.")] = "0.01",
    seconds: Annotated[float, typer.Option(min=0, help="Of each measurement.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Of indices, values, weights and data.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Results, as they come.")] = None,
    png_path: Annotated[Path | None, typer.Option("--png", help="Bits and errors, drawn.")] = None,
) -> None:
    """Measure every codec: bits, beside the entropy, speed on one core, and error."""
    from thinwire.bench.codecs import Settings, count_rows, entries, run
    from thinwire.bench.command import elements, number, split
    from thinwire.bench.progress import plain_console, watch
    from thinwire.results import ResultFile

    settings = Settings(
        index=split(index),
        value=split(value),
        synthetic=check_kinds(split(distributions)),
        models=split(models),
        steps=tuple(elements(word) for word in split(steps)),
        n=tuple(elements(word) for word in split(n)),
        density=tuple(number(word) for word in split(density)),
        seconds=seconds,
        seed=seed,
    )
    console = plain_console()
    chosen, left_out = entries(settings)
    results = ResultFile(json_path)
    shown, watcher = watch(console, count_rows(settings, chosen))
    try:
        with shown:
            run(settings, chosen, results, watcher)
    finally:
        show(console, results.rows)
    for line in left_out:
        console.print(f"left out: {line}", markup=False)
    if png_path is not None:
        from thinwire.bench.codecs_plot import draw

        draw(results.rows, png_path)


def check_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a distribution that there is none of."""
    from thinwire.bench.codecs_data import SYNTHETIC
    from thinwire.errors import ThinwireError

    for kind in kinds:
        if kind not in SYNTHETIC:
            raise ThinwireError(f"unknown distribution {kind!r}; there are {', '.join(SYNTHETIC)}")
    return kinds


def show(console: Console, rows: list[Row]) -> None:
    """One table for each part and distribution, the fewest bits first."""

    def panel(row: Row) -> tuple[str, str, int, float]:
        return row["part"], row["distribution"], row["n"], row["density"]

    for (part, distribution, n, density), members in groupby(sorted(rows, key=panel), key=panel):
        title = f"{part}: {distribution}, {n:,} elements, density {density:g}"
        table = Table(title=title, box=box.SIMPLE, title_justify="left")
        table.add_column("codec", no_wrap=True)
        for heading in HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for row in sorted(members, key=lambda row: row["bits_per_item"]):
            table.add_row(*_cells(row))
        console.print(table)


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
