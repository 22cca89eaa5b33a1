"""Addressed randomness: the same everywhere, uniform, and never PyTorch's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.rng import (
    MIX_MULTIPLIERS,
    MIX_SHIFTS,
    as_signed,
    distinct,
    fingerprint,
    generator,
    hash_to_range,
    hash_to_unit,
    mix64,
    stream_seed,
)

CPU = torch.device("cpu")
WORD = (1 << 64) - 1
words = st.integers(min_value=-(2**63), max_value=2**63 - 1)
seeds = st.integers(min_value=0, max_value=2**63 - 1)


def mix64_in_plain_python(x: int, seed: int) -> int:
    """SplitMix64's finaliser on an unsigned word."""
    x = (x + seed * 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


@given(xs=st.lists(words, min_size=1, max_size=20), seed=seeds)
def test_mix64_is_splitmix64_on_unsigned_words(xs, seed):
    mixed = mix64(torch.tensor(xs), seed).tolist()
    assert [m & WORD for m in mixed] == [mix64_in_plain_python(x & WORD, seed) for x in xs]


def test_mix64_golden_values():
    # The first outputs of SplitMix64 seeded with 0, as published with Vigna's splitmix64.c.
    first = [mix64(torch.tensor([0]), turn).item() & WORD for turn in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_constants_other_kernels_copy():
    assert MIX_MULTIPLIERS == (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    assert MIX_SHIFTS == (30, 27, 31)


@given(word=st.integers(min_value=0, max_value=WORD))
def test_as_signed_keeps_the_bits(word):
    assert -(2**63) <= as_signed(word) < 2**63
    assert as_signed(word) & WORD == word


def test_mix64_flips_half_of_the_bits():
    """Each input bit flips each output bit with probability 1/2."""
    x = torch.arange(4096)
    base = mix64(x, 11)
    for bit in range(0, 64, 9):
        flipped = (base ^ mix64(x ^ as_signed(1 << bit), 11)).tolist()
        counts = [sum((f >> b) & 1 for f in flipped) for b in range(64)]
        # Binomial(4096, 1/2) has standard deviation 32.
        assert all(abs(count - 2048) < 6 * 32 for count in counts), (bit, counts)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 2**31 - 1])
def test_hash_to_range_stays_in_range(size):
    slots = hash_to_range(torch.arange(10_000), size, seed=3)
    assert slots.min() >= 0
    assert slots.max() < size


def test_hash_to_range_is_uniform():
    slots = hash_to_range(torch.arange(100_000), 10, seed=5)
    counts = torch.bincount(slots, minlength=10).tolist()
    deviation = (100_000 * 0.1 * 0.9) ** 0.5
    assert all(abs(count - 10_000) < 6 * deviation for count in counts), counts


def test_hash_to_unit_is_uniform():
    u = hash_to_unit(torch.arange(100_000), seed=5)
    assert u.dtype == torch.float32
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.double().mean().item() - 0.5) < 6 * (1 / 12 / 100_000) ** 0.5
    counts = torch.histc(u, bins=10, min=0, max=1).tolist()
    assert all(abs(count - 10_000) < 6 * 95 for count in counts), counts


@given(n=st.integers(1, 3000), share=st.floats(0, 1), seed=seeds)
def test_distinct_draws_different_indices_in_range(n, share, seed):
    k = int(share * n)
    drawn = distinct(n, k, seed, CPU)
    assert drawn.dtype == torch.int64
    assert drawn.numel() == k == drawn.unique().numel()
    assert bool(((drawn >= 0) & (drawn < n)).all())


@given(n=st.integers(1, 3000), seed=seeds)
def test_distinct_of_all_is_a_permutation(n, seed):
    assert distinct(n, n, seed, CPU).sort().values.tolist() == list(range(n))


@given(n=st.integers(1, 3000), seed=seeds)
def test_a_shorter_draw_is_a_prefix_of_a_longer_one(n, seed):
    assert distinct(n, n // 2, seed, CPU).tolist() == distinct(n, n, seed, CPU)[: n // 2].tolist()


def test_distinct_of_nothing_is_empty():
    assert distinct(5, 0, 1, CPU).tolist() == []
    assert distinct(0, 0, 1, CPU).tolist() == []


@pytest.mark.parametrize("n", [5, 10])
def test_distinct_brings_every_index_to_every_place_equally_often(n):
    draws = 2500
    orders = [distinct(n, n, stream_seed(0, s, "w", "t"), CPU) for s in range(draws)]
    places = torch.arange(n).expand(draws, n).reshape(-1)
    counts = torch.bincount(places * n + torch.cat(orders), minlength=n * n).double()
    expected = draws / n
    chi_squared = ((counts - expected) ** 2 / expected).sum().item()
    freedom = (n - 1) ** 2
    assert abs(chi_squared - freedom) < 6 * (2 * freedom) ** 0.5, chi_squared / freedom


def test_distinct_takes_every_index_equally_often():
    n, k, draws = 1000, 300, 400
    samples = [distinct(n, k, stream_seed(0, s, "w", "t"), CPU) for s in range(draws)]
    counts = torch.bincount(torch.cat(samples), minlength=n).double()
    expected, variance = draws * k / n, draws * k / n * (1 - k / n)
    chi_squared = ((counts - expected) ** 2 / variance).sum().item()
    assert abs(chi_squared - n) < 6 * (2 * n) ** 0.5, chi_squared / n


def test_distinct_far_beyond_32_bits():
    drawn = distinct(2**40, 1000, 3, CPU)
    assert drawn.unique().numel() == 1000
    assert int(drawn.max()) < 2**40
    assert int(drawn.max()) > 2**39  # missed by all with probability 2^-1000


def test_stream_seed_golden_values():
    """Frozen: checkpoints and peers of another version count on them."""
    assert stream_seed(0, 0, "w", "randomk") == 5566541451112547495
    assert stream_seed(0, 0, "w", "randomk", rank=0) == 5322877538974889264
    assert stream_seed(7, 123, "layer.0.weight", "hash", rank=5) == 3345480836659562367
    assert fingerprint("thinwire") == 6595322297252018971


def test_stream_seed_differs_in_every_part_of_the_address():
    addresses = [
        (0, 0, "w", "p", None),
        (1, 0, "w", "p", None),
        (0, 1, "w", "p", None),
        (0, 0, "v", "p", None),
        (0, 0, "w", "q", None),
        (0, 0, "w", "p", 0),
        (0, 0, "w", "p", 1),
    ]
    seeds = {stream_seed(*address) for address in addresses}
    assert len(seeds) == len(addresses)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nothing_touches_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    distinct(1000, 10, 1, CPU)
    mix64(torch.arange(10), 1)
    torch.rand(3, generator=generator(1, CPU))
    assert torch.equal(torch.get_rng_state(), before)


def test_generator_repeats():
    draw = [torch.rand(5, generator=generator(2**62, CPU)) for _ in range(2)]
    assert torch.equal(*draw)
    assert not torch.equal(draw[0], torch.rand(5, generator=generator(2**62 + 1, CPU)))
