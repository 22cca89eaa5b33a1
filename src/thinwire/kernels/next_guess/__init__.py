"""Where to look for the k largest of many groups: below the last step's k-th magnitudes.

How far below, the *gap*, follows the number of candidates that were found there. `reference.py`
says what is computed: a few numbers for each group, and a launch each way on a GPU.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.next_guess import reference


def guess(threshold: Tensor, gap: Tensor, groups: int) -> Tensor:
    """For each of the groups somewhat less than its threshold, or zero where it has none."""
    return implementation(reference.guess, gap.device)(threshold, gap, groups)


def learn(threshold: Tensor, gap: Tensor, kth: Tensor, passed: Tensor, wanted: Tensor) -> None:
    """Make each threshold the k-th magnitude, and each gap one by which `wanted` would pass.

    `passed` is how many did (int64). There may be more groups than thresholds: the first count.
    """
    implementation(reference.learn, gap.device)(threshold, gap, kth, passed, wanted)
