"""A peer that dies or stalls over NCCL is an `ExchangeError` on all others, within the timeout.

Last of all, since a killed client spoils the MPS server for everyone: the cluster starts anew.
"""

import os
import signal
from pathlib import Path

import pytest

from gpu import lost
from support.cluster import Returned
from support.nccl import DEVICE
from thinwire.errors import ExchangeError

TIMEOUT_S = 5
WITHIN_S = 15
CASES = [
    (2, "dense", "all at once", signal.SIGKILL),
    (4, "topk", "ddp", signal.SIGKILL),
    (2, "ok-topk", "ddp", signal.SIGSTOP),
    (4, "union", "all at once", signal.SIGSTOP),
    (3, "int4", "all at once", signal.SIGSTOP),  # two groups wait
    (3, "everything | none | few-bits(4) | ef21", "all at once", signal.SIGSTOP),  # the host waits
]


def descendants(pids: list[int]) -> set[int]:
    """These processes and all that they started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, which may hold anything: state and parent.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family, grown = set(pids), True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family}
        grown = not children <= family
        family |= children
    return family


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(("size", "recipe", "form", "number"), CASES)
def test_the_others_are_told(gpu, size, recipe, form, number):
    pids = gpu.run(lost.pid, 4)  # starts the ranks, if they are not there
    family = descendants(pids)
    assert family >= set(gpu.pids)
    victim = size - 1
    answers = gpu.survivors(
        lost.goes_on_alone, size, victim, recipe, form, victim, number, TIMEOUT_S, DEVICE
    )
    assert not {pid for pid in family if running(pid)}, "left behind"
    for answer in answers:
        assert isinstance(answer, Returned), answer
        ancestors, text, seconds = answer.value
        assert ExchangeError.__name__ in ancestors, text
        assert seconds < WITHIN_S, text
