"""A rank whose weights are not finite goes on from the model that all share, and says so.

By itself it would stay as it is, where local steps go on while a message travels, and no round
would be done any more: each has its NaN.
"""

import warnings
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn

from thinwire.engine.finite import look_at


def begins_anew(
    names: Collection[str],
    parameters: Mapping[str, nn.Parameter],
    optimizers: Iterable[torch.optim.Optimizer],
) -> bool:
    """Whether these are not finite here. Then what is not is forgotten by the optimisers too."""
    bad, _ = look_at({name: parameters[name].detach() for name in names})
    if not bad:
        return False
    for optimizer in optimizers:
        for name in names:
            for moment in optimizer.state.get(parameters[name], {}).values():
                if isinstance(moment, Tensor) and moment.is_floating_point():
                    moment.nan_to_num_(0.0, 0.0, 0.0)
    warnings.warn(
        f"this rank's weights were not finite ({bad[0]!r}, {len(bad)} such), and the round was "
        "left out on all ranks: it goes on from the model that they share, its optimiser with "
        "zeros for what was not finite",
        stacklevel=2,
    )
    return True
