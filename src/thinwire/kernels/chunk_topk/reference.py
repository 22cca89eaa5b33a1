"""The largest magnitudes of each chunk by a stable sort."""

import torch
from torch import Tensor

from thinwire.kernels.addend import Addend
from thinwire.kernels.chunk_topk.chunks import Chunks


def chunk_topk(x: Tensor, chunks: Chunks, addend: Addend | None = None) -> tuple[Tensor, Tensor]:
    if addend:
        addend.add_to(x)
    chosen = [torch.empty(0, dtype=torch.int64, device=x.device)]
    for start, end, whole in chunks.ranges:
        size = end - start
        in_full = size // chunks.length * chunks.length
        for low, high, length in (
            (start, start + in_full, chunks.length),
            (start + in_full, end, size - in_full),
        ):
            if low < high:
                rows = x[low:high].view(-1, length)
                places = _largest(rows, chunks.count(length, whole))
                begins = torch.arange(low, high, length, device=x.device)
                chosen.append((places + begins[:, None]).flatten())
    indices = torch.cat(chosen)
    return indices, x[indices]


def _largest(rows: Tensor, k: int) -> Tensor:
    """Of each row the places of its k largest magnitudes, ascending; among equals the first."""
    order = rows.abs().sort(dim=1, descending=True, stable=True).indices[:, :k]
    return order.sort(dim=1).values
