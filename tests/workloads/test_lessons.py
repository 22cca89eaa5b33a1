"""What `bench converge` trains: sizes, examples that repeat, a held-out part, learning."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from thinwire.workloads.lessons import LESSONS, Tensors, load, make_optimizer, save
from thinwire.workloads.real import REAL, loss_of
from thinwire.workloads.shapes import shapes

SIZES = {
    "gpt2": 124_439_808,
    "transformer25m": 25_613_312,
    "resnet18": 11_173_962,  # torchvision's 11,689,512 with a 3 × 3 stem and 10 classes
    "embedding": 6_658_000,  # 50,000 · 128 + 129 · 2,000
}
SMALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            lesson.reader.source == "images" and not find_spec("sklearn"), reason="needs sklearn"
        ),
    )
    for name, lesson in LESSONS.items()
    if name not in SIZES
]


@lru_cache
def data_of(name: str) -> Tensors:
    return {
        part: torch.from_numpy(array) for part, array in LESSONS[name].reader.prepare(None).items()
    }


@pytest.mark.parametrize("name", SIZES)
def test_a_model_has_its_size(name: str) -> None:
    with torch.device("meta"):
        model = LESSONS[name].build({"train_labels": torch.arange(10, device="cpu")})
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]


def test_resnet18_has_torchvisions_names_and_shapes_but_for_small_images() -> None:
    with torch.device("meta"):
        model = LESSONS["resnet18"].build({"train_labels": torch.arange(1000, device="cpu")})
    known = shapes("resnet18") | {"conv1.weight": (64, 3, 3, 3)}
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == known


@pytest.mark.parametrize("name", sorted(LESSONS.keys() & REAL.keys()))
def test_what_bench_train_times_is_what_learns(name: str) -> None:
    lesson, real = LESSONS[name], REAL[name]
    with torch.device("meta"):
        learns, timed = lesson.build({}), real.build()
    assert {n: p.shape for n, p in learns.named_parameters()} == {
        n: p.shape for n, p in timed.named_parameters()
    }
    stream = {"train": torch.arange(10_000) % 256}
    assert lesson.batch_at(stream, 0, 1, 0)[0].shape == real.batch_at(0, 1, 0)[0].shape


@pytest.mark.parametrize("name", SMALL)
def test_batches_depend_on_seed_step_and_rank_only(name: str) -> None:
    lesson, data = LESSONS[name], data_of(name)
    first = lesson.batch_at(data, 0, 1, 0)[0]
    assert first.equal(lesson.batch_at(data, 0, 1, 0)[0]) and len(first) == lesson.examples
    for other in ((1, 1, 0), (0, 2, 0), (0, 1, 1)):
        assert not first.equal(lesson.batch_at(data, *other)[0])


@pytest.mark.parametrize("name", SMALL)
def test_ranks_share_out_what_is_held_out(name: str) -> None:
    lesson, data = LESSONS[name], data_of(name)
    whole = lesson.held_out(data, 0, 1)[1]
    parts = [lesson.held_out(data, rank, 3)[1] for rank in range(3)]
    assert len(whole) == lesson.unseen == sum(map(len, parts))
    assert whole[1::3].equal(parts[1])


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("name", SMALL)
def test_a_model_learns_what_it_reads_again_and_again(name: str, optimizer: str) -> None:
    torch.manual_seed(0)
    lesson, data = LESSONS[name], data_of(name)
    model = lesson.build(data)
    rate = lesson.rates[optimizer][0]  # type: ignore[index]
    learner = make_optimizer(optimizer, list(model.parameters()), rate, 0.9)  # type: ignore[arg-type]
    inputs, targets = lesson.batch_at(data, 0, 1, 0)
    losses = []
    for _ in range(6):
        loss = loss_of(model(inputs), targets)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        learner.step()
    assert losses[-1] < losses[0]


def test_a_next_token_is_the_one_after() -> None:
    inputs, targets = LESSONS["transformer-tiny"].batch_at(data_of("transformer-tiny"), 0, 1, 0)
    assert inputs[:, 1:].equal(targets[:, :-1])


def test_a_next_word_follows_its_context() -> None:
    lesson, data = LESSONS["embedding-small"], data_of("embedding-small")
    inputs, targets = lesson.held_out(data, 0, 1)
    assert int(targets.max()) < 512 and inputs.shape == (2048, 8)
    words = data["held_out"]
    assert inputs[0].equal(words[: 8 + 1][:8].long()) == bool(words[8] < 512)


def test_arrays_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    arrays = LESSONS["embedding-small"].reader.prepare(None)
    save(arrays, path)
    assert {name: tensor.tolist() for name, tensor in load(str(path)).items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
