"""The Bloom filter as an index codec: sizes, policies, refusal, frozen bytes."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from support.codec.index_cases import uniform
from thinwire import kernels
from thinwire.codec.index.bloom import POLICIES, BloomIndex, Policy
from thinwire.errors import RecipeError, WireFormatError
from thinwire.types import IndexCodec
from wire.make_golden import BLOOM, BLOOM_FILE

every_policy = pytest.mark.parametrize("policy", POLICIES)


def support_of(codec: BloomIndex, part: Tensor, count: int, rows: int) -> Tensor:
    """What a receiver finds; of a naive filter, which does not say, by being one."""
    support = codec.support(part, count, rows)
    return codec.decode(part, count, rows) if support is None else support


@every_policy
def test_is_an_index_codec(policy: Policy) -> None:
    assert isinstance(BloomIndex(policy), IndexCodec)
    assert not BloomIndex(policy).lossless


@every_policy
def test_bits_an_index(policy: Policy) -> None:
    part = BloomIndex(policy).encode(uniform(500_000, 5000), 500_000, True)
    assert abs(8 * part.numel() / 5000 - 14.4) < 0.2


@every_policy
@given(
    rows=st.integers(1, 3000),
    density=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    fpr=st.sampled_from([0.6, 0.1, 0.01, 0.001]),
    seed=st.integers(0, 2**32),
)
def test_receivers_find_the_support(
    policy: Policy, rows: int, density: float, fpr: float, seed: int
) -> None:
    codec = BloomIndex(policy, fpr)
    indices = uniform(rows, int(density * rows), seed)
    part = codec.encode(indices, rows, True)
    support = support_of(codec, part, indices.numel(), rows)
    assert torch.equal(codec.decode(part, support.numel(), rows), support)
    assert bool((support[1:] > support[:-1]).all())
    if policy == "p0":
        assert torch.isin(indices, support).all()
    else:
        assert support.numel() == indices.numel()
    with kernels.use("reference"):
        assert torch.equal(codec.encode(indices, rows, True), part)
        assert torch.equal(codec.decode(part, support.numel(), rows), support)


def test_policies_lose_what_deepreduce_says_they_lose() -> None:
    """P0 nothing, P2 little, P1 the share of false positives."""
    rows, count = 400_000, 4000
    indices = uniform(rows, count)
    kept = {}
    for policy in POLICIES:
        codec = BloomIndex(policy, fpr=0.01)
        support = support_of(codec, codec.encode(indices, rows, True), count, rows)
        kept[policy] = torch.isin(indices, support).float().mean().item()
    assert kept["p0"] == 1
    assert 0.4 < kept["p1"] < 0.6  # as many false positives as true ones
    assert kept["p2"] > kept["p1"] + 0.15
    assert kept["naive"] == kept["leftmost"]


@every_policy
def test_other_settings_read_it_too(policy: Policy) -> None:
    indices = uniform(1000, 50)
    part = BloomIndex(policy).encode(indices, 1000, True)
    support = support_of(BloomIndex("p0", 0.5), part, 50, 1000)
    assert torch.equal(support, support_of(BloomIndex(policy), part, 50, 1000))


@every_policy
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), damage=st.integers(0, 12), count=st.integers(0, 80))
def test_nonsense_is_refused_or_sound(policy: Policy, seed: int, damage: int, count: int) -> None:
    part = BloomIndex(policy, 0.05).encode(uniform(500, 40), 500, True).clone()
    draw = torch.Generator().manual_seed(seed)
    where = torch.randint(part.numel(), (damage,), generator=draw)
    part[where] = torch.randint(256, (damage,), generator=draw).to(torch.uint8)
    for cut in (part, part[: int(where[0])] if damage else part):
        try:
            out = BloomIndex(policy).decode(cut, count, 500)
        except WireFormatError:
            continue
        assert out.shape == (count,)
        assert bool((out[1:] > out[:-1]).all())
        assert not count or (int(out[0]) >= 0 and int(out[-1]) < 500)


@pytest.mark.parametrize("settings", [{"policy": "p3"}, {"fpr": 0.0}, {"fpr": 1.0}])
def test_settings_out_of_range(settings: dict[str, object]) -> None:
    with pytest.raises(RecipeError):
        BloomIndex(**settings)  # type: ignore[arg-type]


def test_absurd_sizes_are_refused() -> None:
    with pytest.raises(RecipeError, match="every row"):
        BloomIndex().encode(torch.arange(3), 2**40, True)
    with pytest.raises(WireFormatError, match="every row"):
        BloomIndex().decode(BloomIndex().encode(torch.arange(3), 100, True), 3, 2**40)


@every_policy
def test_golden(policy: Policy) -> None:
    """P1 and P2 draw: the draw is frozen too, on every platform."""
    frozen = json.loads(BLOOM_FILE.read_text())[policy]
    indices, rows, fpr = BLOOM
    codec = BloomIndex(policy, fpr)
    part = codec.encode(indices, rows, True)
    assert bytes(part.tolist()).hex() == frozen["part"]
    assert support_of(codec, part, indices.numel(), rows).tolist() == frozen["support"]


@every_policy
def test_few_indices_of_many_rows_take_a_bit_for_every_8192_rows(policy: Policy) -> None:
    """Or a few bytes could make a receiver search four billion rows."""
    part = BloomIndex(policy).encode(torch.tensor([5, 99]), 2**20, True)
    assert part.numel() == 2**20 // 8192 // 8 + 16
    forged = part[8:].clone()  # a word less
    forged[-8:-4] = torch.tensor([64, 0, 0, 0], dtype=torch.uint8)
    with pytest.raises(WireFormatError, match="or more"):
        BloomIndex(policy).decode(forged, 2, 2**20)


@pytest.mark.parametrize("policy", ["p1", "p2"])
def test_a_filter_of_ones_is_refused(policy: Policy) -> None:
    """Every row would be positive, and hold 64 probes in memory."""
    part = BloomIndex(policy).encode(uniform(4000, 40), 4000, True).clone()
    part[:-16] = 255
    part[-18:-16] = 0
    with pytest.raises(WireFormatError):
        BloomIndex(policy).decode(part, 40, 4000)
