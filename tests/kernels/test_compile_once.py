"""Processes take turns to compile."""

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core import event

from thinwire.kernels._compile_once import Turns


def fresh() -> Callable[[Any], Any]:
    @njit
    def double(x):
        return x * 2

    return double


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def is_free(path: Path) -> bool:
    with path.open("w") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def test_it_waits_while_another_process_compiles_and_leaves_the_lock_free(path: Path) -> None:
    double, done = fresh(), threading.Event()  # before: a process's first kernel takes the lock
    with event.install_listener("numba:compiler_lock", Turns(path)), path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: (double(np.ones(3)), done.set()))
        thread.start()
        assert not done.wait(0.5) and not double.signatures
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join(timeout=60)
        assert done.is_set() and is_free(path)


def test_it_is_held_to_the_end_of_the_outermost_compilation(path: Path) -> None:
    turns = Turns(path)
    turns.on_start(None)
    turns.on_start(None)  # a kernel that calls another
    turns.on_end(None)
    assert not is_free(path)
    turns.on_end(None)
    assert is_free(path)


def test_whoever_is_stuck_is_not_waited_for(path: Path) -> None:
    listener = Turns(path, patience_s=0.1)
    with event.install_listener("numba:compiler_lock", listener), path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert fresh()(np.ones(1)) == 2.0
        assert not is_free(path)  # still the other's


def test_without_a_place_for_a_lock_it_compiles(tmp_path: Path) -> None:
    with event.install_listener("numba:compiler_lock", Turns(tmp_path / "none" / "lock")):
        assert fresh()(np.ones(1)) == 2.0
