"""Peers do what they are said to do; otherwise beating them would mean nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from support.cluster import Cluster
from thinwire.bench.peers import PEERS, DgcAllGather, GaussianAllGather, OkTopK

N = 1001  # not a square: PowerSGD has a remainder to send


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        yield cluster


def gradient(rank: int, step: int) -> Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(10 * rank + step))


def updates(group: Any, rank: int, size: int, name: str, density: float, steps: int) -> Tensor:
    method = PEERS[name](density)
    found = []
    for step in range(steps):
        grad = gradient(rank, step)
        method.step(grad)
        found.append(grad.clone())
    return torch.stack(found)


def mean(step: int) -> Tensor:
    return (gradient(0, step) + gradient(1, step)) / 2


@pytest.mark.parametrize("name", PEERS)
def test_every_rank_gets_the_same_update(two: Cluster, name: str) -> None:
    first, second = two.run(updates, 2, name, 0.1, 3)
    assert torch.equal(first, second)
    assert first.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "tolerance"), [("torch-dense", 1e-6), ("torch-fp16", 2e-3), ("torch-bf16", 2e-2)]
)
def test_dense_ones_give_the_mean(two: Cluster, name: str, tolerance: float) -> None:
    update = two.run(updates, 2, name, 0.0, 1)[0][0]
    torch.testing.assert_close(update, mean(0), atol=tolerance, rtol=tolerance)


def test_topk_sends_k_and_forgets_nothing(two: Cluster) -> None:
    assert torch.allclose(two.run(updates, 2, "torch-topk", 1.0, 1)[0][0], mean(0))
    steps = two.run(updates, 2, "torch-topk", 0.1, 40)[0]
    assert all(100 <= step.count_nonzero() <= 200 for step in steps)
    sent, wanted = steps.sum(0), sum(mean(step) for step in range(40))
    assert isinstance(wanted, Tensor)
    assert (sent - wanted).norm() < wanted.norm()  # what is missing waits in the residuals


def test_dgc_sends_at_most_k_of_each_rank_as_it_is(two: Cluster) -> None:
    update = two.run(updates, 2, "torch-dgc", 0.1, 1)[0][0]
    assert 0 < update.count_nonzero() <= 200
    halves = [gradient(rank, 0) / 2 for rank in range(2)]
    possible = torch.stack([*halves, halves[0] + halves[1], torch.zeros(N)])
    assert torch.isclose(update, possible).any(0).all()


def test_oktopk_sends_about_k_and_forgets_nothing(two: Cluster) -> None:
    whole = two.run(updates, 2, "torch-oktopk", 1.0, 1)[0][0]
    assert torch.allclose(whole, mean(0), atol=1e-6)
    steps = two.run(updates, 2, "torch-oktopk", 0.1, 40)[0]
    assert steps[0].count_nonzero() == 100  # the global top-k of the sums, exactly
    assert all(66 <= step.count_nonzero() <= 134 for step in steps)
    sent, wanted = steps.sum(0), sum(mean(step) for step in range(40))
    assert isinstance(wanted, Tensor)
    assert (sent - wanted).norm() < wanted.norm()  # what is missing waits in the residuals


def conserved(group: Any, rank: int, size: int) -> tuple[Tensor, Tensor]:
    """What was sent, and what this rank keeps."""
    method, sent = OkTopK(0.05), torch.zeros(N)
    for step in range(40):  # beyond the first thresholds
        grad = gradient(rank, step)
        method.step(grad)
        sent += grad
    return sent, method.residual


def test_oktopk_keeps_all_that_it_does_not_send(two: Cluster) -> None:
    (sent, first), (_, second) = two.run(conserved, 2)
    wanted = torch.stack([mean(step) for step in range(40)]).sum(0)
    torch.testing.assert_close(sent + (first + second) / 2, wanted, atol=1e-4, rtol=0)


def accumulated(group: Any, rank: int, size: int) -> Tensor:
    method = DgcAllGather(0.1)
    for step in range(3):
        found = method.accumulate(gradient(rank, step))
    return found


def test_dgc_corrects_momentum(two: Cluster) -> None:
    for rank, found in enumerate(two.run(accumulated, 2)):
        first, second, third = (gradient(rank, step) for step in range(3))
        torch.testing.assert_close(found, first * (1 + 0.9 + 0.81) + second * (1 + 0.9) + third)


def test_power_sgd_compresses_from_the_first_step(two: Cluster) -> None:
    update = two.run(updates, 2, "torch-powersgd-1", 0.0, 1)[0][0]
    rows, columns = 31, 32
    matrix = update[: rows * columns].view(rows, columns)
    assert torch.linalg.matrix_rank(matrix, rtol=1e-4) == 1
    torch.testing.assert_close(update[rows * columns :], mean(0)[rows * columns :])


def test_gaussiank_takes_at_least_three_quarters_of_k() -> None:
    peer = GaussianAllGather(0.1)
    peaked = gradient(0, 0) ** 3  # the normal quantile selects far fewer than k of these
    peer.accumulate(peaked)
    taken = peer.select(peaked, 100)
    assert 75 <= taken.numel() <= 110
    assert peaked[taken].abs().min() >= peaked.abs().sort(descending=True).values[taken.numel() - 1]
