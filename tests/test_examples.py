"""Every file in examples/ runs with what torchrun gives it, and one of them by torchrun itself.

They are short, and differ by two or three lines from what is in examples/uncompressed. Those do not
run here: on a busy machine ddp.py, PyTorch's own DDP over Gloo, hung at its end in 3 runs of 14.
"""

import argparse
import ast
import difflib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from support.extras import needs
from support.stage import FRAMEWORKS, Stage

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
SAYS = {
    "adam.py": "bytes, dense",
    "auto.py": "after 80 steps",
    "checkpoint.py": "equals the one that never stopped: True",
    "ddp.py": "step  80  loss",
    "elastic.py": "2 ranks saved step 100",
    "embedding.py": "bytes, dense",
    "outer.py": "step 119  loss",
    "with_accelerate.py": "step 20  loss",
    "with_fsdp.py": "step 60  loss",
    "with_jax.py": "step 40  loss",
    "with_lightning.py": "step 20  loss",
    "with_ray.py": "",  # starts its processes itself: tests/frontends/test_ray.py
    "with_trainer.py": "step 20  loss",
    "with_torchft.py": "",  # starts its processes itself: tests/frontends/test_torchft.py
    "without_ddp.py": "step 40  loss",
}
"""What rank 0 prints when it got to the end."""


RANKS = {"outer.py": (4, 2), "with_fsdp.py": (4, 1)}
"""How many, on how many nodes, where it is not two on one."""

NEEDS = {
    "with_accelerate.py": ["accelerate", "transformers"],
    "with_jax.py": ["jax"],
    "with_lightning.py": ["lightning"],
    "with_trainer.py": ["accelerate", "transformers"],
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage(*FRAMEWORKS)
    yield stage
    stage.close()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs(*NEEDS.get(name, []))) for name in filter(SAYS.get, SAYS)],
)
def test_it_runs(stage: Stage, name: str) -> None:
    ranks, nodes = RANKS.get(name, (2, 1))
    done = stage.run(FOLDER / name, ranks, nodes)
    assert done.codes == [0] * ranks, done.printed
    assert SAYS[name] in done.printed
    if name == "outer.py":  # the last step ends a round: the nodes have met; lines may run together
        ends = re.findall(r"the weights' sum is (-?\d+\.\d{9})", done.printed)
        assert len(ends) == ranks and len(set(ends)) == 1


def test_torchrun_starts_them_as_their_docstrings_say() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(FOLDER / "ddp.py")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS["ddp.py"] in done.stdout


PLAIN = sorted(file.name for file in (FOLDER / "uncompressed").glob("*.py"))
WITHOUT_TWIN = {
    "elastic.py": "what waits is saved, loaded and added up by hand, to show that it is kept",
    "with_jax.py": "JAX has ranks of its own, and a mean of its own: test_jax.py compares with it",
    "with_torchft.py": "thinwire takes the place of torchft's process group and of its allreduce",
}
"""And why: those are not a script that thinwire was added to."""


def test_an_example_has_an_uncompressed_twin_or_a_reason() -> None:
    assert set(PLAIN) | set(WITHOUT_TWIN) == set(SAYS)
    assert set(PLAIN).isdisjoint(WITHOUT_TWIN)


def code(file: Path) -> list[str]:
    """Its lines below the docstring; blank ones do not count."""
    text = file.read_text()
    end = ast.parse(text).body[0].end_lineno or 0
    return [line for line in text.splitlines()[end:] if line.strip()]


@pytest.mark.parametrize("name", PLAIN)
def test_an_example_is_three_lines_from_the_uncompressed(name: str) -> None:
    ours, theirs = code(FOLDER / name), code(FOLDER / "uncompressed" / name)
    changed = [line for line in difflib.ndiff(theirs, ours) if line[0] in "+-"]
    assert 0 < len(changed) <= 3
    assert not any("thinwire" in line or "tw." in line for line in theirs)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_is_short(name: str) -> None:
    assert len((FOLDER / name).read_text().splitlines()) <= 60


def torchrun_reads(command: list[str]) -> argparse.Namespace:
    """What torchrun makes of a command that a launcher gives it."""
    assert Path(command[0]).name == "torchrun"
    return get_args_parser().parse_args(command[1:])


def test_slurm_starts_one_torchrun_a_node_with_a_common_meeting_point(tmp_path: Path) -> None:
    """Slurm's own commands are stand-ins; `srun` writes down what it was to start."""
    stand_ins = {"scontrol": "printf 'n7\\nn8\\n'", "srun": 'printf "%s\\n" "$@"'}
    for name, does in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_NODELIST": "n[7-8]", "NNODES": "2", "GPUS_ON_NODE": "8", "JOB_ID": "5"}
    done = subprocess.run(
        ["bash", "-eu", str(FOLDER / "launch" / "slurm.sbatch")],
        env={f"SLURM_{name}": value for name, value in slurm.items()}
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    read = torchrun_reads(done.stdout.splitlines())
    assert (read.nnodes, read.nproc_per_node, read.training_script) == ("2", "8", "train.py")
    assert (read.rdzv_backend, read.rdzv_endpoint, read.rdzv_id) == ("c10d", "n7:29500", "5")


@needs("yaml")
def test_kubernetes_starts_torchrun_which_reads_what_the_operator_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import yaml

    job = yaml.safe_load((FOLDER / "launch" / "pytorchjob.yaml").read_text())
    workers = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == int(job["spec"]["nprocPerNode"])
    monkeypatch.setenv("PET_NNODES", str(workers["replicas"]))
    monkeypatch.setenv("PET_NPROC_PER_NODE", job["spec"]["nprocPerNode"])
    read = torchrun_reads(container["command"])
    assert (read.nnodes, read.nproc_per_node, read.training_script) == ("4", "8", "train.py")
