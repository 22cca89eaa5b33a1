"""Dense allreduce in few bits: quantised shards to their owners, and quantised sums from them."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.collective._owners import dense_of
from thinwire.collective.dense import Dense
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.addend import Addend
from thinwire.kernels.few_bits import Form, add_up_shards, dequantise_shards, quantise_shards
from thinwire.settings import check_choice, check_integer
from thinwire.types import (
    AnyCodec,
    Collective,
    ExchangeContext,
    Reduced,
    Selection,
    Sparse,
    State,
)

BITS = (4, 8)
ROUNDINGS = ("nearest", "stochastic")
GROUPS = (16, 4096)  # elements, from and to


@dataclass(frozen=True, slots=True)
class FewBits(Collective):
    """An all-to-all, a sum in the accumulating dtype and an allgather, all of `bits` an element.

    SDP4Bit (Jia et al., NeurIPS 2024), LoCo (Xie et al., 2024) and THC (Li et al., NSDI 2024)
    send gradients so; `docs/papers/few-bits.md` says what is whose. A rank sends (P-1)/P of the
    tensor each way, `bits` and 16/`group` bits of an element: with 8 bits half of what bfloat16
    takes and 1.6 % on top, with 4 a quarter and 3.1 %.

    Nothing is lost: what a sender's rounding takes away stays with the sender, what the rounding
    of the sum takes away with the owner of the shard, who does not round its own contribution.
    Where the feedback's residual is what was selected from, that happens in place, in the passes
    that quantise; only elsewhere is there a dense tensor of what was delivered.

    Every rank knows every size, so on a GPU the host is asked nothing: two launches of NCCL for a
    unit. Each shard has a checksum, which also stands for the settings, the step, the tensor and
    the way it goes: there is no header.
    """

    name = "few-bits"

    bits: int = 8
    group: int = 128  # elements that share a scale
    rounding: str = "nearest"
    rotate: bool = False  # by random signs and Hadamard's matrix, group by group (THC, SDP4Bit)

    takes = "none"
    keeps_back = True
    whole_is_steady = True
    adds_lazily = True
    in_two_rounds = True

    def __post_init__(self) -> None:
        check_choice("bits", self.bits, BITS)
        check_choice("rounding", self.rounding, ROUNDINGS)
        check_integer("group", self.group, *GROUPS)
        if self.group & (self.group - 1):
            raise RecipeError(f"group={self.group} must be a power of two")

    def without_loss(self) -> Dense:
        """Allreduce in the tensor's own dtype."""
        return Dense()

    def is_steady(self, codec: AnyCodec) -> bool:
        return True

    def replays(self, state: State, step: int) -> Hashable | None:
        """Seeds, of rotations and of rounding at random, are another in each step."""
        return None if self.rotate or self.rounding == "stochastic" else ()

    def form(self, numel: int, ranks: int, rotation: int | None = None) -> Form:
        """How a tensor of this size travels between so many ranks."""
        return Form(numel, ranks, self.bits, self.group, rotation)

    def exchange(self, s: Selection, codec: AnyCodec, ctx: ExchangeContext) -> Reduced:
        x, addend = _summands(s, ctx)
        comm, me = ctx.comm, ctx.comm.rank
        form = self.form(x.numel(), comm.size, ctx.stream("rotation") if self.rotate else None)
        in_place = ctx.in_place and not isinstance(s, Sparse)
        to_owners = ctx.number(lambda step: form.stamp(f"to {step} {ctx.tensor}"), x.device)
        from_owners = ctx.number(lambda step: form.stamp(f"from {step} {ctx.tensor}"), x.device)
        with ctx.phase("encode"):
            seed = self._seed("round", ctx)
            wires = quantise_shards(x, form, me, seed, in_place, addend)
            form.seal(wires, to_owners)
        with ctx.phase("exchange"):
            arrived = comm.all_to_all_equal(wires)
        with ctx.phase("decode"):
            ctx.later(form.sound(arrived, to_owners), _refuse_unsound)
            wire = add_up_shards(arrived, x, form, me, self._seed("round the sum", ctx), in_place)
            delivered = None
            if ctx.settles and not in_place:
                delivered = _delivered(wires, arrived, wire, form, me, x)
            if ctx.bad is not None:  # as `Pipeline` marks a selection
                form.scales(wire[None])[:, :1].masked_fill_(ctx.bad > 0, torch.nan)
            form.seal(wire[None], from_owners)
        with ctx.phase("exchange"):
            gathered = comm.all_gather_equal(wire)
        with ctx.phase("decode"):
            ctx.later(form.sound(gathered, from_owners), _refuse_unsound)
            if ctx.steady:
                ctx.later(form.scales(gathered)[:, :1].isnan().any(), ctx.note_bad)
            out = ctx.output(x.numel(), x, zeroed=False)
            mean = dequantise_shards(gathered, form, out, ctx.gradients)
            return Reduced(mean, delivered, is_mean=True)

    def _seed(self, purpose: str, ctx: ExchangeContext) -> int | None:
        """Every rank rounds for itself, so that errors average out."""
        return ctx.stream(purpose, shared=False) if self.rounding == "stochastic" else None


def _summands(s: Selection, ctx: ExchangeContext) -> tuple[Tensor, Addend | None]:
    """The tensor to send, and what is still to be added to it."""
    if ctx.lazy is not None:
        return ctx.lazy.take()
    x = dense_of(s)
    if isinstance(s, Sparse) and ctx.bad is not None:
        x.nan_to_num_(0.0)  # the mark of a rank whose gradient is not finite: it has another here
    return x, None


def _delivered(
    wires: Tensor, arrived: Tensor, wire: Tensor, form: Form, me: int, x: Tensor
) -> Tensor:
    """What this rank sent; of its own shard the sum, less what the others sent of it."""
    delivered = dequantise_shards(wires, form, torch.empty_like(x))
    first, end = form.span(me)
    mine = dequantise_shards(wire[None], form, delivered[first:end], shard=me)
    for rank, row in enumerate(arrived):
        if rank != me:
            mine -= dequantise_shards(row[None], form, torch.empty_like(mine), shard=me)
    return delivered


def _refuse_unsound(sound: int) -> None:
    if not sound:
        raise WireFormatError(
            "some rank's shard is damaged, of another step or tensor, or of other settings"
        )
