"""Adam's moments as if gradients had been averaged: by hand, in expectation, and between ranks."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thinwire as tw
from thinwire.frontends.local.moments import MeanMoments, known_of_last

SIZE, RANKS, FIRST, SECOND = 20_000, 4, 0.9, 0.95
MAKES = {
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    "one by one": partial(torch.optim.AdamW, lr=0.01, foreach=False),
    "fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
}


class Alone:
    """One parameter with its optimiser, as one of `ranks`."""

    def __init__(self, make, ranks=RANKS, size=SIZE):
        self.p = nn.Parameter(torch.zeros(size))
        self.start = self.p.detach().clone()
        self.optimizer = make([self.p], betas=(FIRST, SECOND))
        self.moments = MeanMoments([self.optimizer], {"p": self.p}, ranks)

    def step(self, grad):
        self.p.grad = grad.clone()
        self.optimizer.step()

    @property
    def m(self):
        return self.optimizer.state[self.p]["exp_avg"]

    @property
    def v(self):
        return self.optimizer.state[self.p]["exp_avg_sq"]

    def moved(self):
        return {"p": self.start - self.p.detach()}


def noise(step, rank=0, size=SIZE):
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * step + rank))


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_v_is_what_the_formula_says(make):
    one = Alone(make)
    m, v = torch.zeros(SIZE, dtype=torch.float64), torch.zeros(SIZE, dtype=torch.float64)
    for step in range(1, 7):
        grad = noise(step) + 0.3
        one.step(grad)
        known = m / (1 - FIRST ** (step - 1)) if step > 1 else grad.double()
        v = SECOND * v + (1 - SECOND) * (grad.double() ** 2 / RANKS + (1 - 1 / RANKS) * known**2)
        m = FIRST * m + (1 - FIRST) * grad.double()
        torch.testing.assert_close(one.v.double(), v, rtol=1e-5, atol=1e-9)
        assert one.v.min() >= 0


def test_one_rank_steps_as_it_does_by_itself():
    one, plain = Alone(MAKES["adamw"], ranks=1), Alone(MAKES["adamw"], ranks=1)
    plain.moments.close()
    for step in range(5):
        one.step(noise(step))
        plain.step(noise(step))
    assert torch.equal(one.p, plain.p) and torch.equal(one.v, plain.v)


@pytest.mark.parametrize("signal", [0.0, 0.3, 3.0])
def test_v_of_one_rank_is_in_expectation_that_of_the_mean_gradient(signal):
    """m knows the signal up to a 19th of the noise, of which (1 - 1/P) is in v."""
    one, own = Alone(MAKES["adamw"]), Alone(MAKES["adamw"])
    own.moments.close()
    for step in range(80):
        for each in (one, own):
            each.step(noise(step) + signal)
    of_mean = signal**2 + 1 / RANKS
    of_m = (1 - 1 / RANKS) * (1 - FIRST) / (1 + FIRST)
    assert float(one.v.mean()) == pytest.approx(of_mean + of_m, rel=0.03)
    assert float(own.v.mean()) == pytest.approx(signal**2 + 1, rel=0.03)


@pytest.mark.parametrize(("every", "left"), [(1, 0.0), (2, 0.12), (5, 0.27), (30, 0.74)])
def test_the_share_is_the_least_squares_of_the_last_mean_by_the_sum(every, left):
    """In numbers drawn at random; `left` of the variance, as the module's words have it."""
    drawn = torch.randn(every, SIZE, generator=torch.Generator().manual_seed(1)).double()
    m, total = torch.zeros(SIZE).double(), torch.zeros(SIZE).double()
    for gradient in drawn:
        m = FIRST * m + gradient
        total += m
    share = known_of_last(FIRST, every)
    assert share == pytest.approx(float((m @ total) / (total @ total)), rel=0.05)
    assert float((m - share * total).var() / m.var()) == pytest.approx(left, abs=0.02)


@pytest.mark.parametrize("delay", [0, 2])
def test_m_comes_to_the_mean_but_for_what_a_round_does_not_tell(delay):
    """Ranks that begin with one m, and make a round of 5 steps."""
    ranks, every = [Alone(partial(MAKES["adamw"], lr=1e-4)) for _ in range(RANKS)], 5
    for rank, one in enumerate(ranks):
        for step in range(20):
            one.step(noise(step) + 0.2)  # all alike
        one.start = one.p.detach().clone()
        for step in range(every):
            one.step(noise(100 + step, rank) + 0.2)
    moved = [one.moved() for one in ranks]
    mean = {"p": sum(way["p"] for way in moved) / RANKS}
    for step in range(delay):
        for one in ranks:
            one.step(noise(200 + step))  # alike again: what is to be mended fades
    apart = [one.m - sum(other.m for other in ranks) / RANKS for one in ranks]
    for one, way in zip(ranks, moved, strict=True):
        one.moments.bring(way, mean, every, delay)
    left = [one.m - sum(other.m for other in ranks) / RANKS for one in ranks]
    kept = sum(float(one.var()) for one in left) / sum(float(one.var()) for one in apart)
    assert kept == pytest.approx(0.27, abs=0.05)
    torch.testing.assert_close(
        sum(apart), sum(left) + 0.0, rtol=0, atol=1e-5
    )  # nothing is added to the mean


def test_m_stays_where_nothing_has_moved_or_no_step_was_made():
    one = Alone(MAKES["adamw"], size=4)
    one.moments.bring({"p": torch.zeros(4)}, {"p": torch.ones(4)}, 5, 0)
    assert not one.optimizer.state  # Adam would take it for one that it has begun
    one.optimizer.param_groups[0]["lr"] = 0.0
    one.step(torch.ones(4))
    before = one.m.clone()
    one.moments.bring(one.moved(), {"p": torch.ones(4)}, 1, 0)
    assert torch.equal(one.m, before)


@pytest.mark.parametrize("since", [1, 3])
def test_m_stays_where_a_scaler_has_left_out_the_steps_that_moved(since):
    """Rounds are counted by all steps, also by those that this rank's optimiser did not make."""
    one = Alone(MAKES["adamw"], size=4)
    one.step(torch.ones(4))
    before = one.m.clone()
    one.moments.bring(one.moved(), {"p": torch.ones(4)}, 2, since)
    assert torch.equal(one.m, before)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (partial(torch.optim.SGD, lr=0.1), "is for Adam and AdamW, not for SGD"),
        (partial(torch.optim.AdamW, amsgrad=True), "amsgrad=False"),
        (partial(torch.optim.AdamW, maximize=True), "maximize=False"),
        (partial(torch.optim.Adam, weight_decay=0.01), "use AdamW"),
    ],
)
def test_what_makes_its_moments_otherwise_is_refused(make, says):
    p = nn.Parameter(torch.zeros(3))
    with pytest.raises(tw.RecipeError, match=says):
        MeanMoments([make([p])], {"p": p}, 2)


def test_short_parameters_are_refused():
    p = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(tw.RecipeError, match=r"in torch\.bfloat16"):
        MeanMoments([torch.optim.AdamW([p])], {"p": p}, 2)


def test_a_closure_is_refused():
    one = Alone(MAKES["adamw"], size=3)
    for step in (partial(one.optimizer.step, lambda: 0.0), partial(one.optimizer.step, closure=id)):
        with pytest.raises(tw.RecipeError, match="closure"):
            step()


@pytest.mark.parametrize("fused", [False, True])
def test_a_fused_optimiser_behind_a_scaler_is_refused(fused):
    """torch lets it divide the gradients by the scale, and leave the step out, inside of it."""
    one = Alone(partial(torch.optim.AdamW, fused=fused), size=3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((one.p * torch.tensor([1.0, 2.0, 3.0])).sum()).backward()
    if fused:
        with pytest.raises(tw.RecipeError, match="fused=False"):
            scaler.step(one.optimizer)
        return
    scaler.step(one.optimizer)
    torch.testing.assert_close(one.m, 0.1 * torch.tensor([1.0, 2.0, 3.0]))


# What the ranks do.


def learns(group, rank, size, moments, recipe):
    """How far apart m of the ranks is when a round is over, and whether they have one model."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = nn.Linear(20, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    handle = tw.outer(model, optimizer, recipe, every=4, moments=moments)
    apart = []
    for step in range(24):
        draw = torch.Generator().manual_seed(100 * step + rank)
        x, y = torch.randn(6, 20, generator=draw), torch.randint(10, (6,), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % 4 == 3:
            m = optimizer.state[model.weight]["exp_avg"]
            mean = m.clone()
            dist.all_reduce(mean, group=group)
            apart.append(float((m - mean / size).norm() / mean.norm()))
    alike = [torch.empty_like(model.weight) for _ in range(size)]
    dist.all_gather(alike, model.weight.detach(), group=group)
    handle.close()
    return sum(apart), all(torch.equal(alike[0], other) for other in alike)


@pytest.mark.parametrize("recipe", ["dense", "int8"])
def test_ranks_have_nearly_one_m_where_they_meet(cluster, recipe):
    own, mean = ([*cluster.run(learns, 3, moments, recipe)] for moments in ("own", "mean"))
    for (apart, alike), (nearer, alike_too) in zip(own, mean, strict=True):
        assert alike and alike_too
        assert nearer < 0.75 * apart


def test_what_is_selected_says_nothing_of_m(cluster):
    """Most of a rank's way waits: m is left alone, and v is not."""
    for apart, alike in cluster.run(learns, 2, "mean", "topk(0.1)"):
        assert apart > 0.1 and alike


def other_ranks(group, rank, size):
    """Rank 1 asks for other moments than rank 0."""
    model = nn.Linear(2, 2)
    moments = "mean" if rank else "own"
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(tw.DisagreementError, match="moments=mean"):
        tw.outer(model, optimizer, "dense", moments=moments)


def test_ranks_that_differ_in_it_are_refused(cluster):
    cluster.run(other_ranks, 2)
