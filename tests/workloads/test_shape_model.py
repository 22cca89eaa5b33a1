"""Models that stand in for real ones: true shapes, a gradient for each, time as declared."""

import time
from functools import partial

import pytest
import torch
from torch import Tensor

from thinwire.workloads.shape_model import Pace, ShapeModel

SHAPES = {"conv.weight": (4, 3, 3), "conv.bias": (4,), "fc.weight": (600, 500), "fc.bias": (600,)}


def gradients(model: ShapeModel) -> dict[str, Tensor]:
    """As each becomes ready, which is when DDP copies it: the next layer's take its place."""
    found: dict[str, Tensor] = {}

    def keep(name: str, grad: Tensor) -> None:
        found[name] = grad.clone()

    hooks = [p.register_hook(partial(keep, name)) for name, p in model.named_parameters()]
    model().backward()
    for hook in hooks:
        hook.remove()
    return found


def test_every_parameter_has_its_shape_and_gets_a_gradient() -> None:
    model = ShapeModel(SHAPES, rank=0, seed=0)
    assert [tuple(p.shape) for p in model.parameters()] == list(SHAPES.values())
    found = gradients(model)
    assert {name: tuple(g.shape) for name, g in found.items()} == {
        name.replace(".", "/"): shape for name, shape in SHAPES.items()
    }
    assert all(g.count_nonzero() > 0.9 * g.numel() for g in found.values())


def test_gradients_are_alike_on_all_ranks_and_new_at_every_step() -> None:
    mine, again, other = (ShapeModel(SHAPES, rank, seed=3) for rank in (0, 0, 1))
    first = gradients(mine)["fc/weight"]
    assert torch.equal(gradients(again)["fc/weight"], first)
    for different in (gradients(other)["fc/weight"], gradients(mine)["fc/weight"]):
        together = torch.stack([first.flatten(), different.flatten()])
        assert 0.2 < torch.corrcoef(together)[0, 1] < 0.9


def test_gradients_are_heavy_tailed() -> None:
    x = gradients(ShapeModel(SHAPES, rank=0, seed=0))["fc/weight"]
    assert ((x - x.mean()) ** 4).mean() / x.var() ** 2 > 10  # 3 for a normal


def test_parameters_take_no_memory_however_large_they_are() -> None:
    model = ShapeModel({"large": (1000, 1000)}, rank=0, seed=0)
    (parameter,) = model.parameters()
    assert parameter.untyped_storage().nbytes() == 4


def test_layers_are_worked_off_from_the_last_to_the_first() -> None:
    model = ShapeModel(SHAPES, rank=0, seed=0)
    order: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda grad, name=name: order.append(name))
    model().backward()
    assert {*order[:2]} == {"fc/weight", "fc/bias"}


def test_the_declared_time_is_spread_by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now, moments = [100.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds
        moments.append(round(now[0] - 100, 6))

    monkeypatch.setattr(time, "sleep", sleep)
    model = ShapeModel(SHAPES, rank=0, seed=0)
    work = {"conv/weight": 1, "conv/bias": 0, "fc/weight": 3, "fc/bias": 0}
    pace = Pace(3.0, work, dict(model.named_parameters()))
    pace.start()
    loss = model()
    pace.end_forward()
    loss.backward()
    # A third forward; of the two seconds backward three quarters belong to the last layer.
    assert moments == [1.0, 2.5, 3.0]
