"""Numbers and settings as a reader wants them."""

from typing import Any


def short(value: float) -> str:
    """1500 → 1.5k: a tick's label."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """0.00025 → 250 µs."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0"


def optional(value: float | None, form: str) -> str:
    """Nothing where there is no value."""
    return "" if value is None else f"{value:{form}}"


def milliseconds(seconds: float | None) -> str:
    return optional(None if seconds is None else 1000 * seconds, ".1f")


def rate(megabits: float) -> str:
    return f"{megabits / 1000:g} Gbit/s" if megabits >= 1000 else f"{megabits:g} Mbit/s"


def setting(field: str, value: Any) -> str:
    """One setting in words; nothing where it was not set."""
    if field == "rate":
        return "loopback" if value is None else rate(value)
    if value is None:
        return ""
    match field:
        case "workers" | "threads" | "payloads":
            return f"{value} {field if value != 1 else field[:-1]}"
        case "steps":
            return f"{value:,} steps"
        case "samples_per_step":
            return f"{value:,} examples each"
        case "n":
            return f"{short(value)} elements"
        case "density":
            return f"density {value:g}"
        case "alpha":
            return f"α {duration(value)}"
        case "beta":
            return f"β {duration(value)}/byte"
        case "compute_seconds":
            return f"{duration(value)} of compute" if value else ""
        case "overlap" if isinstance(value, bool):
            return "overlapped" if value else "not overlapped"
        case "overlap":
            return f"overlap {value}"
    return str(value)
