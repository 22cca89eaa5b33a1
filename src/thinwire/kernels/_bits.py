"""Machine instructions that Numba has no name for. Only `numba.py` files import this."""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

Generator = tuple[Any, Callable[..., Any]]


def _trailing_zeros(context: Any, word: Any) -> Generator:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of_zero_anything = context.get_constant(types.boolean, True)
        return builder.cttz(arguments[0], of_zero_anything)

    return types.uint64(types.uint64), generate


def _leading_zeros(context: Any, word: Any) -> Generator:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of_zero_anything = context.get_constant(types.boolean, True)
        return builder.ctlz(arguments[0], of_zero_anything)

    return types.uint64(types.uint64), generate


def _ones(context: Any, word: Any) -> Generator:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


trailing_zeros: Any = intrinsic(_trailing_zeros)
"""How many zeros a uint64 other than 0 ends in."""

leading_zeros: Any = intrinsic(_leading_zeros)
"""How many zeros a uint64 other than 0 begins with."""

ones: Any = intrinsic(_ones)
"""How many bits of a uint64 are set."""
