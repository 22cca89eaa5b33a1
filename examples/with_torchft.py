"""Replicas that come and go, with torchft: one dies, comes back, heals and goes on.

python examples/with_torchft.py
"""

import multiprocessing
import os
from datetime import timedelta

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft import Manager
from torchft.coordination import LighthouseServer

from thinwire.frontends.torchft import Group, Replicas

STEPS, DIES_AT, HOST, PATIENCE = 30, 10, "localhost", timedelta(seconds=20)


def train(replica: int, lighthouse: str, dies: bool) -> None:
    torch.set_num_threads(1)
    torch.random.default_generator.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    store, group = TCPStore(HOST, 0, is_master=True, wait_for_workers=False), Group(PATIENCE)
    manager = Manager(
        pg=group, load_state_dict=model.load_state_dict, state_dict=model.state_dict,
        min_replica_size=1, use_async_quorum=False, timeout=PATIENCE, rank=0, world_size=1,
        replica_id=f"replica_{replica}", lighthouse_addr=lighthouse, hostname=HOST,
        store_addr=HOST, store_port=store.port,
    )  # fmt: skip
    replicas = Replicas(manager, group, "topk(0.05)")  # the one line
    together = False
    while manager.current_step() < STEPS or not together:  # both end after the same step
        manager.start_quorum()
        together = manager.num_participants() == 2
        data = torch.Generator().manual_seed(2 * manager.current_step() + replica)
        x = torch.randn(32, 64, generator=data)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        if dies and together and manager.current_step() >= DIES_AT:
            os._exit(1)  # the other one waits for this gradient, and goes on alone
        replicas.average(model)
        if replicas.should_commit():
            optimizer.step()
    weights = sum(float(p.detach().double().sum()) for p in model.parameters())
    print(f"replica {replica}: at the end with the other, weights {weights:.9f}", flush=True)


if __name__ == "__main__":
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=2000)
    new = multiprocessing.get_context("spawn").Process
    first, second = (new(target=train, args=(r, lighthouse.address(), r == 1)) for r in (0, 1))
    first.start(), second.start(), second.join()
    print(f"replica 1 died with status {second.exitcode}, and is started again", flush=True)
    again = new(target=train, args=(1, lighthouse.address(), False))
    again.start(), again.join(), first.join()
    lighthouse.shutdown()
    assert first.exitcode == again.exitcode == 0
