"""Ctrl-C, close() and the end of the interpreter in the middle of a step.

Covers engine/backward.py.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import thinwire as tw
from support.contracts.cases import state_digest

PATIENCE, LONGER = timedelta(seconds=15), timedelta(seconds=40)
STEPS = 10


def gradients(rank, step):
    draw = torch.Generator().manual_seed(10 * step + rank)
    return {name: torch.randn(3000, generator=draw) for name in "ab"}


def interrupted(group, rank, size, recipe, turns):
    """Ctrl-C on rank 1, at a random moment: what was raised, and whether a state is that of a whole
    step; the threads at the end, and those at the beginning.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    draw, threads, lives = random.Random(recipe), threading.active_count(), []
    clean = tw.Synchronizer(recipe, group, timeout=PATIENCE)
    states = [state_digest(clean)]
    for step in range(STEPS):
        if step == 2:  # by now everything is compiled
            began = time.monotonic()
        clean.average_all(gradients(rank, step))
        states.append(state_digest(clean))
    took = time.monotonic() - began
    clean.close()
    for _ in range(turns):
        sync, done, raised = tw.Synchronizer(recipe, group, timeout=PATIENCE), 0, ""
        try:
            if rank == 1:
                at = draw.uniform(0, min(took, 2.0))
                threading.Timer(at, os.kill, (os.getpid(), signal.SIGINT)).start()
            for step in range(STEPS):
                sync.average_all(gradients(rank, step))
                done += 1
            if rank == 1:
                time.sleep(5)  # it is still to come,
                os.kill(os.getpid(), signal.SIGINT)  # unless Python dropped it in a weakref's end
        except (KeyboardInterrupt, tw.ThinwireError) as error:
            raised = type(error).__name__
        lives.append((raised, state_digest(sync) in states[done : done + 2]))
        sync.close()
        dist.monitored_barrier(group, LONGER)  # the other may have to wait for its timeout
    return lives, threading.active_count(), threads


def test_ctrl_c_at_any_moment(cluster):
    for recipe in ("topk(0.05)", "ok-topk(0.05)"):
        (other, *_), (culprit, *threads) = cluster.run(interrupted, 2, recipe, 4)
        assert {raised for raised, _ in culprit} == {"KeyboardInterrupt"}
        assert {raised for raised, _ in other} <= {"ExchangeError", ""}
        assert all(whole for _, whole in culprit + other)
        assert threads[0] <= threads[1], "a thread is left"


def closed_meanwhile(group, rank, size):
    """Rank 0 waits in a thread for rank 1, which does not come, and is closed meanwhile."""
    sync = tw.Synchronizer("topk(0.05)", group, timeout=PATIENCE)
    sync.average_all(gradients(rank, 0))
    before, raised = state_digest(sync), []
    if rank == 1:
        dist.monitored_barrier(group, LONGER)
        sync.close()
        return None

    def step():
        try:
            sync.average_all(gradients(rank, 1))
        except tw.ThinwireError as error:
            raised.append(type(error).__name__)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    while sync.running is None and thread.is_alive():
        time.sleep(0.01)
    sync.close()
    thread.join(PATIENCE.total_seconds() / 2)
    dist.monitored_barrier(group, LONGER)
    return raised, thread.is_alive(), state_digest(sync) == before


def test_close_in_the_middle_of_another_threads_step(cluster):
    raised, alive, kept = cluster.run(closed_meanwhile, 2)[0]
    assert not alive
    assert raised == ["ExchangeError"]
    assert kept


LEAVING = """
import os, sys, threading, time
from datetime import timedelta
import torch, torch.distributed as dist
import thinwire as tw
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
sync = tw.Synchronizer("topk(0.05)", timeout=timedelta(seconds=5))
grads = lambda: {name: torch.randn(3000) for name in "ab"}
sync.average_all(grads())
print("ready", flush=True)
if rank == 1:
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=lambda: sync.average_all(grads()), daemon=True).start()
time.sleep(0.2)
"""


def test_the_interpreter_ends_with_a_step_under_way(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVING, str(rank), str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]
    try:
        _, said = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 0, said
        assert ranks[1].poll() is None  # it was not waited for
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
