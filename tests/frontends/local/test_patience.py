"""Ctrl-C while a peer is silent ends the program, long before the timeout of its group."""

import os
import signal
import subprocess
import sys

import pytest

from support.signals import hear_signals

SILENT = """
import os, sys, time
from concurrent.futures import Future
from datetime import timedelta
import torch, torch.distributed as dist
import thinwire as tw

rank, how = int(sys.argv[1]), sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2,
    timeout=timedelta(minutes=5),
)
model = torch.nn.Linear(30, 20)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
handle = tw.outer(model, optimizer, "topk", every=2, delay=1)

def step():
    optimizer.zero_grad()
    model(torch.ones(1, 30)).sum().backward()
    optimizer.step()

step()
if rank == 1:
    print("silent", flush=True)
    sys.stdin.read()
    os._exit(0)
step()  # sends, and does not wait
wait = Future.exception

def told_wait(message):
    print("waits", flush=True)
    return wait(message)

Future.exception = told_wait
try:
    if how == "computes":
        print("waits", flush=True)
        time.sleep(60)
    step()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    if how in ("computes", "ends"):
        raise
    if how == "closes":
        handle.close()
"""


def start(rank, store, how):
    return subprocess.Popen(
        [sys.executable, "-c", SILENT, str(rank), str(store), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        preexec_fn=hear_signals,
    )


@pytest.mark.parametrize("how", ["ends", "goes on", "closes", "computes"])
def test_a_program_that_is_interrupted_ends(tmp_path, how):
    ranks = [start(rank, tmp_path / "store", how) for rank in range(2)]
    try:
        assert ranks[1].stdout.readline() == "silent\n"
        assert ranks[0].stdout.readline() == "waits\n"
        ranks[0].send_signal(signal.SIGINT)
        told, said = ranks[0].communicate(timeout=60)
        assert told == "interrupted\n", said
        assert ("KeyboardInterrupt" in said) == (how in ("ends", "computes"))
        assert ranks[1].poll() is None  # it was not waited for
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
