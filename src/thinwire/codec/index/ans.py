"""The gaps between indices by their frequencies: a fraction of a bit where a gap says so little."""

import struct
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thinwire.codec.extras import optional
from thinwire.codec.index.ascending import (
    AscendingIndex,
    from_gaps,
    to_gaps,
    with_proof,
    without_proof,
)
from thinwire.codec.value.lossless import as_part
from thinwire.errors import WireFormatError
from thinwire.kernels.huffman.code import BASES, SYMBOLS, WIDTHS

_CHUNK = 20  # bits that are coded as one number: constriction takes fewer than 24
_TALLEST = 2**16 - 1  # of the frequencies
_COUNTS = struct.Struct("<IB")
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AnsIndex(AscendingIndex):
    """Not in DeepReduce: asymmetric numeral systems (Duda, 2009) instead of Huffman's code.

    Needs the package `constriction`. Symbols are magnitudes, as in `huffman`, and the bits that a
    symbol leaves open are coded as equally likely: 8.09 bits per index where indices are uniform at
    1 %, and less than a bit where they come in runs. Runs on the host.

    Part: the coder's 32-bit words; the symbols' frequencies, scaled to at most 65,535 (u16 each);
    how many words (u32) and symbols (u8) there are; with zeros in front where these are less than a
    byte for every 1,024 indices. No indices, no bytes.
    """

    id = 12
    name = "ans"

    def __post_init__(self) -> None:
        optional("constriction", self.name)

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        gaps = to_gaps(indices, rows).cpu().numpy()
        if not gaps.size:
            return indices.new_empty(0, dtype=torch.uint8)
        symbols = np.searchsorted(BASES, gaps, side="right") - 1
        counts = np.bincount(symbols, minlength=2)  # one symbol alone is no distribution
        scale = min(1.0, _TALLEST / int(counts.max()))
        frequencies = np.ceil(counts * scale).astype("<u2")  # rare is not never
        stream = self._stream()
        coder = stream.stack.AnsCoder()
        behind = gaps - BASES[symbols]
        for start in reversed(range(0, 64, _CHUNK)):  # a stack: last in, first out
            where, sizes = _open_bits(symbols, start)
            if where.size:
                chunk = (behind[where] >> start) & (sizes - 1)
                coder.encode_reverse(_int32(chunk), stream.model.Uniform(), _int32(sizes))
        coder.encode_reverse(_int32(symbols), _model(stream, frequencies))
        words = coder.get_compressed().astype("<u4")
        tail = frequencies.tobytes() + _COUNTS.pack(words.size, frequencies.size)
        return as_part(with_proof(words.tobytes() + tail, gaps.size), indices.device)

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        if not count and not body.numel():
            return body.new_empty(0, dtype=torch.int64)
        words, frequencies = _take_apart(body, count)
        stream = self._stream()
        try:
            coder = stream.stack.AnsCoder(words)
            symbols = coder.decode(_model(stream, frequencies), count).astype(np.int64)
        except ValueError as error:
            raise WireFormatError(f"the coder's words are damaged: {error}") from error
        gaps = BASES[symbols]
        for start in range(0, 64, _CHUNK):
            where, sizes = _open_bits(symbols, start)
            if where.size:
                chunk = coder.decode(stream.model.Uniform(), _int32(sizes)).astype(np.int64)
                gaps[where] += chunk << start
        if not coder.is_empty():
            raise WireFormatError(f"words are left after {count} gaps")
        return from_gaps(torch.from_numpy(gaps).to(body.device), rows)

    def _stream(self) -> Any:
        return optional("constriction", self.name).stream


def _take_apart(body: Tensor, count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """The words and the frequencies."""
    if not count or body.numel() < _COUNTS.size:
        raise WireFormatError(f"{body.numel()} bytes for {count} indices")
    words, known = _COUNTS.unpack(bytes(body[-_COUNTS.size :].tolist()))
    table = 4 * words
    end = table + 2 * known
    raw = without_proof(body, end + _COUNTS.size, count).cpu().numpy()
    frequencies = raw[table:end].copy().view("<u2")
    if not 2 <= known <= SYMBOLS or not frequencies.any() or (known > 2 and not frequencies[-1]):
        raise WireFormatError(f"{known} frequencies, of which the last is not zero, are no table")
    return raw[:table].copy().view("<u4"), frequencies


def _model(stream: ModuleType, frequencies: NDArray[np.uint16]) -> Any:
    return stream.model.Categorical(frequencies.astype(np.float32), perfect=False)


def _open_bits(symbols: Ints, start: int) -> tuple[Ints, Ints]:
    """Which symbols leave bits open from `start` on, and how many numbers the next chunk can be."""
    widths = np.minimum(WIDTHS[symbols] - start, _CHUNK)
    where = np.flatnonzero(widths > 0)
    return where, np.int64(1) << widths[where]


def _int32(numbers: Ints) -> NDArray[np.int32]:
    return numbers.astype(np.int32)
