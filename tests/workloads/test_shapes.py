"""The built-in models have the sizes that everybody knows them by."""

from math import prod

import pytest

from thinwire.errors import ThinwireError
from thinwire.workloads.shapes import MODELS, multiply_adds, shapes

PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "vit-b16": 86_567_656,
}


def test_there_are_six_models() -> None:
    assert set(MODELS) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert sum(prod(shape) for shape in shapes(name).values()) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "gigas"), [("resnet18", 1.814), ("resnet50", 4.089), ("vgg16", 15.470)]
)
def test_multiply_adds_of_an_image_are_as_published(name: str, gigas: float) -> None:
    """torchvision's table of weights; pooling and normalisation are not in it either."""
    assert sum(multiply_adds(name).values()) / 1e9 == pytest.approx(gigas, abs=0.001)


def test_multiply_adds_of_a_token_are_its_matrices() -> None:
    gpt2 = shapes("gpt2")
    matrices = [prod(shape) for shape in gpt2.values() if len(shape) == 2]
    expected = sum(matrices) - prod(gpt2["transformer.wpe.weight"])
    assert sum(multiply_adds("gpt2").values()) == 1024 * expected


@pytest.mark.parametrize("name", PARAMETERS)
def test_work_belongs_to_parameters_in_the_same_order(name: str) -> None:
    assert list(multiply_adds(name)) == list(shapes(name))


def test_names_and_order_are_those_of_the_original() -> None:
    resnet = list(shapes("resnet18"))
    assert resnet[:2] == ["conv1.weight", "bn1.weight"] and resnet[-1] == "fc.bias"
    assert shapes("resnet18")["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes("resnet50")["layer1.0.conv3.weight"] == (256, 64, 1, 1)
    assert shapes("vgg16")["features.28.weight"] == (512, 512, 3, 3)
    assert shapes("vgg16")["classifier.6.weight"] == (1000, 4096)
    assert shapes("gpt2")["transformer.h.11.attn.c_attn.weight"] == (768, 2304)
    assert shapes("bert-base")["encoder.layer.3.attention.self.query.weight"] == (768, 768)
    vit = "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"
    assert shapes("vit-b16")[vit] == (2304, 768)


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(ThinwireError, match=r"resnet99.*gpt2"):
        shapes("resnet99")
