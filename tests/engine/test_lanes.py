"""Units on two streams: in turn, from the first again in each step, and joined at its end."""

from contextlib import contextmanager

import pytest
import torch

from thinwire.comm import GroupCommunicator
from thinwire.engine.lanes import LANES, StreamLanes


class Listed(GroupCommunicator):
    """Alone, and says which lanes were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[int] = []

    @contextmanager
    def lane(self, number: int):
        self.taken.append(number)
        yield


def test_where_no_lane_was_taken_none_is_waited_for():
    lanes = StreamLanes(GroupCommunicator())
    lanes.join()  # without a GPU there is no stream to ask


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_lanes_take_turns_see_what_came_before_and_are_seen_after():
    device = torch.device("cuda", torch.cuda.current_device())
    comm = Listed()
    lanes = StreamLanes(comm)
    for step in range(1, 4):
        given = [torch.full((1 << 22,), float(step), device=device) for _ in range(3)]
        for x in given:
            with lanes.take(device):
                x.mul_(2.0)
        lanes.join()
        assert [x.sum().item() for x in given] == [2.0 * step * (1 << 22)] * 3
    assert comm.taken == [0, 1, 0] * 3
    assert LANES == 2
