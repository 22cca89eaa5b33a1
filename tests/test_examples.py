"""Every file in examples/ runs as its docstring says, with two processes, or on two nodes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    "without_ddp.py": "step 40  loss",
}
"""What rank 0 prints when it got to the end."""


PYTHON = sys.executable
TWO_PROCESSES = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LAB = [PYTHON, "-c", "from thinwire.cli.app import main; main()", "lab", "--loopback"]
TWO_NODES = [*LAB, "--workers=4", "--nodes=2", "--", PYTHON, "-m", "torch.distributed.run"]


@pytest.mark.parametrize("name", SAYS)
def test_it_runs(name: str) -> None:
    torchrun = TWO_NODES if name == "outer.py" else TWO_PROCESSES
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
