"""Models of their true size: published parameter counts, shapes, data that repeats, learning.

Covers workloads/gpt.py, workloads/bert.py and workloads/resnet.py.
"""

import pytest
import torch

from thinwire.workloads.real import MASKED, REAL, UNREAD, library_tokens, loss_of
from thinwire.workloads.shapes import shapes

PUBLISHED = {
    "gpt2": 124_439_808,  # transformers, GPT2LMHeadModel
    "resnet50": 25_557_032,  # torchvision
    "bert": 109_514_298,  # transformers, BertForMaskedLM of bert-base-uncased
    "transformer25m": 25_613_312,  # ours: 256·512 + 512·512 + 8·(12·512² + 13·512) + 2·512
}
TINY = [name for name in REAL if name.endswith("-tiny")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_its_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        model = REAL[name].build()
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_resnet50_has_torchvisions_names_and_shapes() -> None:
    with torch.device("meta"):
        model = REAL["resnet50"].build()
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == shapes("resnet50")


def test_gpt2_has_the_names_of_transformers_with_matrices_not_transposed() -> None:
    with torch.device("meta"):
        model = REAL["gpt2"].build()
    known = shapes("gpt2")
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        assert known.pop(name) in (shape, shape[::-1])
    assert known == {}


@pytest.mark.parametrize("name", TINY)
def test_batches_depend_on_seed_step_and_rank_only(name: str) -> None:
    model = REAL[name]
    first = model.batch_at(0, 1, 0)[0]
    assert first.equal(model.batch_at(0, 1, 0)[0]) and len(first) == model.examples
    for other in ((1, 1, 0), (0, 2, 0), (0, 1, 1)):
        assert not first.equal(model.batch_at(*other)[0])


@pytest.mark.parametrize("name", TINY)
def test_a_model_learns_what_it_reads_again_and_again(name: str) -> None:
    torch.manual_seed(0)
    real = REAL[name]
    model = real.build()
    optimizer = real.optimizer(model.parameters(), 0.9)
    inputs, targets = real.batch_at(0, 1, 0)
    losses = []
    for _ in range(8):
        loss = loss_of(model(inputs), targets)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]


def test_a_next_token_is_the_one_after_and_a_masked_word_is_asked_for() -> None:
    inputs, targets = REAL["gpt2-tiny"].batch_at(0, 1, 0)
    assert inputs[:, 1:].equal(targets[:, :-1])
    inputs, targets = REAL["bert-tiny"].batch_at(0, 1, 0)
    asked = targets != UNREAD
    assert (inputs[asked] == 0).all() and (inputs[~asked] != 0).all()
    assert 0.3 * MASKED < asked.float().mean() < 3 * MASKED


def test_tokens_are_numbered_by_how_common_they_are() -> None:
    counts = library_tokens(512).bincount(minlength=512)
    assert counts[0] == 0 and (counts[1:].diff() <= 0).all() and counts[511] > 0
