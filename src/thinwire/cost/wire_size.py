"""Bytes per entry, by codec and density: found by encoding a sample, not derived.

Every codec that there is, or will be, is measured by its own bytes, index and value together; the
γ of DRAGONN's equation counts both. Codecs that send a rank for each value (fits) take log2 of the
count in bits, and that of the sample is smaller than that of a large tensor: up to a byte too few.
"""

from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.codec.container import HEADER_BYTES
from thinwire.codec.joint import ROW_BYTES
from thinwire.comm import GroupCommunicator
from thinwire.types import Codec, ExchangeContext, Sparse

SAMPLE = 4096  # entries
_DENSE = 16 * SAMPLE  # elements, where there are more
_ALL = 1 << 17  # rows of a sample at least, where there are more: index types change at 2^16


def wire_bytes(codec: Codec, count: float, rows: float, width: int = 1) -> float:
    """The length of the wire of `count` entries out of `rows`, each of `width` elements."""
    if not count:
        return HEADER_BYTES
    density = float(f"{min(1.0, count / rows):.2g}")
    return HEADER_BYTES + count * _entry_bytes(
        cast(Hashable, codec), density, max(1, int(min(rows, _ALL))), width
    )


def dense_wire_bytes(codec: Codec, numel: float) -> float:
    """The length of the wire of a plain tensor: values without indices."""
    sample = max(1, round(min(numel, _DENSE)))
    return HEADER_BYTES + numel * _value_bytes(cast(Hashable, codec), sample)


def joint_wire_bytes(codec: Codec, numel: int, count: float, apart: tuple[int, ...]) -> float:
    """The length of a wire in which tensors of these sizes are encoded `apart`: see `codec.joint`.

    The rest of its `numel` elements travels as it is; `count` are all that travel.
    """
    whole = numel - sum(apart)
    density = (count - whole) / sum(apart)

    def bytes_of(own: int) -> float:
        dense = count >= numel
        wire = dense_wire_bytes(codec, own) if dense else wire_bytes(codec, density * own, own)
        return wire - HEADER_BYTES + ROW_BYTES

    each = sum(times * bytes_of(own) for own, times in Counter(apart).items())
    return HEADER_BYTES + 4 * whole + each


def alone() -> GroupCommunicator:
    """A group of this rank only, whether or not there are others."""
    return GroupCommunicator(members=[dist.get_rank()] if dist.is_initialized() else None)


@lru_cache(maxsize=4096)
def _entry_bytes(codec: Hashable, density: float, least_rows: int, width: int) -> float:
    rows = max(least_rows, round(SAMPLE / width / density)) if least_rows == _ALL else least_rows
    wanted = max(1, round(density * rows))
    own = torch.Generator().manual_seed(0)
    if density > 0.1:
        indices = torch.randperm(rows, generator=own)[:wanted].sort().values
    else:
        indices = torch.randint(rows, (wanted,), generator=own).unique()
    shape = (indices.numel(),) if width == 1 else (indices.numel(), width)
    sample = Sparse(indices, torch.randn(shape, generator=own), rows * width)
    return _encoded(cast(Codec, codec), sample) / indices.numel()


@lru_cache(maxsize=4096)
def _value_bytes(codec: Hashable, numel: int) -> float:
    sample = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    return _encoded(cast(Codec, codec), sample) / numel


def _encoded(codec: Codec, sample: Sparse | Tensor) -> float:
    ctx = ExchangeContext(tensor="sample", step=0, seed=0, comm=alone())
    return codec.encode(sample, ctx).numel() - HEADER_BYTES
