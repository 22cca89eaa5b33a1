"""Law 8, resume: stop, save, load, go on = never stopped; and at another P nothing is lost."""

import io
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from support.contracts import ranks
from support.contracts.cases import DTYPES, Case, Layer, everything, one_per, with_two_sizes
from support.contracts.laws import check

LAYERS = (
    Layer((900,)),
    Layer((30, 20), "bfloat16", "transposed"),
    Layer((200,), "float64"),
    Layer(()),
    Layer((0,)),
)


@pytest.mark.parametrize(("recipe", "size"), with_two_sizes())
def test_bit_for_bit(cluster, recipe, size):
    case = Case(recipe, LAYERS, steps=5, seed=5, settings={"density": 0.05})
    for went_on, resumed in cluster.run(ranks.stop_and_go, size, case, 3):
        assert resumed == went_on


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_bit_for_bit_whatever_the_unit(cluster, unit):
    layers = tuple(Layer((n,), dtype) for n in (300, 70) for dtype in DTYPES)
    settings = {"density": 0.05, "unit": unit, "bypass": 100}
    case = Case("topk", layers, steps=5, settings=settings)
    for went_on, resumed in cluster.run(ranks.stop_and_go, 3, case, 2):
        assert resumed == went_on


@pytest.mark.parametrize(
    ("recipe", "old", "new"),
    [(name, 2, 3) for name in everything()] + [(name, 3, 2) for name in one_per("feedback")],
)
def test_at_another_size_the_waiting_mass_is_kept(cluster, recipe, old, new):
    case = Case(recipe, LAYERS, steps=3, seed=5, settings={"density": 0.05})
    saved = cluster.run(ranks.states, old, case)
    before, after = mass(saved), mass(cluster.run(ranks.resaved, new, case, saved))
    assert before.keys() == after.keys()
    for key, total in before.items():
        if "/average_" in key or "/common_" in key:  # on every rank the mean over all
            total.sum *= new / old
        eps = torch.finfo(torch.float64 if key.startswith("layer.2/") else torch.float32).eps
        assert bool(((after[key].sum - total.sum).abs() <= old * eps * total.magnitude).all()), key
    # And the laws hold as training goes on from there.
    check(cluster.run(ranks.train, new, case, saved))


@pytest.mark.parametrize("new", [2, 3])
@pytest.mark.parametrize("recipe", ["topk", "dgc", "ok-topk", "int8", "powersgd"])
def test_where_a_rank_is_lost_with_its_state_the_others_mass_is_kept(cluster, recipe, new):
    case = Case(recipe, LAYERS, steps=3, seed=5, settings={"density": 0.05})
    left = cluster.run(ranks.states, 3, case)
    del left[1]
    before, after = mass(left), mass(cluster.run(ranks.resaved, new, case, left, [1]))
    assert before.keys() == after.keys()
    for key, total in before.items():
        assert torch.equal(after[key].sum, total.sum), key
    check(cluster.run(ranks.train, new, case, left, [1]))


@dataclass
class Mass:
    """A sum over ranks, element by element, and that of the magnitudes."""

    sum: Tensor
    magnitude: Tensor


def mass(files: list[bytes]) -> dict[str, Mass]:
    """What waits on all ranks together; P times what is a mean over them."""
    found: dict[str, Mass] = {}
    for file in files:
        state = torch.load(io.BytesIO(file), weights_only=True)
        for name, tensors in state["tensors"].items():
            for key in (key for key in tensors if key.startswith("feedback/")):
                x = tensors[key].double()
                one = found.setdefault(f"{name}/{key}", Mass(x * 0, x * 0))
                one.sum += x
                one.magnitude += x.abs()
    return found
