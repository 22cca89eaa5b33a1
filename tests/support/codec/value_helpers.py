"""What the tests of value codecs share."""

from torch import Tensor

from thinwire.types import ValueCodec


def decoded(codec: ValueCodec, x: Tensor, seed: int = 0) -> Tensor:
    return codec.decode(codec.encode(x, seed), x.numel(), x.dtype)


def relative_error(codec: ValueCodec, x: Tensor) -> float:
    return float((decoded(codec, x) - x).norm() / x.norm())


def with_bytes(part: Tensor, at: int, *data: int) -> Tensor:
    out = part.clone()
    for offset, byte in enumerate(data):
        out[at + offset] = byte
    return out
