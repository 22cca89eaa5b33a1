"""What is brought to a device once and kept there: tables, headers, numbers.

A recorded step reads them where they lay when it was recorded. So the recording holds them as well:
once others had been kept in their place, something else would lie there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from threading import local
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Holding(local):
    """In each thread what is asked for is also put here, if anywhere."""

    everything: list[object] | None = None


_holding = _Holding()


def kept(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """As `lru_cache`, for what lies on a device."""

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        cached = lru_cache(maxsize=most)(make)

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
