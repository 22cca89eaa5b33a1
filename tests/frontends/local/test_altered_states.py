"""A state of local steps that was altered is refused, and then nothing has changed.

Covers frontends/local/checkpoint.py and frontends/local/fits.py.
"""

import copy
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import thinwire as tw
from support.state_fuzz import altered_dict
from thinwire.engine.saved import SEAL, pack, seal, unpack

NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
SETTINGS = {
    "momentum": {"outer": NESTEROV},
    "adam, kept in bfloat16": {
        "outer": partial(torch.optim.AdamW, lr=0.1),
        "keep_dtype": torch.bfloat16,
    },
    "adafactor": {"outer": partial(torch.optim.Adafactor, lr=0.1)},
}


class Run:
    """Local steps of one rank, in the middle of a round and with a fragment under way."""

    def __init__(self, dtype=torch.float32, **settings):
        torch.random.default_generator.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        fixed = {"every": 4, "fragments": 2, "delay": 1}
        self.handle = tw.outer(self.model, self.optimizer, "topk", **fixed, **settings)
        self.steps(6)
        self.saved = pack(self.handle.state_dict())

    def steps(self, number):
        for _ in range(number):
            for p in self.model.parameters():
                p.grad = torch.ones_like(p)
            self.optimizer.step()

    def bits(self):
        """All that a load could change."""
        own = {name: p.detach() for name, p in self.model.named_parameters()}
        return pack({"handle": self.handle.state_dict(), "model": own})


def sealed(state):
    """As one that was written so: also the exchange's part of it."""
    state = {key: value for key, value in state.items() if key != SEAL}
    if isinstance(state.get("exchange"), dict):
        part = state["exchange"]
        state["exchange"] = seal({key: value for key, value in part.items() if key != SEAL})
    return seal(state)


@pytest.fixture
def run():
    run = Run(outer=NESTEROV)
    yield run
    run.handle.close()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_whatever_is_altered_is_refused_or_loaded_whole(settings):
    run, draw, outcomes = Run(**settings), np.random.default_rng(1), Counter()
    before = run.bits()
    for number in range(400):
        state = altered_dict(unpack(run.saved), draw)
        if number % 2:
            state = sealed(state)
        try:
            run.handle.load_state_dict(copy.deepcopy(state))
        except tw.StateError:
            assert torch.equal(run.bits(), before), f"alteration {number} left something behind"
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"alteration {number}")
            raise
        else:
            now = run.handle.state_dict()
            for key in ("steps", "round", "in_round", "shared", "under_way"):
                assert torch.equal(pack(seal({key: now[key]})), pack(seal({key: state[key]}))), key
            run.handle.load_state_dict(unpack(run.saved))
            before = run.bits()  # moments kept short are long until the next step
            outcomes["loaded"] += 1
    assert outcomes["refused"] > 200
    assert outcomes["loaded"] > 0, "nothing got past the checksums"
    run.handle.close()


def without(state, *path):
    *above, last = path
    for key in above:
        state = state[key]
    del state[last]


def replaced(new, state, *path):
    *above, last = path
    for key in above:
        state = state[key]
    state[last] = new


@pytest.mark.parametrize(
    ("alter", "path", "says"),
    [
        (without, ["outer", "param_groups"], "'param_groups' .* is missing"),
        (without, ["outer", "param_groups", 0], "0 groups of parameters.* has 1"),
        (without, ["outer", "param_groups", 0, "lr"], "group 0 .* has no lr"),
        (without, ["outer", "param_groups", 0, "nesterov"], "group 0 .* has no nesterov"),
        (partial(replaced, "x"), ["outer", "param_groups", 0, "lr"], "lr of group 0 .* 'x'"),
        (partial(replaced, [0]), ["outer", "param_groups", 0, "params"], r"group 0 .* \[0\]"),
        (without, ["outer", "state"], "'state' .* is missing"),
        (partial(replaced, {}), ["outer", "state", "9"], "parameter '9'"),
        (
            partial(replaced, torch.ones(5)),
            ["outer", "state", "0", "momentum_buffer"],
            r"'momentum_buffer' of '0\.weight' .*\[5\].*\[6, 4\]",
        ),
        (without, ["shared", "0.bias"], r"has no 0\.bias"),
        (partial(replaced, 3), ["shared", "0.bias"], r"'0\.bias' .* int, not a tensor"),
        (partial(replaced, torch.ones(7)), ["shared", "0.bias"], r"'0\.bias' was saved as .*\[7\]"),
        (
            partial(replaced, torch.ones(6, dtype=torch.float64)),
            ["shared", "0.bias"],
            r"'0\.bias' was saved as .*float64",
        ),
        (without, ["steps"], "'steps' .* is missing"),
        (partial(replaced, float("nan")), ["steps"], "'steps' .* is float"),
        (partial(replaced, -1), ["round"], "'round' .* -1"),
        (partial(replaced, 4), ["in_round"], "4 steps into a round of 4"),
        (partial(replaced, 2), ["under_way", 0, "fragment"], "fragment 2 .* of 2"),
        (without, ["under_way", 0, "due"], "'due' .* is missing"),
        (without, ["under_way", 0, "means", "0.weight"], r"has no 0\.weight"),
        (partial(replaced, torch.ones(1)), ["under_way", 0, "sent", "0.weight"], "was saved as"),
        (partial(replaced, None), ["exchange", "forms"], "'forms' of the state is NoneType"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_state_that_was_sealed_and_does_not_fit_says_what_differs(run, alter, path, says):
    before, state = run.bits(), unpack(run.saved)
    alter(state, *path)
    for given in (sealed(state), [sealed(state)], pack(sealed(state))):
        with pytest.raises(tw.StateError, match=says):
            run.handle.load_state_dict(given)
        assert torch.equal(run.bits(), before)


class Particular(torch.optim.SGD):
    """An optimiser that finds out in the middle of its load that it cannot."""

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if any("momentum_buffer" not in own for own in state_dict["state"].values()):
            raise KeyError("momentum_buffer")


def test_what_only_the_outer_optimiser_can_tell_leaves_nothing_behind_either():
    run = Run(outer=partial(Particular, lr=0.7, momentum=0.9))
    before, state = run.bits(), unpack(run.saved)
    del state["outer"]["state"]["0"]["momentum_buffer"]
    with pytest.raises(tw.StateError, match=r"outer optimiser refuses .*momentum_buffer"):
        run.handle.load_state_dict(sealed(state))
    assert torch.equal(run.bits(), before)
    run.handle.load_state_dict(unpack(run.saved))
    run.handle.close()


def matrices_first(shared):
    """Its places are not the order in which it was given the parameters."""
    groups = ([p for p in shared if (p.dim() > 1) == first] for first in (True, False))
    return torch.optim.SGD([{"params": group} for group in groups], lr=0.7, momentum=0.9)


@pytest.mark.parametrize(
    "settings", [{"outer": matrices_first}, {"own": 1}, {"own": 0}], ids=["groups", "1", "0"]
)
def test_what_was_saved_is_loaded_whatever_the_settings(settings):
    run = Run(**settings)
    run.handle.load_state_dict(unpack(run.saved))
    assert torch.equal(pack(run.handle.state_dict()), run.saved)
    run.handle.close()


def test_options_that_a_later_torch_has_are_as_they_were_without(run):
    """One that is set to something else here, as Nesterov's, would be lost: see above."""
    state = unpack(run.saved)
    for added in ("maximize", "foreach", "differentiable", "fused"):
        del state["outer"]["param_groups"][0][added]
    run.handle.load_state_dict(sealed(state))
    group = run.handle.shared.optimizer.param_groups[0]
    assert group["nesterov"]
    assert not any(group[added] for added in ("maximize", "differentiable", "fused"))
    run.steps(4)


def loading_what_rank_1_cannot(group, rank, size):
    """What is said on this rank, and whether all is as it was."""
    run = Run(outer=NESTEROV)
    before, state = run.bits(), unpack(run.saved)
    if rank == 1:
        del state["outer"]["param_groups"]
    with pytest.raises(tw.DisagreementError) as told:
        run.handle.load_state_dict(sealed(state))
    unchanged = torch.equal(run.bits(), before)
    run.handle.close()
    return str(told.value), unchanged


def test_what_one_rank_refuses_all_do(cluster):
    for told, unchanged in cluster.run(loading_what_rank_1_cannot, 2):
        assert "rank 1: refused: 'param_groups'" in told
        assert unchanged


@pytest.mark.parametrize("nothing", [None, 3, "text", [None], [[]], {"ranks": 3}, torch.ones(4)])
def test_what_is_no_state_at_all_is_refused(run, nothing):
    before = run.bits()
    with pytest.raises(tw.StateError, match="no state"):
        run.handle.load_state_dict(nothing)
    assert torch.equal(run.bits(), before)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_unaltered_state_goes_on_to_the_same_bits(dtype, settings):
    """Nothing that an optimiser may remember is taken for altered; nor is what lies in memory."""
    first, second = Run(dtype, **settings), Run(dtype, **settings)
    kept = first.handle.state_dict()
    weights = copy.deepcopy(first.model.state_dict())
    first.steps(5)
    second.steps(3)
    second.model.load_state_dict(weights)
    second.handle.load_state_dict(kept)
    second.steps(5)
    assert torch.equal(first.bits(), second.bits())
    for one in (first, second):
        one.handle.close()
