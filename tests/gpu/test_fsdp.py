"""FSDP2 and HSDP, 2 × 2 ranks over NCCL: the same statements as in tests/frontends/test_fsdp.py."""

import pytest
import torch

from frontends import test_fsdp as fsdp

RANKS = fsdp.REPLICAS * fsdp.SHARDS
SETTINGS = {
    "plain": {},
    "accumulates-and-clips": {"accumulate": 2, "clip": True},
    "added-to-gradients": {"accumulate": 2, "zero": False},
    "reduced-in-bf16": {"precision": {"reduce_dtype": torch.bfloat16}},
}


@pytest.fixture
def gpu(gpu):
    """Each run in a world of its own: DTensor remembers the groups of a mesh, which end with it."""
    gpu.keeps_group = False
    yield gpu
    gpu.keeps_group = True


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("settings", SETTINGS)
def test_dense_is_native_hsdp_bit_for_bit(gpu, dims, settings):
    assert gpu.run(fsdp.beside_native, RANKS, dims, SETTINGS[settings]) == [True] * RANKS


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("recipe", [fsdp.SPARSE, fsdp.OK_TOPK], ids=["topk", "ok-topk"])
def test_nothing_is_lost_and_replicas_stay_the_same(gpu, dims, recipe):
    for gap, agree, keeps in gpu.run(fsdp.sparse, RANKS, dims, recipe):
        assert gap < 1e-5
        assert agree and keeps


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("recipe", ["dense", fsdp.SPARSE], ids=["dense", "topk"])
def test_nan_on_one_shard_counts_on_the_whole_mesh(gpu, recipe, policy):
    assert gpu.run(fsdp.poisoned, RANKS, recipe, policy) == [True] * RANKS


def test_a_state_knows_its_place_in_the_mesh_and_resumes_bit_for_bit(gpu):
    places = [(shard, replica) for replica in range(fsdp.REPLICAS) for shard in range(fsdp.SHARDS)]
    assert gpu.run(fsdp.resumed, RANKS) == [(True, place) for place in places]


def test_dcp_goes_on_with_other_shards_and_all_that_waited(gpu, tmp_path):
    before = fsdp.whole(gpu.run(fsdp.saved_by_dcp, RANKS, str(tmp_path)))
    after = fsdp.whole(gpu.run(fsdp.loaded_by_dcp, RANKS, str(tmp_path), RANKS))
    assert before.keys() == after.keys() and any(x.any() for x in before.values())
    for name, waited in before.items():
        torch.testing.assert_close(after[name].cpu(), waited.cpu())
