"""Adam before the selection: its steps are torch's, and what waits is steps, not gradients."""

import math

import pytest
import torch

import thinwire as tw
from support.feedback import alone, gradients, spec, top
from thinwire.errors import RecipeError
from thinwire.feedback import Adam
from thinwire.types import Sparse


def own_steps(feedback, grads):
    """What each gradient adds to the residual, as nothing is ever sent."""
    state = feedback.init(spec(grads[0].numel(), grads[0].dtype))
    before, steps = state["residual"].clone(), []
    for n, grad in enumerate(grads):
        now = feedback.at(n).before(grad, state).clone()
        steps.append(now - before)
        before = now
    return steps


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95), (0.9, 0.9)])
def test_on_one_worker_the_steps_are_those_of_torch(betas):
    weights = torch.zeros(20, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.AdamW([weights], lr=1.0, betas=betas, eps=1e-6, weight_decay=0)
    grads = gradients(8, 20, dtype=torch.float64)
    for grad, step in zip(grads, own_steps(Adam(*betas, eps=1e-6), grads), strict=True):
        before = weights.detach().clone()
        weights.grad = grad.clone()
        optimiser.step()
        torch.testing.assert_close(before - weights.detach(), step, rtol=1e-9, atol=1e-9)


def test_of_many_workers_it_takes_the_step_of_their_mean():
    """Noise is divided by P, what is steady is not: v̂ against v of the true mean, both averaged."""
    workers, draw = 16, torch.Generator().manual_seed(0)
    steady = torch.tensor([0.0, 0.1, 1.0, 10.0], dtype=torch.float64).repeat_interleave(500)
    noise = [torch.randn(2000, workers, generator=draw, dtype=torch.float64) for _ in range(60)]
    alike = own_steps(Adam(0.9, 0.95, workers=workers), [steady + n[:, 0] for n in noise])[-1]
    true = own_steps(Adam(0.9, 0.95), [steady + n.mean(1) for n in noise])[-1]
    by_size = [part.square().mean().sqrt() for part in alike.split(500)]
    expected = [part.square().mean().sqrt() for part in true.split(500)]
    # A rank's own average has √P times the noise of the mean of all: that is left to the mean of
    # the P steps. So each step may be up to √P of the true one where noise is all there is.
    assert by_size[0] / expected[0] < math.sqrt(workers)
    assert by_size[3] / expected[3] == pytest.approx(1, abs=0.05)
    means = [part.mean() for part in alike.split(500)]
    of_true = [part.mean() for part in true.split(500)]
    assert means[1] / of_true[1] == pytest.approx(1, abs=0.35)
    assert means[2] / of_true[2] == pytest.approx(1, abs=0.25)


def test_what_was_delivered_leaves_the_residual_and_the_moments_alone():
    feedback = Adam()
    state = feedback.init(spec(50, torch.float64))
    twin = feedback.init(spec(50, torch.float64))
    total = torch.zeros(50, dtype=torch.float64)
    for n, grad in enumerate(gradients(6, 50, dtype=torch.float64)):
        feedback.at(n).before(grad, twin)  # never sends
        x = feedback.at(n).before(grad, state)
        assert x is state["residual"]
        reduced, mean = alone(top(x, 5))
        assert feedback.after(x, reduced, mean, state) is mean
        total += mean
        assert torch.equal(state["average_gradient"], twin["average_gradient"])
        assert torch.equal(state["average_square"], twin["average_square"])
        torch.testing.assert_close(total + state["residual"], twin["residual"])


def test_rare_deliveries_do_not_make_steps_smaller():
    """The reason for all this: a steady gradient of which 1 in 20 elements is sent.

    Behind a residual an Adam after the exchange goes √0.05 as far; this one all the way.
    """
    numel, steps, lr = 200, 400, 0.01
    grad = torch.linspace(0.5, 1.5, numel)
    gone = {}
    for feedback in ("residual", "adam(0.9, 0.99)"):
        weights = torch.zeros(numel, requires_grad=True)
        sync = tw.Synchronizer(tw.recipe(f"topk(0.05) | raw | allgather | {feedback}", bypass=0))
        after = torch.optim.AdamW([weights], lr=lr, betas=(0.9, 0.99), weight_decay=0)
        plain = torch.optim.SGD([weights], lr=lr)
        for _ in range(steps):
            weights.grad = sync.average("w", grad.clone())
            (plain if feedback.startswith("adam") else after).step()
        gone[feedback] = -weights.detach().mean() / (lr * steps)
        sync.close()
    assert gone["adam(0.9, 0.99)"] == pytest.approx(1, abs=0.1)
    assert gone["residual"] < 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_are_averaged_in_float32(dtype):
    feedback = Adam()
    state = feedback.init(spec(3, dtype))
    x = feedback.at(0).before(torch.full((3,), 1e-4, dtype=dtype), state)
    assert {value.dtype for value in state.values()} == {torch.float32}
    torch.testing.assert_close(x, torch.ones(3), rtol=1e-3, atol=0)


def test_zeros_and_what_is_not_finite_make_no_step():
    feedback = Adam()
    state, bad = feedback.init(spec(4)), torch.zeros((), dtype=torch.int32)
    grad = torch.tensor([0.0, torch.nan, torch.inf, 2.0])
    lazy = feedback.at(0).lazy_sum(grad, state, clear=True, bad=bad)
    assert lazy.dense().tolist() == [0, 0, 0, 1]
    assert bad == 1
    assert all(value.isfinite().all() for value in state.values())
    assert grad.tolist() == [0, 0, 0, 0]


def test_a_row_that_was_delivered():
    feedback = Adam()
    state = feedback.init(spec(6))
    x = feedback.at(0).before(torch.ones(6), state)
    reduced, mean = alone(Sparse(torch.tensor([1]), torch.ones(1, 2), 6))
    feedback.after(x, reduced, mean, state)
    torch.testing.assert_close(state["residual"], torch.tensor([1.0, 1, 0, 0, 1, 1]))


def test_another_loss_scale_changes_no_step():
    grads = gradients(6, 30, dtype=torch.float64)
    feedback = Adam(workers=4, eps=1e-300)
    expected = own_steps(feedback, grads)
    state, before = feedback.init(spec(30, torch.float64)), 0.0
    for n, grad in enumerate(grads):
        if n == 3:
            feedback.rescale(state, 1024.0)
        now = feedback.at(n).before(grad * (1024 if n >= 3 else 1), state).clone()
        torch.testing.assert_close(now - before, expected[n])
        before = now


def test_a_refresh_averages_the_squares_of_the_mean():
    """All of the first ones alike, then those that β₂ has forgotten fade, but ten are left."""
    feedback = Adam(0.9, 0.95, refresh=4)
    state, squares = feedback.init(spec(20, torch.float64)), []
    for step, mean in enumerate(gradients(40, 20, dtype=torch.float64)):
        now = feedback.at(step)
        assert now.wants_mean == (step < 4 or step % 4 == 0)
        if not now.wants_mean:
            continue
        now.learn(mean, state)
        squares.append(mean.square())
        if len(squares) <= 10:
            expected = sum(squares) / len(squares)
        else:
            expected = 0.9 * expected + 0.1 * squares[-1]
        torch.testing.assert_close(state["common_square"], expected)
    assert len(squares) == 13
    assert not Adam().at(0).wants_mean


@pytest.mark.parametrize(("betas", "largest"), [((0.9, 0.95), 1.0), ((0.9, 0.999), 10**0.5)])
def test_between_refreshes_no_step_is_larger_than_adams_own_could_be(betas, largest):
    """Also where v knows nothing yet: the first step is the sign, as Adam's is."""
    grad = torch.tensor([1e-6, -3.0, 0.0])
    for step, bound in ((0, 1.0), (100_000, largest)):
        feedback = Adam(*betas, refresh=10)
        x = feedback.at(step).before(grad, feedback.init(spec(3)))
        torch.testing.assert_close(x, torch.tensor([bound, -bound, 0.0]))


def test_with_a_refresh_the_squares_are_of_all_ranks_mean(cluster):
    for gap, same in cluster.run(squares_of_three_ranks, 3):
        assert gap < 0.03  # 16 bits
        assert same


def squares_of_three_ranks(group, rank, size):
    sync = tw.Synchronizer(
        tw.recipe("everything | raw+sign | allgather | adam(refresh=5)", bypass=0), group
    )
    expected = torch.zeros(500)
    for step in range(4):
        draws = [torch.Generator().manual_seed(10 * step + other) for other in range(size)]
        grads = [torch.randn(500, generator=draw) for draw in draws]
        expected += (sum(grads) / size).square() / 4
        sync.average("w", grads[rank])
    squares = sync.state_dict()["tensors"]["w"]["feedback/common_square"]
    everyone = sync.comm.all_gather(squares)
    sync.close()
    gap = (squares - expected).abs().max() / expected.mean()
    return float(gap), all(torch.equal(squares, other) for other in everyone)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"refresh": -1}, "refresh=-1"),
        ({"beta1": 1.0}, "beta1=1.0"),
        ({"beta2": -0.1}, "beta2=-0.1"),
        ({"eps": 0.0}, "eps=0.0"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_refuses(settings, says):
    with pytest.raises(RecipeError, match=says):
        Adam(**settings)
