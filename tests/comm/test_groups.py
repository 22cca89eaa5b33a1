"""Whether there is a group to be found, where a launcher started several processes."""

import pytest
import torch

import thinwire as tw


def test_ranks_without_a_group_are_told_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    for alone in (
        lambda: tw.Synchronizer("topk"),
        lambda: tw.sparse_all_reduce(torch.ones(5), "topk"),
        lambda: tw.wrap(torch.optim.SGD([torch.ones(1)], 0.1), torch.nn.Linear(2, 2), "topk"),
    ):
        with pytest.raises(tw.ThinwireError, match=r"4 processes .*init_process_group\(\) first"):
            alone()


def test_one_process_may_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    sync = tw.Synchronizer("topk(0.5)")
    assert sync.average("a", torch.tensor([1.0, -2.0])).tolist() == [1.0, -2.0]
    sync.close()
