"""Tables that compare rows with each other, as Markdown: `auto`, seeds, and simulated exchanges."""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from thinwire.format import duration, optional, setting, short
from thinwire.report.panels import by_series
from thinwire.report.papers import markdown
from thinwire.results.file import Row

BASELINES = ("dense", "torch-dense")
NOT_NAMED = (*BASELINES, "auto")


def auto_table(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """`auto` beside dense and the fastest recipe by name, in ms, on each link and at each size."""
    lines = []
    for rate in sorted({row["rate"] for row in rows}, key=lambda rate: -(rate or 1e9)):
        for n in sorted({row["n"] for row in rows}):
            here = {r["recipe"]: r for r in rows if (r["rate"], r["n"]) == (rate, n)}
            auto = here["auto"]
            named = (row for recipe, row in here.items() if recipe not in NOT_NAMED)
            best = min(named, key=lambda row: row["seconds"])
            shares = [auto["seconds"] / other["seconds"] for other in (here["dense"], best)]
            lines.append(
                [
                    setting("rate", rate),
                    short(n),
                    *(_milliseconds(here[name]) for name in ("torch-dense", "dense", "auto")),
                    ", ".join(auto["decision"]["choice"]).replace(" | ", " with "),
                    f"{best['recipe']} {_milliseconds(best)}",
                    *(f"{share:.2f}" for share in shares),
                ]
            )
    heads = ("link", "elements", "torch-dense", "dense", "auto", "chosen", "best by name")
    return markdown((*heads, "auto / dense", "auto / best"), lines)


def _milliseconds(row: Row) -> str:
    low, high = (f"{1000 * row[f'seconds_{end}']:.1f}" for end in ("min", "max"))
    return f"{1000 * row['seconds']:.1f} ({low} … {high})"


def seeds_table(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """Losses over seeds, and how far behind dense with the same seed; `what`: recipes, or all."""
    names = None if what == "all" else {*BASELINES, *what.split(",")}
    groups: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        if names is None or row["recipe"] in names:
            groups.setdefault((row["recipe"], _density(row)), []).append(row)
    baseline = next(members for (name, _), members in groups.items() if name in BASELINES)
    dense = {row["seed"]: _loss(row) for row in baseline}
    order = list(dict.fromkeys(name for name, _ in groups))
    lines = []
    for (recipe, density), members in sorted(
        groups.items(), key=lambda group: (order.index(group[0][0]), group[0][1] or 0)
    ):
        behind = [_loss(row) - dense[row["seed"]] for row in members]
        block = (members[0].get("settings") or {}).get("block")
        accuracies = [100 * row["accuracy"] for row in members if "accuracy" in row]
        told = [_spread(accuracies, 1, stdev)] if accuracies else []
        sent = mean(row["bytes_sent_per_rank"] / row["step"] for row in members)
        lines.append(
            [
                recipe + (f", blocks of {block}" if block else ""),
                optional(density, "g"),
                _spread([_loss(row) for row in members], 3, stdev),
                "" if members is baseline else _spread(behind, 4, _standard_error),
                *told,
                f"{sent / 1e6:.2f}",
            ]
        )
    accuracy = ("accuracy, %",) if any("accuracy" in row for row in rows) else ()
    heads = ("", "ρ", "loss", "behind dense, same seed", *accuracy)
    return markdown((*heads, "MB per rank and step"), lines)


def _density(row: Row) -> float | None:
    density: float | None = (row.get("settings") or row).get("density")
    return density


def _loss(row: Row) -> float:
    loss: float = row["held_out_loss"] if "held_out_loss" in row else row["final_loss"]
    return loss


def _standard_error(values: Sequence[float]) -> float:
    return stdev(values) / sqrt(len(values))


def _spread(values: Sequence[float], digits: int, error: Any) -> str:
    return f"{mean(values):.{digits}f} ± {error(values):.{digits}f}"


def simulate_table(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """Exchanges in the α-β model: a line for each recipe and number of workers."""
    lines = []
    for (recipe, alike), members in _grouped(rows, ("recipe", "alike")):
        for row in members:
            dense = next(
                r
                for r in rows
                if r["recipe"] == "dense"
                and all(r.get(field) == row.get(field) for field in ("workers", "n", "alike"))
            )
            lines.append(
                [
                    f"`{recipe}`".replace("|", "\\|"),
                    *([f"{alike:g}"] if what == "alike" else []),
                    f"{row['n']:,}",
                    str(row["workers"]),
                    duration(row["seconds"]),
                    f"{short(row['bytes_per_rank'])}B",
                    f"{row['seconds'] / dense['seconds']:.3f}",
                    f"{row['bytes_per_rank'] / dense['bytes_per_rank']:.4f}",
                ]
            )
    heads = ("recipe", *(["alike"] if what == "alike" else []), "elements", "workers")
    return markdown((*heads, "time", "bytes", "of dense's time", "of dense's bytes"), lines)


def _grouped(rows: Sequence[Row], fields: tuple[str, str]) -> Iterable[tuple[Any, list[Row]]]:
    first, second = fields
    for value, members in by_series(rows, first).items():
        for other in dict.fromkeys(row.get(second) for row in members):
            yield (value, other), [row for row in members if row.get(second) == other]
