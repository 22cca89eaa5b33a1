"""Random faults over random recipes, for as long as it is told:

    make soak        or        PYTHONPATH=src:tests python -m support.soak --minutes 3 --seed 7

Real processes over the loopback, and in namespaces where links break. After every fault the state
of whoever raised an error must be that before the step, bit for bit; those who went through a step
have the same update; nobody waits much longer than the timeout, and no process is left. Ends with a
table, and with 1 if any of it did not hold. `--flat 100000` instead takes so many small steps and
prints what grew meanwhile; `--gpu`, with the options of `gpu.soak`, is for ranks over NCCL: steps
with delays, then faults.
"""

import argparse
import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

import thinwire as tw
from support import link_faults
from support.cluster import Cluster, ClusterError, Outcome, Raised, Returned
from support.contracts import broken
from support.contracts.cases import Case, Layer, digest, everything, state_digest
from thinwire.lab import Lab, unavailable
from thinwire.lab.ranks import WorkerError
from thinwire.results.origin import commit

LAYERS = (Layer((900,)), Layer((30, 20), "bfloat16", "transposed"), Layer((40,)))
TIMEOUT = timedelta(seconds=6)
COMPILE = timedelta(seconds=80)  # for whatever a first step compiles: that is no fault
COLUMNS = ("injected", "survived", "mass lost", "replicas diverged", "hangs", "processes left")
SIGNALS = {"kill -9": signal.SIGKILL, "stop": signal.SIGSTOP}
BACKWARD = {"NaN in a backward pass": "nan", "exception in a backward pass": "raise"}
FAULTS = (*SIGNALS, "hang up", *BACKWARD, "hang up in a backward pass", *link_faults.FAULTS)
SAID = 400  # characters of an error
LATE_S = 4.0  # beyond the timeout: the machine may be busy


@dataclass(frozen=True)
class Life:
    """What a rank went through until a peer was gone."""

    raised: str
    state_kept: bool
    waited_s: float
    updates: tuple[str, ...]


def live(
    group: Any,
    rank: int,
    size: int,
    case: Case,
    victim: int,
    fault: str,
    at: float,
    patience: timedelta = TIMEOUT,
) -> Life:
    """Steps until an error; the victim sends itself the signal at some moment of them."""
    with closing(tw.Synchronizer(case.pipeline(), group, seed=case.seed, timeout=COMPILE)) as warm:
        for step in range(2):
            warm.average_all(case.gradients(step, rank, size))
    sync = tw.Synchronizer(case.pipeline(), group, seed=case.seed, timeout=patience)
    updates: list[str] = []
    for step in range(10**6):
        if step == 2 and rank == victim:
            threading.Timer(at, os.kill, (os.getpid(), SIGNALS[fault])).start()
        before, grads = state_digest(sync), case.gradients(step, rank, size)
        began = time.monotonic()
        try:
            updates.append(digest(*sync.average_all(grads).values()))
        except tw.ThinwireError as error:
            waited = time.monotonic() - began
            kept = state_digest(sync) == before
            return Life(f"{type(error).__name__}: {error}", kept, waited, tuple(updates))
    raise AssertionError("nothing happened")


class Soak:
    """One run: a cluster that is started again after every death, and the table."""

    def __init__(
        self, seed: int, cluster: Cluster, faults: Sequence[str], device: str = "cpu"
    ) -> None:
        self.draw = random.Random(seed)
        self.recipes = everything()
        self.faults, self.cluster, self.device = faults, cluster, device
        self.table: dict[str, Counter[str]] = {fault: Counter() for fault in faults}
        self.failures: list[str] = []

    @property
    def failed(self) -> bool:
        return bool(self.failures) or any(row["processes left"] for row in self.table.values())

    def round(self) -> None:
        fault = self.draw.choice(self.faults)
        row, size = self.table[fault], self.draw.randint(2, 4)
        recipe = self.draw.choice(self.recipes)
        case = Case(recipe, LAYERS, steps=3, settings={"density": 0.05}, device=self.device)
        victim, at = self.draw.randrange(size), self.draw.uniform(0, 0.4)
        row["injected"] += 1
        self.cluster.pids or self.cluster.run(_nothing, 1)  # so that they are known
        pids = self.cluster.pids
        try:
            if fault in SIGNALS:
                survivors = self.cluster.survivors(live, size, victim, case, victim, fault, at)
                verdict = self._of_lives(survivors)
            elif fault in link_faults.FAULTS:
                verdict = self._of_link(fault, recipe, at)
            elif fault == "hang up":
                verdict = self._of_broken(self.cluster.run(broken.hang_up, size, case, victim))
            else:
                how = BACKWARD.get(fault, "hang up")
                outcomes = self.cluster.run(broken.ddp_breaks, 2, how, "topk(0.05)")
                verdict = "mass lost" if not all(k and on for _, k, on in outcomes) else ""
        except (ClusterError, WorkerError) as error:
            verdict = "hangs"
            self.failures.append(str(error))
        row[verdict or "survived"] += 1
        if verdict:
            self.failures.append(f"{fault}, {recipe}, {size} ranks, rank {victim}: {verdict}")
        if not self.cluster.pids:  # it was closed: all of them must be gone
            row["processes left"] += sum(map(alive, pids))

    def _of_lives(self, survivors: list[Outcome]) -> str:
        lives = [o.value for o in survivors if isinstance(o, Returned)]
        whole_lives = len(lives) == len(survivors)  # else some raised another error, or died
        told = all(life.raised.startswith("ExchangeError") and life.state_kept for life in lives)
        if not (whole_lives and told):
            self.failures += [f"a survivor: {_in_a_line(outcome)}" for outcome in survivors]
            return "mass lost"
        if any(life.waited_s > TIMEOUT.total_seconds() + LATE_S for life in lives):
            return "hangs"
        whole = min(len(life.updates) for life in lives)
        return "" if len({life.updates[:whole] for life in lives}) == 1 else "replicas diverged"

    def _of_link(self, fault: str, recipe: str, at: float) -> str:
        with Lab(3, None) as lab:
            ranks = link_faults.ranks_in(lab)
            lives = link_faults.break_link(lab, ranks, fault, self.draw.randrange(3), recipe, at)
            done = {len(life["updates"]) for life in lives}
            if len(done) == 1:
                after = ranks.run({"recipe": recipe, "goes_on": True})
                if len({answer["update"] for answer in after}) > 1:
                    return "replicas diverged"
        if not all(life["kept"] and life["raised"][:13] in ("", "ExchangeError") for life in lives):
            return "mass lost"
        if any(life["waited_s"] > link_faults.TIMEOUT.total_seconds() + LATE_S for life in lives):
            return "hangs"
        whole = min(done)
        agree = len({tuple(life["updates"][:whole]) for life in lives}) == 1
        return "" if agree else "replicas diverged"

    def _of_broken(self, ranks: list[broken.Broken]) -> str:
        kept = all(bool(rank.raised) == rank.state_kept and rank.went_on for rank in ranks)
        return "" if kept else "mass lost"

    def show(self) -> str:
        lines = [f"| fault | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
        total: Counter[str] = Counter()
        for fault, row in self.table.items():
            lines.append(f"| {fault} | {' | '.join(str(row[c]) for c in COLUMNS)} |")
            total += row
        lines.append(f"| all | {' | '.join(str(total[c]) for c in COLUMNS)} |")
        return "\n".join(lines)


def _in_a_line(outcome: Outcome) -> str:
    """What became of a rank, without its updates."""
    said = (
        f"{outcome.name}: {outcome.text} {outcome.trace}"[:SAID]
        if isinstance(outcome, Raised)
        else ""
    )
    if isinstance(outcome, Returned):
        life: Life = outcome.value
        said = f"{life.raised[:SAID]}; state {'kept' if life.state_kept else 'lost'}"
    return " ".join(said.split())


def _nothing(group: Any, rank: int, size: int) -> None:
    """For a cluster to start."""


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def flat(group: Any, rank: int, size: int, recipe: str, steps: int) -> None:
    """Many small steps; what the process has at each tenth of them, as a row of a table."""
    sync = tw.Synchronizer(recipe, group, timeout=timedelta(seconds=60))  # a busy machine
    grads = {"a": torch.randn(1500), "b": torch.randn(40)}
    tenth = max(1, steps // 10)
    for step in range(1, steps + 1):
        sync.average_all({name: grad.clone() for name, grad in grads.items()})
        if rank == 0 and (step == tenth // 10 or step % tenth == 0):
            gc.collect()
            # Numbers and what holds nothing else are no objects to gc, but blocks.
            python = f"{len(gc.get_objects()):,} | {sys.getallocatedblocks():,}"
            print(f"| {step:,} | {' | '.join(map(str, held()))} | {python} |", flush=True)
    sync.close()


def held() -> tuple[float, int, int]:
    """This process's resident memory in MiB, its threads, Python's and others, its descriptors."""
    here = Path("/proc/self")
    resident = int((here / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    return round(resident, 1), *(sum(1 for _ in (here / n).iterdir()) for n in ("task", "fd"))


def repeat(action: Callable[[], None], minutes: float) -> None:
    until = time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        action()


def main() -> int:
    if "--gpu" in sys.argv:
        from gpu import soak as on_gpus  # whose ranks import this module

        return on_gpus.main([word for word in sys.argv[1:] if word != "--gpu"])
    parser = argparse.ArgumentParser(prog="python -m support.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--flat", type=int, help="so many small steps, and no faults")
    parser.add_argument("--recipe", default="ok-topk(0.05)", help="what takes the small steps")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and end the workers
    if given.flat:
        print(f"commit {commit()}, {given.recipe}, 2 ranks, {given.flat:,} steps\n", flush=True)
        heads = "steps | resident, MiB | threads | descriptors | Python objects | blocks"
        print(f"| {heads} |\n|---|---|---|---|---|---|", flush=True)
        with Cluster(2, run_s=2 * 3600) as cluster:
            cluster.run(flat, 2, given.recipe, given.flat)
        return 0
    print(f"commit {commit()}, seed {given.seed}, {given.minutes:g} minutes\n", flush=True)
    possible = [f for f in FAULTS if f not in link_faults.FAULTS or unavailable() is None]
    soak = Soak(given.seed, Cluster(4, run_s=180), possible)
    try:
        repeat(soak.round, given.minutes)
    finally:
        soak.cluster.close()
        print(soak.show())
    for failure in soak.failures:
        print(failure, file=sys.stderr)
    return int(soak.failed)


if __name__ == "__main__":
    sys.exit(main())
