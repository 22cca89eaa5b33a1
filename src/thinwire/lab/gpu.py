"""Ranks that share cards: which card is whose, and the MPS daemon that lets them compute at once.

Without MPS the kernels of several processes take turns on a card.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from thinwire.errors import LabError
from thinwire.lab.processes import MARK, kill_marked

MPS = "nvidia-cuda-mps-control"
START_S = 30.0  # for the daemon to come up
QUIT_S = 5.0  # for it to end; one that hangs is killed


def visible_cards() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    if count == 0:
        raise LabError("the lab's ranks are to run on GPUs, and there is none here")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else [str(card) for card in range(count)]


class CardShare:
    """The cards of a lab. MPS runs from the first need on, until `close`."""

    def __init__(self, name: str) -> None:
        self.cards = visible_cards()
        self.mark = f"{name}-mps"  # in the environment of the daemon and of its servers
        self._folder: Path | None = None

    def prepare(self, ranks: int) -> dict[str, str]:
        """What ranks need in their environment; MPS is running once there are more than cards."""
        if ranks <= len(self.cards):
            return {}
        if self._folder is None:
            self._folder = self._start_mps()
        return _places(self._folder)

    def close(self) -> None:
        """End MPS, by its id if it does not listen; the next need starts another elsewhere."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        _quit(folder)
        kill_marked(self.mark)
        shutil.rmtree(folder, ignore_errors=True)

    def _start_mps(self) -> Path:
        if shutil.which(MPS) is None:
            raise LabError(
                f"several ranks on one card need MPS, and there is no `{MPS}` here; it comes with "
                "the NVIDIA driver. Take no more ranks than cards to do without"
            )
        folder = Path(tempfile.mkdtemp(prefix="thinwire-mps-"))
        # It numbers the cards as they are, and each rank names its own among all of them.
        inherited = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        words = folder / "start.log"  # a file: the daemon may keep its parent's pipe open
        with words.open("w") as log:
            done = subprocess.run(
                [MPS, "-d"],
                env=inherited | _places(folder) | {MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=START_S,
            )
        if done.returncode:
            said = " ".join(words.read_text().split())
            shutil.rmtree(folder, ignore_errors=True)
            raise LabError(f"`{MPS} -d` failed with status {done.returncode}: {said}")
        return folder


def _places(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}


def _quit(folder: Path) -> None:
    try:
        subprocess.run(
            [MPS],
            env={**os.environ, **_places(folder)},
            input=b"quit\n",
            capture_output=True,
            timeout=QUIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # it is ended by its id
