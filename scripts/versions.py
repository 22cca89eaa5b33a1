"""Run the tests of the front ends with the versions of one environment, and note what came of it.

    PYTHONPATH=src:tests ENVIRONMENT/bin/python scripts/versions.py lowest

adds a row to docs/results/versions.json, in the place of an earlier one of the same name. With
`--wheel` nothing of the checkout is used: the environment has the wheel installed, and runs a
short `thinwire demo`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "results" / "versions.json"
PACKAGES = ("torch", "numpy", "numba", "accelerate", "transformers", "lightning", "ray", "triton")
TESTS = [
    f"tests/frontends/test_{name}.py"
    for name in ("torch_private", "fsdp", "wrap", "accelerate", "transformers", "lightning")
]
DEMO = ["demo", "--workers", "2", "--steps", "10", "--recipes", "topk(0.01)", "--rate", "none"]
TAKES_S = 3000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the environment")
    parser.add_argument("--wheel", action="store_true", help="try the installed package alone")
    parser.add_argument("tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    started = time.monotonic()
    row = demo_of_the_wheel() if options.wheel else tests_pass(options.tests)
    row = {
        "environment": options.name,
        "python": sys.version.split()[0],
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "commit": commit(),
        **row,
        "seconds": round(time.monotonic() - started),
    }
    add(row)
    print(json.dumps(row, indent=1))
    return 0 if row["ok"] else 1


def tests_pass(tests: list[str]) -> dict[str, object]:
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "-rfs", *tests]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=TAKES_S
    )
    print(done.stdout[-6000:], done.stderr[-2000:], sep="\n")
    counts = {
        kind: int(n)
        for n, kind in re.findall(
            r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1]
        )
    }
    return {"command": "python " + " ".join(command), "ok": done.returncode == 0, **counts}


def demo_of_the_wheel() -> dict[str, object]:
    """From an empty folder, so that nothing but the environment is found."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        thinwire = Path(sys.executable).with_name("thinwire")
        done = subprocess.run(
            [thinwire, *DEMO],
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
            timeout=TAKES_S,
        )
        page = Path(folder, "runs", "demo", "index.html").is_file()
    print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    return {
        "command": "thinwire " + " ".join(DEMO),
        "ok": done.returncode == 0 and page,
        "thinwire": installed("thinwire"),
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, timeout=20).stdout.strip()


SHOWN = ("torch", "accelerate", "transformers", "lightning")


def line(row: dict[str, Any]) -> str:
    """A row as the table of docs/doors.md has it."""
    counts = [f"{row[kind]} {kind}" for kind in ("passed", "failed", "skipped") if kind in row]
    outcome = ", ".join(counts) or ("the demo ran" if row["ok"] else "the demo failed")
    versions = [row["packages"].get(name, "") for name in SHOWN]
    return f"| {' | '.join([row['environment'], row['python'], *versions, outcome])} |"


def add(row: dict[str, object]) -> None:
    before = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    rows = [one for one in before if one["environment"] != row["environment"]] + [row]
    FILE.write_text(json.dumps({"schema": 1, "machine": {}, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
