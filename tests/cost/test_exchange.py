"""Cost models send as many bytes as real exchanges do, and reduce to the papers' equations.

Covers cost/network.py, cost/shared_support.py, cost/wire_size.py.
"""

import sys
from dataclasses import replace
from math import log2

import pytest
import torch

from support.cluster import Cluster
from support.cost_ranks import N, mean_sent, nodes_sent, written
from thinwire.codec import Pair
from thinwire.codec.sketch import CountSketch
from thinwire.collective import (
    AllGather,
    CltK,
    Dense,
    FewBits,
    GTopK,
    Micro,
    OkTopK,
    OmniReduce,
    SketchAllReduce,
    SparCML,
    SparDL,
    UnionAllReduce,
    Zen,
)
from thinwire.cookbook.registry import pieces
from thinwire.cost.exchange import Load
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import exchange_cost, pattern
from thinwire.cost.wire_size import wire_bytes
from thinwire.errors import RecipeError, ThinwireError

K = N // 100
RARELY = 10**6  # steps: what Ok-Topk's evaluations send is shared out over so many
OK_TOPK = OkTopK(K / N, boundary_interval=RARELY, threshold_interval=RARELY)
RAW = Pair()
# Tolerances; OmniReduce's blocks are few, and who owns which of Zen's elements is
# drawn, so that there is sampling error.
SMALL = Pair(pieces("index")["rice"](), pieces("value")["bf16"]())
CASES = {
    "dense": (Dense(), None, 1, 0.001),
    "bf16": (Dense("bf16"), None, 1, 0.001),
    "int8": (FewBits(8), None, 1, 0.001),
    "int4": (FewBits(4), None, 1, 0.001),
    "allgather": (AllGather(), RAW, 1, 0.005),
    "allgather rice+bf16": (AllGather(), SMALL, 1, 0.02),
    "gtopk": (GTopK(K / N), RAW, 1, 0.005),
    "gtopk of less": (GTopK(K / N / 10), RAW, 1, 0.005),
    "ok-topk": (OK_TOPK, RAW, 1, 0.01),
    "ok-topk of less": (replace(OK_TOPK, density=K / N / 10), RAW, 1, 0.01),
    "ok-topk of more": (replace(OK_TOPK, density=1.5 * K / N), RAW, 1, 0.01),
    "ok-topk rice+bf16": (OK_TOPK, SMALL, 1, 0.01),
    "ok-topk, evaluating": (OkTopK(K / N, boundary_interval=1, threshold_interval=1), RAW, 1, 0.02),
    "sparcml": (SparCML(), RAW, 1, 0.02),
    "sparcml of much": (SparCML(), RAW, 1, 0.02),
    "omnireduce": (OmniReduce(256), RAW, 256, 0.1),
    "union": (UnionAllReduce(64), None, 64, 0.05),
    "union of elements": (UnionAllReduce(64), None, 1, 0.05),
    "clt-k": (CltK(), None, 1, 0.005),
    "clt-k bf16": (CltK("bf16"), None, 1, 0.005),
    "micro": (Micro(), None, 1, 0.005),
    "zen": (Zen(), RAW, 1, 0.03),
    "zen rice+bf16": (Zen(), SMALL, 1, 0.03),
    "spardl": (SparDL(K / N), RAW, 1, 0.03),
    "sketch": (SketchAllReduce(64), CountSketch(), 64, 0.05),
}


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_real_runs(cluster, name, size):
    """Within the tolerance beside each case; ranks select independently."""
    collective, codec, width, tolerance = CASES[name]
    k = N // 4 if name == "sparcml of much" else N if isinstance(collective, Dense | FewBits) else K
    k = k // width * width
    sent, counts = zip(*cluster.run(mean_sent, size, collective, codec, k, width), strict=True)
    counted = sum(sent) / size
    if isinstance(collective, OkTopK):
        # A reused threshold lets through more or less than k: that is what its second phase sends.
        collective = replace(collective, density=counts[0] / N)
    load = Load(size, N, k, width=width)
    assert pattern(collective, codec, load).sent == pytest.approx(counted, rel=tolerance)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's struct tcp_info")
OK_TOPKS = ["ok-topk", "ok-topk, evaluating"]


def check_sockets(cluster, name, size):
    collective, codec, _, _ = CASES[name]
    k = N if isinstance(collective, Dense) else K
    sent, counts = zip(*cluster.run(written, size, collective, codec, k), strict=True)
    if isinstance(collective, OkTopK):
        collective = replace(collective, density=counts[0] / N)
    model = pattern(collective, codec, Load(size, N, k))
    assert model.framed == pytest.approx(sum(sent) / size, rel=0.03)


@on_linux
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", [*OK_TOPKS, "allgather", "gtopk", "sparcml", "bf16"])
def test_bytes_on_sockets_are_the_model_s_with_gloo_s_frames(cluster, name, size):
    check_sockets(cluster, name, size)


@on_linux
def test_with_16_ranks_frames_are_much_of_what_ok_topk_writes():
    """A step that evaluates thresholds and regions has 600 messages, most of them tiny."""
    with Cluster(16) as cluster:
        for name in OK_TOPKS:
            check_sockets(cluster, name, 16)
    evaluating, codec, _, _ = CASES[OK_TOPKS[1]]
    model = pattern(evaluating, codec, Load(16, N, K))
    assert model.framed > 1.5 * model.sent


def test_two_levels_send_what_the_nodes_do(cluster):
    sent = cluster.run(nodes_sent, 4, AllGather(), RAW, K)
    network = Network(Link(1e-4, 1e-9), inside=Link(1e-5, 1e-10), node_size=2)
    _, predicted, _ = exchange_cost(AllGather(), RAW, Load(4, N, K), network)
    assert predicted == pytest.approx(sum(sent) / 4, rel=0.005)


def test_two_levels_cost_what_both_networks_do():
    inside, between = Link(1e-5, 1e-10), Link(1e-3, 1e-8)
    network = Network(between, inside=inside, node_size=4)
    seconds, _, leaders = exchange_cost(AllGather(), RAW, Load(32, N, K), network)
    summed = pattern(Dense(), None, Load(4, N, N)).seconds(Network(inside))
    handed_out = 2 * inside.alpha + 4 * N * inside.beta
    assert seconds == pytest.approx(leaders.seconds(Network(between)) + summed + handed_out)
    assert leaders == pattern(AllGather(), RAW, Load(8, N, K))


def test_a_dense_ring_is_the_textbooks():
    link = Link(3e-4, 1e-9)
    for workers in (2, 5, 64):
        seconds = pattern(Dense(), None, Load(workers, N, N)).seconds(Network(link))
        volume = 2 * (workers - 1) / workers * 4 * N
        assert seconds == pytest.approx(2 * (workers - 1) * link.alpha + volume * link.beta)


@pytest.mark.parametrize("workers", [2, 8, 64])
def test_dragonns_saving_is_dense_less_allgather_less_what_it_leaves_out(workers):
    """DRAGONN, equation 2: (P-1)·(α + (2/P - γ)·4nβ) seconds.

    The paper has 1/P in place of 2/P, though its dense ring sends 2·(P-1)/P; and its γ is the
    density, where that of the wire counts the indices too. Left out there: the size, 8 bytes, and
    the header of each payload.
    """
    link, n, k = Link(1e-4, 1e-9), 1 << 20, 1 << 14
    network = Network(link)
    dense = pattern(Dense(), None, Load(workers, n, n)).seconds(network)
    gathered = pattern(AllGather(), RAW, Load(workers, n, k)).seconds(network)
    gamma = 2 * k / n  # an index for each value
    left_out = (workers - 1) * (8 + 64) * link.beta
    saving = (workers - 1) * (link.alpha + (2 / workers - gamma) * 4 * n * link.beta)
    assert dense - gathered == pytest.approx(saving - left_out)


@pytest.mark.parametrize("workers", [4, 32])
def test_gtopk_is_the_papers_formula_with_lengths_and_headers(workers):
    link, n, k = Link(0.436e-3, 9e-9), 25_000_000, 25_000
    hops = 2 * log2(workers)
    paper = hops * link.alpha + 4 * k * 4 * log2(workers) * link.beta  # 4k words: equation 7
    ours = pattern(GTopK(k / n), RAW, Load(workers, n, k)).seconds(Network(link))
    assert ours == pytest.approx(paper + hops * (8 + 64) * link.beta, rel=1e-3)


def test_oktopk_stays_below_its_bound_and_does_not_grow_with_the_ranks():
    n, k = 25_600_000, 256_000
    sent = [pattern(OkTopK(k / n), RAW, Load(p, n, k)).sent for p in (8, 64)]
    assert all(s < 6 * k * 4 for s in sent)
    assert sent[1] < 1.2 * sent[0]
    gathered = [pattern(AllGather(), RAW, Load(p, n, k)).sent for p in (8, 64)]
    assert gathered[1] == pytest.approx(9 * gathered[0])


def test_a_payload_larger_than_its_first_message_takes_two_rounds():
    small, large = (pattern(AllGather(), RAW, Load(2, 10**8, k)).stages[0] for k in (10**5, 10**6))
    assert (small.rounds, large.rounds) == (1, 2)


def test_messages_that_leave_together_share_one_latency():
    (payload,) = pattern(AllGather(), RAW, Load(9, N, K)).stages
    assert Link(1.0, 0.0).seconds(payload.rounds, payload.messages, 0) == 8
    assert Link(1.0, 0.0, 0.0).seconds(payload.rounds, payload.messages, 0) == 1


@pytest.mark.parametrize(("alike", "union"), [(0.0, 1 - 0.9**4), (1.0, 0.1)])
def test_the_union_of_selections(alike, union):
    assert Load(4, 1000, 100, alike).union(1000, 100) == pytest.approx(1000 * union)


def test_index_bytes_narrow_where_rows_are_few():
    assert wire_bytes(RAW, 1000, 2**20) == pytest.approx(64 + 8 * 1000, abs=8)
    assert wire_bytes(RAW, 1000, 2**16) == pytest.approx(64 + 6 * 1000, abs=8)
    assert wire_bytes(SMALL, 10_000, 10**6) == pytest.approx(64 + 10_000 * (8.2 + 16) / 8, rel=0.02)


def test_networks_survive_json_and_refuse_nonsense():
    network = Network(Link(1e-4, 1e-9, 1e-5), Link(1e-5, 2e-9), Link(1e-6, 1e-10), 8, 0.1)
    assert Network.from_dict(network.to_dict()) == network
    for wrong in (
        lambda: Link(-1, 0),
        lambda: Link.of(0, 1e-4),
        lambda: Network(Link(0, 0), node_size=2),
    ):
        with pytest.raises(ThinwireError):
            wrong()
    with pytest.raises(RecipeError, match="cost model"):
        pattern(torch.nn.Identity(), None, Load(2, 10, 1))
