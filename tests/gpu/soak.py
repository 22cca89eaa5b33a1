"""Many steps over NCCL as it comes, with ranks out of step: `python -m gpu.soak`.

Each rank waits for a random time between forward and backward pass, so that selections of one
rank run beside the exchanges of another. Nothing may hang, and replicas must stay equal. One line
in the log for each recipe.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import identical, twins
from gpu.__main__ import machine, say
from gpu.ranks import TIMEOUT, Layers
from support.cluster import ClusterError
from support.nccl import DEVICE, gpu_cluster, why_not
from thinwire.results.origin import commit

RECIPES = ("ok-topk", "topk", "gtopk", "union", "auto")
WIDTH, DEPTH = 256, 4
EVERY = 100  # steps between two looks at the replicas
RUN_S = 300.0  # for a recipe: then it counts as hung


def train(
    group: Any, rank: int, size: int, recipe: str, steps: int, delay_s: float, folder: str
) -> str:
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"  # what `auto` measures is this run's own
    model, _ = twins(lambda: Layers(WIDTH, DEPTH), DEVICE)
    ddp = DDP(model, process_group=group, bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)
    handle = tw.compress(ddp, tw.recipe(recipe, density=0.01), timeout=TIMEOUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    delays, data = random.Random(rank), torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        x = torch.randn(8, WIDTH, generator=data).to(DEVICE)
        loss = ddp(x).square().mean()
        time.sleep(delays.uniform(0, delay_s))
        loss.backward()
        if step % EVERY == 0 or step == steps:
            assert identical(model, group, size), f"replicas differ after step {step}"
        optimizer.step()
        optimizer.zero_grad()
    chosen = sorted(set(handle.state_dict()["choice"].values()))
    handle.close()
    return f", chose {', '.join(chosen)}" if chosen else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu.soak", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--commit", help="where there is no git to ask")
    options = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    with options.log.open("w") as log, tempfile.TemporaryDirectory() as folder:
        say(
            log,
            f"commit {options.commit or commit()}, {options.ranks} ranks, 0 to "
            f"{options.delay_ms:g} ms of delay a step, {machine()}",
        )
        failures = [soak(log, recipe, options, folder) for recipe in options.recipes]
    return int(any(failures))


def soak(log: Any, recipe: str, options: argparse.Namespace, folder: str) -> bool:
    """Whether it failed. Each recipe gets ranks of its own."""
    started = time.monotonic()
    arguments = recipe, options.steps, options.delay_ms / 1000, f"{folder}/{recipe}"
    try:
        with gpu_cluster(options.ranks, RUN_S, few_channels=False) as cluster:
            chose = cluster.run(train, options.ranks, *arguments)[0]
    except ClusterError as error:
        say(log, f"{recipe}: failed after {time.monotonic() - started:.0f} s: {error}")
        return True
    took = time.monotonic() - started
    say(log, f"{recipe}: {options.steps} steps in {took:.0f} s, replicas equal{chose}")
    return False


if __name__ == "__main__":
    sys.exit(main())
