"""Tensors that go together: by kind, by size and in order."""

import torch

from thinwire.units.grouping import BUCKET_BYTES, grouped

HALF = BUCKET_BYTES // 2
GRADS = {
    "a": torch.empty(HALF, dtype=torch.uint8),
    "b": torch.empty(4),
    "c": torch.empty(HALF, dtype=torch.uint8),
    "d": torch.empty(2, dtype=torch.uint8),
    "e": torch.empty(4),
}


def names(*arguments):
    return [list(group) for group in grouped(GRADS, *arguments)]


def test_a_unit_has_one_dtype_and_a_bucket_is_full_at_some_point():
    assert names("tensor") == [["a"], ["c"], ["d"], ["b"], ["e"]]
    assert names("bucket") == [["a", "c"], ["d"], ["b", "e"]]
    assert names("bucket", True) == names("model") == [["a", "c", "d"], ["b", "e"]]


def test_of_none_there_are_none():
    assert grouped({}, "model") == []
