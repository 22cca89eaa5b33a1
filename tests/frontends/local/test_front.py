"""Bad input is refused before anything is sent; defaults follow the recipe.

Covers frontends/local/checkpoint.py.
"""

from functools import partial

import pytest
import torch
from torch import nn

import thinwire as tw
from thinwire.cookbook import ROUNDS
from thinwire.frontends.local import SETUPS
from thinwire.frontends.local.fragments import fragments_of


def model():
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"every": 0}, "every=0 must be an integer of at least 1"),
        ({"every": 2.5}, "every=2.5 must be an integer"),
        ({"every": lambda number: 0}, "every=0 must be an integer of at least 1"),
        ({"fragments": 0}, "fragments=0 must be"),
        ({"every": 10, "fragments": 3}, "fragments=3 do not divide the every=10"),
        ({"every": 10, "fragments": 5}, "fragments=5 are more than the 4 tensors"),
        ({"every": 4, "delay": 4}, "delay=4 must be less than every=4"),
        ({"delay": -1}, "delay=-1 must be"),
        ({"blend": 1.0}, "blend=1.0 must be in"),
        ({"hold": 1.5}, "hold=1.5 must be in"),
        ({"hold": 0.0}, "hold=0.0 must be in"),
        ({"own": 1.5}, "own=1.5 must be in"),
        ({"own": 0.5, "blend": 0.5}, "both keep a rank's own way"),
        ({"own": 0.5, "node_size": 2}, "own=0.5 is for ranks that each speak for themselves"),
        ({"nonfinite": "propagate"}, "'raise' or 'skip'"),
        ({"recipe": "auto"}, "name one for outer()"),
        ({"recipe": "sparselocco"}, "unknown recipe 'sparselocco'"),
        ({"recipe": {"*.bias": "dense"}}, "no pattern for the parameter '0.weight'"),
        ({"outer": "nesterov"}, "functools.partial"),
        ({"keep_dtype": torch.int8}, "keep_dtype=torch.int8 must be a floating-point dtype"),
        ({"keep_dtype": "bfloat16"}, "keep_dtype='bfloat16' must be a floating-point dtype"),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)
def test_settings_that_cannot_be(settings, says):
    net = model()
    recipe = settings.pop("recipe", "dense")
    with pytest.raises(tw.RecipeError) as refused:
        tw.outer(net, sgd(net), recipe, **settings)
    assert says in str(refused.value)


def test_an_outer_optimiser_that_has_parameters_already():
    net = model()
    with pytest.raises(tw.RecipeError, match=r"functools\.partial"):
        tw.outer(net, sgd(net), "dense", outer=sgd(model()))


@pytest.mark.parametrize(
    ("outer", "says"),
    [
        (lambda shared: torch.optim.SGD(shared[:3], lr=0.7), "lacks 1 of the 4"),
        (lambda shared: sgd(model()), "has 4 parameters that it was not given"),
        (lambda shared: None, "made a NoneType"),
    ],
    ids=["some", "others", "nothing"],
)
def test_an_outer_optimiser_of_other_parameters(outer, says):
    """It would step them, and the shared copy would stay where it is."""
    net = model()
    with pytest.raises(tw.RecipeError, match=says):
        tw.outer(net, sgd(net), "dense", outer=outer)


@pytest.mark.parametrize("optimizer", [None, "adam", [None]], ids=str)
def test_what_is_no_optimiser(optimizer):
    with pytest.raises(TypeError, match=r"outer\(model, optimizer, recipe\)"):
        tw.outer(model(), optimizer, "dense")


def test_an_optimiser_of_other_parameters():
    net = model()
    with pytest.raises(tw.RecipeError, match=r"4 parameters that are not the model's"):
        tw.outer(net, sgd(model()), "dense")
    first = torch.optim.SGD(net[0].parameters(), lr=0.1)
    with pytest.raises(tw.RecipeError, match=r"'1.weight' is trained, and not by the optimiser"):
        tw.outer(net, first, "dense")
    second = torch.optim.SGD(net[1].parameters(), lr=0.1)
    handle = tw.outer(net, [first, second], "dense")
    assert sum(map(len, handle.fragments)) == 4
    handle.close()
    net[1].requires_grad_(False)
    handle = tw.outer(net, first, "dense")
    assert handle.fragments == [("0.weight", "0.bias")]
    handle.close()


def test_parameters_that_are_not_real():
    net = nn.Linear(3, 2, dtype=torch.complex64)
    with pytest.raises(tw.RecipeError, match=r"'weight' is a Parameter of torch\.complex64"):
        tw.outer(net, sgd(net), "dense")


def test_a_schedule_that_comes_to_nothing_says_so_in_its_round():
    net = model()
    optimizer = sgd(net)
    tw.outer(net, optimizer, "dense", every=lambda number: 2 - number)
    for _ in range(2):
        optimizer.step()
    with pytest.raises(tw.RecipeError, match="every=0"):
        optimizer.step()


@pytest.mark.parametrize(
    ("recipe", "lr", "momentum"),
    [
        *(("dense", 0.7, 0.9), ("bf16", 0.7, 0.9), ("int4", 0.7, 0.9), ("diloco", 0.7, 0.9)),
        *(("topk", 1.0, 0), ("union", 1.0, 0), ("sparseloco", 1.0, 0), ("localsgd", 1.0, 0)),
        ("shortloco", 1.0, 0.3),
        ({"*bias": "dense", "*": "topk"}, 1.0, 0),
    ],
    ids=str,
)
def test_behind_a_selection_there_is_no_outer_momentum_unless_a_name_has_it(recipe, lr, momentum):
    net = model()
    handle = tw.outer(net, sgd(net), recipe)
    defaults = handle.shared.optimizer.defaults
    assert (defaults["lr"], defaults["momentum"]) == (lr, momentum)
    assert defaults["nesterov"] == bool(momentum)
    handle.close()


def test_the_names_are_those_of_the_papers_and_one_of_ours_and_settings_replace_them():
    papers = {"diloco", "streaming-diloco", "sparseloco", "localsgd", "demo"}
    assert set(SETUPS) == papers | {"shortloco"} == set(ROUNDS)
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    outer = partial(torch.optim.SGD, lr=0.5)
    handle = tw.outer(net, sgd(net), "streaming-diloco", every=8, outer=outer)
    assert (handle.setup.every, handle.setup.fragments, handle.setup.delay) == (8, 4, 5)
    assert handle.setup.blend == 0.5
    assert handle.shared.optimizer.defaults["lr"] == 0.5
    handle.close()


def test_shortloco_sends_what_sparseloco_does_and_forgets_nothing():
    ours, theirs = SETUPS["shortloco"](), SETUPS["sparseloco"]()
    assert ours.every < theirs.every
    assert (ours.recipe.sparsifier, ours.recipe.codec) == (
        theirs.recipe.sparsifier,
        theirs.recipe.codec,
    )
    assert ours.recipe.feedback.conserves
    assert not theirs.recipe.feedback.conserves


def test_fragments_are_about_as_large_and_have_every_tensor_once():
    sizes = {"a": 100, "b": 1, "c": 60, "d": 40, "e": 2}
    parts = fragments_of({name: torch.empty(size) for name, size in sizes.items()}, 2)
    assert parts == [("a", "e"), ("b", "c", "d")]


def test_parameters_in_half_precision_have_a_copy_in_float32():
    """Its rounding to them is no step of anyone's: a round without one moves nothing."""
    net = model().to(torch.bfloat16)
    for p in net.parameters():
        nn.init.ones_(p)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    handle = tw.outer(net, optimizer, "dense", every=1)
    exact = {n: p.detach() + 1e-5 for n, p in handle.shared.parameters.items()}
    handle.shared.load(exact, handle.shared.state())
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in handle.shared.parameters.items():
        assert p.dtype == torch.float32
        assert torch.equal(p.detach(), exact[name])
    handle.close()


def test_a_state_of_something_else_is_refused_and_nothing_changed():
    net, other = model(), nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    handle, others = (tw.outer(m, sgd(m), "topk", every=2) for m in (net, other))
    before = [p.detach().clone() for p in handle.shared.parameters.values()]
    good = handle.state_dict()
    third = tw.outer(net, sgd(net), "topk", every=2, fragments=2)
    for wrong, says in (
        (others.state_dict(), r"'1\.\w+' was saved as .*\[3"),
        (good | {"version": 7}, "state version 7"),
        (good | {"round": 7}, "altered since it was saved"),
        (handle.synchronizer.state_dict(), r"no state that thinwire\.outer saved"),
        (third.state_dict(), "fragments=2 and an outer SGD, here are fragments=1"),
        ([], "list of states is empty"),
    ):
        with pytest.raises(tw.RecipeError, match=says):
            handle.load_state_dict(wrong)
    for kept, p in zip(before, handle.shared.parameters.values(), strict=True):
        assert torch.equal(kept, p)
    handle.load_state_dict([good])
    for one in (handle, others, third):
        one.close()
