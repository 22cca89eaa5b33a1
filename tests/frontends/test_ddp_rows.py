"""Gradients that are sparse by themselves, through DDP and with the optimisers made for them."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw


class Words(nn.Module):
    """An embedding, a bag of one, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8, sparse=True)
        self.bag = nn.EmbeddingBag(30, 8, mode="sum", sparse=True)
        self.out = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.embed(x).mean(1) + self.bag(x % 30))


OPTIMISERS = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}
THROUGH_DDP = ("topk(1.0)", "ok-topk(1.0)", "union(1.0)", "omnireduce(1.0)", "parallax", "dense")


def train_beside(group, rank, size, recipe, steps):
    """Our DDP and PyTorch's own, with each optimiser: the largest difference of any parameter."""
    worst = 0.0
    for make in OPTIMISERS.values():
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(0)
            model, twin = Words(), Words()
        twin.load_state_dict(model.state_dict())
        ours, theirs = DDP(model, process_group=group), DDP(twin, process_group=group)
        handle = tw.compress(ours, recipe)
        pairs = [(ours, model), (theirs, twin)]
        optimisers = [
            (make([*m.embed.parameters(), *m.bag.parameters()]),
             torch.optim.SGD(m.out.parameters(), lr=0.01))
            for _, m in pairs
        ]  # fmt: skip
        for step in range(steps):
            tokens = (torch.arange(6).view(2, 3) * (rank + 1) + step) % 50
            if step == 1 and rank == size - 1:
                tokens = tokens[:0]  # an empty batch: gradients without rows
            for (ddp, plain), (rows, dense) in zip(pairs, optimisers, strict=True):
                ddp.zero_grad()
                ddp(tokens).square().sum().backward()
                assert plain.embed.weight.grad.is_sparse and plain.bag.weight.grad.is_sparse
                rows.step()
                dense.step()
        both = zip(model.parameters(), twin.parameters(), strict=True)
        gaps = [(p - q).abs().max() for p, q in both]
        worst = max(worst, torch.stack(gaps).max().item())
        dist.barrier(group)
        handle.close()
    return worst


@pytest.mark.parametrize("recipe", THROUGH_DDP)
def test_trains_as_ddp_does_with_any_optimiser_for_sparse_gradients(cluster, recipe):
    assert max(cluster.run(train_beside, 3, recipe, 3)) < 1e-4


def sketched_training(group, rank, size):
    """What `s2` hands to SparseAdam is finite, the same on all ranks, and of the same rows."""
    torch.random.default_generator.manual_seed(0)
    model = Words()
    ddp = DDP(model, process_group=group)
    tw.compress(ddp, "s2")
    optimiser = torch.optim.SparseAdam([*model.embed.parameters(), *model.bag.parameters()])
    for step in range(2):
        ddp.zero_grad()
        ddp((torch.arange(6).view(2, 3) * (rank + 1) + step) % 50).square().mean().backward()
        optimiser.step()
    touched = model.embed.weight.grad.indices()[0].tolist()
    return touched, model.embed.weight.detach(), model.bag.weight.detach()


def test_s2_trains_embeddings(cluster):
    everyone = cluster.run(sketched_training, 3)
    rows = sorted({(i * (rank + 1) + 1) % 50 for rank in range(3) for i in range(6)})
    for touched, embed, bag in everyone:
        assert touched == rows
        assert torch.equal(embed, everyone[0][1]) and torch.equal(bag, everyone[0][2])
        assert bool(embed.isfinite().all())
