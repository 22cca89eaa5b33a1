"""What needs a package of an extra is skipped where there is none, and says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from thinwire.errors import RecipeError

CLI = ("typer", "rich")


def needs(*packages: str) -> pytest.MarkDecorator:
    """A mark for tests that import the packages, or call a command that does."""
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@contextmanager
def skipped_without_its_package() -> Iterator[None]:
    """For what is built in the block: a codec or a recipe that may lean on a package."""
    try:
        yield
    except RecipeError as error:
        if isinstance(error.__cause__, ImportError):
            pytest.skip(str(error))
        raise
