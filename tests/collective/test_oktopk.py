"""Ok-Topk: the sum of all selections, pruned, in O(k) bytes, with nothing lost on the way."""

import io
import math

import pytest
import torch

import thinwire as tw
from thinwire.codec import Pair
from thinwire.codec.value import Bf16Value, Fp16Value, QsgdValue
from thinwire.collective.oktopk import OkTopK
from thinwire.collective.oktopk.balance import Shares
from thinwire.collective.oktopk.regions import agree_on_regions
from thinwire.collective.oktopk.threshold import keep, kth_largest, magnitude_bits, quotas
from thinwire.collective.oktopk.xi import xi
from thinwire.comm import GroupCommunicator
from thinwire.errors import RecipeError
from thinwire.sparsify import ReusedThreshold
from thinwire.types import ExchangeContext, Sparse

CODECS = {
    "raw": Pair(),
    "bf16": Pair(value=Bf16Value()),
    "fp16": Pair(value=Fp16Value()),
    "qsgd": Pair(value=QsgdValue(bits=4)),
}
CASES = (
    "uniform",
    "identical",
    "disjoint",
    "disjoint, next door",
    "clustered",
    "one region survives",
    "one rank survives",
    "swapped",
    "one rank has all",
    "ties",
)
HEADER = 72  # a message's header and padding
NUMEL, K = 100_000, 4_000


def selection(case, rank, size, numel=NUMEL, k=K, step=0, dtype=torch.float32):
    """What a rank selected: a function of its address, so that each rank knows all of them."""
    draw = torch.Generator().manual_seed(1000 * step + (0 if case == "identical" else rank))
    slice_, partner = numel // size, rank ^ 1 if rank ^ 1 < size else rank
    low, high = {
        "swapped": (partner * slice_, (partner + 1) * slice_),
        "disjoint": (rank * slice_, (rank + 1) * slice_),
        "disjoint, next door": ((rank + 1) % size * slice_, ((rank + 1) % size + 1) * slice_),
        "one rank survives": ((rank + 1) % size * slice_, ((rank + 1) % size + 1) * slice_),
        "clustered": (numel // 2, numel // 2 + 3 * k),
    }.get(case, (0, numel))
    count = 0 if case == "one rank has all" and rank != size - 1 else min(k, high - low)
    indices = low + torch.randperm(high - low, generator=draw)[:count].sort().values
    values = torch.randn(count, generator=draw, dtype=dtype)
    if case == "one region survives":
        values[indices < slice_] *= 1000
    if (case, rank) in (("one rank survives", 0), ("swapped", min(3, size - 1))):
        values *= 1000
    if case == "ties":
        values = values.sign()
    return Sparse(indices, values, numel)


def context(comm, step=0, memory=None, density=None):
    memory = {} if memory is None else memory
    return ExchangeContext(tensor="w", step=step, seed=7, comm=comm, memory=memory, density=density)


def summed(s, comm):
    return comm.all_reduce(s.to_dense().double())


def same_everywhere(total, comm):
    bits = magnitude_bits(total.values).long() * 31 + total.indices * 17 + (total.values < 0)
    prints = [total.count, int(bits.sum()), int((bits * torch.arange(total.count)).sum())]
    assert len({tuple(row) for row in comm.all_gather_meta(prints)}) == 1


# One exchange: the sum, pruned; nothing lost; the same everywhere.


def exchanges(group, rank, size, cases, codecs, settings=None):
    comm = GroupCommunicator(group)
    for case in cases:
        for codec in codecs:
            one_exchange(comm, case, codec, **(settings or {}))


def one_exchange(comm, case, codec, k=K, **settings):
    rank, size = comm.rank, comm.size
    everyone = [selection(case, r, size, k=k) for r in range(size)]
    mine, collective = everyone[rank], OkTopK(k / NUMEL, **settings)
    reduced = collective.exchange(mine, CODECS[codec], context(comm))
    again = collective.exchange(mine, CODECS[codec], context(comm))
    total, delivered = reduced.total, reduced.delivered
    for a, b in ((total, again.total), (delivered, again.delivered)):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.values, b.values)
    assert (total.indices.diff() > 0).all()
    assert (delivered.indices.diff() > 0).all()
    assert delivered.numel == total.numel == NUMEL
    same_everywhere(total, comm)
    # Float32 rounds sums of large terms that nearly cancel: its rounding is that of the largest.
    atol = 1e-6 * max(float(s.values.abs().max()) for s in everyone if s.count)
    torch.testing.assert_close(
        summed(delivered, comm), total.to_dense().double(), rtol=1e-6, atol=atol
    )
    exact = sum(s.to_dense().double() for s in everyone)
    union = torch.cat([s.indices for s in everyone]).unique()
    assert total.count == min(k, union.numel())
    if codec == "raw":
        torch.testing.assert_close(
            total.values.double(), exact[total.indices], rtol=1e-6, atol=1e-5
        )
        pruned = exact.clone()
        pruned[total.indices] = 0
        assert pruned.abs().max() <= total.values.abs().min() * (1 + 1e-6)
        survived = torch.isin(mine.indices, total.indices)
        assert torch.equal(delivered.indices, mine.indices[survived])
        assert torch.equal(delivered.values, mine.values[survived])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_the_sum_of_what_was_delivered_is_the_pruned_sum(cluster, size):
    cluster.run(exchanges, size, CASES, ["raw"])


@pytest.mark.parametrize("size", [1, 4])
def test_rounding_is_charged_to_the_sender(cluster, size):
    cases = ["uniform", "identical", "one region survives", "ties"]
    cluster.run(exchanges, size, cases, ["bf16", "fp16", "qsgd"])


@pytest.mark.parametrize(
    "settings",
    [
        {"in_flight": 1},
        {"in_flight": 16},
        {"consensus": "average"},
        {"consensus": "equal", "balance": "never"},
        {"balance": "rule"},
    ],
)
def test_settings_change_how_not_what(cluster, settings):
    cluster.run(exchanges, 5, ["uniform", "clustered"], ["raw"], settings)


# Volume.


def volumes(group, rank, size, cases):
    comm = GroupCommunicator(group)
    return [volume(comm, case) for case in cases]


def volume(comm, case):
    """Bytes sent and received in a step that evaluates everything and in one that reuses, and k."""
    mine, memory, sent, received = selection(case, comm.rank, comm.size), {}, [], []
    for step in range(2):
        before = comm.traffic.sent, comm.traffic.received
        total = OkTopK(K / NUMEL).exchange(mine, Pair(), context(comm, step, memory)).total
        sent.append(comm.traffic.sent - before[0])
        received.append(comm.traffic.received - before[1])
    selected = [count for (count,) in comm.all_gather_meta([mine.count])]
    return sent, received, max(*selected, total.count)


def overhead(size):
    """Beyond the entries: headers and lengths of all messages, and the gathered counts."""
    split, counts = (HEADER + 8) * (size - 1), 6 * 8 * (size - 1)
    balance, gather = (HEADER + 8) * size, (8 + size * (HEADER + 8)) * (size - 1)
    return split + counts + balance + gather


def histograms(size):
    """In a step that evaluates: digits of the threshold, its counts, rounds of the boundaries."""
    return 2 * 4 * 256 * 8 + 2 * 8 * (size - 1) + 5 * 2 * 65 * 8 * size + 2 * 8 * size


@pytest.mark.parametrize("size", range(2, 9))
def test_bytes_stay_within_the_papers_bound(cluster, size):
    for by_case in cluster.run(volumes, size, CASES):
        for case, (sent, received, k) in zip(CASES, by_case, strict=True):
            bound = 6 * k * 4 * (size - 1) / size
            for traffic in (sent, received):
                assert traffic[1] <= bound + overhead(size), case
                assert traffic[0] <= bound + overhead(size) + histograms(size), case


def test_next_door_is_made_home(cluster):
    """Rotated ownership: selections that no other rank shares need not travel twice."""
    for by_case in cluster.run(volumes, 4, ["disjoint", "disjoint, next door"]):
        for sent, _, k in by_case:
            assert sent[1] <= 2 * k * 4 * 3 / 4 * 1.1 + overhead(4)


# Boundaries.


def loads(group, rank, size, cases):
    comm = GroupCommunicator(group)
    out = []
    for case in cases:
        mine = selection(case, rank, size)
        regions = agree_on_regions(mine, comm, "histogram")
        counts = torch.tensor([part.count for part in regions.cut(mine)])
        out.append((regions, comm.all_reduce(counts).tolist()))
    return out


@pytest.mark.parametrize("size", [2, 3, 8])
def test_boundaries_balance_the_sum(cluster, size):
    cases = ["uniform", "clustered", "disjoint", "one rank has all"]
    by_rank = cluster.run(loads, size, cases)
    for results in zip(*by_rank, strict=True):
        assert len({regions for regions, _ in results}) == 1
        share = sum(results[0][1]) / size
        assert max(results[0][1]) <= share * (1 + 2 / 32) + size


def lopsided(group, rank, size, consensus):
    """One rank selects evenly, the other near the end."""
    comm = GroupCommunicator(group)
    low = 0 if rank == 0 else NUMEL * 9 // 10
    mine = Sparse(torch.arange(low, low + 1000), torch.ones(1000), NUMEL)
    regions = agree_on_regions(mine, comm, consensus)
    counts = torch.tensor([part.count for part in regions.cut(mine)])
    return comm.all_reduce(counts).tolist()


def test_averaged_cuts_do_not_balance_where_selections_differ(cluster):
    assert max(cluster.run(lopsided, 3, "average")[0]) > 1.4 * 1000
    assert max(cluster.run(lopsided, 3, "histogram")[0]) < 1.1 * 1000


class Counting:
    """A communicator that counts its allreduces."""

    def __init__(self, comm):
        self.comm, self.reductions = comm, 0

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def all_reduce(self, tensor):
        self.reductions += 1
        return self.comm.all_reduce(tensor)


def reductions(group, rank, size, steps, case_at):
    comm, memory, seen = Counting(GroupCommunicator(group)), {}, []
    collective = OkTopK(K / NUMEL, boundary_interval=6, threshold_interval=4)
    for step in range(steps):
        before = comm.reductions
        mine = selection(case_at(step), rank, size, step=step)
        collective.exchange(mine, Pair(), context(comm, step, memory))
        seen.append(comm.reductions - before)
    return seen


def always_uniform(step):
    return "uniform"


def suddenly_clustered(step):
    return "clustered" if step == 2 else "uniform"


def test_nothing_is_evaluated_between_the_intervals(cluster):
    for seen in cluster.run(reductions, 3, 9, always_uniform):
        assert [step for step, n in enumerate(seen) if n] == [0, 4, 6, 8]
        assert seen[4] == seen[8] == 4  # digits of a float32
        assert seen[6] >= 2


def test_imbalance_and_drift_are_answered_at_once(cluster):
    for seen in cluster.run(reductions, 3, 4, suddenly_clustered):
        assert seen[1] == 0
        assert seen[3] > 0  # the boundaries, which step 2 found out of balance


# The threshold.


def all_kth(group, rank, size):
    comm = GroupCommunicator(group)
    for dtype in (torch.float32, torch.float64):
        for k in (1, 2, 77, 1499, 1500):
            for tied in (False, True):
                kth(comm, dtype, k, tied)


def kth(comm, dtype, k, tied):
    draw = torch.Generator().manual_seed(3)
    values = torch.randn(3, 500, generator=draw, dtype=dtype)
    values = values.sign() if tied else values
    values[0, 0] = 0.0
    found = kth_largest(magnitude_bits(values[comm.rank]), k, comm)
    expected = values.abs().flatten().sort(descending=True).values[k - 1]
    assert found == int(magnitude_bits(expected))


def test_the_kth_largest_of_all_ranks_is_exact(cluster):
    cluster.run(all_kth, 3)


def test_ties_go_to_the_first():
    assert quotas([3, 0, 5, 2], 6) == [3, 0, 3, 0]
    assert quotas([3, 1], 0) == [0, 0]
    assert keep(torch.tensor([5, 3, 5, 9, 5, 1]), 5, 2).tolist() == [0, 2, 3]


def train(group, rank, size, steps, settings, codec="raw", scale=1.0):
    """Counts of nonzero updates over a run with residuals, which lose nothing on the way."""
    numel, density = 30_000, 0.01
    pipeline = tw.Pipeline(
        sparsifier=ReusedThreshold(density),
        codec=CODECS[codec],
        collective=OkTopK(density, **settings),
        unit="model",
        bypass=0,
    )
    sync = tw.Synchronizer(pipeline, group)
    shape = torch.randn(numel, generator=torch.Generator().manual_seed(5)).exp()
    draw = torch.Generator().manual_seed(100 + rank)
    inflow, outflow = torch.zeros(2, numel, dtype=torch.float64)
    counts = []
    for step in range(steps):
        noise = torch.randn(numel, generator=draw)
        grad = shape * (noise + 0.3) * (0.98**step * scale)
        inflow += grad
        update = sync.average_all({"a": grad[:10_000], "b": grad[10_000:]})
        flat = torch.cat((update["a"], update["b"]))
        outflow += flat
        counts.append(int(flat.count_nonzero()))
    state = sync.state_dict()["tensors"]
    waiting = torch.cat([state[name]["feedback/residual"] for name in "ab"]).double()
    all_in, all_waiting = sync.comm.all_reduce(inflow), sync.comm.all_reduce(waiting)
    torch.testing.assert_close(all_in, size * outflow + all_waiting, rtol=1e-4, atol=1e-3)
    return counts, round(density * numel)


@pytest.mark.parametrize("size", [1, 4])
def test_counts_stay_near_k_also_while_residuals_ramp_up(cluster, size):
    for counts, k in cluster.run(train, size, 100, {}):
        deviation = sum(abs(count - k) for count in counts) / len(counts) / k
        assert deviation <= 0.11
        assert max(counts) <= 1.25 * k


def test_the_cap_holds_where_nothing_else_does(cluster):
    settings = {"low": 0.0, "high": math.inf, "cap": 1.5}
    for counts, k in cluster.run(train, 3, 12, settings):
        assert max(counts) == math.floor(1.5 * k)


@pytest.mark.parametrize("codec", ["bf16", "qsgd"])
def test_conserves_through_the_pipeline_with_lossy_codecs(cluster, codec):
    cluster.run(train, 3, 10, {}, codec)


# Memory.


def resumed(group, rank, size):
    def fresh():
        return tw.Synchronizer(
            tw.Pipeline(ReusedThreshold(0.02), collective=OkTopK(0.02), unit="model", bypass=0),
            group,
        )

    def steps(sync, which):
        for step in which:
            draw = torch.Generator().manual_seed(10 * step + rank)
            out = sync.average("w", torch.randn(5000, generator=draw))
        return out

    straight = steps(fresh(), range(8))
    first = fresh()
    steps(first, range(4))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = fresh()
    second.load_state_dict(torch.load(file, weights_only=True))
    return torch.equal(straight, steps(second, range(4, 8)))


def test_resume_is_bit_for_bit(cluster):
    assert cluster.run(resumed, 3) == [True] * 3


def with_memory(group, rank, size, memory, step):
    comm = Counting(GroupCommunicator(group))
    memory = {key: value.clone() for key, value in memory.items()}
    mine = selection("uniform", rank, size)
    total = OkTopK(K / NUMEL).exchange(mine, Pair(), context(comm, step, memory)).total
    return memory, total.count, comm.reductions


def test_memory_of_another_world_is_rebuilt(cluster):
    memory, _, _ = cluster.run(with_memory, 4, {}, 0)[0]
    assert memory["edges"].dtype == torch.int64
    for changed, count, _ in cluster.run(with_memory, 3, memory, 1):
        assert changed["edges"].numel() == 3 + 1
        assert 0.75 * K <= count <= 1.25 * K
    for _, count, reductions in cluster.run(with_memory, 4, memory, 1):
        assert (count, reductions) == (K, 0)
    # A step before the one that evaluated: another run's memory.
    memory["edges_at"], memory["threshold_at"] = torch.tensor(9), torch.tensor(9)
    assert all(reductions for *_, reductions in cluster.run(with_memory, 4, memory, 3))


# Degenerate input.


def small(comm, numel, picks, density, dense):
    """Rank r selects picks[r % len]; everything is checked against the plain sum."""
    rank, size = comm.rank, comm.size
    chosen = [torch.tensor(picks[r % len(picks)], dtype=torch.int64) for r in range(size)]
    everyone = [Sparse(i, i.double() + r + 1, numel) for r, i in enumerate(chosen)]
    mine = everyone[rank].to_dense() if dense else everyone[rank]
    memory = {}
    for step in range(3):
        reduced = OkTopK(density).exchange(mine, Pair(), context(comm, step, memory))
        same_everywhere(reduced.total, comm)
        exact = sum((s.to_dense() for s in everyone), torch.zeros(numel, dtype=torch.float64))
        kept = reduced.total.indices
        assert torch.equal(reduced.total.values, exact[kept])
        assert torch.equal(summed(reduced.delivered, comm), reduced.total.to_dense())
        pruned = exact.clone()
        pruned[kept] = 0
        assert not kept.numel() or pruned.abs().max() <= exact[kept].abs().min()
    return reduced.total.count


FEW = [  # numel, picks, density, how many come out
    (0, [[]], 0.5, 0),
    (1, [[0]], 1.0, 1),
    (3, [[0, 1, 2]], 1.0, 3),
    (3, [[0, 1, 2]], 0.4, 1),
    (100, [[]], 0.1, 0),
    (100, [[7, 99], [], []], 0.1, 2),
    (100, [list(range(100))], 1.0, 100),
]


def all_small(group, rank, size):
    comm = GroupCommunicator(group)
    for numel, picks, density, count in FEW:
        assert small(comm, numel, picks, density, dense=False) == count
        # A dense selection is everything, and zeros up to k are as good as what was picked.
        at_least = round(density * numel)
        assert small(comm, numel, picks, density, dense=True) == max(count, at_least)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_elements_and_none(cluster, size):
    cluster.run(all_small, size)


def huge(group, rank, size):
    numel = 2**34
    comm = GroupCommunicator(group)
    own = 2**33 + rank + 1
    indices = torch.tensor([3, 2**31, 2**33 - 1, 2**33, own * 2 - 2 - rank, numel - 1]).unique()
    mine = Sparse(indices, torch.ones(indices.numel()), numel)
    reduced = OkTopK(4 / numel).exchange(mine, Pair(), context(comm))
    # Five indices are everyone's; among equals the first four are kept.
    assert reduced.total.values.tolist() == [size] * 4
    assert set(reduced.total.indices.tolist()) < {3, 2**31, 2**33 - 1, 2**33, numel - 1}
    assert torch.equal(reduced.delivered.indices, reduced.total.indices)
    return reduced.total.indices.tolist()


@pytest.mark.parametrize("size", [1, 2, 8])
def test_indices_beyond_32_bits_cost_no_memory(cluster, size):
    results = cluster.run(huge, size)
    assert all(indices == results[0] for indices in results)


def rows_and_disorder(group, rank, size):
    comm = GroupCommunicator(group)
    rows = Sparse(torch.tensor([4, 1]), torch.ones(2, 3), 30, ordered=False)
    reduced = OkTopK(1.0).exchange(rows, Pair(), context(comm, density=0.2))
    return reduced.total.indices.tolist(), reduced.total.values.tolist()


def test_rows_become_elements_and_are_sorted(cluster):
    expected = [3, 4, 5, 12, 13, 14], [2.0] * 6
    assert cluster.run(rows_and_disorder, 2) == [expected] * 2


# The rest.


def test_shares_are_balanced_where_it_pays():
    assert not Shares.plan([10, 12, 9, 9], [30] * 4, 40, 4.0).balanced
    assert Shares.plan([40, 0, 0, 0], [30] * 4, 40, 4.0).balanced  # 4 × the mean, not more
    assert not Shares.plan([40, 0], [20, 20], 40, 4.0).balanced  # would send as much
    plan = Shares.plan([37, 0, 1, 2], [30] * 4, 40, 4.0)
    assert plan.piece_cuts == (0, 0, 13, 26, 40)  # who owned most passes all of it on, once
    assert plan.pieces_of(0) == [1, 2, 3]
    assert plan.regions_of(3) == [0, 2, 3]
    assert [plan.overlap(0, j) for j in (1, 2, 3)] == [slice(0, 13), slice(13, 26), slice(26, 37)]
    assert not Shares.plan([40, 0, 0, 0], [30] * 4, 40, 4.0, "rule").balanced
    assert Shares.plan([37, 0, 0, 0, 0, 3], [30] * 6, 40, 4.0, "rule").balanced
    assert not Shares.plan([37, 0, 0, 0, 0, 3], [30] * 6, 40, 4.0, "never").balanced
    two = Shares.plan([20, 20, 0, 0, 0, 0], [30, 30, 0, 0, 0, 0], 40, 2.0)
    assert two.piece_cuts == (0, 6, 13, 20, 26, 33, 40)


@pytest.mark.parametrize("size", range(4, 9))
def test_no_shares_break_the_bound(size):
    """Whoever sent whatever in phase 1, of whatever distribution of the survivors."""
    draw = torch.Generator().manual_seed(size)
    k = 10_000
    for turn in range(500):
        skew = torch.rand(size, generator=draw) ** (1 + turn % 20)
        counts = (skew / skew.sum() * k).long().tolist()
        sent = (torch.rand(size, generator=draw) * 2).clamp(max=1).mul(k).long().tolist()
        plan = Shares.plan(counts, sent, k, 4.0)
        assert plan.most_sent(sent) <= 3 * k * (size - 1) / size + size


def measured_xi(group, rank, size):
    comm = GroupCommunicator(group)
    accumulators = torch.randn(size, 1000, generator=torch.Generator().manual_seed(1))
    gradients = torch.randn(size, 1000, generator=torch.Generator().manual_seed(2))
    k, everything = 50, torch.arange(1000)
    truth = accumulators.mean(0)
    largest = truth.abs().topk(k).indices
    ideal = Sparse(largest, truth[largest] * size, 1000, ordered=False)
    nothing = Sparse(everything[:0], truth[:0], 1000)
    norm = gradients.mean(0).norm()
    found = [
        xi(accumulators[rank], gradients[rank], total, k, comm)
        for total in (ideal, ideal.to_dense(), nothing)
    ]
    assert found[:2] == pytest.approx([0, 0], abs=1e-6)
    assert found[2] == pytest.approx(float(truth[largest].norm() / norm), rel=1e-5)
    return found


def test_xi_is_the_papers(cluster):
    results = cluster.run(measured_xi, 3)
    assert results[0] == results[1] == results[2]


def lossy_index(group, rank, size):
    class Vague(type(Pair().index)):
        lossless = False

    with pytest.raises(RecipeError, match="lossless index codec"):
        OkTopK().exchange(
            selection("uniform", 0, 1), Pair(Vague()), context(GroupCommunicator(group))
        )


def test_indices_must_come_back_as_they_were(cluster):
    cluster.run(lossy_index, 1)


def capped(group, rank, size, cap):
    """The threshold of a first step lets many of a second pass, whose values are twice as large."""
    comm, memory = GroupCommunicator(group), {}
    collective = OkTopK(K / NUMEL / 4, low=0.0, high=math.inf, cap=cap)
    for step, scale in enumerate((1.0, 2.0)):
        mine = selection("uniform", rank, size, step=step)
        mine = Sparse(mine.indices, scale * mine.values, mine.numel)
        reduced = collective.exchange(mine, Pair(), context(comm, step, memory))
    return reduced.total.count


def test_an_infinite_cap_is_none(cluster):
    assert cluster.run(capped, 2, 1.5) == [1.5 * K // 4] * 2
    count, other = cluster.run(capped, 2, math.inf)
    assert count == other > 1.5 * K // 4


@pytest.mark.parametrize(
    "settings",
    [
        {"density": 0.0},
        {"boundary_interval": 0},
        {"threshold_interval": 1.5},
        {"in_flight": 0},
        {"low": 1.5},
        {"high": 0.5},
        {"cap": 0.9},
        {"consensus": "none"},
        {"balance": "always"},
    ],
)
def test_refuses_settings_that_make_no_sense(settings):
    with pytest.raises(RecipeError, match=next(iter(settings))):
        OkTopK(**settings)
