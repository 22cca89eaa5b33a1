"""Momentum in the recipe and in the optimiser: said once, at the first step."""

import warnings
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from support.cluster import Cluster


def said(group: Any, rank: int, size: int, recipe: str, momentum: float, joined: bool) -> list[str]:
    model = torch.nn.Linear(60, 50)
    ddp = DistributedDataParallel(model, process_group=group)
    other = torch.nn.Linear(2, 2)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=momentum
    )
    if joined:
        optimizer = tw.optim(optimizer, ddp, recipe)
        handle = optimizer.handle  # type: ignore[attr-defined]
    else:
        handle = tw.compress(ddp, recipe)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other(torch.ones(1, 2)).sum().backward()
        torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9).step()  # another's
        for _ in range(2):
            optimizer.zero_grad()
            ddp(torch.ones(1, 60)).sum().backward()
            optimizer.step()
    handle.close()
    return [str(one.message) for one in caught if "momentum" in str(one.message)]


@pytest.mark.parametrize(
    ("recipe", "momentum", "joined", "count"),
    [
        ("dgc(0.1)", 0.9, False, 1),
        ("dgc(0.1)", 0.0, False, 0),
        ("topk(0.1)", 0.9, False, 0),
        ("topk(0.1)", 0.9, True, 0),  # `optim` moved it
    ],
)
def test_twice_is_said_once(
    cluster: Cluster, recipe: str, momentum: float, joined: bool, count: int
) -> None:
    for texts in cluster.run(said, 2, recipe, momentum, joined):
        assert len(texts) == count
        assert all("momentum=0.9 on top of it: set it to 0" in text for text in texts)
