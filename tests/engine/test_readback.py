"""Numbers that the host gets when the step is over."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch

from thinwire.comm import GroupCommunicator
from thinwire.engine.readback import Readback
from thinwire.errors import ExchangeError


class NeverOver:
    def query(self) -> bool:
        return False


def test_everyone_is_told_once_and_in_order() -> None:
    readback, told = Readback(GroupCommunicator()), []
    readback.later(torch.tensor(3), told.append)
    readback.later(torch.tensor([True]), told.append)
    assert told == []
    readback.read()
    readback.read()
    assert told == [3, 1]


def test_after_a_step_that_broke_off_nobody_waits() -> None:
    readback, told = Readback(GroupCommunicator()), []
    readback.later(torch.tensor(3), told.append)
    readback.forget()
    readback.read()
    assert told == []


def test_a_device_that_never_ends_is_an_error() -> None:
    readback = Readback(GroupCommunicator(timeout=timedelta(seconds=1)))
    readback.comm.timeout = timedelta(milliseconds=10)
    with pytest.raises(ExchangeError, match=r"did not end within 0\.01 s"):
        readback._await(NeverOver())


def test_numbers_of_a_group_that_was_given_up_meanwhile_say_nothing() -> None:
    readback, told = Readback(GroupCommunicator()), []
    readback.comm.size = 2

    @contextmanager
    def peer_goes() -> Iterator[None]:
        yield
        readback.comm.give_up("a peer is gone")

    readback.comm.timed = peer_goes
    readback.later(torch.tensor(3), told.append)
    with pytest.raises(ExchangeError, match="a peer is gone"):
        readback.read()
    assert told == []
