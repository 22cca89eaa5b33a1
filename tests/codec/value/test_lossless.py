"""deflate and zstd: smaller, exact, and never more memory than the header's count.

Covers codec/value/deflate.py, codec/value/zstd.py.
"""

import sys
import tracemalloc
import zlib

import pytest
import torch

from support.codec.cases import VALUES, bits_of, each, random_values
from support.codec.value_helpers import decoded
from thinwire.codec.value import ZstdValue
from thinwire.errors import RecipeError, WireFormatError

every_codec = pytest.mark.parametrize("name", each(["deflate", "zstd"]))


def as_part(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def compressed(name: str, data: bytes) -> bytes:
    if name == "deflate":
        return zlib.compress(data, 1)
    import zstandard

    return zstandard.compress(data)


@pytest.mark.parametrize("name", each(["deflate", "zstd", "zstd-19"]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_very_bits_come_back(name: str, dtype: torch.dtype) -> None:
    x = random_values(3000, dtype, 4, extreme=True)
    x[::50] = torch.nan
    assert torch.equal(bits_of(decoded(VALUES[name], x)), bits_of(x))


@every_codec
def test_normal_values_take_fewer_than_28_bits(name: str) -> None:
    """Sign and exponent have some 3.5 bits of entropy; the 23 of the mantissa stay."""
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    assert VALUES[name].encode(x, 0).numel() * 8 / x.numel() < 28


@every_codec
def test_a_bomb_is_put_out_early(name: str) -> None:
    """256 MiB of zeros in a few KiB, read as ten values: refused at the first slice."""
    bomb = as_part(compressed(name, bytes(1 << 28)))
    tracemalloc.start()
    try:
        with pytest.raises(WireFormatError, match="40 bytes"):
            VALUES[name].decode(bomb, 10, torch.float32)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


@every_codec
def test_a_stream_that_lies_about_its_size_gets_no_memory(name: str) -> None:
    """A header of 2^40 values, a frame that says so too, and twelve bytes behind it."""
    codec = VALUES[name]
    part = codec.encode(torch.ones(3), 0)
    if name == "zstd":  # magic; single segment, a content size of 8 bytes; one empty last block
        frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 42).to_bytes(8, "little") + b"\x01\0\0"
        part = as_part(frame)
    tracemalloc.start()
    try:
        with pytest.raises(WireFormatError):
            codec.decode(part, 1 << 40, torch.float32)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@every_codec
def test_two_streams_in_one_part_are_refused(name: str) -> None:
    whole = compressed(name, bytes(4000))
    halves = 2 * compressed(name, bytes(2000))
    codec = VALUES[name]
    assert codec.decode(as_part(whole), 1000, torch.float32).numel() == 1000
    with pytest.raises(WireFormatError):
        codec.decode(as_part(halves), 1000, torch.float32)
    with pytest.raises(WireFormatError):
        codec.decode(as_part(whole + bytes(2000)), 1000, torch.float32)


@pytest.mark.parametrize("level", [0, 20])
def test_levels_are_checked(level: int) -> None:
    with pytest.raises(RecipeError, match=f"level={level}"):
        ZstdValue(level=level)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(RecipeError, match=r"thinwire\[codecs\]"):
        ZstdValue()
