"""A count sketch: fewer numbers than there are elements, and noise instead of the difference."""

import math
from dataclasses import dataclass
from typing import get_args

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels.count_sketch import Decode, Hashing, project, recover
from thinwire.settings import check_choice, check_integer, check_range
from thinwire.types import ExchangeContext, LinearCodec, Sparse


@dataclass(frozen=True, slots=True)
class CountSketch(LinearCodec):
    """`rows` rows of ⌈`ratio`·m/`rows`⌉ buckets for the m elements that anyone may send.

    S2 Reducer, sections 3.2 and 3.3. `ratio` is the paper's λ. Buckets and signs are hashed from
    the element's place and a seed that all ranks share and that changes every step; see
    `kernels.count_sketch`. The table is zeroed for each use.

    What comes back is unbiased: the elements, and noise of about 1/λ times their squared norm (with
    one row, (m - 1)/⌈λ·m⌉ times exactly). The paper's theorem 2 says that the squared norm stays
    the same; it grows to 1 + 1/λ times. So do not feed the noise back: at λ ≤ 1 it is as large as
    what it comes from, and a residual of it grows without bound.

    Three rows, at the same λ, have a third of the buckets each. The mean of their estimates is as
    noisy as one row; their median shuts out large elements that another row keeps apart. Measured,
    in units of 1/λ at λ = 0.5, for n normal, n³ and n⁹: 1.0 with one row, 1.26, 0.74 and 0.02 with
    three. Gradients have heavy tails, so three is the default.

    `decode` is "median" or "mean" of the rows' estimates; None takes the median of an odd number of
    rows and the mean otherwise. The median of an even number, as the lower of the middle two, would
    be biased, and is refused.

    `hashing="four-wise"` has the independence that proofs ask for; bias and noise are the same.
    """

    name = "sketch"

    ratio: float = 0.5  # λ: section 4.1
    rows: int = 3
    decode: Decode | None = None
    hashing: Hashing = "mix64"

    def __post_init__(self) -> None:
        check_range("ratio", self.ratio, 0, open_low=True, open_high=True)
        check_integer("rows", self.rows, 1)
        check_choice("decode", self.decode, (None, *get_args(Decode)))
        check_choice("hashing", self.hashing, get_args(Hashing))
        if self.decode == "median" and self.rows % 2 == 0:
            raise RecipeError(
                f"decode='median' of rows={self.rows} is biased: an even number of estimates has "
                "no middle one, and the lower of two is too low. Take an odd number of rows, or "
                "decode='mean'"
            )

    def buckets(self, numel: int) -> int:
        """The width of a table for `numel` elements."""
        return max(1, math.ceil(self.ratio * numel / self.rows))

    def project(self, s: Sparse, ctx: ExchangeContext) -> Tensor:
        """The table of the elements of `s`, flat. Its length follows from `s.numel`."""
        own = s.elements()
        seed, buckets = ctx.stream("sketch"), self.buckets(s.numel)
        return project(own.indices, own.values, self.rows, buckets, seed, self.hashing).view(-1)

    def recover(self, total: Tensor, numel: int, ctx: ExchangeContext) -> Tensor:
        """Estimates of all `numel` elements from the sum of the tables."""
        table = total.view(self.rows, self.buckets(numel))
        decode = self.decode or ("median" if self.rows % 2 else "mean")
        return recover(table, numel, ctx.stream("sketch"), decode, self.hashing)

    def error_bound(self, values: Tensor) -> Tensor:
        """For each of `values`, in float64, the most that the others can add to its estimate."""
        magnitudes = values.double().abs()
        return magnitudes.sum() - magnitudes
