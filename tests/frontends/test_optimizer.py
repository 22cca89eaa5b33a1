"""An optimiser that takes part: dense it is torch's own, sparse it keeps its feedback's laws."""

import io

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from thinwire.feedback import Adam, Momentum, NoFeedback

RECIPE = tw.recipe("topk(0.05)", bypass=50)
WHOLE = tw.recipe("topk(1.0)", bypass=50)


class Net(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.embedding = nn.Embedding(30, 20, sparse=sparse)
        self.norm, self.hidden, self.head = nn.LayerNorm(20), nn.Linear(20, 60), nn.Linear(60, 4)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(self.norm(self.embedding(x).mean(1)))))


def build(group, sparse=False):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        return DDP(Net(sparse), process_group=group, bucket_cap_mb=0.002)


def loss_of(model, rank, step):
    draw = torch.Generator().manual_seed(100 * step + rank)
    x, y = torch.randint(30, (8, 5), generator=draw), torch.randint(4, (8,), generator=draw)
    return nn.functional.cross_entropy(model(x), y)


def train(model, optimizer, rank, steps, scheduler=None):
    """The loop of any script."""
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def identical(model, group, size):
    everyone = [torch.empty_like(weights(model)) for _ in range(size)]
    dist.all_gather(everyone, weights(model), group=group)
    return all(torch.equal(everyone[0], other) for other in everyone)


def made(kind, parameters):
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    if kind == "groups":
        several = list(parameters)
        other = {"params": several[3:], "betas": (0.8, 0.99), "weight_decay": 0.0, "lr": 0.003}
        return torch.optim.AdamW([{"params": several[:3]}, other], lr=0.01, weight_decay=0.1)
    return torch.optim.AdamW(parameters, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)


# What the ranks do.


def as_torch_where_all_is_sent(group, rank, size, kind):
    """One rank: then its own moments are those of the mean."""
    model, plain = build(group), build(group)
    # Where all is delivered, masking would end all momentum.
    feedback = "momentum(masking=False)" if kind == "sgd" else "adam"
    recipe = tw.recipe(WHOLE, feedback=feedback)
    optimizer = tw.optim(made(kind, model.parameters()), model, recipe)
    reference = made(kind, plain.parameters())
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (optimizer, reference)]
    train(model, optimizer, 0, range(5), schedulers[0])
    train(plain, reference, 0, range(5), schedulers[1])
    optimizer.handle.close()
    return float((weights(model) - weights(plain)).abs().max())


def conserved(group, rank, size, kind, refresh):
    """Σ (r + own step) = P·p.grad + Σ r', and the replicas' weights stay the same bits."""
    model, twin = build(group), build(group).module
    optimizer = tw.optim(made(kind, model.parameters()), model, RECIPE, refresh=refresh)
    gaps, before = [], {}
    for step in range(4):
        twin.load_state_dict(model.module.state_dict())
        twin.zero_grad()
        loss_of(twin, rank, step).backward()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        after = {n: dict(s) for n, s in optimizer.handle.state_dict()["tensors"].items()}
        for (name, p), q in zip(model.module.named_parameters(), twin.parameters(), strict=True):
            feedback = optimizer.handle.synchronizer.pipeline.of_tensor(name).feedback
            old = {k.partition("/")[2]: v.clone() for k, v in before.get(name, {}).items()}
            spec = tw.TensorSpec(name, p.numel(), p.dtype, p.device)
            state = feedback.init(spec) | {k: v for k, v in old.items() if k in feedback.init(spec)}
            brought = feedback.at(step).before(q.grad.reshape(-1), state).double()
            rest = brought - after[name].get("feedback/residual", 0.0)
            dist.all_reduce(rest, group=group)
            gaps.append(float((rest - size * p.grad.reshape(-1)).abs().max()))
        before = after
        optimizer.step()
        assert identical(model, group, size)
    optimizer.handle.close()
    return max(gaps)


def resumed(group, rank, size, recipe):
    model = build(group)
    optimizer = tw.optim(made("adam", model.parameters()), model, recipe)
    train(model, optimizer, rank, range(3))
    file = io.BytesIO()
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, rank, range(3, 6))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = build(group)
    again.module.load_state_dict(saved["model"])
    loaded = tw.optim(made("adam", again.parameters()), again, recipe)
    loaded.load_state_dict(saved["optimizer"])
    half = saved["optimizer"] | {"state": {}, "thinwire": {"version": 2}}
    with pytest.raises(tw.StateError):  # and it leaves no trace
        loaded.load_state_dict(half)
    train(again, loaded, rank, range(3, 6))
    return torch.equal(weights(model), weights(again))


def dense_tensors_are_the_given_optimisers(group, rank, size):
    """By name, some parameters dense: these are stepped by torch's AdamW, on the mean gradient."""
    model, plain = build(group), build(group)
    rules = {"norm.*": "dense", "embedding.*": "bf16", "*": "signsgd"}
    optimizer = tw.optim(made("adam", model.parameters()), model, tw.recipe(rules, bypass=50))
    pipeline = optimizer.handle.synchronizer.pipeline
    feedbacks = {n: pipeline.of_tensor(n).feedback for n, _ in model.module.named_parameters()}
    reference = made("adam", plain.parameters())
    train(model, optimizer, rank, range(1))
    train(plain, reference, rank, range(1))
    gap = (model.module.norm.weight - plain.module.norm.weight).abs().max()
    kept = {n: p in optimizer.given.state for n, p in model.module.named_parameters()}
    optimizer.handle.close()
    return feedbacks, kept, float(gap)


def refused(group, rank, size):
    model = build(group)
    parameters = list(model.parameters())
    cases = {
        "name one": (made("adam", parameters), "auto"),
        "use AdamW": (torch.optim.Adam(parameters, weight_decay=0.1), RECIPE),
        "amsgrad=True": (torch.optim.AdamW(parameters, amsgrad=True), RECIPE),
        "nesterov=True": (torch.optim.SGD(parameters, 0.1, 0.9, nesterov=True), RECIPE),
        "not RMSprop": (torch.optim.RMSprop(parameters), RECIPE),
    }
    for says, (optimizer, recipe) in cases.items():
        with pytest.raises(tw.RecipeError, match=says):
            tw.optim(optimizer, model, recipe)
    with pytest.raises(TypeError, match=r"optim\(\) takes a DistributedDataParallel"):
        tw.optim(made("adam", parameters), model.module, RECIPE)
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(tw.RecipeError, match="GradScaler"):
        tw.optim(made("adam", parameters), model, "signsgd", grad_scaler=scaler)
    optimizer = tw.optim(made("adam", parameters), model, RECIPE)
    with pytest.raises(tw.RecipeError, match="cannot be added"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    optimizer.handle.close()
    return True


def momentum_that_is_scheduled(group, rank, size, kind, recipe):
    """It is in the recipe, which no scheduler reaches: told, not left without effect."""
    model = build(group)
    optimizer = tw.optim(made(kind, model.parameters()), model, recipe)
    cycles = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9, base_momentum=0.8)
    before = weights(model)
    with pytest.raises(tw.RecipeError, match=r"is set to .* now.*cycle_momentum=False"):
        train(model, optimizer, rank, range(1), cycles)
    unchanged = torch.equal(weights(model), before)
    for own in optimizer.param_groups:
        own.update({"betas": (0.9, 0.95)} if "betas" in own else {"momentum": 0.9})
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9, cycle_momentum=False)
    train(model, optimizer, rank, range(2), rates)
    same = identical(model, group, size)
    optimizer.handle.close()
    return unchanged and same


def in_nodes(group, rank, size):
    """Leaders make one step of the node's sum; the mean is over the nodes."""
    model, plain = build(group), build(group)
    optimizer = tw.optim(made("adam", model.parameters()), model, WHOLE, refresh=0, node_size=2)
    reference = made("adam", plain.parameters())
    train(model, optimizer, 0, range(3))
    train(plain, reference, 0, range(3))
    same = identical(model, group, size)
    optimizer.handle.close()
    return same, float((weights(model) - weights(plain)).abs().max())


def embedding_rows_and_a_closure(group, rank, size):
    """COO gradients stay the given optimiser's; SGD's momentum moves before the selection."""
    model = build(group, sparse=True)
    optimizer = tw.optim(torch.optim.SGD(model.parameters(), 0.1, 0.9), model, RECIPE)
    before, losses = model.module.embedding.weight.detach().clone(), []
    for step in range(3):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    moved = not torch.equal(before, model.module.embedding.weight)
    same = identical(model, group, size)
    optimizer.handle.close()
    return moved and same and len(losses) == 3


def momentum_of_sgd(group, rank, size):
    feedbacks = []
    for recipe in (RECIPE, tw.recipe("dgc", momentum=0.5, clip_norm=2.0)):
        model = build(group)
        optimizer = tw.optim(made("sgd", model.parameters()), model, recipe)
        pipeline = optimizer.handle.synchronizer.pipeline
        feedbacks.append(
            [pipeline.of_tensor(name).feedback for name in ("hidden.weight", "norm.bias")]
        )
        optimizer.handle.close()
    return feedbacks


def without_momentum_after_the_exchange(group, rank, size):
    """Behind a selection Adam's turn is with β₁ = 0; that of what is sent whole, as ever."""
    model = build(group)
    recipe = tw.recipe({"norm.*": "dense", "*": "topk(0.05)"}, bypass=50)
    optimizer = tw.optim(made("adam", model.parameters()), model, recipe)
    train(model, optimizer, rank, range(3))
    state, betas = optimizer.given.state, optimizer.param_groups[0]["betas"]
    net = model.module
    corrected = all(
        torch.equal(state[p]["exp_avg"], p.grad) for p in (net.hidden.weight, net.head.bias)
    )
    usual = not torch.equal(state[net.norm.bias]["exp_avg"], net.norm.bias.grad)
    steps = {int(state[p]["step"]) for p in net.parameters()}
    optimizer.handle.close()
    return corrected, usual, steps, betas


# The tests.


@pytest.mark.parametrize("refresh", [None, 0, 2])
@pytest.mark.parametrize("kind", ["adam", "groups", "sgd"])
def test_nothing_is_lost_and_replicas_stay_the_same(cluster, kind, refresh):
    assert max(cluster.run(conserved, 3, kind, refresh)) < 1e-5


@pytest.mark.parametrize("kind", ["adam", "groups", "sgd"])
def test_where_all_is_sent_it_is_torchs_own(cluster, kind):
    for gap in cluster.run(as_torch_where_all_is_sent, 1, kind):
        assert gap < 1e-5


@pytest.mark.parametrize("recipe", [RECIPE, "signsgd"], ids=["topk", "signsgd"])
def test_stop_and_go_bit_for_bit(cluster, recipe):
    assert all(cluster.run(resumed, 2, recipe))


def test_behind_a_selection_adam_has_no_momentum_after_it(cluster):
    for corrected, usual, steps, betas in cluster.run(without_momentum_after_the_exchange, 2):
        assert corrected and usual
        assert steps == {3}
        assert betas == (0.9, 0.95)


def test_dense_tensors_by_name(cluster):
    for feedbacks, kept, gap in cluster.run(dense_tensors_are_the_given_optimisers, 2):
        assert feedbacks["norm.weight"] == feedbacks["embedding.weight"] == NoFeedback()
        assert feedbacks["hidden.weight"] == Adam(0.9, 0.95, 1e-8, workers=2, refresh=10)
        assert feedbacks["hidden.bias"] == Adam(0.9, 0.95, 1e-8, workers=2, refresh=10)
        assert feedbacks["head.bias"] == NoFeedback()  # of 4 elements
        assert kept == {n: not n.startswith(("hidden", "head.w")) for n in kept}
        assert gap < 1e-6


def test_what_cannot_take_part_is_refused(cluster):
    assert all(cluster.run(refused, 2))


@pytest.mark.parametrize(
    ("kind", "recipe"), [("sgd", RECIPE), ("adam", RECIPE), ("adam", "signsgd")]
)
def test_a_momentum_that_is_scheduled_is_told(cluster, kind, recipe):
    assert all(cluster.run(momentum_that_is_scheduled, 2, kind, recipe))


def test_in_nodes_a_nodes_step_is_one(cluster):
    """One node of two: the sum of its gradients makes the step that their mean would."""
    for same, gap in cluster.run(in_nodes, 2):
        assert same
        assert gap < 1e-4


def test_rows_and_a_closure(cluster):
    assert all(cluster.run(embedding_rows_and_a_closure, 2))


def test_sgd_gets_its_momentum_as_feedback_with_the_recipes_own_settings(cluster):
    for plain, own in cluster.run(momentum_of_sgd, 1):
        assert plain == [Momentum(0.9), NoFeedback()]
        assert own == [Momentum(0.9, clip_norm=2.0), NoFeedback()]
