"""Elements dealt out to owners by a hash of their indices: a row for each owner.

Whatever was selected where, the rows are about equally full: of k elements an owner's are k/P give
or take a few √(k/P). `reference.py` says what is computed.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.deal import reference
from thinwire.rng import Seed


def deal(
    indices: Tensor, values: Tensor, owners: int, room: int, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Row r has the elements whose index `rng.hash_to_range` gives to r, in their order.

    `indices` (int64) ascend; `PADDING` is nobody's. A row has as many as there is `room` for, the
    first ones; behind them it has padding.
    """
    return implementation(reference.deal, indices.device)(indices, values, owners, room, seed)
