"""A peer that lies: sound payloads that are not what this step expects are refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
import torch

import thinwire as tw
from support.cluster import Cluster
from support.codec.cases import context, random_sparse
from support.contracts.cases import state_digest
from support.contracts.ranks import TIMEOUT
from thinwire.codec import Pair
from thinwire.collective._received import decode_like, decode_total
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


def test_a_sum_may_be_dense_where_it_is_shorter_so_but_not_of_another_size() -> None:
    pair, ctx = Pair(), context()
    dense, longer = (pair.encode(torch.ones(n), ctx) for n in (900, 901))
    assert isinstance(decode_total(dense, OURS, pair, ctx, or_dense=True), torch.Tensor)
    with pytest.raises(tw.WireFormatError, match=r"of 900, .* was due, found a dense selection"):
        decode_total(dense, OURS, pair, ctx, or_dense=False)
    with pytest.raises(tw.WireFormatError, match=r"or a dense .* was due, found .* 901 elements"):
        decode_total(longer, OURS, pair, ctx, or_dense=True)


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


LIES: dict[str, Callable[[Sparse], Sparse]] = {
    "another numel": lambda s: replace(s, numel=s.numel + 64),
    "float64": lambda s: replace(s, values=s.values.double()),
}


def of_another_kind(s: Sparse | torch.Tensor) -> Sparse | torch.Tensor:
    return s.to_dense() if isinstance(s, Sparse) else Sparse(torch.arange(len(s)), s, len(s))


def in_other_rows(s: Sparse | torch.Tensor) -> Sparse | torch.Tensor:
    """Rows as elements, and elements as rows of two."""
    if not isinstance(s, Sparse):
        return s
    if s.values.dim() == 2:
        return s.elements()
    return Sparse(s.indices[:1] // 2, s.values[:1].repeat(2)[None], s.numel)


LIES_ABOUT_SUMS = {"another kind": of_another_kind, "other rows": in_other_rows}
SUMS_FROM = 3  # with three ranks: two parts were sent to their owners before


def lied_to(group: Any, rank: int, size: int, recipe: str, lie: str) -> tuple[str, bool]:
    """A step in which rank 1 sends sound payloads of another form: what is said, what it left."""
    sync = tw.Synchronizer(tw.recipe(recipe, bypass=0), group, timeout=TIMEOUT)
    draw, truth, said = torch.Generator().manual_seed(rank), Pair.encode, ""
    sync.average("w", torch.randn(3000, generator=draw))
    before = state_digest(sync)
    payloads = count(1)

    def encode(pair: Pair, s: Any, *rest: Any) -> torch.Tensor:
        if rank == 1 and lie in LIES and isinstance(s, Sparse):
            s = LIES[lie](s)
        elif rank == 1 and lie in LIES_ABOUT_SUMS and next(payloads) == SUMS_FROM:
            s = LIES_ABOUT_SUMS[lie](s)
        return truth(pair, s, *rest)

    with patch.object(Pair, "encode", encode):
        try:
            sync.average("w", torch.randn(3000, generator=draw))
        except tw.ThinwireError as error:
            said = f"{type(error).__name__}: {error}"
    return said, state_digest(sync) == before


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    "recipe", ["topk", "gtopk", "ok-topk", "topk-dsa", "omnireduce", "zen", "spardl"]
)
def test_a_peer_that_lies_is_told_and_nothing_of_it_stays(
    cluster: Cluster, recipe: str, lie: str
) -> None:
    refused_by_who_reads_it(recipe, cluster.run(lied_to, 3, recipe, lie))


@pytest.mark.parametrize(
    ("recipe", "lie"),
    [
        ("ok-topk", "another kind"),
        ("ok-topk", "other rows"),
        ("topk-dsa", "other rows"),  # and may be of another kind, where that is shorter
        ("omnireduce", "another kind"),
        ("omnireduce", "other rows"),
        ("zen", "another kind"),  # and has no rows
        ("spardl", "another kind"),
        ("spardl", "other rows"),
    ],
)
def test_so_is_one_that_lies_about_the_sum_of_its_part(
    cluster: Cluster, recipe: str, lie: str
) -> None:
    refused_by_who_reads_it(recipe, cluster.run(lied_to, 3, recipe, lie))


def refused_by_who_reads_it(recipe: str, outcomes: list[tuple[str, bool]]) -> None:
    """They say in which exchange; the others hear that it broke off; and all keep what they had."""
    collective = type(tw.recipe(recipe).collective).__name__
    assert any(said.startswith("WireFormatError") for said, _ in outcomes)
    for said, kept in outcomes:
        assert said.partition(": ")[0] in ("WireFormatError", "ExchangeError")
        assert f": {collective} of 'w', step 1: " in said
        assert kept


IMPOSSIBLE = (-1, 2**40)  # as a length, or as whatever a message begins with
EACH_MESSAGE = range(6)


def misled(group: Any, rank: int, size: int, recipe: str, word: int) -> list[tuple[str, bool]]:
    """Steps in which what rank 1 sends n-th begins with another word: what is said, what it left.

    Handshakes are left out: ranks that are told different things no longer do the same.
    """
    truth, outcomes = GroupCommunicator._post, []
    for lies_at in EACH_MESSAGE:
        sync = tw.Synchronizer(tw.recipe(recipe, bypass=0), group, timeout=TIMEOUT)
        draw, said, messages = torch.Generator().manual_seed(rank), "", count()
        sync.average("w", torch.randn(3000, generator=draw))
        before = state_digest(sync)

        def post(
            self: Any, outgoing: Any, *rest: Any, n: int = lies_at, seen: Any = messages
        ) -> Any:
            wires = [wire for wire in outgoing.values() if wire.numel()]
            if rank == 1 and wires and "handshake" not in rest and next(seen) == n:
                outgoing = {peer: beginning_with(word, wire) for peer, wire in outgoing.items()}
            return truth(self, outgoing, *rest)

        with patch.object(GroupCommunicator, "_post", post):
            try:
                sync.average("w", torch.randn(3000, generator=draw))
            except tw.ThinwireError as error:
                said = type(error).__name__
        outcomes.append((said, not said or state_digest(sync) == before))
        sync.close()
        torch.distributed.barrier(group)
    return outcomes


def beginning_with(word: int, wire: torch.Tensor) -> torch.Tensor:
    altered = wire.contiguous().view(-1).view(torch.uint8).clone()
    altered[:8] = torch.tensor([word]).view(torch.uint8)
    return altered.view(wire.dtype)


@pytest.mark.parametrize("word", IMPOSSIBLE)
@pytest.mark.parametrize(
    "recipe",
    [
        "int8",
        "topk",
        "gtopk",
        "ok-topk",
        "topk-dsa",
        "omnireduce",
        "clt-k",
        "micro",
        "zen",
        "spardl",
    ],
)
def test_no_message_may_begin_with_what_cannot_be(cluster: Cluster, recipe: str, word: int) -> None:
    honest, _ = cluster.run(misled, 2, recipe, word)
    assert all(kept for _, kept in honest)
    assert {said for said, _ in honest} == {"", "WireFormatError"}


def claims(group: Any, rank: int, size: int, length: int) -> None:
    comm = GroupCommunicator(group, TIMEOUT)
    truth = comm.all_gather_meta
    comm.all_gather_meta = lambda row: truth([length] if rank == 1 else row)  # type: ignore[method-assign]
    comm.gather(torch.ones(5))


@pytest.mark.parametrize("length", IMPOSSIBLE)
def test_nor_may_a_state_that_is_gathered(cluster: Cluster, length: int) -> None:
    for raised in cluster.run(claims, 2, length, expect=tw.WireFormatError):
        assert f"rank 1 says that it has {length} bytes" in raised.text
