"""Declared compute: what a step of a known model would take on the assumed GPU."""

import pytest

from thinwire.workloads.compute import IMAGES, SEQUENCES, SUSTAINED, declared_compute
from thinwire.workloads.shapes import MODELS, multiply_adds


def test_three_forward_passes_of_two_operations_each() -> None:
    forward = sum(multiply_adds("resnet18").values()) * IMAGES
    assert declared_compute("resnet18") == pytest.approx(6 * forward / SUSTAINED, abs=5e-4)
    forward = sum(multiply_adds("gpt2").values()) * SEQUENCES
    assert declared_compute("gpt2") == pytest.approx(6 * forward / SUSTAINED, abs=5e-4)


def test_it_is_what_the_results_name() -> None:
    """The tables of docs/results were measured with these."""
    known = {
        model: round(1000 * declared_compute(model)) for model in ("resnet18", "vgg16", "gpt2")
    }
    assert known == {"resnet18": 44, "vgg16": 378, "gpt2": 773}


@pytest.mark.parametrize("model", MODELS)
def test_every_model_takes_some_time(model: str) -> None:
    assert declared_compute(model) > 0
