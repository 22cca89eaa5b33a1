"""Ranks of which one is lost between two steps."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from frontends.test_ddp import batch, twins
from gpu.ranks import Layers

NUMEL = 20_000


def pid(group: Any, rank: int, size: int) -> int:
    return os.getpid()


def step_of(form: str, group: Any, recipe: str, timeout: timedelta, device: str) -> Callable:
    """One step, after which the gradients have arrived: under DDP, or without."""
    if form == "ddp":
        model, _ = twins(
            lambda: torch.nn.Sequential(torch.nn.Linear(20, 256), Layers(256, 2)), device
        )
        ddp = DDP(model, process_group=group, bucket_cap_mb=0.25)
        tw.compress(ddp, recipe, timeout=timeout)

        def step(rank: int, number: int) -> None:
            ddp(batch(rank, number, device)).square().mean().backward()
            model[0].weight.grad.sum().item()

        return step
    sync = tw.Synchronizer(recipe, group, timeout=timeout)

    def step(rank: int, number: int) -> None:
        data = torch.Generator().manual_seed(100 * rank + number)
        grads = {n: torch.randn(NUMEL, generator=data).to(device) for n in "abc"}
        sum(mean.sum() for mean in sync.average_all(grads).values()).item()

    return step


def goes_on_alone(
    group: Any, rank: int, size: int, recipe: str, form: str, victim: int, number: int,
    timeout_s: float, device: str,
) -> tuple[tuple[str, ...], str, float]:  # fmt: skip
    """What the others are told, and after how many seconds."""
    # Kernels are compiled before, so that the timeout is for the peer alone.
    step_of(form, group, recipe, timedelta(seconds=60), device)(rank, 0)
    step = step_of(form, group, recipe, timedelta(seconds=timeout_s), device)
    for turn in range(2):
        step(rank, turn)
    if rank == victim:
        os.kill(os.getpid(), number)
    started = time.monotonic()
    try:
        for turn in range(2, 4):  # a step that is under way may still end well
            step(rank, turn)
    except Exception as error:
        kinds = tuple(kind.__name__ for kind in type(error).__mro__)
        return kinds, str(error), time.monotonic() - started
    return (), "nobody noticed", time.monotonic() - started
