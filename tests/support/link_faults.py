"""A link that is cut, or as slow as 1 Mbit/s, in the middle of a step: the ranks and their lab.

Runs in the ranks too: imports stay few.
"""

import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import thinwire as tw
from support.contracts.cases import Case, Layer, digest, state_digest
from thinwire.lab import Lab
from thinwire.lab.rank_main import Case as Request
from thinwire.lab.rank_main import Message, ReportStep
from thinwire.lab.ranks import Workers

TIMEOUT = timedelta(seconds=4)
COMPILE = timedelta(seconds=80)  # for whatever a first step compiles: that is no fault
LAYERS = (Layer((300_000,)), Layer((40,)))
DENSITY = 0.5  # what a sparse step sends takes 10 s at 1 Mbit/s
FAULTS: dict[str, Callable[[Lab, int], None]] = {
    "cut link": Lab.cut,
    "link at 1 Mbit/s": lambda lab, node: lab.throttle(node, "1mbit"),
}


def live(request: Request, rank: int, report: ReportStep) -> Message:
    """Steps until an error or to the last, and what was there after it; the request after that goes
    on from there.
    """
    case, size = (
        Case(request["recipe"], LAYERS, settings={"density": DENSITY}),
        dist.get_world_size(),
    )
    if request["goes_on"]:
        return {"update": goes_on(case, rank, size)}
    with closing(tw.Synchronizer(case.pipeline(), timeout=COMPILE)) as warm:
        for step in range(2):
            warm.average_all(case.gradients(step, rank, size))
    sync = tw.Synchronizer(case.pipeline(), timeout=TIMEOUT)
    life: Message = {"raised": "", "kept": True, "waited_s": 0.0, "updates": []}
    for step in range(request["steps"]):
        before, grads = state_digest(sync), case.gradients(step, rank, size)
        if step == 2:
            report()
        began = time.monotonic()
        try:
            life["updates"].append(digest(*sync.average_all(grads).values()))
        except tw.ThinwireError as error:
            life["waited_s"] = time.monotonic() - began
            life["raised"] = f"{type(error).__name__}: {error}"
            life["kept"] = state_digest(sync) == before
            break
    KEPT.clear()
    KEPT.update(sync.state_dict())
    sync.close()
    return life


KEPT: dict[str, Any] = {}
"""The state that the last fault left on this rank."""


def goes_on(case: Case, rank: int, size: int) -> str:
    """The next group, whose links are whole, makes one more step from what was saved."""
    sync = tw.Synchronizer(case.pipeline(), timeout=5 * TIMEOUT)
    sync.load_state_dict(KEPT)
    update = digest(*sync.average_all(case.gradients(99, rank, size)).values())
    sync.close()
    return update


def ranks_in(lab: Lab) -> Workers:
    """One on each node."""
    return Workers(lab, len(lab.nodes), f"{__name__}:live")


def break_link(
    lab: Lab, ranks: Workers, fault: str, node: int, recipe: str, after_s: float = 0.0
) -> list[Message]:
    """What every rank says of the step in which it happened; the link is whole again."""

    def break_it(note: str = "") -> None:
        time.sleep(after_s)
        FAULTS[fault](lab, node)

    # Over a link that is slow steps may come to an end, and then there is no error; not over none.
    steps = 10**6 if fault == "cut link" else 5
    try:
        return ranks.run({"recipe": recipe, "steps": steps, "goes_on": False}, break_it)
    finally:
        lab.mend(node)
