"""Without DDP: the optimiser's step averages first, and gives the bits that DDP's hook gives."""

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw

SPARSE = tw.recipe("topk", density=0.05, bypass=100)


def net(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 8))


def loss_of(model, rank, step):
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return model(torch.randn(4, 20, generator=draw)).square().mean()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train(model, optimizer, rank, steps, accumulate=1, before_step=lambda: None):
    for step in steps:
        optimizer.zero_grad()
        for turn in range(accumulate):
            loss_of(model, rank, 10 * step + turn).backward()
        before_step()
        optimizer.step()


# What the ranks do.


def beside_ddp(group, rank, size, recipe):
    ours, theirs = net(seed=rank), DDP(net(), process_group=group)  # rank 0's weights count
    optimizer = torch.optim.AdamW(ours.parameters(), 0.01)
    handle, reference = tw.wrap(optimizer, ours, recipe), tw.compress(theirs, recipe)
    train(ours, optimizer, rank, range(5))
    train(theirs, torch.optim.AdamW(theirs.parameters(), 0.01), rank, range(5))
    steps = [h.stats()["total"]["steps"] for h in (handle, reference)]
    same = torch.equal(weights(ours), weights(theirs))
    handle.close()
    reference.close()
    return same, steps


def clipped(group, rank, size):
    """`average` before the clipping: its norm is that of the mean, and step() adds no exchange."""
    ours, theirs = net(), DDP(net(), process_group=group)
    optimizer = torch.optim.SGD(ours.parameters(), 0.1)
    handle, reference = tw.wrap(optimizer, ours, SPARSE), tw.compress(theirs, SPARSE)
    norms = [[], []]

    def clip(model, seen):
        seen.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))

    def average_and_clip():
        handle.average()
        clip(ours, norms[0])

    train(ours, optimizer, rank, range(4), 1, average_and_clip)
    plain = torch.optim.SGD(theirs.parameters(), 0.1)
    train(theirs, plain, rank, range(4), 1, lambda: clip(theirs, norms[1]))
    steps = handle.stats()["total"]["steps"]
    same = torch.equal(weights(ours), weights(theirs))
    handle.close()
    reference.close()
    return same and norms[0] == norms[1], steps


def accumulated(group, rank, size):
    """Three backward passes for one step are three times their mean for one."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.wrap(optimizer, model, SPARSE)
    train(model, optimizer, rank, range(3), accumulate=3)
    steps = handle.stats()["total"]["steps"]
    handle.close()
    train(model, optimizer, rank, range(1))  # the optimiser is its own again
    return steps


def resumed(group, rank, size):
    def start():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return model, optimizer, tw.wrap(optimizer, model, SPARSE)

    model, optimizer, one = start()
    train(model, optimizer, rank, range(6))
    half, optimizer, two = start()
    train(half, optimizer, rank, range(3))
    again, optimizer, three = start()
    again.load_state_dict(half.state_dict())
    three.load_state_dict(two.state_dict())
    train(again, optimizer, rank, range(3, 6))
    for handle in (one, two, three):
        handle.close()
    return torch.equal(weights(model), weights(again))


def overflowing(group, rank, size):
    """A scaler finds the NaN of rank 1 everywhere, and all ranks leave the step out."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    handle = tw.wrap(optimizer, model, SPARSE, grad_scaler=scaler)
    scales = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        scaler.scale(loss * torch.nan if (rank, step) == (1, 1) else loss).backward()
        handle.average()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    loss_of(model, rank, 3).backward()
    with pytest.raises(tw.RecipeError, match=r"call handle\.average\(\) before unscale_"):
        optimizer.step()
    handle.close()
    return scales, bool(weights(model).isfinite().all())


def thawed(group, rank, size):
    """A layer that is trained later: told, not stepped by each rank's own gradient."""
    model = net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.wrap(optimizer, model, SPARSE)
    train(model, optimizer, rank, range(2))
    model[0].requires_grad_(True)
    before = weights(model)
    with pytest.raises(tw.RecipeError, match=r"'0\.weight' was frozen when wrap\(\) was called"):
        train(model, optimizer, rank, range(2, 3))
    unchanged = torch.equal(weights(model), before)
    handle.close()
    again = tw.wrap(optimizer, model, SPARSE)
    train(model, optimizer, rank, range(3, 5))
    again.close()
    return unchanged, weights(model)


def a_closure(group, rank, size):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.wrap(optimizer, model, "dense")
    with pytest.raises(tw.RecipeError, match=r"step\(closure\)"):
        optimizer.step(lambda: loss_of(model, rank, 0).backward())
    handle.close()


def saved_and_again(group, rank, size):
    """All ranks' states in one; then a second handle for the same optimiser."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = tw.wrap(optimizer, model, SPARSE)
    train(model, optimizer, rank, range(2))
    state = one.state_dict(gather=True)
    one.close()
    two = tw.wrap(optimizer, model, SPARSE)
    train(model, optimizer, rank, range(2, 4))
    steps = two.stats()["total"]["steps"]
    two.close()
    return state, steps, weights(model)


def waits_by(group, rank, size, state):
    """Σ of what waits on this rank, having loaded; and it trains on."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    handle = tw.wrap(optimizer, model, SPARSE)
    handle.load_state_dict(state)
    mass = waiting(handle.state_dict())
    train(model, optimizer, rank, range(1))
    handle.close()
    return mass


def waiting(state):
    tensors = state["tensors"].values()
    return sum(float(s["feedback/residual"].double().sum()) for s in tensors if len(s) > 1)


# The tests.


@pytest.mark.parametrize("recipe", ["dense", SPARSE, "dgc(0.05)"])
def test_the_bits_are_those_of_ddp(cluster, recipe):
    assert cluster.run(beside_ddp, 2, recipe) == [(True, [5, 5])] * 2


def test_clipping_sees_the_mean_and_nothing_is_averaged_twice(cluster):
    assert cluster.run(clipped, 2) == [(True, 4)] * 2


def test_what_was_accumulated_is_sent_once(cluster):
    assert cluster.run(accumulated, 2) == [3, 3]


def test_resume_is_bit_for_bit(cluster):
    assert all(cluster.run(resumed, 2))


def test_an_overflow_is_left_out_on_all_ranks(cluster):
    assert cluster.run(overflowing, 2) == [([4.0, 2.0, 2.0], True)] * 2


def test_a_layer_that_is_trained_later_is_told(cluster):
    (unchanged, ours), (too, theirs) = cluster.run(thawed, 2)
    assert unchanged and too and torch.equal(ours, theirs)


def test_a_closure_is_refused(cluster):
    cluster.run(a_closure, 2)


def test_a_second_handle_trains_on_and_three_ranks_load_what_two_saved(cluster):
    (state, steps, ours), (_, _, theirs) = cluster.run(saved_and_again, 2)
    assert steps == 2 and torch.equal(ours, theirs)
    before = sum(map(waiting, state["ranks"]))
    assert sum(cluster.run(waits_by, 3, state)) == pytest.approx(before, rel=1e-5) and before
