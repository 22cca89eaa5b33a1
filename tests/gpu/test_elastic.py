"""torchrun's elastic restart in the lab: a rank is killed, and three go on with what four had.

    python3 -m pytest tests/gpu/test_elastic.py

THINWIRE_TEST_GPU_ON_CPU=1 runs the same over Gloo.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from support.elastic import follow, kill
from support.elastic_lab import STEPS
from support.nccl import DEVICE, ON_CPU
from thinwire.lab import Lab, unavailable
from thinwire.lab.watcher import marked

RANKS, VICTIM = 4, 1
DEADLINE_S = 240 if ON_CPU else 60  # of a rank; a machine without a card may have few cores
END_S = 30  # for agents whose ranks are done


def test_a_killed_rank_s_group_goes_on_with_the_others(tmp_path: Path) -> None:
    if reason := unavailable():
        pytest.skip(f"no lab here: {reason}")
    variables = {
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Who is killed in a kernel may spoil the MPS server, and the next ranks need one at once:
        # without it they take turns on the card.
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "no-mps"),
    }
    words = ["-m", "support.elastic_lab", "agent", str(DEADLINE_S), tmp_path.name]
    errors, (reads, writes) = tmp_path / "errors", os.pipe()
    with Lab(RANKS, None, gpu=DEVICE == "cuda") as lab, os.fdopen(reads) as lines:
        with os.fdopen(writes, "w") as stdout, errors.open("w") as stderr:
            agents = lab.start(
                [sys.executable, *words], env=variables, stdout=stdout, stderr=stderr
            )
        story = follow(lines, RANKS, lambda: kill(agents[VICTIM].pid))  # to the last one's end
        codes = [agent.wait(END_S) for agent in agents]
        left = marked(lab.name)
    assert codes == [-signal.SIGKILL if i == VICTIM else 0 for i in range(RANKS)], (
        errors.read_text()
    )
    assert not left
    assert [ranks for ranks, _ in story.loaded] == [RANKS - 1] * (RANKS - 1)
    assert max(lacks for _, lacks in story.loaded) < 1e-4  # residuals are added up
    assert story.saved[STEPS][0] == RANKS - 1
