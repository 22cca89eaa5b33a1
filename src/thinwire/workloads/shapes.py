"""Parameter shapes of well-known models, for measuring and planning without downloading them.

Names and shapes are those of torchvision (ResNet, VGG, ViT) and transformers (GPT2LMHeadModel,
BertModel), in the order of the forward pass. Beside each parameter is where it is used: at how
many positions of an input (pixels of a feature map, tokens) it is multiplied with, which tells
how the time of a pass is spread over the layers.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

from thinwire.errors import ThinwireError

Shape = tuple[int, ...]
CLASSES = 1000  # of ImageNet
WIDTH, DEPTH, HIDDEN = 768, 12, 3072  # of the three transformers


class Parameter(NamedTuple):
    name: str
    shape: Shape
    multiply_adds: int = 0  # of one input; 0 for biases, normalisations and looked-up tables


def shapes(name: str) -> dict[str, Shape]:
    """Every parameter's shape, in the order of the forward pass.

    >>> shapes("resnet18")["conv1.weight"]
    (64, 3, 7, 7)
    """
    return {parameter.name: parameter.shape for parameter in _parameters(name)}


def multiply_adds(name: str) -> dict[str, int]:
    """What one input costs in each parameter's matrix product, forward.

    An input is an image of 224 × 224, or a sequence of 1,024 (gpt2) or 128 tokens (bert-base, the
    length of most of its pre-training). Attention's own products have no parameters and are left
    out.
    """
    return {parameter.name: parameter.multiply_adds for parameter in _parameters(name)}


@lru_cache
def _parameters(name: str) -> tuple[Parameter, ...]:
    if name not in MODELS:
        raise ThinwireError(f"unknown model {name!r}; there are: {', '.join(MODELS)}")
    return tuple(MODELS[name]())


def _matrix(name: str, shape: Shape, positions: int, bias: bool = True) -> Iterator[Parameter]:
    """A linear layer or a convolution, with one bias per output channel."""
    yield Parameter(f"{name}.weight", shape, prod(shape) * positions)
    if bias:
        yield Parameter(f"{name}.bias", shape[:1])


def _norm(name: str, width: int = WIDTH) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (width,))
    yield Parameter(f"{name}.bias", (width,))


def _resnet(blocks: tuple[int, ...], bottleneck: bool) -> Iterator[Parameter]:
    """He et al., 2015, table 1; the stride is in the 3 × 3 convolution, as torchvision has it."""
    expansion = 4 if bottleneck else 1
    yield from _matrix("conv1", (64, 3, 7, 7), 112 * 112, bias=False)
    yield from _norm("bn1", 64)
    channels = 64
    for stage, count in enumerate(blocks):
        inner, side = 64 << stage, 56 >> stage
        for block in range(count):
            place, first = f"layer{stage + 1}.{block}", block == 0
            before = 2 * side if first and stage else side  # the side of what comes in
            if bottleneck:
                convolutions = [(inner, 1, before), (inner, 3, side), (4 * inner, 1, side)]
            else:
                convolutions = [(inner, 3, side), (inner, 3, side)]
            incoming = channels
            for number, (out, kernel, pixels) in enumerate(convolutions, start=1):
                shape = (out, channels, kernel, kernel)
                yield from _matrix(f"{place}.conv{number}", shape, pixels**2, bias=False)
                yield from _norm(f"{place}.bn{number}", out)
                channels = out
            if first and incoming != channels:
                shape = (channels, incoming, 1, 1)
                yield from _matrix(f"{place}.downsample.0", shape, side**2, bias=False)
                yield from _norm(f"{place}.downsample.1", channels)
    yield from _matrix("fc", (CLASSES, 512 * expansion), 1)


def _vgg16() -> Iterator[Parameter]:
    """Simonyan and Zisserman, 2014, configuration D, without batch normalisation."""
    place, channels, side = 0, 3, 224
    for out, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            yield from _matrix(f"features.{place}", (out, channels, 3, 3), side**2)
            place, channels = place + 2, out  # a ReLU after each
        place, side = place + 1, side // 2  # and a pooling after each group
    yield from _matrix("classifier.0", (4096, 512 * 7 * 7), 1)
    yield from _matrix("classifier.3", (4096, 4096), 1)
    yield from _matrix("classifier.6", (CLASSES, 4096), 1)


def _gpt2(tokens: int = 1024, vocabulary: int = 50257) -> Iterator[Parameter]:
    """transformers keeps these matrices transposed (Conv1D), so biases are as long as a row."""

    def projection(name: str, inputs: int, outputs: int) -> Iterator[Parameter]:
        yield Parameter(f"{name}.weight", (inputs, outputs), inputs * outputs * tokens)
        yield Parameter(f"{name}.bias", (outputs,))

    yield Parameter("transformer.wte.weight", (vocabulary, WIDTH))
    yield Parameter("transformer.wpe.weight", (1024, WIDTH))
    for layer in range(DEPTH):
        place = f"transformer.h.{layer}"
        yield from _norm(f"{place}.ln_1")
        yield from projection(f"{place}.attn.c_attn", WIDTH, 3 * WIDTH)
        yield from projection(f"{place}.attn.c_proj", WIDTH, WIDTH)
        yield from _norm(f"{place}.ln_2")
        yield from projection(f"{place}.mlp.c_fc", WIDTH, HIDDEN)
        yield from projection(f"{place}.mlp.c_proj", HIDDEN, WIDTH)
    # The head is wte once more: its work is done here, its gradient is whole only at the input.
    head = vocabulary * WIDTH * tokens
    yield Parameter("transformer.ln_f.weight", (WIDTH,), head)
    yield Parameter("transformer.ln_f.bias", (WIDTH,))


def _bert_base(tokens: int = 128) -> Iterator[Parameter]:
    """Uncased, with the pooler and without a task's head."""
    for table, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        yield Parameter(f"embeddings.{table}_embeddings.weight", (rows, WIDTH))
    yield from _norm("embeddings.LayerNorm")
    for layer in range(DEPTH):
        place = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            yield from _matrix(f"{place}.attention.self.{part}", (WIDTH, WIDTH), tokens)
        yield from _matrix(f"{place}.attention.output.dense", (WIDTH, WIDTH), tokens)
        yield from _norm(f"{place}.attention.output.LayerNorm")
        yield from _matrix(f"{place}.intermediate.dense", (HIDDEN, WIDTH), tokens)
        yield from _matrix(f"{place}.output.dense", (WIDTH, HIDDEN), tokens)
        yield from _norm(f"{place}.output.LayerNorm")
    yield from _matrix("pooler.dense", (WIDTH, WIDTH), 1)


def _vit_b16(patches: int = 196) -> Iterator[Parameter]:
    tokens = patches + 1
    yield Parameter("class_token", (1, 1, WIDTH))
    yield from _matrix("conv_proj", (WIDTH, 3, 16, 16), patches)
    yield Parameter("encoder.pos_embedding", (1, tokens, WIDTH))
    for layer in range(DEPTH):
        place = f"encoder.layers.encoder_layer_{layer}"
        attention = f"{place}.self_attention"
        yield from _norm(f"{place}.ln_1")
        joint = (3 * WIDTH, WIDTH)  # query, key and value
        yield Parameter(f"{attention}.in_proj_weight", joint, prod(joint) * tokens)
        yield Parameter(f"{attention}.in_proj_bias", joint[:1])
        yield from _matrix(f"{attention}.out_proj", (WIDTH, WIDTH), tokens)
        yield from _norm(f"{place}.ln_2")
        yield from _matrix(f"{place}.mlp.0", (HIDDEN, WIDTH), tokens)
        yield from _matrix(f"{place}.mlp.3", (WIDTH, HIDDEN), tokens)
    yield from _norm("encoder.ln")
    yield from _matrix("heads.head", (CLASSES, WIDTH), 1)


MODELS: dict[str, Callable[[], Iterator[Parameter]]] = {
    "resnet18": partial(_resnet, (2, 2, 2, 2), bottleneck=False),
    "resnet50": partial(_resnet, (3, 4, 6, 3), bottleneck=True),
    "vgg16": _vgg16,
    "bert-base": _bert_base,
    "gpt2": _gpt2,
    "vit-b16": _vit_b16,
}
