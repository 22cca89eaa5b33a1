"""Law 5, refusal: a short run of the fuzzers; `make fuzz` is a long one."""

import numpy as np
import pytest
import torch

from support import state_fuzz
from support.codec import fuzz, part_fuzz
from support.collective import message_fuzz
from thinwire.errors import WireFormatError


def test_a_short_run() -> None:
    outcomes = fuzz.fuzz(6000, seed=1)
    assert outcomes.total() == 6000
    for way in fuzz.WAYS:
        assert outcomes[f"{way}, sealed: refused"] > 0
    for way in ("flip", "fill", "splice", "header"):
        assert outcomes[f"{way}, sealed: decoded"] > 0, "nothing got as far as the decoders"


def test_altered_states() -> None:
    outcomes = state_fuzz.fuzz(300, seed=1)
    assert outcomes.total() == 300
    assert outcomes["bytes: refused"] > 100
    assert outcomes["dict: refused"] > 100
    assert outcomes["dict: loaded"] > 0, "nothing got past the checksum"


def test_it_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that crashes, that takes what a header asks for, or that is late."""

    def crashing(wire: fuzz.Bytes) -> fuzz.Selection:
        raise IndexError("out of range")

    def greedy(wire: fuzz.Bytes) -> fuzz.Selection:
        return torch.empty(1 << 31, dtype=torch.uint8)

    sample = fuzz.corpus()[0]
    monkeypatch.setattr(fuzz, "corpus", lambda: [sample])
    for decoder, error in ((crashing, IndexError), (greedy, RuntimeError)):
        monkeypatch.setattr(fuzz, "decode", decoder)
        monkeypatch.setattr(fuzz, "same", lambda a, b: True)
        with fuzz.limits(), pytest.raises(error):
            fuzz.check(sample.wire)
    with fuzz.limits(), pytest.raises(TimeoutError):
        fuzz.signal.setitimer(fuzz.signal.ITIMER_REAL, 0.01)
        while True:
            pass


def test_sealing_makes_a_wire_sound() -> None:
    wire = fuzz.corpus()[0].wire.copy()
    wire[48] ^= 1
    with pytest.raises(WireFormatError, match="checksum"):
        fuzz.decode(wire)
    fuzz.seal(wire)
    assert np.array_equal(wire, fuzz.corpus()[0].wire)


def test_parts_for_each_codec_by_itself() -> None:
    for name, outcomes, _ in part_fuzz.fuzz(60, seed=1):
        assert outcomes.total() == 60, name
        assert outcomes["refused"] > 0, name
        assert outcomes["decoded"] > 0, name


def test_messages_of_collectives() -> None:
    for name, outcomes, _ in message_fuzz.fuzz(200, seed=1):
        assert outcomes.total() == 200, name
        assert outcomes["refused"] > 0, name
        assert outcomes["decoded"] > 0, name
