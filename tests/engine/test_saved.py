"""States as bytes, and the seal on them."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import thinwire as tw
from thinwire.engine.saved import check_seal, content, pack, seal, unpack

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def state() -> dict[str, Any]:
    tensors = {
        f"w{i}": {"step": torch.tensor(i), "feedback/residual": torch.arange(i).to(dtype)}
        for i, dtype in enumerate(DTYPES)
    }
    return seal({"version": 2, "scale": 0.1, "choice": {"é": "topk"}, "tensors": tensors})


def test_what_is_packed_comes_back_the_same() -> None:
    there, back = state(), unpack(pack(state()))
    assert back == there | {"tensors": back["tensors"]}
    for name, own in there["tensors"].items():
        for key, value in own.items():
            assert back["tensors"][name][key].dtype == value.dtype
            assert torch.equal(back["tensors"][name][key], value)


def test_a_saved_file_of_what_was_unpacked_is_plain(tmp_path: Any) -> None:
    torch.save(unpack(pack(state())), tmp_path / "state.pt")
    check_seal(torch.load(tmp_path / "state.pt", weights_only=True))


@pytest.mark.parametrize("numel", [0, 1, 2, 7, 8, 9])
def test_every_byte_counts(numel: int) -> None:
    zeros = torch.zeros(numel, dtype=torch.uint8)
    for place in range(numel):
        one = zeros.clone()
        one[place] = 1
        assert content(one) != content(zeros)
    assert content(torch.arange(10.0)[1:]) == content(torch.arange(1.0, 10.0))


@given(st.data())
def test_any_other_byte_is_refused(data: st.DataObject) -> None:
    """But for padding, which holds nothing."""
    wire = pack(state())
    place = data.draw(st.integers(0, wire.numel() - 1))
    wire[place] ^= data.draw(st.integers(1, 255))
    try:
        same = unpack(wire)
    except tw.StateError:
        return
    assert same["checksum"] == state()["checksum"]
    check_seal(same)


@given(st.integers(0, 2000))
def test_what_is_cut_off_is_refused(length: int) -> None:
    wire = pack(state())
    with pytest.raises(tw.StateError):
        unpack(wire[: min(length, wire.numel() - 1)])


@pytest.mark.parametrize(
    "claim", [["float32", [2**39, 2**39]], ["float32", [-1]], ["object", [1]], ["float32", "x"], 3]
)
def test_what_a_text_claims_costs_nothing(claim: object) -> None:
    text = json.dumps({"tensors": {"tensor": claim}}).encode()
    wire = b"thinwire" + len(text).to_bytes(8, "little") + text + bytes(-len(text) % 8)
    with pytest.raises(tw.StateError, match=r"claims other tensors|is no tensor"):
        unpack(torch.frombuffer(bytearray(wire), dtype=torch.uint8))


@pytest.mark.parametrize(
    "text",
    [
        '{"tensors": {"tensor": ["float32", [549755813888, 549755813888, 0]]}}',
        '{"a": ' * 900 + "1" + "}" * 900,
        "[" * 700 + "]" * 700,
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=["a shape that overflows", "deep", "deep lists", "long number"],
)
def test_no_text_ends_in_an_error_of_another_kind(text: str) -> None:
    wire = b"thinwire" + len(text).to_bytes(8, "little") + text.encode() + bytes(-len(text) % 8)
    with pytest.raises(tw.StateError):
        unpack(torch.frombuffer(bytearray(wire), dtype=torch.uint8))


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(tw.StateError, match="it holds a object"):
        check_seal(state() | {"choice": object()})
