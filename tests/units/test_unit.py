"""A unit: several tensors as one flat one, taken apart and put together without loss."""

import pytest
import torch
from torch import Tensor

import thinwire as tw
from thinwire.comm import Traffic
from thinwire.units.unit import Unit

TOPK = tw.recipe("topk", density=0.5)


def gradients(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def test_it_knows_its_tensors() -> None:
    unit = Unit.assemble(gradients(a=(2, 3), b=(4,)), TOPK, {})
    assert unit.names == ("a", "b")
    assert unit.spec.shapes == ((2, 3), (4,))
    assert (unit.spec.name, unit.spec.numel, unit.sizes) == ("a+1", 10, [6, 4])


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"a": torch.ones(3, 2)}, False),
        ({"a": torch.ones(2, 3).double()}, False),
        ({"a": torch.ones(2, 4)}, False),
    ],
)
def test_it_fits_its_own_gradients_only(change: dict[str, Tensor], fits: bool) -> None:
    grads = gradients(a=(2, 3), b=(4,))
    assert Unit.assemble(grads, TOPK, {}).fits(grads | change) is fits


def test_flat_and_back() -> None:
    grads = [torch.randn(2, 3).t(), torch.randn(4)]  # neither contiguous nor in a row
    unit = Unit.assemble({"a": grads[0], "b": grads[1]}, TOPK, {})
    flat = unit.flatten(grads)
    assert torch.equal(flat, torch.cat([grads[0].reshape(-1), grads[1]]))
    expected = [grad * 2 for grad in grads]
    unit.unflatten(flat * 2, grads)
    assert all(torch.equal(g, e) for g, e in zip(grads, expected, strict=True))


def test_gradients_in_a_row_are_not_copied() -> None:
    bucket = torch.randn(10)
    grads = [bucket[:6].view(2, 3), bucket[6:]]
    unit = Unit.assemble({"a": grads[0], "b": grads[1]}, TOPK, {})
    assert unit.flatten(grads).data_ptr() == bucket.data_ptr()


def test_dissolved_and_assembled_in_other_units_the_state_is_the_same() -> None:
    grads = gradients(a=(2, 3), b=(4,))
    unit = Unit.assemble(grads, TOPK, {})
    unit.state["feedback"]["residual"].copy_(torch.arange(10.0))
    unit.step = 5
    saved = unit.dissolve()
    assert saved["b"]["feedback/residual"].tolist() == [6, 7, 8, 9]
    alone = Unit.assemble({"b": grads["b"]}, TOPK, saved)
    assert alone.state["feedback"]["residual"].tolist() == [6, 7, 8, 9]
    assert alone.step == 5
    together = Unit.assemble(dict(reversed(grads.items())), TOPK, saved)
    assert together.state["feedback"]["residual"].tolist() == [6, 7, 8, 9, 0, 1, 2, 3, 4, 5]


def test_a_saved_state_that_does_not_fit_is_refused() -> None:
    grads = gradients(a=(6,))
    saved = Unit.assemble(gradients(a=(4,)), TOPK, {}).dissolve()
    with pytest.raises(tw.RecipeError, match="'a' has 4 elements, the tensor has 6"):
        Unit.assemble(grads, TOPK, saved)
    without = Unit.assemble(grads, TOPK, {}).dissolve()
    with pytest.raises(tw.RecipeError, match="saved by a recipe with another feedback"):
        Unit.assemble(grads, tw.recipe("dgc"), without)


def test_nothing_waits_of_a_tensor_that_travelled_whole() -> None:
    whole = Unit.assemble(gradients(a=(6,)), tw.recipe("dense"), {}).dissolve()
    unit = Unit.assemble(gradients(a=(6,)), TOPK, whole)
    assert not unit.state["feedback"]["residual"].any()


def test_a_step_can_be_undone() -> None:
    unit = Unit.assemble(gradients(a=(4,)), TOPK, {})
    residual = unit.state["feedback"]["residual"]
    residual.fill_(1)
    unit.remember()
    residual.fill_(2)
    unit.count(None, Traffic(), 1)
    unit.undo()
    assert unit.state["feedback"]["residual"].tolist() == [1, 1, 1, 1]
    assert unit.step == 0


def test_a_frozen_tensor_offers_zeros_and_keeps_its_residual() -> None:
    unit = Unit.assemble(gradients(a=(2,), b=(2,)), TOPK, {})
    residual = unit.state["feedback"]["residual"]
    residual.copy_(torch.tensor([1.0, 2, 3, 4]))
    with unit.frozen({"b"}):
        assert residual.tolist() == [1, 2, 0, 0]
        residual.fill_(9)
    assert residual.tolist() == [9, 9, 3, 4]


def test_an_error_leaves_a_frozen_tensor_its_residual() -> None:
    unit = Unit.assemble(gradients(a=(2,), b=(2,)), TOPK, {})
    residual = unit.state["feedback"]["residual"]
    residual.copy_(torch.tensor([1.0, 2, 3, 4]))
    with pytest.raises(KeyError), unit.frozen({"b"}):
        raise KeyError
    assert residual.tolist() == [1, 2, 3, 4]


def test_another_pipeline_takes_over_what_waits() -> None:
    unit = Unit.assemble(gradients(a=(2,)), TOPK, {})
    unit.state["feedback"]["residual"].fill_(3)
    unit.switch(tw.recipe("gtopk", density=0.5))
    assert unit.state["feedback"]["residual"].tolist() == [3, 3]
    unit.switch(tw.recipe("dense"))
    assert unit.state["feedback"] == {}


def test_what_a_step_forgets_by_tensor():
    sync = tw.Synchronizer(tw.recipe("topk(0.25) | raw | allgather | residual(0.9)", bypass=0))
    sync.average_all({"a": torch.tensor([8.0, 1.0, -2.0, 3.0]), "b": torch.tensor([1.0, 9.0] * 4)})
    rows = sync.stats()["tensors"]
    assert rows["a"]["forgotten"] == pytest.approx(0.1 * 6)
    assert rows["b"]["forgotten"] == pytest.approx(0.1 * (4 + 18))
    sync.close()
    keeps_all = tw.Synchronizer("topk")
    keeps_all.average("a", torch.ones(3000))
    assert "forgotten" not in keeps_all.stats()["tensors"]["a"]
    keeps_all.close()
