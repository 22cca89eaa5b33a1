"""Guesses in torch."""

from torch import Tensor

from thinwire.kernels.next_guess.form import LEAST_CHANGE, LEAST_GAP, MOST_CHANGE, MOST_GAP


def guess(threshold: Tensor, gap: Tensor, groups: int) -> Tensor:
    lowered = threshold * (1 - gap)
    if groups == lowered.numel():
        return lowered
    guesses = lowered.new_zeros(groups)
    guesses[: lowered.numel()] = lowered
    return guesses


def learn(threshold: Tensor, gap: Tensor, kth: Tensor, passed: Tensor, wanted: Tensor) -> None:
    rows = gap.numel()
    off = (wanted / passed[:rows].clamp(min=1)).clamp_(LEAST_CHANGE, MOST_CHANGE)
    gap.mul_(off).clamp_(LEAST_GAP, MOST_GAP)
    threshold.copy_(kth[:rows])
