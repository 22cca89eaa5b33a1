"""What a sender does with indices before they travel, for the benches that time it."""

from torch import Tensor

from thinwire.types import IndexCodec


def as_sent(codec: IndexCodec, indices: Tensor, rows: int) -> tuple[Tensor, Tensor | None]:
    """All that a sender does: the part, and what receivers take it for where that may differ.

    Bloom filters are searched for their false positives, whose values travel too.
    """
    part = codec.encode(indices, rows, True)
    return part, None if codec.lossless else codec.support(part, indices.numel(), rows)
