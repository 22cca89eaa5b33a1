"""Packages that only some codecs need: imported when such a codec is made, not before."""

import importlib
from types import ModuleType

from thinwire.errors import RecipeError


def optional(package: str, codec: str) -> ModuleType:
    """The package, or an error that names the extra that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise RecipeError(
            f"the codec {codec!r} needs the package {package}: pip install 'thinwire[codecs]'"
        ) from error
