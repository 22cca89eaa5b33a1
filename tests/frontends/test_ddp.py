"""The DDP front end keeps the laws in every way DDP can be used.

A twin of the model, without DDP, computes each rank's own gradients. For every parameter and
every step: Σ ranks (gradient + old residual) = P · p.grad + Σ ranks new residual.

Covers engine/backward.py, frontends/handle.py.
"""

import io
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw

RECIPE = tw.recipe("topk", density=0.05, bypass=100)
UNUSED = {"find_unused_parameters": True}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


class Net(nn.Module):
    """Several buckets' worth of layers; one of `first` and `side` is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.side = nn.Linear(20, 64), nn.Linear(20, 64)
        self.middle, self.last = nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, use_side: bool = False) -> torch.Tensor:
        hidden = self.side(x) if use_side else self.first(x)
        return self.last(torch.relu(self.middle(torch.relu(hidden))))


class Both(Net):
    """Nothing is left out, so DDP may rebuild its buckets in its plain form."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + super().forward(x, use_side=True)


class Tokens(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 40, sparse=sparse), nn.Linear(40, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(x).mean(1))


def twins(make, device="cpu"):
    """Two models with the same weights, on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model, twin = make().to(device), make().to(device)
    twin.load_state_dict(model.state_dict())
    return model, twin


def batch(rank, step, device="cpu", dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(4, 20, generator=generator).to(device, dtype)


def residuals(handle):
    saved = handle.state_dict()["tensors"]
    return {n: s["feedback/residual"] for n, s in saved.items() if "feedback/residual" in s}


def device_of(group):
    """Where tensors must lie for the group to take them."""
    return "cuda" if dist.get_backend(group) == "nccl" else "cpu"


def summed(tensor, group):
    total = tensor.to(device_of(group), torch.float64, copy=True)
    dist.all_reduce(total, group=group)
    return total.cpu()


def assert_conserved(model, twin, before, handle, group, size, tolerance):
    after = residuals(handle)
    for name, p in twin.named_parameters():
        own = torch.zeros_like(p) if p.grad is None else p.grad
        nothing = torch.zeros(p.numel(), device=p.device)
        inflow = summed(own.reshape(-1).double() + before.get(name, nothing), group)
        update = dict(model.named_parameters())[name].grad
        update = torch.zeros_like(p) if update is None else update
        outflow = size * update.reshape(-1).cpu().double()
        outflow += summed(after.get(name, nothing), group)
        torch.testing.assert_close(outflow, inflow, atol=tolerance, rtol=tolerance, msg=name)


def identical(model, group, size):
    """Whether gradients and weights have the same bits on every rank."""
    parts = [t.detach().reshape(-1).float() for p in model.parameters() for t in (p, p.grad)]
    flat = torch.cat(parts).to(device_of(group))
    everyone = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(everyone, flat, group=group)
    return all(torch.equal(flat, other) for other in everyone)


def train_checked(
    group, rank, size, recipe, ddp_options, steps=3, dtype=torch.float32, accumulate=1,
    compiled=False, device="cpu", make=Net,
):  # fmt: skip
    """`compiled`: whether, or by which backend of torch.compile."""
    model, twin = twins(lambda: make().to(dtype), device)
    backend = compiled if isinstance(compiled, str) else "eager"
    inner = torch.compile(model, backend=backend) if compiled else model
    # Small buckets, so that there are many; torch.compile insists on at least 1 MB.
    cap = 1 if compiled else 0.01
    ddp = DDP(inner, process_group=group, bucket_cap_mb=cap, **ddp_options)
    handle = tw.compress(ddp, recipe)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        before = residuals(handle)
        twin.load_state_dict(model.state_dict())
        twin.zero_grad()
        optimizer.zero_grad()
        for turn in range(accumulate):
            x = batch(rank, 10 * step + turn, device, dtype)
            with ddp.no_sync() if turn < accumulate - 1 else nullcontext():
                ddp(x).square().mean().backward()
            twin(x).square().mean().backward()
        tolerance = 1e-6 if dtype == torch.float32 else 2e-2
        assert_conserved(model, twin, before, handle, group, size, tolerance)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    assert identical(model, group, size)
    names = set(handle.stats()["tensors"])
    handle.close()
    return names


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
@pytest.mark.parametrize(
    "options",
    [UNUSED, {"static_graph": True}],
    ids=["find_unused", "static_graph"],
)
@pytest.mark.parametrize("device", DEVICES)
def test_conserves_through_bucket_rebuilds(cluster, unit, options, device):
    recipe = tw.recipe("topk", density=0.05, bypass=100, unit=unit)
    cluster.run(train_checked, 3, recipe, options, 4, torch.float32, 1, False, device)


@pytest.mark.parametrize("name", ["topk-dsa", "omnireduce", "union", "gtopk", "ok-topk"])
@pytest.mark.parametrize("device", DEVICES)
def test_every_sparse_allreduce_conserves_beside_the_backward_pass(cluster, name, device):
    recipe = tw.recipe(name, density=0.05, bypass=100, unit="bucket")
    cluster.run(train_checked, 3, recipe, UNUSED, 3, torch.float32, 1, False, device)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_low_rank_conserves_through_bucket_rebuilds(cluster, start, device):
    recipe = tw.recipe("powersgd", rank=2, start=start)
    cluster.run(train_checked, 3, recipe, UNUSED, 4, torch.float32, 1, False, device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_parameters_keep_float32_residuals(cluster, dtype, device):
    cluster.run(train_checked, 2, RECIPE, UNUSED, 3, dtype, 1, False, device)


def test_no_sync_accumulates_before_it_sends(cluster):
    cluster.run(train_checked, 2, RECIPE, UNUSED, 3, torch.float32, 3)


def test_compiled_modules_keep_their_plain_names(cluster):
    for names in cluster.run(train_checked, 2, RECIPE, UNUSED, 3, torch.float32, 1, True):
        assert {"first.weight", "middle.weight", "last.weight"} <= names


def dense_like_ddp(group, rank, size, recipe, device="cpu"):
    def make():
        return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 8))

    model, twin = twins(make, device)
    ours, theirs = DDP(model, process_group=group), DDP(twin, process_group=group)
    handle = tw.compress(ours, recipe)
    for step in range(3):
        for ddp in (ours, theirs):
            ddp.zero_grad()
            ddp(batch(rank, step, device)).square().mean().backward()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    total = handle.stats()["total"]
    return total["bytes_sent"], total["dense_bytes"], total["steps"]


@pytest.mark.parametrize("recipe", ["dense", "topk(1.0)"])
def test_what_sends_everything_is_plain_ddp(cluster, recipe):
    for sent, dense_bytes, steps in cluster.run(dense_like_ddp, 3, recipe):
        assert steps == 3
        assert sent >= dense_bytes * 0.99
        assert dense_bytes == pytest.approx(3 * 2 * 2 / 3 * 4 * (20 * 64 + 64 + 64 * 8 + 8), abs=9)


def unused_parameter_keeps_residual(group, rank, size, unit, device="cpu"):
    model, _ = twins(Net, device)
    ddp = DDP(model, process_group=group, find_unused_parameters=True)
    handle = tw.compress(ddp, tw.recipe("topk", density=0.05, bypass=100, unit=unit))
    ddp(batch(rank, 0, device), use_side=True).square().mean().backward()
    waiting = residuals(handle)["side.weight"]
    assert waiting.count_nonzero() > 0
    for step in (1, 2):
        ddp.zero_grad()
        ddp(batch(rank, step, device), use_side=False).square().mean().backward()
        assert torch.equal(residuals(handle)["side.weight"], waiting)
        assert model.side.weight.grad is None
    # Used on one rank only: it takes part again, on all.
    ddp.zero_grad()
    ddp(batch(rank, 3, device), use_side=rank == 0).square().mean().backward()
    if rank == 0:
        assert not torch.equal(residuals(handle)["side.weight"], waiting)
    assert model.side.weight.grad is not None
    # In each step a word for every parameter, and two at its end.
    words = 4 * (len(list(model.parameters())) + 2)
    moved = handle.stats()["agreement"]
    assert moved["bytes_sent"] == moved["bytes_received"] == 8 * words * (size - 1)


@pytest.mark.parametrize("unit", ["tensor", "bucket", "model"])
def test_a_globally_unused_parameter_keeps_its_residual(cluster, unit):
    cluster.run(unused_parameter_keeps_residual, 3, unit)


def sparse_embedding(group, rank, size, device):
    model, _ = twins(lambda: Tokens(sparse=True), device)
    twin, _ = twins(lambda: Tokens(sparse=False), device)
    ours, theirs = DDP(model, process_group=group), DDP(twin, process_group=group)
    tw.compress(ours, tw.recipe("topk", density=1.0))
    for step in range(3):
        tokens = torch.arange(6, device=device).view(2, 3) * (rank + 1) + step
        for ddp in (ours, theirs):
            ddp.zero_grad()
            ddp(tokens).square().mean().backward()
        assert model.embed.weight.grad.is_sparse
        torch.testing.assert_close(model.embed.weight.grad.to_dense(), twin.embed.weight.grad)
        torch.testing.assert_close(model.out.weight.grad, twin.out.weight.grad)
    torch.optim.SparseAdam([model.embed.weight]).step()


@pytest.mark.parametrize("device", DEVICES)
def test_sparse_embeddings_are_averaged_without_loss(cluster, device):
    cluster.run(sparse_embedding, 3, device)


def uneven_inputs(group, rank, size, device="cpu"):
    model, twin = twins(lambda: nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 8)), device)
    ddp = DDP(model, process_group=group)
    handle = tw.compress(ddp, RECIPE)
    inflow = torch.zeros(64 * 8, dtype=torch.float64)
    outflow = torch.zeros(64 * 8, dtype=torch.float64)
    rounds = 0
    with Join([ddp]):
        for step in range(2 + 2 * rank):  # rank 0 has 2 batches, the last many more
            ddp.zero_grad()
            twin.zero_grad()
            twin.load_state_dict(model.state_dict())
            ddp(batch(rank, step, device)).square().mean().backward()
            twin(batch(rank, step, device)).square().mean().backward()
            inflow += twin[1].weight.grad.reshape(-1).cpu()
            outflow += model[1].weight.grad.reshape(-1).cpu()
            rounds += 1
    # Only the rank with most batches saw every update; all saw the same ones.
    updates = outflow if rank == size - 1 else torch.zeros_like(outflow)
    left = residuals(handle)["1.weight"]
    gone = size * summed(updates, group) + summed(left, group)
    torch.testing.assert_close(gone, summed(inflow, group), atol=1e-6, rtol=1e-6)
    return rounds


def test_join_with_uneven_inputs_loses_nothing(cluster):
    assert cluster.run(uneven_inputs, 3) == [2, 4, 6]


def bad_gradient_while_joined(group, rank, size):
    """Rank 1 has run out of data when rank 0 has NaN; the next epoch knows nothing of it."""
    model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64)))
    ddp = DDP(model, process_group=group)
    handle = tw.compress(ddp, RECIPE)
    with Join([ddp]):
        for step in range(1 if rank else 3):
            ddp.zero_grad()
            poison = torch.nan if step == 2 else 1.0
            told = pytest.raises(tw.NonFiniteError) if step == 2 else nullcontext()
            with told:
                (ddp(batch(rank, step)).square().mean() * poison).backward()
    with Join([ddp]):
        ddp.zero_grad()
        ddp(batch(rank, 3)).square().mean().backward()
    handle.close()


def test_a_bad_gradient_while_a_rank_has_joined_is_not_told_in_a_later_step(cluster):
    cluster.run(bad_gradient_while_joined, 2)


def overflow(group, rank, size, unit, device):
    model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 8)), device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.001)
    scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
    recipe = tw.recipe("topk", density=0.05, bypass=100, unit=unit)
    handle = tw.compress(ddp, recipe, grad_scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scales, untouched = [], []
    for step in range(6):
        before = residuals(handle), [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        loss = ddp(batch(rank, step, device)).square().mean()
        if step == 3 and rank == 1:  # overflows in the last bucket only: the first layer
            poison = model[0].weight.register_hook(lambda g: g * float("inf"))
        scaler.scale(loss).backward()
        if step == 3:
            now = residuals(handle)
            untouched.append(all(torch.equal(now[n], r) for n, r in before[0].items()))
            if rank == 1:
                poison.remove()
        scaler.step(optimizer)
        scaler.update()
        if step == 3:
            after = [p.detach() for p in model.parameters()]
            untouched.append(all(map(torch.equal, before[1], after)))
        scales.append(scaler.get_scale())
    assert identical(model, group, size)
    return scales, untouched


@pytest.mark.parametrize("unit", ["tensor", "model"])
@pytest.mark.parametrize("device", DEVICES)
def test_an_overflow_step_leaves_state_and_weights_as_they_were(cluster, unit, device):
    for scales, untouched in cluster.run(overflow, 2, unit, device):
        assert untouched == [True, True]
        assert scales == [4.0, 8.0, 8.0, 4.0, 4.0, 8.0]


def scale_follows(group, rank, size, device="cpu"):
    """Two runs of the same gradients, one with a loss scale that changes: the same residuals."""
    out = []
    for scales in ([1.0, 1.0, 1.0], [4.0, 2.0, 8.0]):
        model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64)), device)
        ddp = DDP(model, process_group=group)
        scaler = torch.amp.GradScaler(device, init_scale=scales[0])
        handle = tw.compress(ddp, RECIPE, grad_scaler=scaler)
        for step, scale in enumerate(scales):
            scaler.update(scale) if step else None
            ddp.zero_grad()
            scaler.scale(ddp(batch(rank, step, device)).square().mean()).backward()
        out.append(residuals(handle)["0.weight"] / scales[-1])
    return torch.equal(*out)


def test_residuals_follow_the_loss_scale(cluster):
    assert cluster.run(scale_follows, 2) == [True, True]


def poisoned(group, rank, size, value, device):
    model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64)), device)
    ddp = DDP(model, process_group=group)
    handle = tw.compress(ddp, RECIPE)
    ddp(batch(rank, 0, device)).square().mean().backward()
    x = batch(rank, 1, device)
    if rank == 1:
        x[0, 0] = value
    with pytest.raises(tw.NonFiniteError, match="NaN or Inf in the gradients of rank 1"):
        ddp(x).square().mean().backward()
    assert residuals(handle)["0.weight"].isfinite().all()
    ddp.zero_grad()  # training can go on
    ddp(batch(rank, 2, device)).square().mean().backward()
    assert model[0].weight.grad.isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("device", DEVICES)
def test_a_bad_gradient_raises_on_every_rank(cluster, value, device):
    cluster.run(poisoned, 2, value, device)


def without_copies(group, rank, size):
    """NaN in a step that cannot be taken back: all is refused until a state is loaded."""
    model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64)))
    ddp = DDP(model, process_group=group)
    handle = tw.compress(ddp, tw.recipe("topk", density=0.05, bypass=0), undo=False)
    for step in range(3):  # DDP's buckets are what they will be
        ddp(batch(rank, step)).square().mean().backward()
    saved, x = handle.state_dict(), batch(rank, 3)
    x[0, 0] = float("nan") if rank == 1 else 0.0
    with pytest.raises(tw.NonFiniteError):
        ddp(x).square().mean().backward()
    for _ in range(2):
        ddp.zero_grad()
        with pytest.raises(tw.RecipeError, match="load the last checkpoint"):
            ddp(batch(rank, 4)).square().mean().backward()
        with pytest.raises(tw.RecipeError, match="load the last checkpoint"):
            handle.state_dict()
    handle.load_state_dict(saved)
    ddp.zero_grad()
    ddp(batch(rank, 4)).square().mean().backward()
    assert model[0].weight.grad.isfinite().all()


def test_without_copies_a_step_that_broke_off_is_told_in_the_next(cluster):
    cluster.run(without_copies, 2)


def resumed(group, rank, size, device):
    """Train 6 steps; and train 3, save, load into fresh objects, train 3 more."""

    def start():
        model, _ = twins(lambda: nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 8)), device)
        ddp = DDP(model, process_group=group)
        return model, ddp, tw.compress(ddp, tw.recipe("dgc", density=0.05, bypass=100))

    def train(model, ddp, steps):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in steps:
            optimizer.zero_grad()
            ddp(batch(rank, step, device)).square().mean().backward()
            optimizer.step()

    model, ddp, _ = start()
    train(model, ddp, range(6))
    half, half_ddp, handle = start()
    train(half, half_ddp, range(3))
    file = io.BytesIO()
    torch.save({"model": half.state_dict(), "thinwire": handle.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, other_ddp, handle = start()
    other.load_state_dict(saved["model"])
    handle.load_state_dict(saved["thinwire"])
    train(other, other_ddp, range(3, 6))
    return all(map(torch.equal, model.parameters(), other.parameters()))


@pytest.mark.parametrize("device", DEVICES)
def test_resume_is_bit_for_bit(cluster, device):
    assert cluster.run(resumed, 2, device) == [True, True]


def again_and_again(group, rank, size, subgroup):
    """Communicators come and go; each works, whole-world ones and others."""
    ranks = dist.new_group(range(size - 1), use_local_synchronization=True) if subgroup else group
    for _ in range(3):
        sync = tw.Synchronizer("topk(1.0)", ranks)
        mean = sync.average("w", torch.full((2000,), float(rank)))
        assert mean[0] == (dist.get_world_size(ranks) - 1) / 2
        sync.close()


@pytest.mark.parametrize("subgroup", [False, True])
def test_closing_makes_room_for_the_next(cluster, subgroup):
    cluster.run(leave_last_out if subgroup else again_and_again, 3, subgroup)


def leave_last_out(group, rank, size, subgroup):
    if rank < size - 1:
        again_and_again(group, rank, size, subgroup)


def poisoned_sum(group, rank, size, layer, device):
    """NaN in one bucket of a plain sum; ordinary steps need no meeting of the ranks."""
    model, _ = twins(Net, device)
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.01, find_unused_parameters=True)
    handle = tw.compress(ddp, "dense", nonfinite="skip")
    meetings, agree = [], handle.synchronizer.comm.agree
    handle.synchronizer.comm.agree = lambda *a, **k: meetings.append(a) or agree(*a, **k)
    ddp(batch(rank, 0, device)).square().mean().backward()
    assert not meetings
    if rank == 1:
        getattr(model, layer).weight.register_hook(lambda grad: grad * torch.nan)
    ddp.zero_grad()
    ddp(batch(rank, 1, device)).square().mean().backward()
    assert len(meetings) == 1
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("layer", ["first", "last"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_plain_sum_tells_every_rank_of_nan(cluster, layer, device):
    cluster.run(poisoned_sum, 2, layer, device)
