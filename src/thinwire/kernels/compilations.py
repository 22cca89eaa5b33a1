"""How often a kernel was compiled, or loaded from a cache on disk: such a step tells no time."""

import sys
from functools import cache
from typing import Any


def compilations() -> int:
    """How many so far in this process, of Numba's kernels and of Triton's, of anyone's."""
    return (_numba().seen if "numba" in sys.modules else 0) + (
        _triton().seen if "triton" in sys.modules else 0
    )


class _Counter:
    seen = 0

    def add(self, *_: Any, **__: Any) -> None:
        self.seen += 1


@cache
def _numba() -> _Counter:
    """Numba takes its lock for a kernel that is new to the process, and for nothing else."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            counter.add()

        def on_end(self, event: Any) -> None:
            pass

    counter = _Counter()
    event.register("numba:compiler_lock", Listener())
    return counter


@cache
def _triton() -> _Counter:
    """Triton calls a hook after each; one that someone else has set is still called."""
    from triton import knobs

    counter, before = _Counter(), knobs.runtime.jit_post_compile_hook

    def count(*args: Any, **kwargs: Any) -> Any:
        counter.add()
        return None if before is None else before(*args, **kwargs)

    knobs.runtime.jit_post_compile_hook = count
    return counter
