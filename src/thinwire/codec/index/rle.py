"""Run lengths over the bitmap: for indices that come in runs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codec.index.ascending import MOST_ROWS, AscendingIndex, check_order
from thinwire.errors import WireFormatError
from thinwire.kernels import varint


@dataclass(frozen=True, slots=True)
class RleIndex(AscendingIndex):
    """Bit-level run-length encoding (DeepReduce, section 2): "0000100" is 4 zeros, 1 one, 2 zeros.

    Symbols alternate and need not be written: lengths do, as LEB128. The lengths are found from
    the indices alone, so that it costs nothing to have many rows. Uniform indices are its worst
    case (18 bits per index at 1 %): every index is a run of its own.

    Part: the lengths of the first run of zeros (perhaps 0), of the first run of ones, of the
    second run of zeros, and so on. Zeros after the last one are not written.
    """

    id = 7
    name = "rle"

    def _encode(self, indices: Tensor, rows: int) -> Tensor:
        steps = indices.diff()
        if indices.numel():
            ascending = bool((steps > 0).all())
            check_order(ascending and int(indices[0]) >= 0 and int(indices[-1]) < rows, rows)
        edge = (steps != 1).nonzero().view(-1)  # the last index of every run but the last
        bound = min(1, indices.numel())
        firsts = torch.cat((indices[:bound], indices[edge + 1]))
        ends = torch.cat((indices[edge], indices[indices.numel() - bound :])) + 1
        zeros = firsts - torch.cat((ends.new_zeros(bound), ends[:-1]))
        return varint.encode(torch.stack((zeros, ends - firsts), dim=1).view(-1))

    def _decode(self, body: Tensor, count: int, rows: int) -> Tensor:
        if count > MOST_ROWS:  # a run takes few bytes, however long: its length is no proof
            raise WireFormatError(f"{count} indices are more than {MOST_ROWS}")
        runs = varint.decode(body)
        if runs.numel() % 2 or bool((runs[1:] == 0).any()):
            raise WireFormatError("the last run must be of ones, and only the first may be empty")
        ends = runs.cumsum(0)  # the first sum to pass 2^63 is negative
        if runs.numel() and (int(ends.amin()) < 0 or int(ends[-1]) > rows):
            raise WireFormatError(f"runs must end within {rows} rows")
        ones = runs[1::2]
        if int(ones.sum()) != count:
            raise WireFormatError(f"runs must hold {count} ones, found {int(ones.sum())}")
        # The j-th one comes after j ones and all zeros before its run.
        zeros_before = runs[0::2].cumsum(0).repeat_interleave(ones, output_size=count)
        return zeros_before.add_(torch.arange(count, device=body.device))
