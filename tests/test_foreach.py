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


def test_what_is_in_a_row() -> None:
    bucket = torch.arange(10.0)
    row = foreach.in_a_row([bucket[2:5], bucket[5:9]])
    assert row is not None
    assert row.tolist() == bucket[2:9].tolist()
    assert foreach.in_a_row([bucket[2:5], bucket[6:9]]) is None  # a gap
    assert foreach.in_a_row([bucket[5:9], bucket[2:5]]) is None  # the wrong way round
    assert foreach.in_a_row([bucket[::2]]) is None
