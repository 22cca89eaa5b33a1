"""Rounding at random so that the mean is right: the one step all stochastic quantisers share."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.quantise import reference


def quantise(heights: Tensor, seed: int) -> Tensor:
    """Each of the 1-D float `heights` in [0, 2^24), rounded down or up, as int32.

    Height i goes up if `rng.hash_to_unit(i, seed)` is below its fraction: the chance is right to
    2^-24, the grain of these numbers, and a whole number stays as it is.
    """
    return implementation(reference.quantise, heights.device)(heights, seed)
