"""The laws of tests/contracts over NCCL: the same statements, one job for each recipe."""

import pytest

import thinwire as tw
from gpu import ranks
from support.contracts.cases import MIXTURES, Case, Layer
from support.contracts.laws import check, check_exchange
from support.nccl import DEVICE

LAYERS = (
    Layer((9000,)),
    Layer((60, 50), "bfloat16", "transposed", "heavy"),
    Layer((4000,), "float64"),
    Layer((2500,), "float16", "strided"),
    Layer((1500,), content="one rank only"),
    Layer((0,)),
)


def case_of(recipe, layers=LAYERS, **settings):
    chosen = {"density": 0.02} | settings
    return Case(recipe, layers, steps=4, seed=7, settings=chosen, device=DEVICE)


def check_laws(gpu, size, case):
    answers = gpu.run(ranks.laws, size, case)
    check([a.steps for a in answers])  # 1 and 2: conservation, replicas
    if answers[0].exchanges:
        check_exchange([a.exchanges for a in answers])
    for answer in answers:
        once, again = answer.repeated
        assert once == again, "law 3: not the same bytes and updates again"
        went_on, resumed = answer.resumed
        assert resumed == went_on, "law 8: not the same after loading"


@pytest.mark.parametrize("recipe", tw.recipes())
def test_every_recipe(gpu, size, recipe):
    check_laws(gpu, size, case_of(recipe))


@pytest.mark.parametrize("recipe", MIXTURES)
def test_pieces_that_no_recipe_uses(gpu, recipe):
    check_laws(gpu, 4, case_of(recipe))


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
@pytest.mark.parametrize("recipe", ["topk", "dgc", "ok-topk", "union"])
def test_every_unit(gpu, recipe, unit):
    check_laws(gpu, 2, case_of(recipe, unit=unit, bypass=2000))


@pytest.mark.parametrize("mode", ["raise", "skip", "propagate"])
@pytest.mark.parametrize("recipe", ["topk", "union", "dense", "ok-topk"])
def test_law_7_poison_on_one_rank_enters_no_state(gpu, recipe, mode):
    case = case_of(recipe, LAYERS[:2])
    for clean, step in gpu.run(ranks.poison, 2, case, mode, float("nan"), 1):
        assert step.raised.startswith("NonFiniteError") == (mode == "raise")
        assert (step.zeros, step.nans) == (mode == "skip", mode == "propagate")
        assert step.state_kept
        assert step.next_update == clean, "the poisoned step left a trace"
