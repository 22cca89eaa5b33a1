"""Units on streams of their own. Only a GPU has streams."""

import pytest
import torch

from thinwire.engine.lanes import LANES, Lanes

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_without_a_device_there_is_nothing_to_wait_for() -> None:
    Lanes().join()


@needs_cuda
def test_a_unit_keeps_its_lane_and_others_have_others_cuda() -> None:
    lanes, device, seen = Lanes(), torch.device("cuda", torch.cuda.current_device()), {}
    for _ in range(2):
        for name in "abcd":
            with lanes.lane_of((name,), device):
                stream = torch.cuda.current_stream(device).stream_id
            assert seen.setdefault(name, stream) == stream
    assert len(set(seen.values())) == LANES


@needs_cuda
def test_the_callers_stream_sees_what_the_lanes_did_cuda() -> None:
    lanes, device = Lanes(), torch.device("cuda", torch.cuda.current_device())
    x = torch.zeros(1 << 22, device=device)
    for number in range(8):
        with lanes.lane_of((str(number % 2),), device):
            x.add_(0)
            y = x + 1
    lanes.join()
    assert float(y.sum()) == y.numel()
