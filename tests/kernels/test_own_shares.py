"""What a rank delivered: the same from every implementation, and over all ranks the total."""

import pytest
import torch

from support.implementations import Case, bits, cases, normal
from thinwire.kernels.deal import deal
from thinwire.kernels.largest_sums import largest_sums
from thinwire.kernels.own_shares import Region, own_shares, reference
from thinwire.types import PADDING

each = pytest.mark.parametrize("case", cases("own_shares"))
NUMEL, ROOM, KEPT = 2000, 120, 60


def exchange(ranks):
    """All ranks' rows, regions and the total, as if they had exchanged them in bfloat16."""
    dealt = []
    for rank in range(ranks):
        draw = torch.Generator().manual_seed(rank)
        indices = torch.randperm(NUMEL, generator=draw)[:200].sort().values
        dealt.append(deal(indices, normal(200, seed=rank), ranks, ROOM, 1))
    regions, total = [], torch.zeros(NUMEL)
    for owner in range(ranks):
        rows = [torch.stack([row[owner] for row in part]) for part in zip(*dealt, strict=True)]
        indices, sums = largest_sums(*rows, KEPT)
        arrived = sums.bfloat16().float()
        regions.append(Region(owner, indices, sums, arrived))
        there = indices != PADDING
        total[indices[there]] = arrived[there]
    return dealt, regions, total


@each
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shares_are_the_references_and_add_up_to_the_total(case: Case, ranks: int) -> None:
    dealt, regions, total = exchange(ranks)
    added = torch.zeros(NUMEL + 1)
    for own, region in zip(dealt, regions, strict=True):
        placed = Region(region.owner, *map(case.place, region[1:]))
        rows, values = own[0], torch.cat((own[1], torch.ones(ranks, 3)), 1)[:, :ROOM]  # lie apart
        indices, values = case.run(own_shares, rows, values, placed, total)
        expected, their_values = reference.own_shares(*own, region, total)
        assert torch.equal(indices.cpu(), expected)
        assert bits(values) == bits(their_values)
        there = indices[indices != PADDING]
        assert there.unique().numel() == there.numel()
        added.index_add_(0, indices.cpu().clamp(max=NUMEL), values.cpu())
    torch.testing.assert_close(added[:NUMEL], total)


@each
def test_what_the_sum_left_out_is_not_delivered(case: Case) -> None:
    rows = torch.tensor([[1, 5, PADDING], [2, 4, 7]])
    dealt = torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]])
    total = torch.tensor([0.0, 0.5, 0.0, 0.0, 1.0, 0.0, 6.0, 0.0])
    region = Region(1, *map(case.place, (
        torch.tensor([4, 6, PADDING]), torch.tensor([4.0, 6.25, 0.0]), torch.tensor([4.0, 6.0, 0.0])
    )))  # fmt: skip
    indices, values = case.run(own_shares, rows, dealt, region, total)
    assert indices.tolist() == [1, PADDING, PADDING, 4, 6, PADDING]
    assert values.tolist() == [1.0, 0.0, 0.0, 4.0, -0.25, 0.0]
