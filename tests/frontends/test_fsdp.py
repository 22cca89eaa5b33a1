"""FSDP2: the recipe averages the replicas; `dense` is native HSDP, bit for bit.

Covers frontends/reshard.py.
"""

from copy import deepcopy
from functools import lru_cache

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import thinwire as tw
from thinwire.engine.saved import pack
from thinwire.frontends import rank_files
from thinwire.frontends.dcp import entry, load

SPARSE = tw.recipe("topk", density=0.1, bypass=20)
ALL = tw.recipe("topk", density=0.1, bypass=0)
OK_TOPK = tw.recipe(SPARSE, collective="ok-topk")
REPLICAS, SHARDS = 2, 2


class Net(nn.Module):
    """Uneven shards: 13 rows for two ranks; `spare` is never used, `frozen` not trained."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 13), nn.Linear(13, 30), nn.Linear(30, 5))
        self.spare = nn.Linear(3, 3)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        return self.layers(x).square() * self.frozen.sum()


def device():
    """Of these ranks: tests/gpu runs the same over NCCL."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def mesh(shards=SHARDS):
    return mesh_of(dist.group.WORLD, shards)


@lru_cache(1)  # DTensor remembers meshes by their shape: a second would be used after its end
def mesh_of(world, shards):
    shape = (dist.get_world_size() // shards, shards)
    return init_device_mesh(device(), shape, mesh_dim_names=("replicas", "shards"))


def sharded(on, **options):
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        model = Net()
    for layer in model.layers:
        fully_shard(layer, mesh=on, **options)
    return fully_shard(model, mesh=on, **options)


def compressed(dims, recipe, **options):
    """On a 2-D mesh, or on its shards alone with the replicas as a group."""
    both = mesh()
    if dims == 2:
        model = sharded(both, **options)
        return model, tw.compress(model, recipe)
    model = sharded(both["shards"], **options)
    return model, tw.compress(model, recipe, replicas=both["replicas"].get_group())


def loss_of(model, rank, step):
    draw = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(4, 20, generator=draw).to(device())).mean()


def train(model, rank, steps, accumulate=1, zero=True, clip=False):
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for step in steps:
        for turn in range(accumulate):
            last = turn == accumulate - 1
            model.set_requires_gradient_sync(last or not zero)
            loss_of(model, rank, 10 * step + turn).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def own(model):
    return torch.cat([p.to_local().detach().reshape(-1) for p in model.parameters()])


def replicas_agree(model):
    group, mine = mesh()["replicas"].get_group(), own(model)
    others = [torch.empty_like(mine) for _ in range(REPLICAS)]
    dist.all_gather(others, mine, group=group)
    return torch.equal(*others)


# What the ranks do.


def beside_native(group, rank, size, dims, settings):
    precision = settings.pop("precision", None)
    options = {} if precision is None else {"mp_policy": MixedPrecisionPolicy(**precision)}
    model, handle = compressed(dims, "dense", **options)
    native = sharded(mesh(), **options)
    train(model, rank, range(3), **settings)
    train(native, rank, range(3), **settings)
    same = torch.equal(own(model), own(native))
    handle.close()
    return same


def residual(state):
    return state.get("feedback/residual", torch.zeros(())).to(device())


def sparse(group, rank, size, dims, recipe):
    """Per shard: Σ replicas (gradient + old residual) = R · update + Σ replicas new residual."""
    model, handle = compressed(dims, recipe)
    twin = sharded(mesh()["shards"])  # its gradients are means over the shards alone
    replicas = mesh()["replicas"].get_group()
    gaps, before = [], {}
    for step in range(3):
        with torch.no_grad():
            for p, q in zip(twin.parameters(), model.parameters(), strict=True):
                p.to_local().copy_(q.to_local())
        for one in (model, twin):
            one.zero_grad()
            loss_of(one, rank, step).backward()
        after = handle.state_dict()["replica"]["tensors"]
        for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
            if q.grad is None or p.grad is None:
                continue
            rest = q.grad.to_local().reshape(-1).double()
            rest += residual(before.get(name, {}))
            rest -= residual(after[name])
            dist.all_reduce(rest, group=replicas)
            update = REPLICAS * p.grad.to_local().reshape(-1)
            gaps.append(float((rest - update).abs().max()) if len(update) else 0.0)
        before = {n: {k: v.clone() for k, v in s.items()} for n, s in after.items()}
        torch.optim.SGD(model.parameters(), 0.1).step()
    agree = replicas_agree(model)
    handle.close()
    return max(gaps), agree, any("feedback/residual" in s for s in before.values())


def poison(module, inputs, output):
    """NaN in the gradient of the first row of the weight, which the first shard has."""
    output.register_hook(
        lambda grad: grad.index_fill(1, torch.tensor(0, device=grad.device), torch.nan)
    )


def poisoned(group, rank, size, recipe, policy):
    """NaN reaches rank 2 from rank 3 with the reduce-scatter; ranks 1 and 3 see nothing of it."""
    both = mesh()
    model = sharded(both["shards"])
    replicas = both["replicas"].get_group()
    handle = tw.compress(model, recipe, replicas=replicas, nonfinite=policy)
    train(model, rank, range(1))
    if rank == 3:
        model.layers[0].register_forward_hook(poison)
    if policy == "raise":
        with pytest.raises(tw.NonFiniteError, match="gradients of rank 2"):
            loss_of(model, rank, 1).backward()
        told = True
    else:
        loss_of(model, rank, 1).backward()
        told = not any(p.grad.to_local().any() for p in model.parameters() if p.grad is not None)
    handle.close()
    return told


def broken_off(group, rank, size):
    """What breaks off between two replicas is heard of by the ranks of the other shard too."""
    model, handle = compressed(2, "dense")
    train(model, rank, range(1))

    def fail(tensor):
        raise MemoryError("no room for an exchange")

    if rank == 3:
        handle.synchronizer.comm.start_all_reduce = fail
    loss_of(model, rank, 1).backward()


def audited(group, rank, size):
    """One element comes apart on rank 3; its replica and it are told at the next look."""
    both = mesh()
    model = sharded(both)
    handle = tw.compress(model, "dense", audit=2)
    train(model, rank, range(1))
    if rank == 3:
        with torch.no_grad():
            model.layers[1].bias.to_local()[0] += 1
    try:
        loss_of(model, rank, 1).backward()
    except tw.DisagreementError as error:
        return "replicas' parameters differ" in str(error) and "layers.1.bias" in str(error)
    finally:
        handle.close()
    return False


def resumed(group, rank, size):
    model, one = compressed(2, SPARSE)
    train(model, rank, range(2))
    saved, weights = one.state_dict(), own(model)
    train(model, rank, range(2, 4))
    again, two = compressed(2, SPARSE)
    start = 0
    with torch.no_grad():
        for p in again.parameters():
            local = p.to_local()
            local.copy_(weights[start : start + local.numel()].view(local.shape))
            start += local.numel()
    two.load_state_dict(saved)
    train(again, rank, range(2, 4))
    with pytest.raises(tw.StateError, match=f"is of shard {1 - rank % 2}"):
        two.load_state_dict(saved | {"shard": 1 - rank % 2})
    with pytest.raises(tw.StateError, match="of 4 shards and this mesh has 2"):
        two.load_state_dict(saved | {"shards": 4})
    places = saved["shard"], saved["replica"]["rank"]
    one.close()
    two.close()
    return torch.equal(own(model), own(again)), places


def gathered(group, rank, size):
    """All ranks' states in one, as a framework would save it on rank 0; others' are refused."""
    model, one = compressed(2, SPARSE)
    train(model, rank, range(2))
    mine, everyone = one.state_dict(), one.state_dict(gather=True)
    _, two = compressed(2, SPARSE)
    two.load_state_dict(everyone)
    again = two.state_dict()
    sync = tw.Synchronizer(SPARSE, group)
    with pytest.raises(tw.StateError, match="of a model that is not sharded"):
        two.load_state_dict(sync.state_dict())
    with pytest.raises(tw.StateError, match="of a sharded model"):
        sync.load_state_dict(mine)
    for closes in (one, two, sync):
        closes.close()
    kept = again["checksum"] == mine["checksum"]
    return kept, [(s["shard"], s["replica"]["rank"]) for s in everyone["ranks"]], everyone


def from_gathered(group, rank, size, everyone):
    _, handle = compressed(2, SPARSE)
    handle.load_state_dict(everyone)
    mass, _ = waiting(handle)
    handle.close()
    return mass


def waiting(handle):
    """Σ of what waits on this rank, and its shard."""
    state = handle.state_dict()
    tensors = state["replica"]["tensors"].values()
    kept = [s["feedback/residual"].double().sum() for s in tensors if "feedback/residual" in s]
    return float(sum(kept)), state["shard"]


def saved_in(group, rank, size, folder):
    model, handle = compressed(2, SPARSE)
    train(model, rank, range(2))
    rank_files.save(folder, [handle])
    mass = waiting(handle)
    handle.close()
    return mass


def loaded_from(group, rank, size, folder):
    model, handle = compressed(2, SPARSE)
    rank_files.load(folder, [handle])
    mass = waiting(handle)
    train(model, rank, range(1))
    handle.close()
    return mass


def waiting_by_element(handle):
    """What waits on this rank, by parameter, with its shard and the whole shape's first rows."""
    state = handle.state_dict()
    kept = state["replica"]["tensors"]
    return state["shard"], {
        n: (s["feedback/residual"].double(), state["replica"]["forms"][n][1])
        for n, s in kept.items()
        if "feedback/residual" in s
    }


def saved_by_dcp(group, rank, size, folder):
    model, handle = compressed(2, ALL)
    train(model, rank, range(2))
    dcp.save({"model": {"w": torch.ones(3)}, **entry(handle)}, checkpoint_id=folder)
    kept = waiting_by_element(handle)
    handle.close()
    return kept


def loaded_by_dcp(group, rank, size, folder, shards):
    model = sharded(mesh(shards))
    handle = tw.compress(model, ALL)
    load(handle, folder)
    kept = waiting_by_element(handle)
    train(model, rank, range(1))
    handle.close()
    return kept


def given_something_else(group, rank, size, what):
    """Rank 1 loads what is no state; the others' are their own, and stay unloaded."""
    model, handle = compressed(2, SPARSE)
    train(model, rank, range(2))
    own, before = handle.state_dict(), handle.state_dict()["checksum"]
    train(model, rank, range(2, 3))
    packed = pack(own)
    packed[len(packed) // 2] ^= 1
    inside = deepcopy(own)
    residuals = [k for one in inside["replica"]["tensors"].values() for k in one.values()]
    next(k for k in residuals if k.dim() and k.numel())[0] += 1
    other = {
        "altered": packed, "altered inside": inside, "number": 3, "no shards": {"shard": 0},
        "nothing": {},
    }[what]  # fmt: skip
    with pytest.raises(tw.ThinwireError) as caught:
        handle.load_state_dict(other if rank == 1 else own)
    return str(caught.value), handle.state_dict()["checksum"] != before


@pytest.mark.parametrize("what", ["altered", "altered inside", "number", "no shards", "nothing"])
def test_what_one_rank_of_the_mesh_cannot_read_is_refused_on_all(cluster, what):
    everyone = cluster.run(given_something_else, 4, what)
    assert all(kept for _, kept in everyone)
    bad = (1, 3) if what == "altered inside" else (1,)  # those of a shard compare what is inside
    others = {said for rank, (said, _) in enumerate(everyone) if rank not in bad}
    assert others == {f"ranks {', '.join(map(str, bad))} of the mesh refused their states"}


def refused(group, rank, size):
    both = mesh()
    model = sharded(both["shards"])
    with pytest.raises(tw.RecipeError, match="pass replicas="):
        tw.compress(model, "dense")
    with pytest.raises(tw.RecipeError, match="have no nodes"):
        tw.compress(model, "dense", node_size=2)
    handle = tw.compress(model, "dense", replicas=both["replicas"].get_group())
    with pytest.raises(tw.RecipeError, match="all-reduce hook already"):
        tw.compress(model, "dense", replicas=both["replicas"].get_group())
    handle.close()
    with pytest.raises(tw.ClosedError, match="shard the module anew"):
        loss_of(model, rank, 0).backward()
    inner = Net()
    fully_shard(inner.layers[0], mesh=both)
    with pytest.raises(tw.RecipeError, match="on the whole model last"):
        tw.compress(inner, "dense")


# The tests.


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"accumulate": 2, "clip": True},
        {"accumulate": 2, "zero": False},
        {"precision": {"reduce_dtype": torch.bfloat16}},
    ],
    ids=["plain", "accumulates-and-clips", "added-to-gradients", "reduced-in-bf16"],
)
def test_dense_is_native_hsdp_bit_for_bit(cluster, dims, settings):
    assert cluster.run(beside_native, REPLICAS * SHARDS, dims, settings) == [True] * 4


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize(
    "recipe", [SPARSE, tw.recipe(SPARSE, collective="ok-topk")], ids=["topk", "ok-topk"]
)
def test_nothing_is_lost_and_replicas_stay_the_same(cluster, dims, recipe):
    for gap, agree, keeps in cluster.run(sparse, 4, dims, recipe):
        assert gap < 1e-5
        assert agree and keeps


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("recipe", ["dense", SPARSE], ids=["dense", "topk"])
def test_nan_on_one_shard_counts_on_the_whole_mesh(cluster, recipe, policy):
    assert cluster.run(poisoned, 4, recipe, policy) == [True] * 4


def test_a_step_that_breaks_off_ends_on_the_whole_mesh(cluster):
    told = [(o.name, o.text) for o in cluster.outcomes(broken_off, 4)]
    assert told[3] == ("MemoryError", "no room for an exchange")
    assert [name for name, _ in told[:3]] == ["ExchangeError"] * 3


def test_an_audit_compares_the_replicas_of_a_shard(cluster):
    assert cluster.run(audited, 4) == [False, True, False, True]


def test_a_state_knows_its_place_in_the_mesh_and_resumes_bit_for_bit(cluster):
    places = [(shard, replica) for replica in range(REPLICAS) for shard in range(SHARDS)]
    assert cluster.run(resumed, 4) == [(True, place) for place in places]


def test_all_ranks_states_in_one_go_on_on_this_mesh_and_another(cluster):
    places = [(shard, replica) for replica in range(REPLICAS) for shard in range(SHARDS)]
    ranks = cluster.run(gathered, 4)
    assert [(kept, of) for kept, of, _ in ranks] == [(True, places)] * 4
    everyone = ranks[0][2]
    tensors = [one for s in everyone["ranks"] for one in s["replica"]["tensors"].values()]
    waited = sum(float(one["feedback/residual"].double().sum()) for one in tensors if len(one) > 1)
    after = cluster.run(from_gathered, 6, everyone)
    assert sum(after) == pytest.approx(waited, rel=1e-6) and waited != 0


def test_two_replicas_state_goes_on_with_three_shard_by_shard(cluster, tmp_path):
    before = cluster.run(saved_in, 4, str(tmp_path))
    after = cluster.run(loaded_from, 6, str(tmp_path))
    for shard in range(SHARDS):
        masses = [sum(mass for mass, of in ranks if of == shard) for ranks in (before, after)]
        assert masses[1] == pytest.approx(masses[0], rel=1e-6) and masses[0] != 0


def whole(ranks):
    """What waits on all replicas together, by parameter, its shards put together."""
    parts = {}
    for shard, kept in ranks:
        for name, (values, shape) in kept.items():
            of_shard = parts.setdefault(name, {})
            of_shard[shard] = of_shard.get(shard, 0) + values.view(shape)
    return {name: torch.cat([one[i] for i in sorted(one)]) for name, one in parts.items()}


@pytest.mark.parametrize(("size", "shards"), [(4, 2), (6, 3), (2, 1), (4, 4)])
def test_dcp_goes_on_with_other_shards_and_replicas_and_all_that_waited(
    cluster, tmp_path, size, shards
):
    before = cluster.run(saved_by_dcp, 4, str(tmp_path))
    after = cluster.run(loaded_by_dcp, size, str(tmp_path), shards)
    if shards == SHARDS:
        for (_, kept), (_, again) in zip(before, after, strict=True):
            assert all(torch.equal(kept[name][0], again[name][0]) for name in kept)
    before, after = whole(before), whole(after)
    assert before.keys() == after.keys() and any(x.any() for x in before.values())
    for name, waited in before.items():
        torch.testing.assert_close(after[name], waited)


def test_what_does_not_fit_is_refused_first(cluster):
    cluster.run(refused, 4)
