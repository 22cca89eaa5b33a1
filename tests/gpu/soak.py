"""Many steps over NCCL as it comes, with ranks out of step: `python -m gpu.soak`.

Each rank waits for a random time between forward and backward pass, so that selections of one
rank run beside the exchanges of another. Nothing may hang, replicas must stay equal, and memory,
threads and descriptors must not grow. One line in the log for each recipe. With `--budget-s` the
recipes share so many seconds: each ends, at a step on which all ranks agree, when its share is up.
`--steps 200 --budget-s 100` is a short look; THINWIRE_TEST_GPU_ON_CPU=1 runs it over Gloo.

Then, for `--fault-s` seconds, random ranks die or stall in random steps of random recipes, as in
`support.soak`, with its table. Where ranks die they take turns on the card: with MPS a client that
is killed in a kernel of NCCL takes the card from the others, and thinwire has no part in that:
`--control 4` kills a rank so many times in plain sums of NCCL, with MPS and without.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import identical, twins
from gpu.__main__ import machine, say
from gpu.ranks import TIMEOUT, Layers
from support.cluster import Cluster, ClusterError, Returned
from support.nccl import DEVICE, gpu_cluster, why_not
from support.soak import SIGNALS, Soak, held, repeat
from thinwire.comm.groups import abort, own_group
from thinwire.results.origin import commit

RECIPES = ("ok-topk", "topk", "gtopk", "union", "auto")
WIDTH, DEPTH = 256, 4
EVERY = 50  # steps between two looks at the replicas
CLOCK = 25  # and at the time
RUN_S = 300.0  # for a recipe: then it counts as hung
SAID = 3000  # characters of an error; where all ranks hung is more than a log can take
BESIDE_S = 2.0  # that the others of a control wait for who was killed
GROWTH_MIB = 32.0  # at most, in the second half: in the first caches fill, and `auto` tries things


def train(
    group: Any, rank: int, size: int, recipe: str, steps: int, delay_s: float, until: float,
    folder: str,
) -> str:  # fmt: skip
    """What there is to say of it, on every rank alike but for what the process holds."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"  # what `auto` measures is this run's own
    model, _ = twins(lambda: Layers(WIDTH, DEPTH), DEVICE)
    ddp = DDP(model, process_group=group, bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)
    handle = tw.compress(ddp, tw.recipe(recipe, density=0.01), timeout=TIMEOUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    delays, data = random.Random(rank), torch.Generator().manual_seed(rank)
    looks: list[tuple[float, ...]] = []
    for step in range(1, steps + 1):
        x = torch.randn(8, WIDTH, generator=data).to(DEVICE)
        loss = ddp(x).square().mean()
        time.sleep(delays.uniform(0, delay_s))
        loss.backward()
        over = step == steps or (step % CLOCK == 0 and late(group, until))
        if over or step % EVERY == 0:
            assert identical(model, group, size), f"replicas differ after step {step}"
            looks.append((*held(), on_card()))
        optimizer.step()
        optimizer.zero_grad()
        if over:
            break
    chosen = sorted(set(handle.state_dict()["choice"].values()))
    handle.close()
    settled, last = looks[len(looks) // 2], looks[-1]
    grown = last[0] - settled[0] > GROWTH_MIB or last[1] > settled[1] or last[2] > settled[2] + 2
    assert not grown, f"resident MiB, threads, descriptors, MiB on the card: {looks}"
    names = ("MiB resident", "threads", "descriptors", "MiB on the card")
    stays = ", ".join(f"{a:g} to {b:g} {n}" for a, b, n in zip(settled, last, names, strict=True))
    chose = f", chose {', '.join(chosen)}" if chosen else ""
    return f"{step} steps, replicas equal, {stays}{chose}"


def on_card() -> float:
    return round(torch.cuda.memory_allocated() / 2**20, 1) if DEVICE == "cuda" else 0.0


def late(group: Any, until: float) -> bool:
    """Whether any rank's clock says so: all must stop at the same step."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # two groups of NCCL at once may wait for each other
    over = torch.tensor([float(time.monotonic() > until)], device=DEVICE)
    dist.all_reduce(over, group=group)
    return bool(over.item())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu.soak", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--budget-s", type=float, default=len(RECIPES) * RUN_S)
    parser.add_argument("--fault-s", type=float, default=0.0)
    parser.add_argument("--control", type=int, default=0, help="kills in plain sums of NCCL")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--commit", help="where there is no git to ask")
    options = parser.parse_args(arguments)
    if reason := why_not():
        parser.error(reason)
    until = time.monotonic() + options.budget_s
    with options.log.open("w") as log, tempfile.TemporaryDirectory() as folder:
        say(
            log,
            f"commit {options.commit or commit()}, {options.ranks} ranks, 0 to "
            f"{options.delay_ms:g} ms of delay a step, {machine()}",
        )
        # One cluster for all, since ranks on a card start slowly; after a failure it starts anew.
        run_s = min(RUN_S, options.budget_s)
        with gpu_cluster(options.ranks, run_s, few_channels=False) as cluster:
            failures = [
                soak(log, cluster, recipe, options, until, left, folder)
                for left, recipe in zip(
                    range(len(options.recipes), 0, -1), options.recipes, strict=True
                )
            ]
        if options.control:
            control(log, options)
        if options.fault_s:
            failures.append(with_faults(log, options))
    return int(any(failures))


def with_faults(log: TextIO, options: argparse.Namespace) -> bool:
    """Whether anything was lost, hung or was left."""
    failed, each_s = False, options.fault_s / len(SIGNALS)
    for fault in SIGNALS:
        at_once = fault != "kill -9"
        how = "with" if at_once else "without"
        say(log, f"seed {options.seed}, {each_s:g} s of `{fault}` {how} MPS")
        with gpu_cluster(options.ranks, mps=at_once) as cluster:
            soak = Soak(options.seed, cluster, (fault,), DEVICE)
            repeat(soak.round, each_s / 60)
        say(log, soak.show())
        for failure in soak.failures:
            say(log, failure[:SAID])
        failed |= soak.failed
    return failed


def killed_beside(group: Any, rank: int, size: int, victim: int, at: float) -> bool:
    """Sums by NCCL and nothing else, one rank's until it is killed: whether this one has a card."""
    own = own_group(list(range(size)), rank, "nccl", TIMEOUT)
    ones = torch.ones(2**22, device=DEVICE)
    dist.all_reduce(ones, group=own)
    torch.cuda.synchronize()
    until = time.monotonic() + at + BESIDE_S
    if rank == victim:
        threading.Timer(at, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        while time.monotonic() < until:
            dist.all_reduce(ones.fill_(1), group=own)
            over = torch.cuda.current_stream().record_event()
            while not over.query() and time.monotonic() < until:
                time.sleep(1e-4)
    except dist.DistBackendError:
        pass  # NCCL says that the peer is gone; the card may be there all the same
    except RuntimeError:  # of CUDA
        return False
    try:
        abort([own])
        return torch.ones(4, device=DEVICE).sum().item() == 4
    except RuntimeError:
        return False


def control(log: TextIO, options: argparse.Namespace) -> None:
    """How often the others lose the card, with MPS and without."""
    draw = random.Random(options.seed)
    for mps in (True, False):
        lost = 0
        for _ in range(options.control):
            victim, at = draw.randrange(options.ranks), draw.uniform(0.1, 0.3)
            with gpu_cluster(options.ranks, mps=mps) as cluster:
                others = cluster.survivors(killed_beside, options.ranks, victim, victim, at)
            lost += not all(isinstance(other, Returned) and other.value for other in others)
        how = "with" if mps else "without"
        kills = f"{options.control} kills in plain sums of NCCL {how} MPS"
        say(log, f"{kills}: {lost} of them cost the others the card")


def soak(
    log: TextIO, cluster: Cluster, recipe: str, options: argparse.Namespace, until: float,
    left: int, folder: str,
) -> bool:  # fmt: skip
    """Whether it failed. A rank that hangs writes where, and ends."""
    started = time.monotonic()
    mine = started + (until - started) / left
    arguments = recipe, options.steps, options.delay_ms / 1000, mine, f"{folder}/{recipe}"
    try:
        said = cluster.run(train, options.ranks, *arguments)[0]
    except ClusterError as error:
        say(log, f"{recipe}: failed after {time.monotonic() - started:.0f} s: {str(error)[:SAID]}")
        return True
    say(log, f"{recipe}: {said}, in {time.monotonic() - started:.0f} s")
    return False


if __name__ == "__main__":
    sys.exit(main())
