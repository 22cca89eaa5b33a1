"""A link that breaks under every collective at once: a process a node, and a thread a recipe.

Runs in the ranks too: imports stay few.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch.distributed as dist

import thinwire as tw
from support.contracts.cases import Case, Layer, digest, state_digest
from support.link_faults import COMPILE, FAULTS, TIMEOUT
from thinwire.lab import Lab
from thinwire.lab.rank_main import Case as Request
from thinwire.lab.rank_main import Message, ReportStep
from thinwire.lab.ranks import Workers

SLOW, QUICK = 100_000, 300  # elements: a minute at 1 Mbit/s, and well under a second
DENSITY = 0.5
HANG_S = 40.0
KEPT: dict[str, Any] = {}
"""The states that the last fault left on this rank, by recipe."""


def case_of(recipe: str, numel: int) -> Case:
    return Case(recipe, (Layer((numel,)), Layer((40,))), settings={"density": DENSITY})


class Life:
    """A recipe's whole step, and its next, which is held while the link breaks."""

    def __init__(self, case: Case, rank: int, size: int) -> None:
        self._steps = [case.gradients(step, rank, size) for step in range(2)]
        with closing(tw.Synchronizer(case.pipeline(), timeout=COMPILE)) as undisturbed:
            for grads in self._steps:
                clones = {name: grad.clone() for name, grad in grads.items()}
                self._right = digest(*undisturbed.average_all(clones).values())
        self.sync = tw.Synchronizer(case.pipeline(), timeout=TIMEOUT)
        self.sync.average_all(self._steps[0])
        self.tells: Message = {"raised": "it hangs", "kept": False, "right": False}

    def step(self, agreed: threading.Semaphore, broken: threading.Event) -> None:
        """The ranks agree on it, the link breaks, and then the collective begins."""
        agree = self.sync.comm.agree

        def agree_and_wait(*arguments: Any, **settings: Any) -> list[int]:
            answer = agree(*arguments, **settings)
            agreed.release()
            broken.wait(HANG_S)
            return answer

        vars(self.sync.comm)["agree"] = agree_and_wait
        before, raised, right = state_digest(self.sync), "", False
        try:
            right = digest(*self.sync.average_all(self._steps[1]).values()) == self._right
        except tw.ThinwireError as error:
            raised = f"{type(error).__name__}: {error}"
        kept = bool(raised) and state_digest(self.sync) == before
        self.tells = {"raised": raised, "kept": kept, "right": right}


def live(request: Request, rank: int, report: ReportStep) -> Message:
    """What became of each recipe's step, and the threads that are left of all; or, the request
    after, what the next group makes of the states that were kept.
    """
    size = dist.get_world_size()
    cases = {recipe: case_of(recipe, request["numel"]) for recipe in request["recipes"]}
    if request["goes_on"]:
        return {"updates": {r: goes_on(r, case, rank, size) for r, case in cases.items()}}
    before = threading.active_count()
    lives = {recipe: Life(case, rank, size) for recipe, case in cases.items()}
    agreed, broken = threading.Semaphore(0), threading.Event()
    threads = [
        threading.Thread(target=life.step, args=(agreed, broken), daemon=True)
        for life in lives.values()
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        agreed.acquire(timeout=HANG_S)
    dist.barrier()
    report()
    await_file(Path(request["broken"]))
    broken.set()
    for thread in threads:
        thread.join(HANG_S)
    KEPT.clear()
    for recipe, life in lives.items():
        KEPT[recipe] = life.sync.state_dict()
        life.sync.close()
    return {"of": {r: life.tells for r, life in lives.items()}, "threads": left_over(before)}


def await_file(file: Path) -> None:
    deadline = time.monotonic() + HANG_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def left_over(before: int) -> int:
    """Threads that do not end by themselves, soon."""
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return threading.active_count() - before


def goes_on(recipe: str, case: Case, rank: int, size: int) -> str:
    """The next group, whose links are whole, makes one more step from what was saved."""
    with closing(tw.Synchronizer(case.pipeline(), timeout=5 * TIMEOUT)) as sync:
        sync.load_state_dict(KEPT[recipe])
        return digest(*sync.average_all(case.gradients(99, rank, size)).values())


def ranks_in(lab: Lab) -> Workers:
    """One on each node."""
    return Workers(lab, len(lab.nodes), f"{__name__}:live")


def break_link(
    lab: Lab, ranks: Workers, fault: str, recipes: Sequence[str], numel: int, folder: Path
) -> list[Message]:
    """What every rank says of the step in which it happened; the link is whole again."""
    broken, node = folder / "broken", 1

    def break_it(note: str = "") -> None:
        FAULTS[fault](lab, node)
        broken.touch()

    request = {"recipes": recipes, "numel": numel, "goes_on": False, "broken": str(broken)}
    try:
        return ranks.run(request, break_it)
    finally:
        lab.mend(node)
