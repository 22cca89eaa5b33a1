"""Exactly the k largest magnitudes of each of several groups of one flat tensor, all at once.

One pass when a threshold somewhat below each group's k-th magnitude is known: if at least k of a
group reach it, its k largest are among those. The guess decides how long it takes, never what
comes out. `reference.py` says what is computed; all implementations give the same bits, and none
makes the host wait for the device.
"""

from torch import Tensor

from thinwire.errors import RecipeError
from thinwire.kernels import implementation
from thinwire.kernels.addend import Addend, check
from thinwire.kernels.grouped_topk import reference
from thinwire.kernels.grouped_topk.groups import Chosen, Groups

__all__ = ["Chosen", "Groups", "grouped_topk"]


def grouped_topk(x: Tensor, groups: Groups, guess: Tensor, addend: Addend | None = None) -> Chosen:
    """Of each group exactly its k largest magnitudes, among equals the lower index.

    `guess` (one number for each group, on x's device) is a threshold expected somewhat below the
    k-th magnitude; infinite where there is no idea. First adds `addend`, in the same pass: 12
    bytes an element of float32. NaN must not occur.
    """
    check(x, addend=addend)
    if groups.numel != x.numel():
        raise RecipeError(f"groups of {groups.numel} elements do not share out {x.numel()}")
    if guess.shape != (len(groups.counts),) or guess.device != x.device:
        raise RecipeError(
            f"a guess of shape {tuple(guess.shape)} on {guess.device} does not fit "
            f"{len(groups.counts)} groups on {x.device}: pass one number for each, there"
        )
    return implementation(reference.grouped_topk, x.device)(x, groups, guess.to(x.dtype), addend)
