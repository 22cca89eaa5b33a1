"""Units on streams of their own. Only a GPU has streams."""

import pytest
import torch

from thinwire.engine.lanes import Lanes
from thinwire.engine.thread import OrderedWorker

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Work:
    """An exchange that takes its time on the caller's stream, whoever waits for it."""

    def __init__(self) -> None:
        self.done = torch.cuda.Event()
        torch.cuda._sleep(10_000_000)
        self.done.record()

    def wait(self) -> None:
        torch.cuda.current_stream().wait_event(self.done)


@pytest.fixture
def lanes():
    worker = OrderedWorker()
    yield Lanes(worker)
    worker.close()


def test_without_a_device_there_is_nothing_to_wait_for(lanes) -> None:
    lanes.join()


@needs_cuda
def test_what_comes_is_used_in_another_lane_than_what_goes_out_is_made_in_cuda(lanes) -> None:
    device, seen = torch.device("cuda", torch.cuda.current_device()), []
    before = torch.cuda.current_stream(device)
    for _ in range(2):
        with lanes.outbound(device):
            x = torch.ones(1 << 20, device=device)
            seen.append(torch.cuda.current_stream(device).stream_id)
            lanes.arrive(Work(), x)
            seen.append(torch.cuda.current_stream(device).stream_id)
            lanes.arrive(Work(), x)  # a second exchange stays there
            seen.append(torch.cuda.current_stream(device).stream_id)
            y = x + 1
        assert torch.cuda.current_stream(device) == before
    outbound, inbound = seen[:2]
    assert outbound != inbound and seen == [outbound, inbound, inbound] * 2
    lanes.join()
    assert float(y.sum()) == 2 * y.numel()


@needs_cuda
def test_whoever_is_in_no_lane_stays_where_it_is_cuda(lanes) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    before = torch.cuda.current_stream(device)
    lanes.arrive(Work(), torch.ones(3, device=device))
    assert torch.cuda.current_stream(device) == before
