"""Count sketches (Charikar, Chen and Farach-Colton, ICALP 2002): tables that add.

Row j of a table has a bucket h_j(i) and a sign s_j(i) for every index i; an element x_i is added
to the bucket, times the sign, and s_j(i)·table[j, h_j(i)] is an estimate of it. Nothing of h and s
is stored: `rng.mix64` of the index, seeded with `seed + j`, gives the bucket from its upper 31 bits
(`rng.hash_to_range`) and the sign from its lowest one.

Why this hash is enough. That an estimate is unbiased, and that its variance is (‖x‖² - x_i²)/c,
needs the signs and buckets of *pairs* of indices to be independent; four-wise independence is
needed for norms and inner products of sketches (Alon, Matias and Szegedy, STOC 1996), which nobody
takes here. The seeds are drawn anew each step and no gradient can depend on them, so a hash whose
pairs of outputs pass for independent will do. A family with a proof is there to compare with:
"four-wise", polynomials of degree 3 with random coefficients modulo the prime 2^31 - 1 (Wegman and
Carter, 1981), one for the buckets and one for the signs. It takes six products where `mix64` takes
two, and has no Triton form: a GPU goes through it in torch.

Sums are made in the order of the elements, whatever the implementation and the number of threads,
so that the same elements always give the same bits: no floating-point atomics.
"""

from typing import Literal

import torch
from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.count_sketch import reference

Decode = Literal["median", "mean"]
Hashing = Literal["mix64", "four-wise"]

MOST_BUCKETS = reference.PRIME  # so that a 31-bit hash times the buckets is still an int64
_DTYPES = (torch.float32, torch.float64)


def project(
    indices: Tensor,
    values: Tensor,
    rows: int,
    buckets: int,
    seed: int,
    hashing: Hashing = "mix64",
) -> Tensor:
    """The table, `rows` by `buckets`, of the elements `values` at the distinct int64 `indices`."""
    if rows < 1 or not 0 < buckets <= MOST_BUCKETS:
        raise RecipeError(
            f"rows={rows} must be at least 1, and buckets={buckets} in [1, {MOST_BUCKETS}]"
        )
    if indices.shape != values.shape or values.dim() != 1 or values.dtype not in _DTYPES:
        raise RecipeError(
            f"{indices.numel()} indices and {values.dtype} values of shape {tuple(values.shape)} "
            "make no sketch: pass as many, flat, as float32 or float64"
        )
    sketch = implementation(reference.project, values.device)
    elements = indices.contiguous(), values.contiguous()
    return sketch(*elements, rows, buckets, seed, hashing == "four-wise")


def recover(
    table: Tensor, numel: int, seed: int, decode: Decode, hashing: Hashing = "mix64"
) -> Tensor:
    """Estimates of the elements 0 … `numel` - 1 that went into a table of (rows, buckets).

    Of the rows' estimates the `decode`: their median (the middle one: of an odd number), or their
    mean.
    """
    if hashing == "four-wise" and numel > reference.PRIME:
        raise RecipeError(
            f"hashing='four-wise' tells {reference.PRIME} elements apart, and there are {numel}: "
            "use 'mix64'"
        )
    estimate = implementation(reference.recover, table.device)
    return estimate(table.contiguous(), numel, seed, decode, hashing == "four-wise")
