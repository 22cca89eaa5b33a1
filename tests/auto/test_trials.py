"""`auto`: whatever it chooses, and while it tries, the laws hold; and it chooses the fastest.

Covers auto/__init__.py, auto/candidates.py, auto/chooser.py, auto/selective.py, auto/trials.py and
auto/by_step.py.
"""

import io
import itertools
import os
import time
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch
from weakref import WeakSet

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from support.contracts.cases import digest
from thinwire.auto import FLUSH, Auto
from thinwire.auto.by_step import Choosers
from thinwire.auto.candidates import Forecast
from thinwire.auto.trials import BEGIN, FIRST_CHECK, TrialChooser
from thinwire.collective import AllGather, UnionAllReduce
from thinwire.comm import GroupCommunicator, Traffic
from thinwire.cost.network import Link, Network
from thinwire.engine.saved import SEAL, seal
from thinwire.feedback import Momentum
from thinwire.units.unit import Unit

TIMEOUT = timedelta(seconds=15)
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]
SHAPES = {"a": (40, 30), "b": (7,), "c": (900,)}
CHOICES = ("topk", "ok-topk", "bf16", "union", "topk-dsa")


def small_auto(*choices, trial=1, density=0.05, unit=""):
    return tw.recipe(
        "auto", density=density, choices=choices or CHOICES, codec="", unit=unit, trial=trial
    )


class Scripted(TrialChooser):
    """One that is told what steps take, and predicts that all choices are good."""

    def _predict(self, dense):
        return Forecast(dict.fromkeys(self.pipelines, 1e-9), Network(Link(0.0, 0.0)), dense / 2)


def play(chooser, unit, seconds, steps):
    """Steps of one unit that take `seconds(label)`; what was taken, and how long it took."""
    labels = []
    for _ in range(steps):
        labels.append(chooser.label)
        chooser.assign(unit, None)
        unit.count(None, Traffic(), 2)
        took = seconds(labels[-1])
        chooser.end_step(took)
        chooser.time_step(0.0, took)
    return labels


def next_untried(predicted, tried, method):
    return next((label for label in predicted if label not in tried), None)


def a_unit(auto, name="w"):
    return Unit.assemble({name: torch.zeros(100)}, auto, {})


# What the ranks do.


def takes_the_fastest(group, rank, size):
    auto = small_auto("topk", "union", "bf16", "gtopk", trial=3)
    chooser = Scripted(auto, GroupCommunicator(group, TIMEOUT))
    costs = {"dense": 1.0, "topk": 0.3 + rank, "union": 0.2, "bf16": 2.5, "gtopk": 0.5}
    with patch("thinwire.auto.trials.next_trial", next_untried):
        labels = play(chooser, a_unit(auto), costs.get, 40)
    return chooser.label, chooser.settled, labels, chooser.decision.step, chooser.decision.lost


def stays_dense(group, rank, size, costs):
    auto = small_auto("topk")
    chooser = Scripted(auto, GroupCommunicator(group, TIMEOUT))
    unit = a_unit(auto)
    seen = iter(costs["topk"] * 100)
    play(chooser, unit, lambda label: next(seen) if label == "topk" else costs["dense"], 20)
    return chooser.label, chooser.decision.reason, type(unit.pipeline.collective).__name__


def looks_again(group, rank, size):
    """Dense is slow at first; after the decision the link becomes fast."""
    auto = small_auto("topk")
    chooser = Scripted(auto, GroupCommunicator(group, TIMEOUT))
    unit = a_unit(auto)
    play(chooser, unit, {"dense": 1.0, "topk": 0.4}.get, 30)
    before = chooser.label
    play(chooser, unit, {"dense": 0.1, "topk": 0.4}.get, 2 * FIRST_CHECK)
    return before, chooser.label


def begins_anew(group, rank, size):
    """Decided for one tensor; then steps have another."""
    auto = small_auto("topk")
    chooser = Scripted(auto, GroupCommunicator(group, TIMEOUT))
    costs = {"dense": 1.0, "topk": 0.3}
    play(chooser, a_unit(auto), costs.get, 20)
    before = chooser.label
    chooser.end_step(1.0)  # without gradients: nothing happens
    same = chooser.label
    play(chooser, a_unit(auto, "v"), costs.get, 1)
    anew = chooser.label, chooser.decision
    play(chooser, a_unit(auto, "v"), costs.get, 20)
    return before, same, anew, chooser.label


def gradients(rank, step):
    own = torch.Generator().manual_seed(1000 * step + rank)
    return {n: torch.randn(s, generator=own) for n, s in SHAPES.items()}


@contextmanager
def touring():
    """Every choice in turn for two steps, and dense now and then."""

    def course(chooser, loaded):
        labels = list(chooser.pipelines)
        for place in itertools.count():
            label = labels[5 * place % len(labels)] if place % 4 else "dense"
            yield label
            yield label

    plan, TrialChooser._course = TrialChooser._course, course
    try:
        yield
    finally:
        TrialChooser._course = plan


def through_every_choice(group, rank, size, node_size, steps, device):
    """All gradients given, all updates taken, all that waits in the end: they must balance."""
    every = "topk(0.05, bypass=0, unit='model')"  # so that small tensors have something that waits
    auto = small_auto("topk", "union", "ok-topk", every, unit=("tensor", "bucket", "model"))
    with touring():
        sync = tw.Synchronizer(auto, group, node_size=node_size, timeout=TIMEOUT)
        return balanced(sync, group, rank, steps, device)


class Given(torch.nn.Module):
    """A model whose gradients are the numbers that it is called with."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def forward(self, grads):
        return sum((p * grads[name]).sum() for name, p in self.named_parameters())


def through_every_choice_by_bucket(group, rank, size, steps):
    """As above under DDP, whose buckets come one after the other."""
    auto = small_auto("topk", "union", unit=("tensor", "bucket", "model"))
    model = DDP(Given(), process_group=group, bucket_cap_mb=0.002)
    with touring():
        handle = tw.compress(model, auto, timeout=TIMEOUT)

        def average_all(grads):
            model.zero_grad()
            model(grads).backward()
            for name, p in model.module.named_parameters():
                grads[name].copy_(p.grad)

        handle.average_all = average_all
        handle.roster = handle.synchronizer.roster
        return balanced(handle, group, rank, steps, "cpu")


def balanced(sync, group, rank, steps, device):
    balance = {n: torch.zeros(s, dtype=torch.float64).flatten() for n, s in SHAPES.items()}
    seen, updates = set(), []
    for step in range(steps):
        grads = {name: grad.to(device) for name, grad in gradients(rank, step).items()}
        for name, grad in grads.items():
            balance[name] += grad.double().flatten().cpu()
        sync.average_all(grads)
        updates.append(digest(*(grad.cpu() for grad in grads.values())))
        for name, update in grads.items():
            balance[name] -= update.double().flatten().cpu()
        seen |= {(u.pipeline.unit, u.pipeline.collective) for u in sync.roster.units.values()}
    for name, saved in sync.state_dict()["tensors"].items():
        if "feedback/residual" in saved:
            balance[name] -= saved["feedback/residual"].double().cpu()
    everything = torch.cat(list(balance.values()))
    dist.all_reduce(everything, group=group)
    return everything.abs().max().item(), updates, seen


def resumed(group, rank, size):
    """Decided, stopped, loaded: the same choice at once, and the same bits as without."""
    auto = small_auto("topk")
    straight = tw.Synchronizer(auto, group, timeout=TIMEOUT)
    straight.choosers.load({"a": "topk", "b": "topk", "c": "topk"})
    for step in range(3):
        straight.average_all(gradients(rank, step))
    file = io.BytesIO()
    torch.save(straight.state_dict(), file)
    loaded = tw.Synchronizer(auto, group, timeout=TIMEOUT)
    loaded.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    went_on = digest(*straight.average_all(gradients(rank, 3)).values())
    again = digest(*loaded.average_all(gradients(rank, 3)).values())
    dense = tw.Synchronizer("dense", group, timeout=TIMEOUT)
    plain = digest(*dense.average_all(gradients(rank, 3)).values())
    return went_on == again, went_on != plain, loaded.state_dict()["choice"]


def flushed_when_loaded_as_dense(group, rank, size):
    """A state with a residual, but no choice: all that waits goes out with the next gradient."""
    sync = tw.Synchronizer(small_auto("topk"), group, timeout=TIMEOUT)
    sync.choosers.load({"w": "topk"})
    sync.average("w", torch.arange(2000.0))
    state = seal({k: v for k, v in sync.state_dict().items() if k != SEAL} | {"choice": {}})
    waits = state["tensors"]["w"]["feedback/residual"].clone()
    loaded = tw.Synchronizer(small_auto("topk"), group, timeout=TIMEOUT)
    loaded.load_state_dict(state)
    update = loaded.average("w", torch.zeros(2000))
    dist.all_reduce(waits, group=group)
    first = torch.allclose(update, waits / size), loaded.roster.units[("w",)].pipeline == FLUSH
    loaded.average("w", torch.zeros(2000))
    return *first, type(loaded.roster.units[("w",)].pipeline.feedback).__name__


def loaded_as_dense_in_nodes(group, rank, size):
    """As above under DDP, where the first rank of a node alone has saved what waits."""
    ddp = DDP(torch.nn.Linear(40, 50), process_group=group)
    handle = tw.compress(ddp, small_auto("topk"), node_size=2, timeout=TIMEOUT)

    def step():
        ddp.zero_grad()
        ddp(torch.ones(3, 40) + rank).square().mean().backward()

    handle.synchronizer.choosers.load(dict.fromkeys(("weight", "bias"), "topk"))
    step()
    state = {k: v for k, v in handle.state_dict().items() if k != SEAL} | {"choice": {}}
    waits = ["feedback/residual" in own for own in state["tensors"].values()]
    handle.load_state_dict(seal(state))
    pipelines = []
    for _ in range(3):
        step()
        pipelines.append({unit.pipeline for unit in handle.synchronizer.roster.units.values()})
    handle.close()
    return any(waits), pipelines


def under_ddp(group, rank, size, folder):
    """Real backward passes, long enough for a decision."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.Linear(50, 5)), None,
                process_group=group)  # fmt: skip
    handle = tw.compress(model, small_auto("topk"), timeout=TIMEOUT)
    before = handle.explain()
    for step in range(20):
        own = torch.Generator().manual_seed(size * step + rank)
        model(torch.randn(8, 30, generator=own)).square().mean().backward()
    weights = digest(*(p.grad for p in model.parameters()))
    return before, handle.explain(), weights, handle.synchronizer.choosers.settled


def compressed_where_it_pays(group, rank, size, folder):
    """DRAGONN's selection: by predicted costs alone, tensor by tensor."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/{rank}"
    sync = tw.Synchronizer(tw.recipe("dragonn", selective=True), group, timeout=TIMEOUT)
    for _ in range(5):
        sync.average_all({"large": torch.ones(3000), "small": torch.ones(10)})
    return sync.choosers.settled, sync.explain()


class Mark(float):
    """A moment that one can see go."""


def marks_held(group, rank, size):
    """The most moments that were held at the end of any of many steps; alone, and by all ranks."""
    most = []
    for comm in (GroupCommunicator.alone(), GroupCommunicator(group, TIMEOUT)):
        sync = tw.Synchronizer("auto", comm=comm)
        marks, held = WeakSet(), []

        def now(_, marks=marks):
            mark = Mark(time.perf_counter())
            marks.add(mark)
            return mark

        with patch.object(Choosers, "_mark", now):
            for _ in range(90):
                sync.average_all({"w": torch.randn(2000)})
                held.append(len(marks))
        most.append(max(held))
        sync.close()
        comm.close()
    return most


# The tests.


def test_moments_are_kept_only_while_something_is_measured(cluster):
    """On a GPU each is an event; from one look at a decision to the next may be 100,000 steps."""
    for most in cluster.run(marks_held, 2):
        assert max(most) <= 20


def test_it_chooses_what_was_measured_to_be_fastest(cluster):
    """Ranks measure different times, and decide the same."""
    answers = cluster.run(takes_the_fastest, 2)
    assert answers[0] == answers[1]
    label, settled, labels, step, lost = answers[0]
    assert (label, settled) == ("union", True)
    assert set(labels) == {"dense", "topk", "union", "bf16", "gtopk"}
    assert labels[: BEGIN + 3] == ["dense"] * (BEGIN + 3)
    assert step <= 30
    assert lost <= 5


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        ({"dense": 1.0, "topk": [2.0]}, "measured"),
        ({"dense": 1.0, "topk": [0.5] * 3 + [2.0] * 97}, "whole steps were not clearly faster"),
    ],
)
def test_it_stays_dense_where_nothing_is_clearly_faster(cluster, costs, reason):
    assert cluster.run(stays_dense, 2, costs) == [("dense", reason, "Dense")] * 2


def test_it_looks_again_and_goes_back_to_dense(cluster):
    assert cluster.run(looks_again, 2) == [("topk", "dense")] * 2


def test_other_units_are_decided_anew(cluster):
    expected = ("topk", "topk", ("dense", None), "topk")
    assert cluster.run(begins_anew, 2) == [expected] * 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("node_size", [1, 2])
def test_nothing_is_lost_between_choices(cluster, node_size, device):
    """Nor where tensors are grouped otherwise, or go past the selection, or come back to it."""
    answers = cluster.run(through_every_choice, 4, node_size, 120, device)
    gap, updates, seen = answers[0]
    assert gap < 1e-4
    assert all(answer[1] == updates for answer in answers)
    units, collectives = ("tensor", "bucket", "model"), (AllGather(), UnionAllReduce())
    assert {(unit, collective) for unit in units for collective in collectives} <= seen


def test_nothing_is_lost_between_choices_under_ddp(cluster):
    answers = cluster.run(through_every_choice_by_bucket, 2, 80)
    gap, updates, seen = answers[0]
    assert gap < 1e-4
    assert all(answer[1] == updates for answer in answers)
    assert {unit for unit, _ in seen} == {"tensor", "bucket", "model"}


def test_a_checkpoint_holds_the_choice(cluster):
    choice = dict.fromkeys(SHAPES, "topk")
    assert cluster.run(resumed, 2) == [(True, True, choice)] * 2


def test_what_waits_is_sent_before_a_unit_is_dense(cluster):
    assert cluster.run(flushed_when_loaded_as_dense, 2) == [(True, True, "NoFeedback")] * 2


def test_in_nodes_all_send_what_their_first_rank_has_loaded(cluster):
    answers = cluster.run(loaded_as_dense_in_nodes, 4)
    assert [waits for waits, _ in answers] == [True, False] * 2
    for _, pipelines in answers:
        assert pipelines[0] == {FLUSH}
        assert pipelines == answers[0][1]


def test_under_ddp(cluster, tmp_path):
    answers = cluster.run(under_ddp, 2, str(tmp_path))
    before, text, _, settled = answers[0]
    assert answers[0] == answers[1]
    assert before == "auto: no step was taken yet."
    assert settled
    assert "decided after" in text


def test_dragonn_compresses_where_it_pays(cluster, tmp_path):
    (settled, text), other = cluster.run(compressed_where_it_pays, 2, str(tmp_path))
    assert settled
    assert (settled, text) == other
    assert "large" in text


def test_choices_must_share_their_residual():
    with pytest.raises(tw.RecipeError, match="share one feedback"):
        Auto.between(tw.recipe("dense"), {"x": tw.recipe("topk"), "y": tw.recipe("dgc")})
    with pytest.raises(tw.RecipeError, match="share one feedback"):
        Auto.between(tw.recipe("dense"), {"x": tw.recipe("bf16")})
    with pytest.raises(tw.RecipeError, match="different labels"):
        Auto.between(tw.recipe("dense"), {"dense": tw.recipe("topk")})
    with pytest.raises(tw.RecipeError, match="trial=-1"):
        tw.recipe("auto", trial=-1)


def test_small_tensors_keep_the_momentum_of_their_recipe():
    """Momentum SGD on what is too small to compress: u ← m·u + g, as the optimiser would."""
    sync = tw.Synchronizer(tw.recipe("dgc", momentum=0.5))
    updates = [sync.average("bias", torch.ones(2)).tolist() for _ in range(3)]
    assert updates == [[1.0, 1.0], [1.5, 1.5], [1.75, 1.75]]
    assert isinstance(sync.roster.units[("bias",)].pipeline.feedback, Momentum)
