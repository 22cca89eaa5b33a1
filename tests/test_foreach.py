"""A failure here says that PyTorch has moved something: mend `foreach.py` alone."""

import torch

from thinwire import foreach


def test_they_do_what_their_names_say() -> None:
    ones = [torch.ones(2), torch.ones(3)]
    twos = foreach.add(ones, ones)
    foreach.add_(twos, ones, alpha=2.0)
    assert [t.tolist() for t in twos] == [[4.0] * 2, [4.0] * 3]
    foreach.mul_(twos, 0.5)
    foreach.copy_(ones, list(foreach.mul(twos, 3.0)))
    assert [t.tolist() for t in ones] == [[6.0] * 2, [6.0] * 3]
