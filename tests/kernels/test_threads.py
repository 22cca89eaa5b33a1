"""Pieces of a tensor on several threads: every element once, results in order, errors raised."""

import os
import signal
from itertools import pairwise

import pytest
import torch

from support.implementations import Case
from thinwire.kernels import _threads


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("numel", [0, 1, 63, 64, 65, 129, 1000, 4096])
def test_pieces_are_the_whole_in_order(numel: int, threads: int) -> None:
    with Case("numba", threads=threads).chosen():
        parts = _threads.pieces(numel)
    assert 1 <= len(parts) <= threads
    assert parts[0][0] == 0 and parts[-1][1] == numel
    assert all(end == first for (_, end), (first, _) in pairwise(parts))
    assert all(first < end for first, end in parts) or parts == [(0, 0)]


def test_small_tensors_stay_on_the_calling_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert len(_threads.pieces(2 * _threads.LEAST_PIECE - 1)) == 1
        assert len(_threads.pieces(2 * _threads.LEAST_PIECE)) == 2
    finally:
        torch.set_num_threads(before)


def spans(which: int, first: int, end: int) -> tuple[int, int]:
    return which, end - first


def test_results_come_in_the_order_of_the_pieces() -> None:
    assert _threads.run(spans, [(0, 5), (5, 7), (7, 17)]) == [(0, 5), (1, 2), (2, 10)]


@pytest.mark.parametrize("guilty", [0, 1])
def test_an_error_in_a_piece_is_raised(guilty: int) -> None:
    def work(which: int, first: int, end: int) -> None:
        if which == guilty:
            raise ValueError("this piece")

    with pytest.raises(ValueError, match="this piece"):
        _threads.run(work, [(0, 1), (1, 2)])


def test_a_forked_child_starts_threads_of_its_own() -> None:
    _threads.run(spans, [(0, 1), (1, 2)])
    child = os.fork()
    if not child:
        signal.alarm(10)  # instead of waiting for a thread that was not forked
        os._exit(_threads.run(spans, [(0, 1), (1, 3)]) != [(0, 1), (1, 2)])
    assert os.waitpid(child, 0)[1] == 0
