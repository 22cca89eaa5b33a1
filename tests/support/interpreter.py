"""Triton's interpreter without what it does over and over.

At every call of a device function it looks through all of `triton.language` and puts its own
functions in the place of Triton's, also where it has just done so: a third of a kernel's time.
"""

from collections.abc import Callable
from functools import cache
from typing import Any


class Once:
    """`_patch_lang`, for the same modules once in a launch: what ends the launch undoes it."""

    def __init__(self, patch_lang: Callable[[Any], Any], languages: tuple[Any, ...]) -> None:
        self._patch_lang, self._languages = patch_lang, languages
        self._visible_to: dict[Any, frozenset[int]] = {}
        self._patched: set[frozenset[int]] = set()

    def __call__(self, function: Any) -> Any:
        if function not in self._visible_to:
            seen = {id(value) for value in function.__globals__.values()}
            self._visible_to[function] = frozenset(seen & {id(each) for each in self._languages})
        visible = self._visible_to[function]
        if visible in self._patched:
            return None  # a device function: nobody asks what was put in place for it
        scope = self._patch_lang(function)
        self._patched.add(visible)
        undo = scope.restore

        def restore() -> None:
            self._patched.clear()
            undo()

        scope.restore = restore
        return scope


@cache
def hasten() -> None:
    """From now on, in this process."""
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter._patch_lang = Once(interpreter._patch_lang, (tl, tl.core))
