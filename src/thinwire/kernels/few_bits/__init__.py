"""A sum over ranks in few bits: quantising, adding up and dequantising, in one pass each.

Group by group (`form.Form`), codes are whole multiples of a scale, which is the group's largest
magnitude over the largest code, rounded up to bfloat16. A code times its scale has 15 bits at most
and so is exact; what rounding takes from an element is exact, too, but for the last bit.

Rounding is to the nearest (of two equally near the lower one), or with a `seed` at random so that
the mean is right: at element i up if `rng.hash_to_unit(i, seed)` is below the fraction.

A group with an element that is not finite travels as NaN, and of it nothing is left. Where the
largest magnitude is below 2^-100, all of the group is left, and zeros travel.
"""

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.few_bits import reference
from thinwire.kernels.few_bits.form import Form as Form


def quantise_shards(
    x: Tensor,
    form: Form,
    own: int,
    seed: int | None = None,
    settle: bool = True,
    addend: Addend | None = None,
) -> Tensor:
    """The shards' bytes, one in each row, without checksums; first adds `addend` to `x`.

    With `settle` what rounding lost is left in `x`, except in the `own` shard, which does not
    travel and stays as it is.
    """
    check(x, addend=addend)
    _check_form(x, form, own)
    if not form.numel:
        return form.rows(form.shards, x.device)
    return implementation(reference.quantise_shards, x.device)(x, form, own, seed, settle, addend)


def add_up_shards(
    rows: Tensor, x: Tensor, form: Form, own: int, seed: int | None = None, settle: bool = True
) -> Tensor:
    """The bytes (1-D, without checksum) of the sum of one shard over all ranks, in their order.

    `rows` are the ranks' bytes; the `own` one is not read, since `x` has that shard unrounded.
    With `settle` what rounding the sum loses is left there.
    """
    check(x)
    _check_form(x, form, own)
    _check_rows(rows, form, form.shards)
    if not form.numel:
        return form.rows(1, x.device)[0]
    return implementation(reference.add_up_shards, x.device)(rows, x, form, own, seed, settle)


def dequantise_shards(
    rows: Tensor, form: Form, out: Tensor, divisor: int = 1, shard: int = 0
) -> Tensor:
    """`out`, overwritten with what the rows hold, over `divisor`: of `shard` and those after it."""
    check(out)
    last = shard + len(rows) - 1
    _check_rows(rows, form, 1 + last - shard)
    first, end = form.span(shard)[0], form.span(last)[1]
    if last >= form.shards or out.numel() != end - first:
        raise RecipeError(
            f"{out.numel()} elements do not fit shards {shard} to {last} of {form}: pass "
            f"{end - first} of shards that it has"
        )
    if not out.numel():
        return out
    return implementation(reference.dequantise_shards, out.device)(rows, form, out, divisor, shard)


def _check_form(x: Tensor, form: Form, own: int) -> None:
    if x.numel() != form.numel or not 0 <= own < form.shards:
        raise RecipeError(
            f"{x.numel()} elements and shard {own} do not fit {form}: pass as many as it has"
        )


def _check_rows(rows: Tensor, form: Form, count: int) -> None:
    expected = (count, form.row_bytes)
    if rows.shape != expected or rows.dtype != torch.uint8 or not rows.is_contiguous():
        raise RecipeError(
            f"rows of {rows.dtype} and shape {tuple(rows.shape)} do not fit {form}: pass "
            f"contiguous bytes of shape {expected}"
        )
