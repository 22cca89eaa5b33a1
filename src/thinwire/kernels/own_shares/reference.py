"""Shares in torch."""

import torch
from torch import Tensor

from thinwire.kernels.own_shares.region import Region
from thinwire.types import PADDING


def own_shares(rows: Tensor, dealt: Tensor, region: Region, total: Tensor) -> tuple[Tensor, Tensor]:
    me, mine = region.owner, rows[region.owner]
    at = torch.searchsorted(mine, region.indices).clamp_(max=mine.numel() - 1)
    had = torch.where(mine[at] == region.indices, dealt[me, at], 0)
    charged = had + (region.arrived - region.sums)
    indices = torch.cat((rows[:me].flatten(), rows[me + 1 :].flatten(), region.indices))
    values = torch.cat((dealt[:me].flatten(), dealt[me + 1 :].flatten(), charged))
    kept = (indices != PADDING) & (total[indices.clamp(max=total.numel() - 1)] != 0)
    return indices.where(kept, PADDING), values.where(kept, 0)
