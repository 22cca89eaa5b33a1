"""All that runs on a GPU, and its log: `make test-gpu`.

The tests of the pieces and kernels, in several processes, the laws over NCCL and the other tests of
this folder, all at once: they wait for compilers most of the time. The log begins with the commit
and the machine, and says what pytest says, without the paths of this machine.
"""

import argparse
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import TextIO

from support.nccl import why_not
from thinwire.results.origin import CHECKOUT, commit

PIECES = [
    "kernels",
    "codec",
    "sparsify",
    "feedback",
    "units",
    "engine",
    "frontends",
    "auto",
    "comm",
]
LAWS = "tests/gpu/test_laws.py"
TAKES_S = 900


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=4, help="processes for the pieces")
    parser.add_argument("--commit", help="where there is no git to ask")
    options = parser.parse_args()
    if reason := why_not():
        parser.error(reason)  # rather than a log of skips
    parallel = ["-n", str(options.jobs), "--dist", "loadfile"] if find_spec("xdist") else []
    pieces = [f"tests/{name}" for name in PIECES if (CHECKOUT / "tests" / name).is_dir()]
    parts = [
        [*pieces, "-k", "cuda or triton or gpu", *parallel],
        [LAWS, "-rs"],
        ["tests/gpu", f"--ignore={LAWS}", "-rs"],
    ]
    started = time.monotonic()
    with options.log.open("w") as log:
        say(log, f"commit {options.commit or commit()}, make test-gpu, {machine()}")
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(run, repeat(log), parts))
        took = time.monotonic() - started
        say(log, f"all parts in {took:.0f} s: {'failed' if any(results) else 'passed'}")
    return int(any(results))


def machine() -> str:
    import torch

    if not torch.cuda.is_available():
        card = "no GPU"
    else:
        driver = asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        card = f"{torch.cuda.get_device_name()}, driver {driver}, NCCL {nccl}"
    return f"{card}, torch {torch.__version__}, Triton {version_of('triton')}"


def asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def run(log: TextIO, arguments: list[str]) -> int:
    """One pytest, shown as it goes, and logged when it is over."""
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *arguments]
    lines = ["python3 " + subprocess.list2cmdline(command)]
    pytest = subprocess.Popen(
        [sys.executable, *command], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert pytest.stdout is not None
    try:
        for line in pytest.stdout:
            lines.append(line.rstrip())
            print(lines[-1], flush=True)
        return pytest.wait(timeout=TAKES_S)
    finally:
        print(*map(without_paths, lines), sep="\n", file=log, flush=True)
        if pytest.poll() is None:
            pytest.terminate()


def say(log: TextIO, line: str) -> None:
    print(line, flush=True)
    print(without_paths(line), file=log, flush=True)


def without_paths(line: str) -> str:
    """Of a path to this checkout, to installed packages or to a temporary folder, its end.

    >>> without_paths("/usr/lib/python3/site-packages/torch/cuda.py:3: UserWarning")
    'torch/cuda.py:3: UserWarning'
    """
    line = line.replace(f"{CHECKOUT}/", "")
    line = re.sub(r"/[^\s'\"]*/(?:site|dist)-packages/", "", line)
    return re.sub(r"/(?:tmp|root|home|usr|opt|var|work)/[^\s'\":,]*/", "", line).rstrip()


if __name__ == "__main__":
    sys.exit(main())
