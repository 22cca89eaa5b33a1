"""The short ways to write a recipe.

"topk(0.01) | raw+bf16 | allgather | residual"      sparsifier | codec | collective | feedback
"block(0.03) | sketch(0.5) | sketch-allreduce | residual"
{"sparsifier": {"name": "topk", "density": 0.01}, "codec": "raw+bf16", "unit": "model"}
"""

import ast
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from thinwire.codec import Pair
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError
from thinwire.schedule import WarmUp
from thinwire.settings import near

ORDER = ("sparsifier", "codec", "collective", "feedback")
_IN_WORDS = {"index": "index codec", "value": "value codec", "linear": "codec"}
_CALL = re.compile(r"\s*([A-Za-z0-9_-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse(given: object) -> dict[str, Any]:
    """The fields that a text or a dict names; pieces are still texts or dicts in it."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str):
        kind = type(given).__name__
        raise RecipeError(f'a recipe is a text, a dict or a Pipeline, as "topk(0.01)", not {kind}')
    text = given.strip()
    if text.startswith("{") or "\n" in text or re.match(r"\w+:", text):
        return _parse_document(text)
    if "|" not in text:
        name, positional, settings = _parse_call(text)
        return {"recipe": name, "args": positional, **settings}
    parts = [part.strip() for part in text.split("|")]
    if len(parts) != len(ORDER):
        raise RecipeError(
            f"{given!r} has {len(parts)} parts; a recipe has {len(ORDER)}: {' | '.join(ORDER)}"
        )
    return dict(zip(ORDER, parts, strict=True))


def build_pieces(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields with every piece built."""
    built = dict(fields)
    if "coo" in built:  # its name in version 0.1
        built["row_collective"] = built.pop("coo")
    for role in ("sparsifier", "collective", "feedback"):
        if role in built:
            built[role] = _piece(role, built[role])
    if built.get("row_collective") is not None:
        built["row_collective"] = _piece("collective", built["row_collective"])
    if "codec" in built:
        built["codec"] = _codec(built["codec"])
    if isinstance(built.get("warm_up"), Mapping):
        warm_up = dict(built["warm_up"])
        if "densities" in warm_up:
            warm_up["densities"] = tuple(warm_up["densities"])
        built["warm_up"] = _call("warm_up", WarmUp, (), warm_up)
    return built


def _parse_document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text) if text.startswith("{") else _yaml(text)
    except ValueError as error:
        raise RecipeError(f"not a recipe in JSON or YAML: {error}") from error
    if not isinstance(document, dict):
        raise RecipeError(f"a recipe document must be a mapping, not {document!r}")
    return document


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise RecipeError("recipes in YAML need PyYAML: pip install 'thinwire[cli]'") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _parse_call(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """`name(1, b=2)` as its name and its literal arguments."""
    match = _CALL.fullmatch(text)
    if match is None:
        raise RecipeError(f"{text!r} is not of the form name or name(setting, …)")
    name, arguments = match.groups()
    if not arguments:
        return name, (), {}
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = tuple(ast.literal_eval(a) for a in call.args)
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise RecipeError(f"cannot read the settings in {text!r}: plain values only") from error
    return name, positional, settings


def _piece(role: str, given: Any) -> Any:
    """A piece from `name(setting, …)`, or from a dict of its name and settings; or as it is."""
    if isinstance(given, str):
        name, positional, settings = _parse_call(given)
    elif isinstance(given, Mapping):
        settings = dict(given)
        name, positional = settings.pop("name", None), ()
    else:
        return given
    known, what = pieces(role), _IN_WORDS.get(role, role)
    if name not in known:
        raise RecipeError(
            f"unknown {what} {name!r}{near(name, known)}; there are {', '.join(known)}"
        )
    return _call(f"{what} {name!r}", known[name], positional, settings)


def _codec(given: Any) -> Any:
    """A whole codec by its name, or a pair: `index+value`, or one half with the other raw."""
    if given is None or given == "none":
        return None
    if isinstance(given, str):
        role = _role_of_codec(_parse_call(given.partition("+")[0])[0])
        if role is not None:
            return _piece(role, given)
        given = _codec_halves(given)
    if isinstance(given, Mapping):
        if "name" in given:
            return _piece(_role_of_codec(given["name"]) or "linear", given)
        return Pair(
            _piece("index", given.get("index", "raw")), _piece("value", given.get("value", "raw"))
        )
    return given


def _role_of_codec(name: str) -> str | None:
    """The role in which the name is a whole codec's; None where it is half of a pair."""
    return next((role for role in ("linear", "codec") if name in pieces(role)), None)


def _codec_halves(text: str) -> dict[str, str]:
    """`index+value`; one name alone leaves the other half raw."""
    index, plus, value = text.partition("+")
    if plus:
        return {"index": index, "value": value}
    name, _, _ = _parse_call(text)
    is_index = name in pieces("index") and name not in pieces("value")
    return {"index" if is_index else "value": text}


def _call(what: str, cls: type, positional: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    allowed = list(inspect.signature(cls).parameters)
    for key in settings:
        if key not in allowed:
            has = ", ".join(allowed) or "none"
            raise RecipeError(f"{what} has no setting {key!r}{near(key, allowed)}; it has {has}")
    if len(positional) > len(allowed):
        raise RecipeError(f"{what} takes at most {len(allowed)} settings, not {len(positional)}")
    return cls(*positional, **settings)
