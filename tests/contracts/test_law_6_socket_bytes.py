"""Law 6, bounds: bytes as the kernel counts them on the sockets, by each paper's formula.

On top of the formula come, and are stated here: 64 bytes of header and up to 14 of padding for
each payload, 8 for its length, Gloo's framing of each message, and the small histograms by which
Ok-Topk agrees on thresholds and boundaries in a step that evaluates them anew.
"""

import math
import sys

import pytest
import torch
import torch.distributed as dist

from support.sockets import settled_socket_bytes
from thinwire.bench.sockets import socket_bytes
from thinwire.codec import Pair
from thinwire.collective import AllGather, CltK, FewBits, GTopK, Micro, OkTopK, SparDL, Zen
from thinwire.comm import GroupCommunicator
from thinwire.cookbook.registry import pieces
from thinwire.types import ExchangeContext, Sparse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's struct tcp_info")

N, K, WORD = 1 << 20, 8192, 4
PER_MESSAGE = 64 + 14 + 8 + 400  # header, padding, length; Gloo frames a message and its length


def selection(case: str, rank: int, size: int) -> torch.Tensor:
    """Ascending indices of what a rank selected."""
    generator = torch.Generator().manual_seed(rank)
    if case == "uniform":
        return torch.randperm(N, generator=generator)[:K].sort().values
    if case == "one region":  # all in the first hundredth of the tensor
        return torch.randperm(N // 100, generator=generator)[:K].sort().values
    if case == "one worker's region":  # where equal regions would put them with the last rank
        start = N - N // size
        return start + torch.randperm(N // size, generator=generator)[:K].sort().values
    if case == "disjoint":
        return torch.arange(K) + rank * K
    assert case == "identical"
    return torch.arange(K) * (N // K)


CASES = ["uniform", "one region", "one worker's region", "disjoint", "identical"]


def bytes_on_sockets(group, rank, size, collective, steps):
    """For each case, what each step sent and received, and how many elements it came to."""
    settled_socket_bytes()
    comm = GroupCommunicator(group)
    by_case = {case: bytes_of(group, comm, collective, case, steps) for case in CASES}
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    comm.close()
    return by_case


def bytes_of(group, comm, collective, case, steps):
    rank, size = comm.rank, comm.size
    generator = torch.Generator().manual_seed(100 + rank)
    indices, memory, out = selection(case, rank, size), {}, []
    for step in range(steps):
        s = Sparse(indices, torch.randn(K, generator=generator), N)
        ctx = ExchangeContext(tensor="t", step=step, seed=0, comm=comm, memory=memory)
        dist.barrier(group)
        before = socket_bytes()
        reduced = collective.exchange(s, Pair(), ctx)
        dist.barrier(group)
        after = socket_bytes()
        total = reduced.total
        count = total.count if isinstance(total, Sparse) else int(total.count_nonzero())
        out.append((after[0] - before[0], after[1] - before[1], count))
    return out


def each_case(cluster, size, collective, steps):
    """Each case and what the ranks saw of it."""
    by_rank = cluster.run(bytes_on_sockets, size, collective, steps)
    return [(case, [results[case] for results in by_rank]) for case in CASES]


BARRIERS = 2 * 8 * 200  # the test's own, of at most 8 ranks


def most(results, step, way):
    return max(rank[step][way] for rank in results)


@pytest.mark.parametrize("size", range(2, 9))
def test_allgather_sends_2k_words_to_each_peer(cluster, size):
    formula = 2 * K * (size - 1) * WORD
    for case, results in each_case(cluster, size, AllGather(), 1):
        for way in (0, 1):
            moved = most(results, 0, way)
            assert formula <= moved <= formula + (size - 1) * PER_MESSAGE + BARRIERS, case


@pytest.mark.parametrize("size", range(2, 9))
def test_gtopk_moves_4k_log_p_words(cluster, size):
    rounds = math.ceil(math.log2(size))
    bound = 4 * K * rounds * WORD + 2 * rounds * PER_MESSAGE + 2 * BARRIERS
    for case, results in each_case(cluster, size, GTopK(K / N), 1):
        assert max(sent + received for ((sent, received, _),) in results) <= bound, case


@pytest.mark.parametrize("size", range(2, 9))
def test_oktopk_moves_6k_words_whatever_the_number_of_ranks(cluster, size):
    messages = 4 * size * PER_MESSAGE  # split, balance, gather, counts
    # Values are drawn anew, so the second step may still evaluate its threshold: 4 digits.
    histograms = 4 * (2048 + 600) * 2 * (size - 1) / size * 2
    for case, results in each_case(cluster, size, OkTopK(K / N), 2):
        k = max(K, results[0][1][2])
        formula = 6 * k * (size - 1) / size * WORD
        for way in (0, 1):
            assert most(results, 1, way) <= formula + messages + histograms + BARRIERS, case


@pytest.mark.parametrize("size", range(2, 9))
def test_cltk_moves_k_indices_and_the_ring_s_share_of_k_values(cluster, size):
    """k of each whatever P is; down a tree its root sends log P times."""
    ring = 2 * K * (size - 1) / size * WORD
    rounds = math.ceil(math.log2(size))
    around = 2 * size * PER_MESSAGE + BARRIERS
    for case, results in each_case(cluster, size, CltK(), 1):
        assert most(results, 0, 1) <= ring + K * WORD + around, case
        assert most(results, 0, 0) <= ring + rounds * K * WORD + around, case
        assert most(results, 0, 1) >= ring


@pytest.mark.parametrize("size", range(2, 9))
def test_micro_moves_the_lists_and_the_ring_s_share_of_their_union(cluster, size):
    """Lists of k, here as long as those of others: with `partition` they are a P-th of it."""
    for case, results in each_case(cluster, size, Micro(), 1):
        union = torch.unique(torch.cat([selection(case, r, size) for r in range(size)])).numel()
        ring = 2 * union * (size - 1) / size * WORD
        lists = (size - 1) * K * WORD / 2  # 16 bits each, and less
        for way in (0, 1):
            moved = most(results, 0, way)
            assert ring <= moved <= ring + lists + 3 * size * PER_MESSAGE + BARRIERS, case


@pytest.mark.parametrize("size", range(2, 9))
def test_zen_moves_k_pairs_there_and_a_bitmap_and_the_union_back(cluster, size):
    """Owners are within 1.1 of the mean, wherever the elements are; n/32 words of bitmaps."""
    for case, results in each_case(cluster, size, Zen(), 1):
        union = torch.unique(torch.cat([selection(case, r, size) for r in range(size)])).numel()
        there = 2 * 1.1 * K * (size - 1) / size * WORD
        back = (N / 32 + 1.1 * union) * (size - 1) / size * WORD
        for way in (0, 1):
            assert most(results, 0, way) <= there + back + 2 * size * PER_MESSAGE + BARRIERS, case


@pytest.mark.parametrize("size", range(2, 9))
def test_spardl_moves_4k_words_whatever_the_number_of_ranks(cluster, size):
    formula = 4 * (K + size) * (size - 1) / size * WORD  # of each block k is rounded
    for case, results in each_case(cluster, size, SparDL(K / N), 1):
        for way in (0, 1):
            assert most(results, 0, way) <= formula + 2 * size * PER_MESSAGE + BARRIERS, case


def dense_bytes(group, rank, size, collective):
    """Of one exchange of a whole tensor."""
    comm = GroupCommunicator(group)
    x = torch.randn(N, generator=torch.Generator().manual_seed(rank))
    ctx = ExchangeContext(tensor="t", step=0, seed=0, comm=comm)
    dist.barrier(group)
    before = socket_bytes()
    collective.exchange(x, None, ctx)
    dist.barrier(group)
    after = socket_bytes()
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    comm.close()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("bits", [8, 4])
def test_few_bits_move_their_bits_twice(cluster, size, bits):
    """2·(P-1)/P of the tensor, as a ring does, in `bits` an element and 5 % for the scales."""
    formula = 2 * N * bits / 8 * (size - 1) / size
    messages = 2 * (size - 1) * PER_MESSAGE
    for moved in zip(*cluster.run(dense_bytes, size, FewBits(bits)), strict=True):
        assert formula <= max(moved) <= 1.05 * formula + messages + BARRIERS


def coded_bytes(group, rank, size, codec):
    """Ok-Topk's bytes in a step that reuses its threshold, with a codec in every hop."""
    comm, memory = GroupCommunicator(group), {}
    for step in range(2):
        indices = selection("uniform", rank, size)
        values = torch.randn(K, generator=torch.Generator().manual_seed(rank))
        ctx = ExchangeContext(tensor="t", step=step, seed=0, comm=comm, memory=memory)
        dist.barrier(group)
        before = socket_bytes()
        OkTopK(K / N).exchange(Sparse(indices, values, N), codec, ctx)
        dist.barrier(group)
        after = socket_bytes()
    dist.barrier(group)  # who is done lets go of its sockets, and so its peers of theirs
    comm.close()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(("index", "value"), [("rice", "bf16"), ("regional", "qsgd")])
def test_a_codec_in_every_hop_takes_oktopk_below_the_bound_for_coo(cluster, size, index, value):
    """2k·(P-1)/P words is the least that any allreduce of COO entries can move (Ok-Topk, 3.2)."""
    codec = Pair(pieces("index")[index](), pieces("value")[value]())
    results = cluster.run(coded_bytes, size, codec)
    lower_bound = 2 * K * (size - 1) / size * WORD
    assert max(max(pair) for pair in results) < lower_bound
