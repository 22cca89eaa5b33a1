"""What lies on a device is kept for the next step, and longer where a recording reads it."""

import ast
import weakref
from pathlib import Path

import pytest
import torch

import thinwire
from thinwire.kernels.kept import held, kept


@kept(2)
def number(value):
    return torch.full((), value)


def others():
    """More than are kept."""
    return [number(10.0), number(11.0), number(12.0)]


def test_it_is_made_once():
    assert number(1.0) is number(1.0)


def test_a_recording_holds_what_others_took_the_place_of():
    with held() as by_recording:
        seen = weakref.ref(number(2.0))
    others()
    assert seen() is by_recording[0]
    by_recording.clear()
    assert seen() is None


def test_nothing_is_made_while_a_step_is_recorded(monkeypatch):
    """It would lie in the recording's memory, and be filled when that is replayed."""
    there = number(7.0)
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    assert number(7.0) is there
    with pytest.raises(RuntimeError, match=r"number\(8.0,\) was not there before"):
        number(8.0)
    monkeypatch.undo()
    assert float(number(8.0)) == 8.0


def test_nothing_else_is_held():
    with held() as outer:
        number(3.0)
        with held() as inner:
            number(4.0)
        number(5.0)
    number(6.0)
    assert [[float(n) for n in each] for each in (outer, inner)] == [[3.0, 5.0], [4.0]]


def test_nothing_on_a_device_is_kept_in_another_way():
    for path in Path(thinwire.__file__).parent.rglob("*.py"):
        for made in ast.walk(ast.parse(path.read_text())):
            if isinstance(made, ast.FunctionDef) and "device: torch.device" in ast.unparse(
                made.args
            ):
                caches = [ast.unparse(each) for each in made.decorator_list]
                assert not any("cache" in each for each in caches), f"{path}: {made.name}"
