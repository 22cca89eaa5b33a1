"""`thinwire bench kernels`, hooked into bench/command.py."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from thinwire.errors import ThinwireError


def kernels(
    device: Annotated[str, typer.Option(help="cuda or cpu; by default cuda where it is.")] = "",
    n: Annotated[str, typer.Option("--n", help="Elements: 2^20,2^27.")] = "2^20,2^22,2^24",
    density: Annotated[str, typer.Option(help="Of what is selected.")] = "0.0001,0.001,0.01",
    threads: Annotated[str, typer.Option(help="On the CPU: 1,2.")] = "1",
    ops: Annotated[str, typer.Option(help="Separated by semicolons; all if empty.")] = "",
    seconds: Annotated[float, typer.Option(min=0, help="Of each measurement.")] = 0.3,
    json_path: Annotated[Path | None, typer.Option("--json", help="Results, as they come.")] = None,
    png_path: Annotated[Path | None, typer.Option("--png", help="A roofline plot.")] = None,
) -> None:
    """Time every kernel, beside its floor and the same work in torch operations."""
    import torch

    from thinwire.bench.command import elements, number, split
    from thinwire.bench.kernels import HEADINGS, Settings, as_cells, cold_caches, plan, run, size
    from thinwire.bench.progress import plain_console, watch
    from thinwire.results import ResultFile

    settings = Settings(
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
        n=tuple(size(word) if "^" in word else elements(word) for word in split(n)),
        density=tuple(number(word) for word in split(density)),
        threads=tuple(elements(word) for word in split(threads)),
        ops=tuple(word.strip() for word in ops.split(";") if word.strip()),
        seconds=seconds,
    )
    console = plain_console()
    results = ResultFile(json_path)
    shown, watcher = watch(console, len(plan(settings)))
    failures: list[str] = []
    try:
        with shown, cold_caches():
            failures = run(settings, results, watcher)
    finally:
        table = Table(*HEADINGS, box=box.SIMPLE)
        for row in results.rows:
            table.add_row(*as_cells(row))
        console.print(table)
    if png_path is not None:
        from thinwire.bench.kernels_plot import draw

        draw(results.rows, png_path)
    if failures:
        raise ThinwireError("\n".join(failures))
