"""The pipeline: the order of one step, where the update ends, and recipes as dicts."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thinwire as tw
from thinwire.codec import Pair
from thinwire.comm import GroupCommunicator
from thinwire.types import Reduced

CALLS: list[str] = []
N = 8


@dataclass(frozen=True)
class Choose(tw.Sparsifier):
    name = "choose"

    def select(self, x: Any, state: Any, ctx: Any) -> Any:
        CALLS.append("select")
        return tw.Sparse(torch.tensor([1, 3]), x[[1, 3]], x.numel())


@dataclass(frozen=True)
class Keep(tw.Feedback):
    name = "keep"

    def before(self, grad: Any, state: Any) -> Any:
        CALLS.append("before")
        return grad + 10

    def after(self, x: Any, reduced: Any, mean: Any, state: Any) -> Any:
        CALLS.append("after")
        assert x[0].item() == 10
        return mean * 2


@dataclass(frozen=True)
class Send(tw.Collective):
    name = "send"
    seen: list[Any] = field(default_factory=list)

    def exchange(self, s: Any, codec: Any, ctx: Any) -> Any:
        CALLS.append("exchange")
        self.seen.append(ctx)
        return Reduced(s, s)


def run(pipeline: tw.Pipeline, grad: torch.Tensor, gradients: int | None = None) -> torch.Tensor:
    state = pipeline.init(tw.TensorSpec("w", N, grad.dtype, grad.device))
    ctx = tw.StepContext("w", 4, 7, GroupCommunicator(), shapes=((2, 4),))
    prepared = pipeline.prepare(grad, state, ctx)
    return pipeline.complete(prepared, grad, state, ctx, gradients)


def test_the_one_way_data_flows() -> None:
    CALLS.clear()
    grad = torch.arange(float(N))
    update = run(tw.Pipeline(Choose(), Pair(), Send(), Keep()), grad)
    assert CALLS == ["before", "select", "exchange", "after"]
    assert update is grad  # in the gradient's own storage
    assert update.tolist() == [0, 22, 0, 26, 0, 0, 0, 0]


def test_the_mean_may_be_over_more_gradients_than_ranks() -> None:
    update = run(tw.Pipeline(Choose(), Pair(), Send(), Keep()), torch.arange(float(N)), 2)
    assert update.tolist() == [0, 11, 0, 13, 0, 0, 0, 0]


def test_half_precision_is_summed_in_float32_and_ends_in_its_own_dtype() -> None:
    grad = torch.arange(float(N)).bfloat16()
    update = run(tw.Pipeline(Choose(), Pair(), Send(), Keep()), grad)
    assert update is grad
    assert update.dtype == torch.bfloat16


def test_the_exchange_knows_the_step_and_the_shapes() -> None:
    send = Send()
    run(tw.Pipeline(Choose(), Pair(), send, Keep()), torch.arange(float(N)))
    (ctx,) = send.seen
    assert (ctx.tensor, ctx.step, ctx.seed, ctx.shapes) == ("w", 4, 7, ((2, 4),))


@dataclass(frozen=True)
class Broken(tw.Collective):
    name = "broken"

    def exchange(self, s: Any, codec: Any, ctx: Any) -> Any:
        raise tw.ExchangeError("rank 1 is gone")


def test_an_exchange_that_breaks_off_is_named() -> None:
    with pytest.raises(tw.ExchangeError, match=r"^Broken of 'w', step 4: rank 1 is gone$"):
        run(tw.Pipeline(Choose(), Pair(), Broken(), Keep()), torch.arange(float(N)))


@pytest.mark.parametrize("name", [name for name in tw.recipes() if name != "auto"])
def test_a_dict_rebuilds_the_recipe(name: str) -> None:
    pipeline = tw.recipe(name, unit="model", warm_up=tw.WarmUp(steps=3), row_collective="union")
    assert tw.recipe(json.loads(json.dumps(pipeline.to_dict()))) == pipeline


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sparsifier": "topk"}, "sparsifier='topk' is not a Sparsifier"),
        ({"collective": None}, "collective=None is not a Collective"),
        ({"codec": 5}, "takes a codec of kind 'bytes', not 5 of kind None"),
        ({"warm_up": 500}, "warm_up=500 is not a WarmUp"),
        ({"feedback": Choose()}, "is not a Feedback"),
        ({"codec": None}, "takes a codec of kind 'bytes'"),
        ({"bypass": -1}, "bypass=-1"),
        ({"unit": "layer"}, "unit='layer'"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_built(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(tw.RecipeError, match=says):
        tw.Pipeline(**fields)
