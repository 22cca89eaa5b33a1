"""What a reader needs to judge timings by."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe_machine() -> dict[str, object]:
    """The machine, the versions that matter, and how busy it is right now."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib("MemTotal"),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numba", "thinwire")},
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory_gib() -> float | None:
    """What could be used without swapping; None where the system does not say."""
    return _memory_gib("MemAvailable")


def _cpu() -> str:
    return _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory_gib(field: str) -> float | None:
    kib = _field("/proc/meminfo", field)
    return None if kib is None else round(int(kib.split()[0]) / 2**20, 1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _field(path: str, name: str) -> str | None:
    """What the first line of a file says that has this name before a colon."""
    pairs = (line.partition(":") for line in _lines(path))
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
