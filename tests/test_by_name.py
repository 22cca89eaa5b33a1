"""Recipes by parameter name: which one counts, and that they never mix."""

import io
import json
from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from support.extras import needs
from thinwire.by_name import ByName
from thinwire.cost.network import Link, Network
from thinwire.cost.predict import predict

TIMEOUT = timedelta(seconds=15)
RULES = {
    "*.norm*": "dense",
    "embedding.*": "parallax",
    "layers.0.*": "dgc(0.1)",
    "layers.[12].*": "union(0.1, 8)",
    "*.bias": "bf16",
    "*": "topk(0.1)",
}
NAMES = {
    "embedding.weight": "embedding.*",
    "layers.0.weight": "layers.0.*",
    "layers.0.norm.weight": "*.norm*",
    "layers.1.bias": "layers.[12].*",
    "layers.3.bias": "*.bias",
    "layers.3.weight": "*",
    "head": "*",
}


@pytest.mark.parametrize(("name", "pattern"), NAMES.items())
def test_the_first_pattern_that_matches_counts(name, pattern):
    assert tw.recipe(RULES).of_tensor(name) == tw.recipe(RULES[pattern])


def test_patterns_are_written_as_fnmatch_has_them_whatever_the_case():
    recipe = tw.recipe({"a?.w": "dense", "A*": "bf16", "*": "topk"})
    assert recipe.of_tensor("a1.w") == tw.recipe("dense")
    assert recipe.of_tensor("A1.w") == tw.recipe("bf16")
    assert recipe.of_tensor("a12.w") == tw.recipe("topk")


def test_a_name_that_no_pattern_matches_is_named():
    recipe = tw.recipe({"*.weight": "topk"})
    with pytest.raises(tw.RecipeError, match=r"no pattern for the parameter 'layer\.bias'.*'\*'"):
        recipe.of_tensor("layer.bias")
    sync = tw.Synchronizer(recipe)
    with pytest.raises(tw.RecipeError, match=r"layer\.bias"):
        sync.average_all({"layer.weight": torch.ones(3), "layer.bias": torch.ones(3)})
    sync.close()


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"*.norm*": "dens", "*": "topk"}, r"'\*\.norm\*': unknown recipe 'dens'"),
        ({"*": "topk(densty=0.1)"}, r"'\*'.*'densty'"),
        ({"*": "auto"}, r"'\*' chooses by itself"),
        ({"*": "dragonn(selective=True)"}, "chooses by itself"),
        ({"*": {"*": "topk"}}, "chooses by itself"),
        ({"by_name": []}, "no patterns"),
        ({"by_name": [["*", "topk"]], "unit": "model"}, "has nothing"),
        ({"weight": "topk"}, r"unknown field 'weight'.*'\*weight'"),
    ],
)
def test_what_is_wrong_is_said_with_its_pattern(rules, says):
    with pytest.raises(tw.RecipeError, match=says):
        tw.recipe(rules)


def test_it_survives_being_written_down_also_where_keys_are_sorted():
    recipe = tw.recipe(RULES, warm_up=tw.WarmUp(10))
    assert isinstance(recipe, ByName)
    assert tw.recipe(recipe) == recipe
    assert tw.recipe(recipe.to_dict()) == recipe
    written = json.dumps(recipe.to_dict(), sort_keys=True)
    assert [p for p, _ in tw.recipe(written).rules] == list(RULES)
    assert tw.recipe(written) == recipe
    assert tw.recipe(json.dumps(RULES)) == tw.recipe(RULES)


@needs("yaml")
def test_yaml():
    import yaml

    assert tw.recipe(yaml.safe_dump(RULES, sort_keys=False)) == tw.recipe(RULES)
    assert tw.recipe(yaml.safe_dump(tw.recipe(RULES).to_dict())) == tw.recipe(RULES)


def test_settings_count_for_all_of_them():
    recipe = tw.recipe({"*.a": "topk(0.1)", "*": "ok-topk(0.2)"}, bypass=7, density=0.3)
    assert [(own.bypass, own.sparsifier.density) for _, own in recipe.rules] == [(7, 0.3)] * 2
    again = tw.recipe(recipe, bypass=9)
    assert [own.bypass for _, own in again.rules] == [9, 9]


def test_equal_recipes_are_one_so_that_their_tensors_go_together():
    recipe = tw.recipe({"*.a": "dense", "*.b": "topk", "*": "dense"})
    assert recipe.split(["x.a", "x.b", "x.c"]) == [
        (tw.recipe("dense"), ["x.a", "x.c"]),
        (tw.recipe("topk"), ["x.b"]),
    ]


def test_it_conserves_if_all_do():
    assert tw.recipe({"*.a": "dense", "*": "topk"}).conserves
    assert not tw.recipe({"*.a": "terngrad", "*": "topk"}).conserves


def test_a_sum_without_a_name_is_refused():
    with pytest.raises(tw.RecipeError, match="no parameter's name"):
        tw.sparse_all_reduce(torch.ones(3), {"*": "topk"})


# What the ranks do.

SHAPES = {
    "embedding.weight": (40, 30),
    "layers.0.weight": (60, 50),
    "layers.0.norm.weight": (50,),
    "layers.1.weight": (40, 50),
    "layers.3.bias": (2000,),
    "layers.3.weight": (30, 50),
    "head": (1100,),
}


def gradients(rank, step, only=lambda name: True):
    data = torch.Generator().manual_seed(100 * step + rank)
    grads = {name: torch.randn(shape, generator=data) for name, shape in SHAPES.items()}
    return {name: grad for name, grad in grads.items() if only(name)}


def each_as_by_its_own_recipe(group, rank, size):
    """All tensors by names, beside the tensors of each pattern by a synchroniser of its own."""
    together = tw.Synchronizer(RULES, group, timeout=TIMEOUT)
    gets = tw.recipe(RULES).names_by_pattern(SHAPES)
    apart = {p: tw.Synchronizer(RULES[p], group, timeout=TIMEOUT) for p in RULES if gets[p]}
    same = []
    for step in range(3):
        means = together.average_all(gradients(rank, step))
        for pattern, sync in apart.items():
            own = sync.average_all(gradients(rank, step, lambda n, p=pattern: n in gets[p]))
            same += [torch.equal(means[name], mean) for name, mean in own.items()]
    rows = together.stats()["tensors"]
    units = [unit.names for unit in together.roster.units.values()]
    explained = together.explain()
    for sync in (together, *apart.values()):
        sync.close()
    return all(same), {n: rows[n]["density"] for n in SHAPES}, units, explained


def resumed(group, rank, size):
    def updates(sync, steps):
        return [
            {n: m.clone() for n, m in sync.average_all(gradients(rank, s)).items()} for s in steps
        ]

    straight = tw.Synchronizer(RULES, group, timeout=TIMEOUT)
    updates(straight, range(2))
    file = io.BytesIO()
    torch.save(straight.state_dict(), file)
    went_on = updates(straight, range(2, 5))
    loaded = tw.Synchronizer(RULES, group, timeout=TIMEOUT)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    again = updates(loaded, range(2, 5))
    return all(torch.equal(a[n], b[n]) for a, b in zip(went_on, again, strict=True) for n in SHAPES)


class Net(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.embedding = nn.Embedding(60, 40, sparse=sparse)
        self.norm, self.hidden, self.head = nn.LayerNorm(40), nn.Linear(40, 80), nn.Linear(80, 5)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(self.norm(self.embedding(x).mean(1)))))


def in_ddp(group, rank, size, sparse):
    """Law 1 for every parameter, by a twin's gradients; and the units after DDP's regrouping."""
    torch.manual_seed(0)
    model, twin = Net(sparse), Net(sparse)
    twin.load_state_dict(model.state_dict())
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.005)
    rules = {"embedding*": "parallax", "*norm*": "dense", "hidden.*": "topk(0.05)", "*": "ok-topk"}
    handle = tw.compress(ddp, tw.recipe(rules, bypass=50))
    gaps = []

    def waiting():
        states = handle.state_dict()["tensors"]
        return {n: s["feedback/residual"] for n, s in states.items() if "feedback/residual" in s}

    for step in range(4):
        x = torch.randint(60, (8, 4), generator=torch.Generator().manual_seed(10 * step + rank))
        before = waiting()
        for net in (ddp, twin):
            net.zero_grad()
            net(x).square().sum().backward()
        after = waiting()
        for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
            own = (q.grad.to_dense() if sparse and name.startswith("emb") else q.grad).reshape(-1)
            update = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            rest = own.double() + before.get(name, 0.0) - after.get(name, 0.0)
            torch.distributed.all_reduce(rest, group=group)
            gaps.append(float((rest - size * update).abs().max() / (1 + rest.abs().max())))
    units = [unit.names for unit in handle.synchronizer.roster.units.values()]
    recipe = handle.synchronizer.pipeline
    mixed = [names for names in units if len(recipe.split(names)) > 1]
    handle.close()
    return max(gaps), mixed, sorted(before)


def refused_by_compress(group, rank, size):
    ddp = DDP(Net(False), process_group=group)
    with pytest.raises(tw.RecipeError, match=r"'hidden\.weight'"):
        tw.compress(ddp, {"embedding.*": "dense", "norm.*": "dense"})
    return True


# The tests.


@pytest.mark.parametrize("size", [1, 3])
def test_every_tensor_goes_as_by_its_own_recipe(cluster, size):
    for same, densities, units, explained in cluster.run(each_as_by_its_own_recipe, size):
        assert same
        assert densities["embedding.weight"] == densities["layers.3.bias"] == 1
        assert densities["layers.3.weight"] == pytest.approx(0.1, abs=0.01)
        assert all(len(tw.recipe(RULES).split(names)) == 1 for names in units)
        assert "'" not in explained and "layers.[12].*" in explained


def test_stop_and_go(cluster):
    assert all(cluster.run(resumed, 2))


@pytest.mark.parametrize("sparse", [False, True])
def test_in_ddp_units_never_mix_recipes_and_nothing_is_lost(cluster, sparse):
    for gap, mixed, waits in cluster.run(in_ddp, 2, sparse):
        assert gap < 1e-5
        assert mixed == []
        assert waits == ["head.weight", "hidden.bias", "hidden.weight"]


def test_compress_refuses_a_parameter_without_a_pattern_before_training(cluster):
    assert all(cluster.run(refused_by_compress, 2))


def test_a_plan_counts_each_tensor_by_its_own_recipe():
    network = Network(Link(1e-4, 1e-9))
    shapes = {name: shape for name, shape in SHAPES.items() if name != "layers.3.bias"}
    planned = predict(tw.recipe(RULES), shapes, 4, network, compute=0.01)
    k = {name: cost.k for cost in planned.units for name in cost.unit.names}
    assert k.keys() == shapes.keys()
    assert k["embedding.weight"] == 1200
    assert k["layers.3.weight"] == k["head"] == 150 + 110  # one payload of two selections
    ready = [cost.unit.ready for cost in planned.units]
    assert ready == sorted(ready)
    dense = predict(tw.recipe("dense"), shapes, 4, network)
    assert planned.sent < dense.sent
