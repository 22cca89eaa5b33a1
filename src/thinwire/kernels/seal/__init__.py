"""The last of a wire: its header with the checksum over all of it, and the gaps behind its parts.

`codec/container.py` has the layout; `reference.py` says what is computed.
"""

from collections.abc import Sequence

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.seal import reference
from thinwire.kernels.seal.form import ADDRESS, HEADER_WORDS, SUM

__all__ = ["ADDRESS", "HEADER_WORDS", "SUM", "is_sealed", "seal"]


def seal(
    wires: Tensor, front: Tensor, address: Tensor, gaps: Sequence[tuple[int, int]] = ()
) -> None:
    """Complete wires of one length, one in each row of bytes, whose parts are in place.

    `front` is their header as int64, with its own share of the checksum and no address; that is a
    0-D int64 on the device. The `gaps`, from where to where, become zero: at most two, of fewer
    than 8 bytes.
    """
    implementation(reference.seal, wires.device)(wires, front, address, gaps)


def is_sealed(wires: Tensor, front: Tensor, address: Tensor) -> Tensor:
    """Whether (0-D, bool) all of these wires have the header and the checksum that are due."""
    return implementation(reference.is_sealed, wires.device)(wires, front, address)
