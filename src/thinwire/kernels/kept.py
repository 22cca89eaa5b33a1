"""What is brought to a device once and kept there: tables, headers, numbers.

A recorded step reads them where they lay when it was recorded. So the recording holds them as well:
once others had been kept in their place, something else would lie there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from threading import local
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


class _Holding(local):
    """In each thread what is asked for is also put here, if anywhere."""

    everything: list[object] | None = None


_holding = _Holding()


def kept(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """As `lru_cache`, for what lies on a device.

    Nothing is made while a step is recorded: its memory would be the recording's, and others would
    find in it what no step has put there yet.
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize=most)
        def cached(*args: P.args, **kwargs: P.kwargs) -> T:
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(f"{make.__qualname__}{args} was not there before the recording")
            return make(*args, **kwargs)

        @wraps(make)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            value = cached(*args, **kwargs)  # type: ignore[arg-type]
            if _holding.everything is not None:
                _holding.everything.append(value)
            return value

        return call

    return decorate


@contextmanager
def held() -> Iterator[list[object]]:
    """All of what is kept that this thread asks for in the block."""
    before, _holding.everything = _holding.everything, []
    try:
        yield _holding.everything
    finally:
        _holding.everything = before
