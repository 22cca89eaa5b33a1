"""The communicator: what Gloo can and cannot do is known there alone.

Covers comm/communicator.py, comm/groups.py, comm/lanes.py, comm/messages.py and comm/waits.py.
"""

from functools import partial

import pytest
import torch

from support.cluster import Cluster
from support.collective import ranks
from thinwire.comm import GroupCommunicator
from thinwire.comm.lanes import Lanes
from thinwire.comm.messages import EAGER, ring_bytes, rounds
from thinwire.errors import DisagreementError, ExchangeError, RecipeError


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_all_gather_takes_uneven_and_zero_lengths(cluster, size, dtype):
    lengths = [(3 * r) % 7 for r in range(size)]  # 0 for ranks 0 and 7
    for rank, (parts, traffic) in enumerate(cluster.run(ranks.gather, size, lengths, dtype)):
        assert parts == [[r] * n for r, n in enumerate(lengths)]
        lengths_bytes = 8 * (size - 1)
        others = sum(lengths) - lengths[rank]
        assert traffic == (
            lengths[rank] * dtype.itemsize * (size - 1) + lengths_bytes,
            others * dtype.itemsize + lengths_bytes,
        )


def test_all_gather_of_nothing_from_anyone(cluster):
    for parts, _ in cluster.run(ranks.gather, 4, [0, 0, 0, 0], torch.uint8):
        assert parts == [[], [], [], []]


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("eager", [0, 8, 96, 1000])
def test_sizes_need_not_be_known_nor_fit_what_goes_ahead(cluster, size, eager):
    lengths = [(37 * r) % 113 + 90 * (r % 2) for r in range(size)]
    results = cluster.run(ranks.sized, size, lengths, eager)
    for rank, (got, sent, received) in enumerate(results):
        others = [r for r in range(size) if r != rank]
        assert got == {r: [(i + r) % 251 for i in range(lengths[r] + rank)] for r in others}
        assert sent == sum(lengths[rank] + r + 8 for r in others)
        assert received == sum(lengths[r] + rank + 8 for r in others)


@pytest.mark.parametrize("size", range(2, 9))
def test_exchange_with_one_neighbour(cluster, size):
    for rank, (got, sent, received) in enumerate(cluster.run(ranks.ring, size, 5)):
        assert got == [float((rank - 1) % size)] * 5
        assert sent == received == 20


def test_exchange_of_zero_size_is_no_message(cluster):
    assert cluster.run(ranks.ring, 3, 0) == [([], 0, 0)] * 3


@pytest.mark.parametrize("size", range(1, 9))
def test_exchange_of_all_with_all(cluster, size):
    for rank, got in enumerate(cluster.run(ranks.everyone_to_everyone, size)):
        others = [r for r in range(size) if r != rank]
        assert got == {r: [10.0 * r + rank] * (rank + r) for r in others}


@pytest.mark.parametrize("size", range(1, 9))
def test_numbers_arrive_in_rank_order(cluster, size):
    assert cluster.run(ranks.meta, size) == [[[r, r * r, -1] for r in range(size)]] * size


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", range(1, 9))
def test_all_reduce_adds_in_place(cluster, size, dtype):
    factor = size * (size + 1) // 2
    for total, in_place, sent in cluster.run(ranks.add, size, [1.0, -0.5, 0.0], dtype):
        assert total == [factor, -0.5 * factor, 0.0]
        assert in_place
        assert sent == 2 * 3 * dtype.itemsize * (size - 1) // size


def test_all_reduce_of_nothing(cluster):
    assert cluster.run(ranks.add, 3, [], torch.float32) == [([], True, 0)] * 3


def test_ranks_that_agree_learn_who_raised_the_flag(cluster):
    assert cluster.run(ranks.agree, 4, ["red"] * 4) == [[]] * 4
    assert cluster.run(ranks.agree, 4, ["red"] * 4, (1, 3)) == [[1, 3]] * 4


@pytest.mark.parametrize("size", range(2, 9))
def test_ranks_that_disagree_all_learn_who_said_what(cluster, size):
    texts = ["red"] * (size - 1) + ["a rather long ü"]
    for error in cluster.run(ranks.agree, size, texts, expect=DisagreementError):
        assert "disagree on the colour" in error.text
        assert all(f"rank {r}: {text}" in error.text for r, text in enumerate(texts))


def test_without_a_process_group_everything_is_the_identity():
    assert not torch.distributed.is_initialized()
    comm = GroupCommunicator()
    x = torch.arange(3.0)
    assert (comm.rank, comm.size) == (0, 1)
    assert comm.all_reduce(x) is x
    assert [part.tolist() for part in comm.all_gather(x)] == [[0, 1, 2]]
    assert comm.all_gather_meta([4, 5]) == [[4, 5]]
    assert comm.agree("the colour", "red", True) == [0]
    comm.exchange({}, {})
    assert (comm.traffic.sent, comm.traffic.received) == (0, 0)
    comm.close()


def test_communicators_can_follow_one_another(cluster):
    expected = [[[r + turn] for r in range(3)] for turn in range(4)]
    assert cluster.run(ranks.reopen, 3, 4) == [expected] * 3


def test_ranks_may_belong_to_different_numbers_of_groups(cluster):
    assert cluster.run(ranks.after_uneven_groups, 3) == [[[0], [1], [2]]] * 3


def test_two_groups_side_by_side(cluster):
    left, right = [[0], [1], [2]], [[3], [4], [5]]
    expected = [(r, 3, left) for r in range(3)] + [(r, 3, right) for r in range(3)]
    assert cluster.run(ranks.in_two_halves, 6) == expected


def test_groups_are_destroyed_in_the_same_order_on_all_ranks(monkeypatch):
    """Payloads first, lane by lane, then numbers; with Gloo both go over one group."""
    destroyed = []
    for module in ("communicator", "lanes"):
        monkeypatch.setattr(f"thinwire.comm.{module}.let_go", destroyed.append)
    for made in (["first", "second"], []):
        comm = GroupCommunicator()
        comm._meta_group = "numbers"
        if made:
            comm._lanes = Lanes(partial(next, iter(made)))
            with comm.lane(1):
                assert comm._payload_group == "second"
        assert comm._payload_group == (made or ["numbers"])[0]
        comm.close()
        comm.close()  # nothing is left
    assert destroyed == ["first", "second", "numbers", "numbers"]


def test_a_payload_longer_than_what_goes_ahead_takes_two_rounds():
    assert [rounds(size) for size in (0, EAGER, EAGER + 1)] == [1, 1, 2]
    assert rounds(1, "nccl") == 2


@pytest.mark.parametrize(("size", "ranks", "share"), [(100, 1, 0), (100, 2, 100), (10, 4, 15)])
def test_a_ring_sends_all_but_a_rank_s_part_twice(size, ranks, share):
    assert ring_bytes(size, ranks) == share


@pytest.fixture
def mortal():
    """A cluster of its own, since a rank will die."""
    with Cluster(3) as cluster:
        yield cluster


@pytest.mark.parametrize("operation", ["allreduce", "exchange", "handshake"])
def test_a_peer_that_dies_is_named_by_phase(mortal, operation):
    outcomes = mortal.outcomes(ranks.loses_a_peer, 3, operation)
    assert outcomes[1].name == "Died"
    for rank in (0, 2):
        assert outcomes[rank].is_a(ExchangeError), outcomes[rank]
        assert f"rank {rank} of 3: {operation} over gloo broke off" in outcomes[rank].text


@pytest.mark.parametrize("operation", ["allreduce", "exchange", "handshake"])
def test_a_peer_that_does_not_answer_is_given_up(cluster, operation):
    outcomes = cluster.outcomes(ranks.waits_in_vain, 3, operation)
    for rank in (0, 2):
        assert outcomes[rank].is_a(ExchangeError), outcomes[rank]
        assert f"rank {rank} of 3: {operation} over gloo broke off" in outcomes[rank].text


def handed_out(group, rank, size):
    """What a rank has afterwards of tensors of all kinds, as texts, and in a gap of one of them."""
    comm = GroupCommunicator(group)
    numbers = torch.arange(24).view(2, 3, 4) + 7 * rank
    kinds = {str(dtype): numbers.to(dtype) for dtype in DTYPES}
    kinds["transposed"] = numbers.transpose(0, 2)
    kinds["otherwise on each rank"] = (numbers.mT.contiguous().mT if rank else numbers).float()
    kinds["channels last"] = numbers[None].float().to(memory_format=torch.channels_last)
    around = numbers.clone()
    kinds["with gaps"] = around[:, ::2, ::3]
    kinds["expanded"] = numbers[:, :1].clone().expand(2, 3, 4)
    kinds["one element, expanded"] = numbers[:1, :1, :1].clone().expand(2, 3, 4)
    kinds["of one"], kinds["of none"] = torch.tensor(rank), numbers[:0]
    for tensor in kinds.values():
        comm.broadcast(tensor)
    with pytest.raises(RecipeError, match=r"torch.sparse_coo .*\(3, 3\).*dense"):
        comm.broadcast(torch.eye(3).to_sparse())
    comm.close()
    return {kind: str(tensor.tolist()) for kind, tensor in kinds.items()}, around[0, 1, 1].item()


DTYPES = [
    torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.bool, torch.complex64, torch.bfloat16, torch.float16, torch.float32, torch.int64,
]  # fmt: skip


def test_what_is_handed_out_may_be_of_any_dtype_and_lie_in_any_way(cluster):
    (there, gap), (here, other) = cluster.run(handed_out, 2)
    assert here == there
    assert (gap, other) == (5, 12)  # each rank's own
