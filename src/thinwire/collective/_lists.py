"""Lists of indices on the wire, where values travel by themselves: 12 bits each, or 16.

A list is its length (int64) and the regions of `kernels.regional`, in the smallest form there is,
and zeros up to a multiple of 8 bytes. Where all ranks know how long it is, the length stays behind.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire.errors import WireFormatError
from thinwire.kernels.regional import (
    FORMS,
    TWELVE,
    Form,
    read,
    read_rows,
    smallest,
    write_rows,
)
from thinwire.types import ExchangeContext

LENGTH = 8  # bytes


def list_bytes(count: int, numel: int) -> int:
    """Bytes of a list of `count` indices below `numel`, without its length."""
    return -(-_form(count, numel).size(count, numel) // 8) * 8


def pack_list(indices: Tensor, numel: int) -> Tensor:
    """The bytes of ascending indices, and how many there are."""
    count = torch.tensor([indices.numel()]).view(torch.uint8).to(indices.device)
    return torch.cat((count, pack_known(indices, numel)))


def unpack_list(wire: Tensor, numel: int) -> Tensor:
    """The indices; `WireFormatError` where the bytes are no list of such."""
    count = int(wire[:LENGTH].view(torch.int64)) if wire.numel() >= LENGTH else -1
    if not 0 <= count <= numel or wire.numel() != LENGTH + list_bytes(count, numel):
        raise WireFormatError(f"{wire.numel()} bytes are no list of {count} indices below {numel}")
    form = _form(count, numel)
    end = LENGTH + form.size(count, numel)
    # A copy begins at a multiple of 8, where its words can be read.
    indices, sound = read(wire[LENGTH:end].clone(), count, numel, form)
    _refuse_unsound(int(sound) and not bool(wire[end:].any()))
    return indices


def pack_known(indices: Tensor, numel: int) -> Tensor:
    """The bytes of ascending indices, padding last, where everyone knows how many there are."""
    count = indices.numel()
    body = write_rows(indices[None], numel, _form(count, numel))[0]
    return pad(body, (0, list_bytes(count, numel) - body.numel()))


def unpack_known(wires: Tensor, count: int, numel: int, ctx: ExchangeContext) -> Tensor:
    """Lists of `count` indices, one in each row. Asks the host nothing: it hears by `ctx.later`."""
    form = _form(count, numel)
    indices, sound = read_rows(wires[:, : form.size(count, numel)], count, numel, form)
    ctx.later(sound, _refuse_unsound)
    return indices


def _form(count: int, numel: int) -> Form:
    return smallest((TWELVE, *FORMS), count, numel)


def _refuse_unsound(sound: int) -> None:
    if not sound:
        raise WireFormatError("some rank's list of indices is damaged, or not what was expected")
