"""Law 6, bounds: bytes sent are within the formula of the collective."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.contracts import ranks
from support.contracts.cases import Case, Layer
from support.contracts.strategies import ranks as sizes

WORD = 4
HEADER = 64 + 2 * 7  # and the padding of two parts
HANDSHAKE = 3 * 8  # form and flag of the step, length of the payload


@pytest.mark.parametrize("size", sizes)
@settings(max_examples=3)
@given(numel=st.integers(1, 5000), density=st.sampled_from([0.001, 0.01, 0.1, 1.0]))
def test_topk_sends_two_words_for_each_of_k_to_each_peer(cluster, size, numel, density):
    case = Case("topk", (Layer((numel,)),), settings={"density": density})
    k = max(1, round(density * numel))
    at_least, at_most = k * WORD, 2 * k * WORD + HEADER  # an index codec may do better than raw
    for steps in cluster.run(ranks.traffic, size, case):
        for sent, received, counted in steps:
            for total in (sent, received):
                assert at_least * (size - 1) <= total <= (at_most + HANDSHAKE) * (size - 1)
            assert at_least * (size - 1) <= counted <= sent


@pytest.mark.parametrize(("recipe", "width"), [("dense", 4), ("fp16", 2), ("bf16", 2)])
@pytest.mark.parametrize("size", sizes)
def test_dense_sends_what_a_ring_sends(cluster, size, recipe, width):
    numel = 840  # a multiple of every size
    case = Case(recipe, (Layer((numel,)),))
    ring = 2 * numel * width * (size - 1) // size
    for steps in cluster.run(ranks.traffic, size, case):
        for sent, received, counted in steps:
            assert counted == ring
            for total in (sent, received):
                assert ring <= total <= ring + HANDSHAKE * (size - 1)


@pytest.mark.parametrize("size", sizes)
@pytest.mark.parametrize(("recipe", "bits"), [("int8", 8), ("int4", 4)])
def test_few_bits_send_a_half_and_a_quarter_of_bf16(cluster, size, recipe, bits):
    """Scales included within 5 %; beside them a checksum for each shard, both ways."""
    numel = 128 * 840
    case = Case(recipe, (Layer((numel,)),), steps=2)
    bf16 = 2 * numel * 2 * (size - 1) / size
    least, checksums = bf16 * bits / 16, 2 * (size - 1) * 24
    for steps in cluster.run(ranks.traffic, size, case):
        for sent, received, counted in steps:
            assert least <= counted <= 1.05 * least + checksums
            for total in (sent, received):
                assert counted <= total <= counted + HANDSHAKE * (size - 1)


@pytest.mark.parametrize("size", sizes)
def test_small_tensors_are_fused_into_one_dense_allreduce(cluster, size):
    case = Case("topk", (Layer((420,)),) * 4, settings={"bypass": 420})
    ring = 2 * 4 * 420 * WORD * (size - 1) // size
    for steps in cluster.run(ranks.traffic, size, case):
        for sent, _, counted in steps:
            assert counted == ring
            assert sent <= ring + HANDSHAKE * (size - 1)


@pytest.mark.parametrize("size", sizes)
@pytest.mark.parametrize(("recipe", "bits"), [("signsgd", 1), ("terngrad", 1.6), ("qsgd", 8)])
def test_quantisers_send_their_bits(cluster, size, recipe, bits):
    numel = 4000
    case = Case(recipe, (Layer((numel,)),))
    scales = 8 + WORD * (1 + -(-numel // 512))  # settings, and one for each bucket
    at_most = numel * bits / 8 + 8 + scales + HEADER + HANDSHAKE
    for steps in cluster.run(ranks.traffic, size, case):
        for sent, received, _ in steps:
            assert max(sent, received) <= at_most * (size - 1)
            assert min(sent, received) >= numel * bits / 8 * (size - 1)


@pytest.mark.parametrize("size", sizes)
def test_chunks_send_12_bits_for_where_and_2_for_what(cluster, size):
    """And for each chunk a count of two bytes, for each group of 1024 values four means."""
    chunks = 9
    case = Case("chunk-topk", (Layer((chunks * 4096,)),), steps=1)
    k = 64 * chunks
    bits = 14 * k / 8
    at_most = bits + 2 * chunks + 16 * -(-k // 1024) + 1 + 8 + HEADER
    for ((sent, received, counted),) in cluster.run(ranks.traffic, size, case):
        for total in (sent, received):
            assert bits * (size - 1) <= total <= (at_most + HANDSHAKE) * (size - 1)
        assert bits * (size - 1) <= counted <= sent
