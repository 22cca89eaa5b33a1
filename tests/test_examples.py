"""Every file in examples/ runs as its docstring says, with two processes, or on two nodes.

Those of frameworks are short, and differ from what is in examples/uncompressed by a line or two.
"""

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.extras import needs

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
SAYS = {
    "adam.py": "dense would have sent",
    "auto.py": "step  80  loss",
    "checkpoint.py": "equals the one that never stopped: True",
    "ddp.py": "dense would have sent",
    "elastic.py": "2 ranks saved step 100",
    "embedding.py": "dense would have sent",
    "outer.py": "the nodes met 8 times in 120 steps",
    "with_accelerate.py": "step 20  loss",
    "with_fsdp.py": "step 60  loss",
    "with_lightning.py": "step 20  loss",
    "with_trainer.py": "step 20  loss",
    "without_ddp.py": "step 40  loss",
}
"""What rank 0 prints when it got to the end."""


PYTHON = sys.executable
TWO_PROCESSES = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LAB = [PYTHON, "-c", "from thinwire.cli.app import main; main()", "lab", "--loopback"]
TWO_NODES = [*LAB, "--workers=4", "--nodes=2", "--", PYTHON, "-m", "torch.distributed.run"]


NODES = {"outer.py", "with_fsdp.py"}
NEEDS = {
    "with_accelerate.py": ["accelerate", "transformers"],
    "with_lightning.py": ["lightning"],
    "with_trainer.py": ["accelerate", "transformers"],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(*NEEDS.get(name, []))) for name in SAYS]
)
def test_it_runs(name: str) -> None:
    torchrun = TWO_NODES if name in NODES else TWO_PROCESSES
    done = subprocess.run(
        [*torchrun, str(FOLDER / name)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout


PLAIN = sorted(file.name for file in (FOLDER / "uncompressed").glob("*.py"))


def code(file: Path) -> list[str]:
    """Its lines below the docstring; blank ones do not count."""
    text = file.read_text()
    end = ast.parse(text).body[0].end_lineno or 0
    return [line for line in text.splitlines()[end:] if line.strip()]


@pytest.mark.parametrize("name", PLAIN)
def test_an_example_is_short_and_three_lines_from_the_uncompressed(name: str) -> None:
    ours, theirs = code(FOLDER / name), code(FOLDER / "uncompressed" / name)
    changed = [line for line in difflib.ndiff(theirs, ours) if line[0] in "+-"]
    assert 0 < len(changed) <= 3
    assert len((FOLDER / name).read_text().splitlines()) <= 60
