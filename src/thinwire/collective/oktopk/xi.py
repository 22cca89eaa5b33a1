"""Ok-Topk's Assumption 1, measured."""

import torch
from torch import Tensor

from thinwire.types import Communicator, Selection, Sparse


def xi(
    accumulator: Tensor, gradient: Tensor, total: Selection, k: int, comm: Communicator
) -> float:
    """ξ of one step: how far the update is from the true global top-k, in gradient norms.

        ‖ Topk(1/P·Σ acc_i) - 1/P·Topk(Σ Topk(acc_i)) ‖ / ‖ 1/P·Σ G_i ‖

    Ok-Topk, section 4.1, equation 5. `accumulator` and `gradient` are this rank's flat acc_i and
    G_i, `total` the sum that the exchange came to. A ξ below P does no harm to convergence
    (section 5.1). The learning rate is on both sides of the fraction there, and on none here.

    All ranks call it together. It adds up two dense tensors: a measurement for now and then, not
    for every step. It is a function beside the collective because a collective sees neither
    accumulators nor gradients: take them from `Pipeline.prepare`, before `complete`.
    """
    accumulated = comm.all_reduce(accumulator.clone()).div_(comm.size)
    mean = comm.all_reduce(gradient.to(accumulator.dtype, copy=True)).div_(comm.size)
    largest = accumulated.abs().topk(min(k, accumulated.numel())).indices
    difference = torch.zeros_like(accumulated)
    difference[largest] = accumulated[largest]
    if isinstance(total, Sparse):
        total.add_to(difference, alpha=-1 / comm.size)
    else:
        difference.sub_(total, alpha=1 / comm.size)
    norm = float(mean.norm())
    return float(difference.norm()) / norm if norm else 0.0
