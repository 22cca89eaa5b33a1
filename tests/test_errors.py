"""One family of errors; each is also the built-in kind that a caller expects."""

import pytest

import thinwire as tw
from thinwire.errors import exchange_named


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (tw.RecipeError, ValueError),
        (tw.WireFormatError, ValueError),
        (tw.DisagreementError, RuntimeError),
        (tw.ExchangeError, RuntimeError),
        (tw.NonFiniteError, FloatingPointError),
        (tw.ClosedError, RuntimeError),
    ],
)
def test_the_family(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, tw.ThinwireError)
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", [tw.ExchangeError, tw.WireFormatError])
def test_an_exchange_that_broke_off_is_named(error: type[Exception]) -> None:
    with (
        pytest.raises(error, match=r"^GTopK of 'w', step 3: rank 1 is gone$") as caught,
        exchange_named("GTopK", "w", 3),
    ):
        raise error("rank 1 is gone")
    assert isinstance(caught.value.__cause__, error)


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError, match="x"), exchange_named("GTopK", "w", 3):
        raise KeyError("x")
