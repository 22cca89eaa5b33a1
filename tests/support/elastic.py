"""What the ranks of examples/elastic.py say of themselves, and a node of theirs that is killed."""

import os
import re
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"
# Of several ranks at once: what two of them say may come in one line.
SAID = re.compile(r"(\d) ranks (saved|loaded) step (\d+), waiting (-?\d+\.\d{6})")


@dataclass
class Story:
    """Of ranks that came and went."""

    saved: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By step: how many ranks there were, and what waited on all of them."""
    loaded: list[tuple[int, float]] = field(default_factory=list)
    """By how many ranks, and by how much what waited then differed from what was saved."""


def follow(lines: Iterable[str], nodes: int, lose_one: Callable[[], None]) -> Story:
    """All that they say; one is lost as soon as all together have saved for the first time."""
    story, lost = Story(), False
    for found in chain.from_iterable(map(SAID.finditer, lines)):
        ranks, step, waits = int(found[1]), int(found[3]), float(found[4])
        if found[2] == "loaded":
            story.loaded.append((ranks, abs(waits - story.saved[step][1])))
            continue
        story.saved[step] = ranks, waits
        if ranks == nodes and not lost:
            lose_one()
            lost = True
    return story


def kill(agent: int) -> None:
    """A whole node: the agent, then its workers, which have sessions of their own."""
    with suppress(OSError):  # it has ended
        children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
        for pid in (agent, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
