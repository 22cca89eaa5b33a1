"""Every exception thinwire raises on purpose. Each also is the built-in kind it resembles."""

from collections.abc import Iterator
from contextlib import contextmanager


class ThinwireError(Exception):
    """The root of the family: `except ThinwireError` catches all that follow."""


class RecipeError(ThinwireError, ValueError):
    """A recipe, a piece or a parameter that does not exist or does not fit."""


class StateError(RecipeError):
    """A saved state of another rank, recipe, model, version or save, or a damaged one.

    Nothing was loaded.
    """


class WireFormatError(ThinwireError, ValueError):
    """Bytes that are truncated, damaged or not ours. Nothing was decoded from them."""


class DisagreementError(ThinwireError, RuntimeError):
    """Ranks came with different recipes, seeds or tensors. Nothing was sent."""


class ExchangeError(ThinwireError, RuntimeError):
    """A collective broke off: a peer died or did not answer within the timeout."""


class ClosedError(ThinwireError, RuntimeError):
    """Gradients came after `close()`."""


class NonFiniteError(ThinwireError, FloatingPointError):
    """NaN or Inf in a gradient. It did not enter any state."""


class LabError(ThinwireError, RuntimeError):
    """The machine cannot make this network, or a command cannot run in it; the text says why."""


@contextmanager
def exchange_named(collective: str, tensor: str, step: int) -> Iterator[None]:
    """Let the error say which exchange broke off, or brought what cannot be read."""
    try:
        yield
    except (ExchangeError, WireFormatError) as error:
        raise type(error)(f"{collective} of {tensor!r}, step {step}: {error}") from error
