"""A peer that lies: sound payloads that are not what this step expects are refused."""

from collections.abc import Sequence

import pytest
import torch

import thinwire as tw
from support.codec.cases import context, random_sparse
from thinwire.codec import Pair
from thinwire.collective._received import decode_like, refuse_other_size
from thinwire.collective.touched import LISTS_FROM, agree
from thinwire.comm import GroupCommunicator
from thinwire.comm.messages import MOST_BYTES, announced
from thinwire.types import ExchangeContext, Sparse

OURS = random_sparse(900, 40)


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (random_sparse(901, 40), "out of 901, torch.float32"),
        (random_sparse(900, 40, torch.float64), "out of 900, torch.float64"),
        (random_sparse(300, 9, width=3), "rows of 3 out of 900"),
        (torch.ones(900), "a dense selection of 900 elements"),
    ],
)
def test_another_form_is_refused(theirs: Sparse | torch.Tensor, found: str) -> None:
    pair, ctx = Pair(), context()
    assert torch.equal(decode_like(pair.encode(OURS, ctx), OURS, pair, ctx).values, OURS.values)
    with pytest.raises(tw.WireFormatError, match=f"out of 900, torch.float32 was due, .*{found}"):
        decode_like(pair.encode(theirs, ctx), OURS, pair, ctx)


def test_a_part_may_change_its_kind_but_not_its_size() -> None:
    refuse_other_size(torch.ones(900), 900)
    with pytest.raises(tw.WireFormatError, match="899 elements was due, found 900"):
        refuse_other_size(OURS, 899)


@pytest.mark.parametrize("length", [-1, MOST_BYTES + 1, 2**40, 2**63 - 1])
def test_a_length_that_cannot_be_is_refused_before_room_is_made(length: int) -> None:
    beginning = torch.tensor([length, 0]).view(torch.uint8)
    with pytest.raises(tw.WireFormatError, match=f"rank 3 says that it has {length} bytes"):
        announced(beginning, 3)


class Alone(GroupCommunicator):
    """A rank that hears of a block which nobody has."""

    block = LISTS_FROM

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor, torch.full_like(tensor, self.block)]

    def all_gather_meta(self, row: Sequence[int]) -> list[list[int]]:
        return [list(row)] * 2


@pytest.mark.parametrize("block", [-1, LISTS_FROM, 2**31 - 1])
def test_a_block_that_there_is_not_is_refused(block: int) -> None:
    comm = Alone()
    comm.block, ours = LISTS_FROM - 1, random_sparse(LISTS_FROM, 5)
    blocks = agree(ours, 1, ExchangeContext("w", 0, 7, comm)).blocks
    assert blocks[-1] == LISTS_FROM - 1
    comm.block = block
    with pytest.raises(tw.WireFormatError, match=f"none of these {LISTS_FROM}"):
        agree(ours, 1, ExchangeContext("w", 0, 7, comm))
