"""Local steps: what the papers write, done by hand beside it; and the laws, over real sockets."""

import io
from functools import partial

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw

SPARSE = tw.recipe("chunk-topk(0.1, 64)", bypass=20, feedback="residual(0.95)")
KEEPING = tw.recipe("chunk-topk(0.1, 64)", bypass=20)  # as `shortloco`, for a small model
NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
PLAIN = partial(torch.optim.SGD, lr=1.0)


def build(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Linear(24, 3))


def one_step(model, optimizer, rank, step):
    """As in any script."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    x, y = torch.randn(6, 8, generator=draw), torch.randint(3, (6,), generator=draw)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def everyones(mine, group, size):
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine, group=group)
    return parts


def identical(model, group, size):
    first, *others = everyones(weights(model), group, size)
    return all(torch.equal(first, other) for other in others)


# What the ranks do.


def alike_after_each_synchronisation(group, rank, size, recipe, settings):
    """By step, whether all ranks have the same weights."""
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, recipe, **settings)
    found = []
    for step in range(6):
        one_step(model, optimizer, rank, step)
        found.append(identical(model, group, size))
    handle.close()
    one_step(model, optimizer, rank, 6)  # closed: the optimiser is its own again
    return found, identical(model, group, size)


def the_same_copy_while_fragments_travel(group, rank, size, recipe, settings):
    """Whether all ranks share one copy in each step; how often it moved; whether models agree."""
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, recipe, **settings)
    found, moved = [], 0
    last = torch.cat([p.detach().reshape(-1) for p in handle.shared.parameters.values()])
    for step in range(16):
        one_step(model, optimizer, rank, step)
        copy = torch.cat([p.detach().reshape(-1) for p in handle.shared.parameters.values()])
        first, *others = everyones(copy, group, size)
        found.append(all(torch.equal(first, other) for other in others))
        moved += not torch.equal(copy, last)
        last = copy
    handle.close()
    return all(found), moved, identical(model, group, size)


def nothing_is_lost(group, rank, size, recipe, decay):
    """Σ (decay·r + Δ) = P·mean + Σ r' in every round; what decays is what `stats()` says."""
    model = build()
    optimizer = adam(model)
    reached = {}
    names = dict(model.named_parameters())

    def look(*_):
        reached.update({n: p.detach().clone() for n, p in names.items()})

    optimizer.register_step_post_hook(look)  # before the one that sends
    handle = tw.outer(model, optimizer, recipe, every=2, outer=PLAIN)
    gaps, forgot = [], []
    start = {n: p.detach().clone() for n, p in names.items()}
    residual = {n: torch.zeros(p.numel()) for n, p in names.items()}
    for step in range(8):
        one_step(model, optimizer, rank, step)
        if step % 2 == 0:
            continue
        tensors = handle.state_dict()["exchange"]["tensors"]
        after = {n: tensors[n].get("feedback/residual", torch.zeros(1)) for n in names}
        for name, p in names.items():
            moved = (start[name] - reached[name]).reshape(-1)
            kept = (decay * residual[name] + moved - after[name]).double()
            dist.all_reduce(kept, group=group)
            delivered = size * (start[name] - p.detach()).reshape(-1)
            gaps.append(float((kept - delivered).abs().max()))
            said = handle.stats()["tensors"][name].get("forgotten", 0.0)
            forgot.append(abs(said - (1 - decay) * float(after[name].abs().sum())))
        residual = after
        start = {n: p.detach().clone() for n, p in names.items()}
    waits = sum(float(r.abs().sum()) for r in residual.values())
    handle.close()
    return max(gaps), max(forgot), waits


def by_hand(group, rank, size, every, fragments, delay, blend, factory):
    """Streaming DiLoCo, Algorithm 2, written down plainly; DiLoCo and local SGD are cases of it."""
    model, plain = build(), build()
    optimizer, reference = adam(model), adam(plain)
    handle = tw.outer(
        *(model, optimizer, "dense"),
        every=every,
        fragments=fragments,
        delay=delay,
        blend=blend,
        outer=factory,
    )
    parameters = dict(plain.named_parameters())
    shared = {n: nn.Parameter(p.detach().clone()) for n, p in parameters.items()}
    outer = factory(shared.values())
    under_way, gaps = [], []
    for step in range(1, 13):
        one_step(model, optimizer, rank, step)
        one_step(plain, reference, rank, step)
        for number, names in enumerate(handle.fragments):
            if (step - 1) % every + 1 == (number + 1) * every // fragments:
                sent = {n: parameters[n].detach().clone() for n in names}
                means = {}
                for name in names:
                    means[name] = shared[name].detach() - sent[name]
                    dist.all_reduce(means[name], group=group)
                under_way.append((step + delay, sent, means))
        while under_way and under_way[0][0] <= step:
            _, sent, means = under_way.pop(0)
            for name in sent:
                shared[name].grad = means[name] / size
            outer.step()
            with torch.no_grad():
                for name in sent:
                    p, new = parameters[name], shared[name].detach()
                    p.copy_(p + new - sent[name] if blend is None else p.lerp(new, 1 - blend))
                    shared[name].grad = None
        gaps.append(float((weights(model) - weights(plain)).abs().max()))
    handle.close()
    return max(gaps)


def delayed_steps_count_once(group, rank, size, settings):
    """How far the copy went beside the mean of what all ranks walked and does not wait; what waits.

    By SGD, of which a step is known from the gradient, until the fifth message has arrived. After
    `looks_at` steps, in the middle of a run, all ranks have one model.
    """
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    looks_at = settings.pop("looks_at", None)
    handle = tw.outer(model, optimizer, KEEPING, every=4, outer=PLAIN, **settings)
    start, walked = weights(model), torch.zeros_like(weights(model))
    for step in range(1, 4 * 5 + settings["delay"] + 1):
        one_step(model, optimizer, rank, step)
        walked += torch.cat([0.1 * p.grad.reshape(-1) for p in model.parameters()])
        if step == looks_at:
            assert not identical(model, group, size)
            handle.synchronize()
            assert identical(model, group, size)
        if step == 4 * 5:
            sent = walked.clone()
    tensors = handle.state_dict()["exchange"]["tensors"]
    waits = torch.cat(
        [
            tensors[name].get("feedback/residual", torch.zeros(p.numel()))
            for name, p in model.named_parameters()
        ]
    )
    arrived = sent - waits
    dist.all_reduce(arrived, group=group)
    copy = torch.cat([p.detach().reshape(-1) for p in handle.shared.parameters.values()])
    handle.close()
    return float((start - copy - arrived / size).abs().max()), float(waits.abs().sum())


def as_ddp_with_sgd(group, rank, size):
    """Meeting after every step is averaging gradients, where the optimiser is linear in them."""
    model, plain = build(), DDP(build(), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = tw.outer(model, optimizer, "localsgd", every=1)
    reference = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(5):
        one_step(model, optimizer, rank, step)
        one_step(plain, reference, rank, step)
    handle.close()
    return float((weights(model) - weights(plain)).abs().max())


def trained(rank, settings, steps, saved=None):
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, **{"recipe": SPARSE} | settings)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        handle.load_state_dict(saved["thinwire"])
    for step in steps:
        one_step(model, optimizer, rank, step)
    return model, optimizer, handle


def resumed(group, rank, size, settings, stop):
    whole, _, _ = trained(rank, settings, range(12))
    model, optimizer, handle = trained(rank, settings, range(stop))
    states = [("model", model), ("optimizer", optimizer), ("thinwire", handle)]
    file = io.BytesIO()
    torch.save({name: one.state_dict() for name, one in states}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, _, _ = trained(rank, settings, range(stop, 12), saved)
    return torch.equal(weights(whole), weights(again))


def states_after(group, rank, size, steps, gather=False):
    model, _, handle = trained(rank, {"every": 4, "outer": NESTEROV}, range(steps))
    return handle.state_dict(gather), weights(model)


def joined(group, rank, size, states):
    """Of a group of another size: all begin a round where the others last met."""
    model = build(seed=rank)
    handle = tw.outer(model, adam(model), SPARSE, every=4, outer=NESTEROV)
    handle.load_state_dict(states)
    residuals = handle.synchronizer.state_dict()["tensors"]
    waits = residuals.get("2.weight", {}).get("feedback/residual", torch.zeros(24 * 24)).clone()
    dist.all_reduce(waits, group=group)
    return weights(model), waits


def loading_others_states(group, rank, size, saved):
    """Rank 1 brings a state of another round, with the model of then."""
    model = build()
    handle = tw.outer(model, adam(model), SPARSE, every=4, outer=NESTEROV)
    state, reached = saved[rank]
    nn.utils.vector_to_parameters(reached, model.parameters())
    handle.load_state_dict(state)


def left_alone(group, rank, size):
    """Rank 1 goes in the middle of a round: rank 0 is told in each, and keeps what it has."""
    model, optimizer, handle = trained(rank, {"every": 4}, range(7))
    if rank == 1:
        handle.close()
        return [True]
    met, found = handle.state_dict(), []
    for round_end in (7, 11):
        with pytest.raises(tw.ExchangeError):
            one_step(model, optimizer, rank, round_end)
        after = handle.state_dict()
        same = [torch.equal(met["shared"][n], value) for n, value in after["shared"].items()]
        found += [
            *same,
            not after["under_way"],
            met["exchange"]["checksum"] == after["exchange"]["checksum"],
        ]
        found.append(handle.stats()["local"]["rounds"] == round_end // 4 + 1)
        for step in range(3):
            one_step(model, optimizer, rank, step)
    return found


def left_alone_with_a_fragment_under_way(group, rank, size):
    model, optimizer, handle = trained(rank, {"every": 4, "delay": 2}, range(3))
    if rank == 1:
        handle.close()
        return True
    met = handle.state_dict()
    one_step(model, optimizer, rank, 3)  # sends, and does not wait
    with pytest.raises(tw.ExchangeError):
        handle.state_dict()
    after = handle.state_dict()
    for step in range(2):
        one_step(model, optimizer, rank, step)  # nothing is due any more
    handle.close()
    same = [torch.equal(met["shared"][n], value) for n, value in after["shared"].items()]
    return all(same) and not after["under_way"]


def late(group, rank, size):
    model = build(seed=rank)
    tw.outer(model, adam(model), "sparseloco").close()
    return torch.equal(weights(model), weights(build(seed=0)))


def goes_on_meanwhile(group, rank, size):
    """Rank 0 sends and steps on; rank 1 sends only once it was told that rank 0 did."""
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, "dense", every=3, delay=2)
    for step in range(2):
        one_step(model, optimizer, rank, step)
    if rank == 1:
        dist.barrier(group)
    one_step(model, optimizer, rank, 2)
    one_step(model, optimizer, rank, 3)
    if rank == 0:
        dist.barrier(group)
    one_step(model, optimizer, rank, 4)
    rounds = handle.stats()["local"]["rounds"]
    handle.close()
    return rounds


def in_two_nodes(group, rank, size):
    """DDP inside each; the nodes' models differ until they meet, those inside never do."""
    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    ddp = DDP(build(), process_group=nodes[rank // 2])
    optimizer = adam(ddp)
    handle = tw.outer(ddp, optimizer, SPARSE, every=3, node_size=2)
    found = []
    for step in range(6):
        one_step(ddp, optimizer, rank, step)
        parts = everyones(weights(ddp), group, size)
        found.append(tuple(torch.equal(parts[0], other) for other in parts[1:]))
    handle.close()
    return found


def kept_small(group, rank, size):
    """After a round, what is kept beside what it is short for; and whether ranks stay alike."""
    settings = {"every": 2, "outer": NESTEROV, "keep_on": "cpu"}
    short = settings | {"keep_dtype": torch.bfloat16}
    pairs = []
    for steps in (range(2), range(6)):
        model, _, handle = trained(rank, short, steps)
        _, _, other = trained(rank, settings, steps)
        pairs.append((remembered(handle), remembered(other)))
        saved = handle.state_dict()["exchange"]["tensors"]["2.weight"]["feedback/residual"].dtype
        same = identical(model, group, size)
        handle.close()
        other.close()
    return pairs[0], same, saved


def remembered(handle):
    """Residuals and outer momentum, as they are kept."""
    units = handle.synchronizer.roster.units.values()
    waits = [value for unit in units for value in unit.state["feedback"].values()]
    return waits + [s["momentum_buffer"] for s in handle.shared.optimizer.state.values()]


def synchronised_at_once(group, rank, size, blend):
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, "dense", every=4, fragments=2, delay=3, blend=blend)
    for step in range(3):
        one_step(model, optimizer, rank, step)
    before = identical(model, group, size)
    handle.synchronize()
    after, rounds = identical(model, group, size), handle.stats()["local"]["rounds"]
    handle.close()
    return before, after, rounds


def on_a_schedule(group, rank, size):
    lengths = [2, 3, 1]
    settings = {"every": lambda number: lengths[number % 3]}
    return alike_after_each_synchronisation(group, rank, size, "localsgd", settings)[0]


def disagreeing(group, rank, size):
    model = build()
    tw.outer(model, adam(model), "dense", every=2 + rank)


def of_other_models(group, rank, size):
    model = nn.Linear(3, 2 + rank)
    tw.outer(model, adam(model), "dense")


def of_other_outer_optimisers(group, rank, size):
    model = build()
    tw.outer(model, adam(model), "dense", outer=partial(torch.optim.SGD, lr=0.5 + rank))


def out_of_step(group, rank, size):
    model = build()
    optimizer = adam(model)
    tw.outer(model, optimizer, "dense", every=lambda number: 2 + rank)
    for step in range(3):
        one_step(model, optimizer, rank, step)


def with_nan(group, rank, size):
    model = build()
    optimizer = adam(model)
    handle = tw.outer(model, optimizer, "sparseloco", every=2)
    one_step(model, optimizer, rank, 0)
    if rank == 1:
        nn.init.constant_(model[0].weight, torch.nan)
    with pytest.raises(tw.NonFiniteError, match="rank 1"):
        one_step(model, optimizer, rank, 1)
    handle.close()
    return True


# The tests.

TWICE = [False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("diloco", {"every": 3}),
        ("sparseloco", {"every": 3}),
        ("shortloco", {"every": 3}),
        ("localsgd", {"every": 3}),
        ("demo", {"every": 3}),
        (SPARSE, {"every": 3}),
    ],
    ids=["diloco", "sparseloco", "shortloco", "localsgd", "demo", "recipe"],
)
def test_replicas_are_the_same_after_each_synchronisation(cluster, recipe, settings):
    for found, afterwards in cluster.run(alike_after_each_synchronisation, 2, recipe, settings):
        assert found == TWICE
        assert not afterwards


@pytest.mark.parametrize("recipe", ["streaming-diloco", SPARSE], ids=["streaming-diloco", "sparse"])
def test_while_fragments_travel_the_ranks_share_one_copy(cluster, recipe):
    settings = {"every": 8, "fragments": 4, "delay": 5}
    for same, moved, models in cluster.run(
        the_same_copy_while_fragments_travel, 2, recipe, settings
    ):
        assert same
        assert moved == 5  # sent at 2, 4, … 16, of which those until 11 have arrived
        assert not models


@pytest.mark.parametrize(
    ("recipe", "decay"), [(SPARSE, 0.95), (KEEPING, 1.0)], ids=["sparseloco", "shortloco"]
)
def test_nothing_is_lost_and_decay_says_what_it_forgets(cluster, recipe, decay):
    for gap, forgot, waits in cluster.run(nothing_is_lost, 2, recipe, decay):
        assert gap < 1e-6
        assert forgot < 1e-4
        assert waits > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"delay": 0},
        {"delay": 3},
        {"delay": 3, "hold": 0.5},
        {"delay": 0, "own": 0.6},
        {"delay": 3, "hold": 0.5, "own": 0.6},
        {"delay": 0, "own": 0.6, "looks_at": 12},
    ],
    ids=str,
)
def test_steps_made_while_a_message_travels_count_exactly_once(cluster, settings):
    for gap, waits in cluster.run(delayed_steps_count_once, 2, settings):
        assert gap < 1e-5
        assert waits > 0.01


@pytest.mark.parametrize("noticed", ["saving", "applying"])
def test_what_was_laid_down_is_back_when_a_message_breaks_off(monkeypatch, noticed):
    model, alone = build(), build()
    optimizer, own = adam(model), adam(alone)
    handle = tw.outer(model, optimizer, "dense", every=4, delay=1, hold=0.25, outer=PLAIN)

    def breaks_off(moved):
        raise tw.ExchangeError("the link was cut")

    monkeypatch.setattr(handle.synchronizer, "average_all", breaks_off)
    for step in range(4):
        one_step(model, optimizer, 0, step)
        one_step(alone, own, 0, step)
    assert (weights(model) - weights(alone)).abs().max() > 1e-3
    with pytest.raises(tw.ExchangeError, match="the link was cut"):
        if noticed == "saving":
            handle.state_dict()
        optimizer.param_groups[0]["lr"] = 0.0
        one_step(model, optimizer, 0, 4)
    assert (weights(model) - weights(alone)).abs().max() < 1e-6
    handle.close()


@pytest.mark.parametrize(
    ("every", "fragments", "delay", "blend", "factory"),
    [
        (1, 1, 0, None, PLAIN),
        (4, 1, 0, None, PLAIN),
        (4, 1, 0, None, NESTEROV),
        (4, 2, 0, None, NESTEROV),
        (4, 2, 1, 0.5, NESTEROV),
        (4, 2, 3, 0.5, NESTEROV),
        (4, 1, 2, None, PLAIN),
    ],
    ids=["average", "localsgd", "diloco", "fragments", "streaming", "two-under-way", "delayed"],
)
def test_it_is_what_the_papers_write(cluster, every, fragments, delay, blend, factory):
    for gap in cluster.run(by_hand, 2, every, fragments, delay, blend, factory):
        assert gap < 1e-6


def test_every_step_with_sgd_is_data_parallel_training(cluster):
    assert max(cluster.run(as_ddp_with_sgd, 2)) < 1e-6


@pytest.mark.parametrize(
    ("settings", "stop"),
    [
        ({"every": 4}, 6),
        ({"every": 4, "fragments": 2, "delay": 3, "outer": NESTEROV}, 7),
        ({"every": 4, "delay": 3, "hold": 0.5, "outer": NESTEROV}, 6),
        ({"every": 4, "keep_dtype": torch.bfloat16, "keep_on": "cpu", "outer": NESTEROV}, 5),
        ({"every": 4, "own": 0.6}, 6),
        ({"every": 4, "delay": 3, "hold": 0.5, "own": 0.6, "outer": NESTEROV}, 7),
        ({"every": 4, "moments": "mean", "recipe": "int8"}, 6),
        ({"every": 4, "delay": 3, "hold": 0.5, "moments": "mean", "recipe": "int8"}, 6),
    ],
    ids=[
        *("mid-round", "under-way", "drawn-back", "kept-small", "own", "own-under-way"),
        *("moments", "moments-under-way"),
    ],
)
def test_stop_and_go_bit_for_bit(cluster, settings, stop):
    assert all(cluster.run(resumed, 2, settings, stop))


def test_the_same_run_twice_gives_the_same_bits(cluster):
    assert_same = [cluster.run(states_after, 2, 8)[0][1] for _ in range(2)]
    assert torch.equal(*assert_same)


def test_a_rank_that_joins_gets_the_model(cluster):
    assert all(cluster.run(late, 2))


def test_more_ranks_go_on_from_where_the_others_last_met(cluster):
    saved = cluster.run(states_after, 2, 6)
    states = [state for state, _ in saved]
    met = cluster.run(states_after, 2, 4)[0][1]
    waited = sum(s["exchange"]["tensors"]["2.weight"]["feedback/residual"] for s in states)
    (gathered, _), _ = cluster.run(states_after, 2, 6, True)
    for size, given in ((1, states), (3, gathered)):
        for model, waits in cluster.run(joined, size, given):
            assert torch.equal(model, met)
            assert torch.allclose(waits, waited, atol=1e-7)


def test_states_of_different_rounds_are_refused_on_all_ranks(cluster):
    early, later = cluster.run(states_after, 2, 4), cluster.run(states_after, 2, 8)
    saved = [early[0], later[1]]
    for raised in cluster.run(loading_others_states, 2, saved, expect=tw.DisagreementError):
        assert "round 1" in raised.text
        assert "round 2" in raised.text


def test_a_rank_that_leaves_costs_the_others_nothing_but_the_exchange(cluster):
    assert all(map(all, cluster.run(left_alone, 2)))
    assert all(cluster.run(left_alone_with_a_fragment_under_way, 2))


def test_local_steps_go_on_while_a_fragment_travels(cluster):
    assert cluster.run(goes_on_meanwhile, 2) == [1, 1]


def test_nodes_meet_and_ddp_stays_inside(cluster):
    apart, together = (True, False, False), (True, True, True)
    for found in cluster.run(in_two_nodes, 4):
        assert [(pair[0], *pair[1:]) for pair in found] == [
            *(apart, apart, together),
            *(apart, apart, together),
        ]


def test_what_waits_and_the_momentum_may_be_kept_in_bfloat16(cluster):
    for (short, whole), same, saved in cluster.run(kept_small, 2):
        assert {value.dtype for value in short} == {torch.bfloat16}
        for one, other in zip(short, whole, strict=True):
            assert torch.equal(one, other.to(torch.bfloat16))
        assert same
        assert saved == torch.float32


@pytest.mark.parametrize("blend", [None, 0.5])
def test_a_round_can_be_ended_at_once(cluster, blend):
    assert cluster.run(synchronised_at_once, 2, blend) == [(False, True, 1)] * 2


def test_the_length_of_a_round_on_a_schedule(cluster):
    for found in cluster.run(on_a_schedule, 2):
        assert found == [False, True, False, False, True, True]


def test_ranks_that_do_not_have_the_same_rounds_say_so(cluster):
    for raised in cluster.run(disagreeing, 2, expect=tw.DisagreementError):
        assert "every=2" in raised.text
        assert "every=3" in raised.text
    for raised in cluster.run(of_other_models, 2, expect=tw.DisagreementError):
        assert "weight: (2, 3)" in raised.text
        assert "weight: (3, 3)" in raised.text
    for raised in cluster.run(of_other_outer_optimisers, 2, expect=tw.DisagreementError):
        assert "'lr': 1.5" in raised.text
    for raised in cluster.run(out_of_step, 2, expect=tw.DisagreementError):
        assert "after 2 steps" in raised.text
        assert "after 3 steps" in raised.text


def test_nan_is_refused_on_all_ranks(cluster):
    assert all(cluster.run(with_nan, 2))
