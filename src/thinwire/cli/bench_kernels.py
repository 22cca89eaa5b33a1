"""`thinwire bench kernels`."""

from typing import Annotated

from rich.console import Console
from typer import Option

from thinwire.bench.timing import Watcher
from thinwire.cli.console import carry_out, show_table
from thinwire.cli.options import Densities, JsonPath, PngPath, Seconds
from thinwire.cli.parse import elements, listed, number, whole
from thinwire.report.charts.png import refuse_without_matplotlib, save_sheet
from thinwire.results.file import ResultFile, Row

HEADINGS = ("op", "impl", "n", "density", "threads", "ms", "iqr", "floor ms", "ratio", "first s")


def kernels(
    device: Annotated[str, Option(help="cuda or cpu; if not set cuda where there is one.")] = "",
    n: Annotated[str, Option("--n", help="Elements: 2^20,25.6m.")] = "2^20,2^22,2^24",
    density: Densities = "0.0001,0.001,0.01",
    threads: Annotated[str, Option(help="Numbers of threads, on the CPU: 1,2.")] = "1",
    ops: Annotated[str, Option(help="Operations, separated by semicolons; all if not set.")] = "",
    seconds: Seconds = 0.3,
    json_path: JsonPath = None,
    png_path: PngPath = None,
) -> None:
    """Time every kernel, beside its floor and the same work in torch operations."""
    from thinwire.bench.kernels.run import Settings, cold_caches, default_device, plan, run

    settings = Settings(
        device=device or default_device(),
        n=listed("--n", elements, n),
        density=listed("--density", number, density),
        threads=listed("--threads", whole, threads),
        ops=tuple(name for part in ops.split(";") if (name := part.strip())),
        seconds=seconds,
    )
    if png_path is not None:
        refuse_without_matplotlib()
    cases = plan(settings)
    results = ResultFile(json_path)

    def measure(watcher: Watcher) -> list[str]:
        with cold_caches():
            return run(settings, results, watcher)

    def show(console: Console) -> None:
        show_table(console, None, HEADINGS, map(_cells, results.rows))
        if png_path is not None:
            from thinwire.report.figures.kernels import kernel_ratios

            save_sheet(kernel_ratios(results.rows), png_path)

    carry_out(len(cases), measure, show)


def _cells(row: Row) -> list[str]:
    return [
        row["op"] if row["payloads"] is None else f"{row['op']} {row['payloads']}",
        row["impl"],
        f"{row['n']:,}",
        f"{row['density']:g}",
        "" if row["threads"] is None else str(row["threads"]),
        f"{1000 * row['seconds']:.4f}",
        f"{1000 * row['seconds_iqr']:.4f}",
        f"{1000 * row['floor_seconds']:.4f}",
        f"{row['ratio']:.2f}",
        f"{row['first_seconds']:.2f}",
    ]
