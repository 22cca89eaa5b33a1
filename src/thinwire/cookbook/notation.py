"""The short ways to write a recipe, and how to write one down again.

"topk(0.01) | raw+bf16 | allgather | residual"      sparsifier | codec | collective | feedback
"block(0.03) | sketch(0.5) | sketch-allreduce | residual"
{"sparsifier": {"name": "topk", "density": 0.01}, "codec": "raw+bf16", "unit": "model"}
"""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from thinwire.auto import Auto
from thinwire.codec import INDEX_CODECS, LINEAR_CODECS, VALUE_CODECS, Pair
from thinwire.collective import COLLECTIVES
from thinwire.errors import RecipeError
from thinwire.feedback import FEEDBACKS
from thinwire.pipeline import Pipeline
from thinwire.schedule import WarmUp
from thinwire.sparsify import SPARSIFIERS

PIECES: dict[str, Mapping[str, type]] = {
    "sparsifier": SPARSIFIERS,
    "collective": COLLECTIVES,
    "feedback": FEEDBACKS,
}
ORDER = ("sparsifier", "codec", "collective", "feedback")
_CALL = re.compile(r"\s*([A-Za-z0-9_-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a text or a dict names; pieces are still texts or dicts in it."""
    if isinstance(given, Mapping):
        return dict(given)
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
    for role, known in PIECES.items():
        if role in built:
            built[role] = _piece(role, built[role], known)
    if built.get("coo") is not None:
        built["coo"] = _piece("coo", built["coo"], COLLECTIVES)
    if "codec" in built:
        built["codec"] = _codec(built["codec"])
    if isinstance(built.get("warm_up"), Mapping):
        warm_up = dict(built["warm_up"])
        if "densities" in warm_up:
            warm_up["densities"] = tuple(warm_up["densities"])
        built["warm_up"] = _call("warm_up", WarmUp, (), warm_up)
    return built


def to_dict(pipeline: Pipeline) -> dict[str, Any]:
    """A dict that `resolve` turns into an equal pipeline; JSON and YAML can hold it."""
    fields: dict[str, Any] = {
        role: _describe(getattr(pipeline, role), known) for role, known in PIECES.items()
    }
    fields["codec"] = None
    if isinstance(pipeline.codec, Pair):
        fields["codec"] = {
            "index": _describe(pipeline.codec.index, INDEX_CODECS),
            "value": _describe(pipeline.codec.value, VALUE_CODECS),
        }
    elif pipeline.codec is not None:
        fields["codec"] = _describe(pipeline.codec, LINEAR_CODECS)
    if pipeline.coo is not None:
        fields["coo"] = _describe(pipeline.coo, COLLECTIVES)
    if pipeline.warm_up is not None:
        fields["warm_up"] = dataclasses.asdict(pipeline.warm_up)
    plain = ("unit", "bypass", "monitor_xi")
    fields |= {name: getattr(pipeline, name) for name in plain}
    if isinstance(pipeline, Auto):
        fields["choices"] = {label: to_dict(choice) for label, choice in pipeline.choices}
        fields["trial"] = pipeline.trial
    return fields


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


def _piece(role: str, given: Any, known: Mapping[str, type]) -> Any:
    if isinstance(given, str):
        name, positional, settings = _parse_call(given)
    elif isinstance(given, Mapping):
        settings = dict(given)
        name, positional = settings.pop("name", None), ()
    else:
        return given
    if name not in known:
        raise RecipeError(f"unknown {role} {name!r}; there are {', '.join(known)}")
    return _call(f"{role} {name!r}", known[name], positional, settings)


def _codec(given: Any) -> Any:
    if given is None or given == "none":
        return None
    if isinstance(given, str) and _parse_call(given.partition("+")[0])[0] in LINEAR_CODECS:
        return _piece("codec", given, LINEAR_CODECS)
    if isinstance(given, Mapping) and "name" in given:
        return _piece("codec", given, LINEAR_CODECS)
    if isinstance(given, str):
        given = _codec_halves(given)
    if isinstance(given, Mapping):
        index = _piece("index codec", given.get("index", "raw"), INDEX_CODECS)
        value = _piece("value codec", given.get("value", "raw"), VALUE_CODECS)
        return Pair(index, value)
    return given


def _codec_halves(text: str) -> dict[str, str]:
    """`index+value`; one name alone leaves the other half raw."""
    index, plus, value = text.partition("+")
    if plus:
        return {"index": index, "value": value}
    name, _, _ = _parse_call(text)
    return {"value" if name in VALUE_CODECS or name not in INDEX_CODECS else "index": text}


def _call(what: str, cls: type, positional: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
    allowed = list(inspect.signature(cls).parameters)
    for key in settings:
        if key not in allowed:
            has = ", ".join(allowed) or "none"
            raise RecipeError(f"{what} has no setting {key!r}; it has {has}")
    if len(positional) > len(allowed):
        raise RecipeError(f"{what} takes at most {len(allowed)} settings, not {len(positional)}")
    return cls(*positional, **settings)


def _describe(piece: Any, known: Mapping[str, type]) -> dict[str, Any]:
    names = [name for name, cls in known.items() if isinstance(piece, cls)]
    if not names:
        raise RecipeError(f"{piece!r} is not one of thinwire's own pieces; it has no short name")
    return {"name": names[0]} | dataclasses.asdict(piece)
