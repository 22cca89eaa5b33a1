"""Tables of the benches' rows, as Markdown: codecs, kernels, synchronisations and training."""

from collections.abc import Mapping, Sequence
from typing import Any

from thinwire.format import optional, setting
from thinwire.report.panels import by_series
from thinwire.report.papers import markdown
from thinwire.results.file import Row

UNIFORM, REAL = "uniform", "text, step 30"


def codecs_table(rows: Sequence[Row], part: str, origin: Mapping[str, Any]) -> str:
    """The index or the value codecs: on made-up selections, and on a gradient in training."""
    made, real = (
        {row["codec"]: row for row in rows if (row["part"], row["distribution"]) == (part, kind)}
        for kind in (UNIFORM, REAL)
    )
    order = sorted(made.values(), key=lambda row: (-row["bits_per_item"], row["codec"]))
    entropy = next(iter(made.values()))["entropy_bits"]
    middle = (
        (f"over the entropy ({entropy:.2f})", "bits, real gradient")
        if part == "index"
        else ("relative error", "relative error, real gradient")
    )
    lines = []
    for row in reversed(order):
        other = real[row["codec"]]
        if part == "index":
            told = [f"{row['bits_per_item'] - entropy:+.2f}", f"{other['bits_per_item']:.2f}"]
        else:
            told = [f"{each['relative_error']:.3g}" for each in (row, other)]
        speeds = [f"{row[f'{way}_items_per_s'] / 1e6:,.0f}" for way in ("encode", "decode")]
        lines.append([row["codec"], f"{row['bits_per_item']:.2f}", *told, *speeds])
    heads = (f"{part} codec", "bits, uniform", *middle, "encode, M/s", "decode, M/s")
    return markdown(heads, lines)


def kernels_table(rows: Sequence[Row], density: str, origin: Mapping[str, Any]) -> str:
    """The operations on the largest tensor, at one density."""
    largest = max(row["n"] for row in rows)
    chosen = [row for row in rows if row["n"] == largest and row["density"] == float(density)]
    lines = [
        [
            row["op"] + ("" if row.get("payloads") is None else f" {row['payloads']}"),
            row["impl"],
            optional(row.get("threads"), "d"),
            f"{1000 * row['seconds']:.3g}",
            f"{1000 * row['floor_seconds']:.3g}",
            f"{row['ratio']:.3g}",
        ]
        for row in chosen
    ]
    return markdown(("operation", "implementation", "threads", "ms", "floor, ms", "× floor"), lines)


def encode_table(rows: Sequence[Row], pair: str, origin: Mapping[str, Any]) -> str:
    """Two whole recipes by size, on average and at their least, and the second against the first.

    `pair` is their names: `dgc,dragonn`.
    """
    names = pair.split(",")
    found = {(row["op"].removeprefix("encode "), row["n"]): row for row in rows}
    lines = []
    for size in sorted({row["n"] for row in rows}):
        both = [found[name, size] for name in names]
        times = [f"{1e3 * r['seconds']:.3g} (least {1e3 * r['seconds_min']:.3g})" for r in both]
        more = [both[1][field] / both[0][field] - 1 for field in ("seconds", "seconds_min")]
        lines.append([f"{size:,}", *times, *(f"{100 * share:+.0f} %" for share in more)])
    first, second = names
    against = ("on average", f"{second}'s least against {first}'s")
    return markdown(("elements", f"{first}, ms", f"{second}, ms", *against), lines)


def sync_table(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """Recipes by where they were measured: `seconds`, or `bytes` sent per rank.

    `seconds:topk,gtopk` are those of some recipes.
    """
    what, _, names = what.partition(":")
    rows = [row for row in rows if not names or row["recipe"] in names.split(",")]
    places = list(dict.fromkeys(_place(row) for row in rows))
    lines = []
    for recipe, members in by_series(rows, "recipe").items():
        here = {_place(row): row for row in members}
        lines.append([recipe, *(_synchronised(here.get(place), what) for place in places)])
    return markdown(("", *(", ".join(place) for place in places)), lines)


def _place(row: Row) -> tuple[str, ...]:
    return setting("workers", row["workers"]), setting("rate", row["rate"])


def _synchronised(row: Row | None, what: str) -> str:
    if row is None:
        return ""
    if what == "bytes":
        return optional(row["bytes_sent_per_rank"] / 1000, ",.0f") + " KB"
    low, high = (f"{row[f'seconds_{end}']:.3f}" for end in ("min", "max"))
    return f"{row['seconds']:.3f} s ({low} … {high})"


def train_table(rows: Sequence[Row], what: str, origin: Mapping[str, Any]) -> str:
    """Whole runs; `what` is a model, or all."""
    ends = [row for row in rows if "step_seconds" in row and what in ("all", row["model"])]
    learns = any(row["final_loss"] is not None for row in ends)
    told = ("steps", "loss at the end", "s to the baseline's", "× to it") if learns else ()
    lines = []
    for row in ends:
        low, high = (f"{1000 * row[f'step_seconds_{end}']:.0f}" for end in ("min", "max"))
        overlap = "" if row["overlap"] else ", no overlap"
        more = [
            str(row["steps"]),
            optional(row["final_loss"], ".3f"),
            optional(row["seconds_to_target"], ".2f") or "never",
            optional(row["speedup_to_target"], ".2f"),
        ]
        lines.append(
            [
                row["model"] + overlap,
                row["recipe"],
                f"{1000 * row['step_seconds']:.0f} ({low} … {high})",
                f"{row['bytes_sent_per_rank'] / row['steps'] / 1e6:.2f}",
                optional(row["speedup_over_dense"], ".2f"),
                *(more if learns else []),
            ]
        )
    heads = ("model", "recipe", "ms per step", "MB sent per rank and step", "× torch-dense")
    return markdown((*heads, *told), lines)
