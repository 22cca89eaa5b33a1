"""What a rank delivered, where owners add up what the ranks dealt them and keep some of the sums.

`reference.py` says what is computed.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.own_shares import reference
from thinwire.kernels.own_shares.region import Region

__all__ = ["Region", "own_shares"]


def own_shares(rows: Tensor, dealt: Tensor, region: Region, total: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of all that was delivered, in no order; padding where nothing was.

    What was dealt to the others (`rows` and `dealt`, a row for each owner) is delivered where the
    `total` is not zero. Of its own region a rank answers for the rounding of the sums: it delivers
    what arrived of each, less what the others had in it.
    """
    return implementation(reference.own_shares, total.device)(rows, dealt, region, total)
