"""`thinwire bench codecs`: rows, entropies, samples, table and picture.

Covers cli/bench_codecs.py and bench/sender.py.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from support.extras import CLI, needs
from thinwire.bench.codecs.data import Sample, recorded, synthetic
from thinwire.bench.codecs.entropy import byte_entropy, index_entropy, shannon_bound
from thinwire.bench.codecs.run import Settings, entries, measure, plan, samples
from thinwire.bench.kernels.ops import KERNELS, Inputs
from thinwire.bench.sender import as_sent
from thinwire.codec.index import BloomIndex
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, ThinwireError
from thinwire.types import IndexCodec

COLUMNS = {
    "part", "codec", "distribution", "n", "density", "bits_per_item", "encode_items_per_s",
    "decode_items_per_s", "relative_error", "entropy_bits", "distance_bits",
}  # fmt: skip


@pytest.fixture(scope="module")
def uniform() -> Sample:
    return synthetic("uniform", 200_000, 0.01, seed=0)


@pytest.fixture(scope="module")
def rows(uniform: Sample) -> dict[tuple[str, str], dict[str, float]]:
    found, _ = entries(Settings())
    return {(e.part, e.name): measure(e, uniform, seconds=0) for e in found}


@needs("zstandard", "pcodec", "constriction")
def test_every_codec_has_a_row(rows: dict[tuple[str, str], dict[str, float]]) -> None:
    assert {name for part, name in rows if part == "index"} >= set(pieces("index"))
    assert {name for part, name in rows if part == "value"} >= set(pieces("value"))
    for row in rows.values():
        assert set(row) >= COLUMNS
        assert row["encode_items_per_s"] > 0
        assert row["decode_items_per_s"] > 0


def test_bits_and_errors(rows: dict[tuple[str, str], dict[str, float]]) -> None:
    assert rows["index", "raw"]["bits_per_item"] == 32
    assert 8 < rows["index", "rice"]["bits_per_item"] < 8.3
    assert abs(rows["index", "bloom"]["bits_per_item"] - 14.4) < 0.2
    assert rows["index", "bloom"]["relative_error"] == 0
    assert 0.02 < rows["index", "bloom('p1')"]["relative_error"] < 0.2
    for (part, name), row in rows.items():
        exact = (pieces("index") if part == "index" else pieces("value")).get(name)
        if exact is not None and exact.lossless:
            assert row["relative_error"] == 0
        assert row["distance_bits"] > -0.01, (part, name)
    assert 0 < rows["value", "bf16"]["relative_error"] < 0.004


@pytest.mark.parametrize("name", ["bloom", "bloom('p2')", "rice"])
def test_the_search_for_false_positives_counts_as_encoding(name: str) -> None:
    (entry, *_), _ = entries(Settings(index=(name,), value=("raw",)))
    assert isinstance(entry.codec, IndexCodec)
    indices, rows = torch.arange(0, 40_000, 100), 40_000
    part, support = as_sent(entry.codec, indices, rows)
    if name == "rice":
        assert support is None
    else:
        assert support is not None
        assert torch.equal(support, entry.codec.decode(part, support.numel(), rows))


def test_the_kernels_bench_times_that_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(BloomIndex, "support", lambda *_: searched.append(1))
    (op,) = (op for op in KERNELS if op.name == "bloom encode")
    op.prepare(Inputs(4096, 0.01, torch.device("cpu")))()
    assert searched == [1]


def test_entropy_of_indices(uniform: Sample) -> None:
    s = uniform.selection
    bound = math.log2(math.comb(s.numel, s.count)) / s.count
    assert bound - 0.1 < index_entropy(s.indices, s.numel) <= bound + 1e-9
    assert index_entropy(torch.arange(64), 100_000) < 0.2  # a run: one gap, again and again


def test_entropy_of_values() -> None:
    assert byte_entropy(torch.ones(9)) == 0
    assert byte_entropy(torch.tensor([1.0, -1.0])) == 1  # the sign's byte


def test_shannon_bound_of_normal_values() -> None:
    """log2(σ/error): one bit for an error of half the spread, none for an error of all of it."""
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, 20_000, generator=draw)
    for share, bits in ((0.5, 1), (0.125, 3), (1.0, 0)):
        assert abs(shannon_bound(3 * x, 3 * (x + share * noise)) - bits) < 0.1
    assert shannon_bound(x, torch.zeros_like(x)) < 0.1
    assert shannon_bound(torch.ones(50), torch.zeros(50)) == 0


@pytest.mark.parametrize("kind", ["uniform", "clustered"])
def test_synthetic_selections(kind: str) -> None:
    s = synthetic(kind, 50_000, 0.02, seed=3).selection
    assert abs(s.count - 1000) <= (0 if kind == "uniform" else 250)
    assert bool((s.indices[1:] > s.indices[:-1]).all())
    assert 0 <= int(s.indices[0]) <= int(s.indices[-1]) < 50_000
    neighbours = float((s.indices.diff() == 1).double().mean())
    assert neighbours < 0.05 if kind == "uniform" else neighbours > 0.8
    assert torch.equal(s.values, synthetic(kind, 50_000, 0.02, seed=3).selection.values)


@needs("sklearn")
def test_gradients_are_recorded_while_it_trains() -> None:
    found = list(recorded("digits", (1, 3), (0.01, 0.1), seed=0))
    assert [s.distribution for s in found] == ["digits, step 1"] * 2 + ["digits, step 3"] * 2
    sizes = {s.selection.numel for s in found}
    assert len(sizes) == 1
    assert found[1].selection.count == round(0.1 * sizes.pop())
    assert not torch.equal(found[0].selection.values, found[2].selection.values)


@needs("sklearn")
def test_samples_come_in_order() -> None:
    settings = Settings(models=("digits",), steps=(1,), n=(1000, 2000), density=(0.1,))
    got = [(s.distribution, s.selection.numel) for s in samples(settings)][:4]
    assert got == [("uniform", 1000), ("uniform", 2000), ("clustered", 1000), ("clustered", 2000)]


def test_codecs_by_name() -> None:
    found, left_out = entries(Settings(index=("rice",), value=("qsgd(5)",)))
    assert [(e.part, e.name) for e in found] == [("index", "rice"), ("value", "qsgd(5)")]
    assert not left_out
    with pytest.raises(RecipeError, match="unknown index codec"):
        entries(Settings(index=("rise",)))


@needs(*CLI, "matplotlib", "sklearn")
def test_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from thinwire.cli.app import app

    out, png = tmp_path / "codecs.json", tmp_path / "codecs.png"
    words = ["bench", "codecs", "--index", "rice,bloom", "--value", "bf16", "--n", "20k"]
    words += ["--models", "digits", "--steps", "1", "--seconds", "0"]
    shown = CliRunner().invoke(app, [*words, "--json", str(out), "--png", str(png)])
    assert shown.exit_code == 0, shown.output
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 9  # three codecs on uniform, clustered and recorded
    assert all(set(row) >= COLUMNS for row in rows)
    for word in ("distance", "rice", "bloom", "bf16", "digits, step 1"):
        assert word in shown.output
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (Settings(synthetic=("normal",)), "unknown distribution 'normal'"),
        (Settings(models=("resnet",)), "unknown model 'resnet'"),
        (Settings(density=(0.01, 2.0)), "density=2.0"),
        (Settings(index=("rise",)), "unknown index codec 'rise'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_measured(
    settings: Settings, what: str
) -> None:
    with pytest.raises(ThinwireError, match=what):
        plan(settings)
