"""Dense allreduce: what every compression is measured against."""

from dataclasses import dataclass

import torch

from thinwire.collective._owners import dense_of
from thinwire.settings import check_choice
from thinwire.types import AnyCodec, Collective, ExchangeContext, Reduced, Selection

WIRE_DTYPES = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}


def value_bytes(dtype: str) -> int:
    """Bytes of a value on the wire, of a tensor of float32."""
    return (WIRE_DTYPES[dtype] or torch.float32).itemsize


@dataclass(frozen=True, slots=True)
class Dense(Collective):
    """Allreduce of the whole tensor, in its own dtype ("fp32") or rounded to 16 bits.

    Half precision sends x/P, as PyTorch's fp16 hook does: a sum of P float16 numbers overflows
    at a P-th of the range. Each rank is charged its own rounding; that of the additions inside
    the backend is charged to no rank.
    """

    name = "dense"

    dtype: str = "fp32"

    takes = "none"
    whole_is_steady = True

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, WIRE_DTYPES)

    def without_loss(self) -> "Dense":
        """The same in the tensor's own dtype."""
        return Dense()

    def is_steady(self, codec: AnyCodec) -> bool:
        return True

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        x = dense_of(s)
        wire_dtype = WIRE_DTYPES[self.dtype]
        with ctx.phase("encode"):
            if wire_dtype is None:
                wire = ctx.output(x.numel(), x, zeroed=False).copy_(x)
            else:
                kind = torch.finfo(wire_dtype)
                most = kind.max / ctx.comm.size * (1 - kind.eps)  # rounded up, P of it still fit
                wire = torch.empty_like(x, dtype=wire_dtype)
                torch.div(x, ctx.comm.size, out=wire).clamp_(-most, most)
            delivered: Selection = s
            if wire_dtype is not None and ctx.settles:
                delivered = wire.to(x.dtype).mul_(ctx.comm.size)
            if ctx.bad is not None:
                wire[:1].masked_fill_(ctx.bad > 0, torch.nan)  # as `Pipeline` marks a selection
        with ctx.phase("exchange"):
            ctx.comm.all_reduce(wire)
        with ctx.phase("decode"):
            if ctx.bad is not None:
                ctx.later(wire[:1].isnan().any(), ctx.note_bad)
            if wire_dtype is None:
                return Reduced(wire, delivered)
            mean = ctx.output(x.numel(), x, zeroed=False).copy_(wire)
            if ctx.gradients != ctx.comm.size:
                mean.mul_(ctx.comm.size / ctx.gradients)
            return Reduced(mean, delivered, is_mean=True)
