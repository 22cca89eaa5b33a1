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
from thinwire.lab.watcher import MARK, MPS, end_mps, mps_mark, mps_places

START_S = 30.0  # for the daemon to come up


def visible_cards() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    if count == 0:
        raise LabError("the lab's ranks are to run on GPUs, and there is none here")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else [str(card) for card in range(count)]


class CardShare:
    """The cards of a lab. MPS runs from the first need on, until `end_mps` or the lab's end.

    `folder` is the watcher's to remove.
    """

    def __init__(self, mark: str) -> None:
        self.cards = visible_cards()
        self.folder = Path(tempfile.mkdtemp(prefix="thinwire-mps-"))
        self._mark = mark
        self._daemon: Path | None = None

    def prepare(self, ranks: int) -> dict[str, str]:
        """What ranks need in their environment; MPS is running once there are more than cards."""
        if ranks <= len(self.cards):
            return {}
        if self._daemon is None:
            self._daemon = self._start_mps()
        return mps_places(self._daemon)

    def end_mps(self) -> None:
        """End the daemon; the next need starts another, in another folder."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            end_mps(self._mark, daemon)

    def _start_mps(self) -> Path:
        if shutil.which(MPS) is None:
            raise LabError(
                f"several ranks on one card need MPS, and there is no `{MPS}` here; it comes with "
                "the NVIDIA driver. Take no more ranks than cards to do without"
            )
        daemon = Path(tempfile.mkdtemp(dir=self.folder))
        # It numbers the cards as they are, and each rank names its own among all of them.
        inherited = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        words = daemon / "start.log"  # a file: the daemon may keep its parent's pipe open
        with words.open("w") as log:
            done = subprocess.run(
                [MPS, "-d"],
                env=inherited | mps_places(daemon) | {MARK: mps_mark(self._mark)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=START_S,
            )
        if done.returncode:
            said = " ".join(words.read_text().split())
            raise LabError(f"`{MPS} -d` failed with status {done.returncode}: {said}")
        return daemon
