"""Made-up gradients: repeatable, alike between ranks, heavy-tailed."""

import torch

from thinwire.workloads.gradients import SyntheticGradient


def test_gradients_repeat_with_the_seed_and_change_with_the_step_and_the_rank() -> None:
    first, again, other = (SyntheticGradient(100_000, rank, seed=3) for rank in (0, 0, 1))
    step = first.fill().clone()
    assert torch.equal(again.fill(), step)
    assert not torch.equal(other.fill(), step)
    assert not torch.equal(first.fill(), step)
    common = torch.corrcoef(torch.stack([step, other.grad]))[0, 1]
    assert 0.2 < common < 0.8  # alike, not equal


def test_gradients_are_heavy_tailed_and_in_one_place() -> None:
    gradient = SyntheticGradient(100_000, rank=0)
    place = gradient.fill().data_ptr()
    x = gradient.fill()
    assert x.data_ptr() == place and x.numel() == 100_000
    kurtosis = ((x - x.mean()) ** 4).mean() / x.var() ** 2
    assert kurtosis > 10  # 3 for a normal
