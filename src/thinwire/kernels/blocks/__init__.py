"""Some blocks of a flat tensor side by side, and back. The last block may be short.

`blocks` are ascending numbers (int64), behind them any number of those beyond the last block:
padding. `reference.py` says what is computed.
"""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.blocks import reference


def gather_blocks(x: Tensor, blocks: Tensor, block: int) -> Tensor:
    """The elements of these blocks, flat; zero where there are none."""
    return implementation(reference.gather_blocks, x.device)(x, blocks, block)


def scatter_blocks(values: Tensor, blocks: Tensor, block: int, out: Tensor) -> Tensor:
    """The values in their blocks of `out`; nothing else of it is touched."""
    return implementation(reference.scatter_blocks, out.device)(values, blocks, block, out)


def block_elements(blocks: Tensor, block: int, numel: int) -> Tensor:
    """Ascending indices of the blocks' elements, `PADDING` where there are none; flat."""
    return reference.block_elements(blocks, block, numel)
