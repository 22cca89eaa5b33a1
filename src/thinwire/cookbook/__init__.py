"""Recipes by name, and in every other way to write one; `methods` has what each is made of."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thinwire.auto import Auto
from thinwire.auto.quality import Quality, choices_of
from thinwire.auto.rules import BY
from thinwire.by_name import KEY, MARKS, ByName
from thinwire.collective import AllGather, UnionAllReduce
from thinwire.cookbook import methods
from thinwire.cookbook.notation import build_pieces, parse
from thinwire.errors import RecipeError
from thinwire.feedback import Residual
from thinwire.pipeline import Pipeline
from thinwire.settings import check_density, near

FIELDS = (*(field.name for field in dataclasses.fields(Pipeline)), "coo")
ROUNDS = ("diloco", "streaming-diloco", "sparseloco", "shortloco", "localsgd", "demo")
"""Names that `thinwire.outer` knows, and no recipe has."""


def auto(
    density: float = 0.01,
    choices: str | Sequence[str] | None = None,
    codec: str | Sequence[str] = ("rice+bf16", "regional+bf16"),
    trial: int = 3,
    unit: str | Sequence[str] = ("tensor", "bucket", "model"),
    quality: Quality = "near",
) -> Auto:
    """Dense, or what is faster for the whole model and as good: tried on real steps.

    `quality` says what may be tried. "exact" is dense; "near" admits what ends within one deviation
    of bfloat16's loss (16, 8 and 4 bits, low rank); "fast" also what selects, and takes more steps
    to the same loss. `choices` in its place are names, which get `density`, or written recipes.

    All keep what was not sent in a residual. Names are considered with every `unit`, those that
    send bytes also with every `codec`, and `union` in 16 bits; not so with an empty one.
    """
    check_density(density)
    if choices is None:
        choices = choices_of(quality)
    considered: dict[str, Pipeline] = {}
    for name in [choices] if isinstance(choices, str) else choices:
        own = dataclasses.replace(at_density(name, density), feedback=Residual())
        others = [kind for kind in _several(unit) if name in RECIPES and kind != own.unit]
        for kind in (own.unit, *others):
            label = name if kind == own.unit else f"{name}{BY}{kind}"
            considered |= _with_codecs(label, _in_units(own, kind), _several(codec))
    choose = Auto.between(methods.dense(), considered, trial)
    return dataclasses.replace(choose, row_collective=AllGather())


def _in_units(pipeline: Pipeline, unit: str) -> Pipeline:
    return dataclasses.replace(pipeline, **_fields({"unit": unit}))


def _several(given: str | Sequence[str]) -> Sequence[str]:
    return ([given] if given else []) if isinstance(given, str) else given


def _with_codecs(label: str, pipeline: Pipeline, codecs: Sequence[str]) -> dict[str, Pipeline]:
    """A choice of `auto`, and the same in fewer bytes."""
    variants = {label: pipeline}
    if pipeline.collective.takes == "bytes":
        for codec in codecs:
            pieces = build_pieces({"codec": codec})
            variants[f"{label} | {codec}"] = dataclasses.replace(pipeline, **pieces)
    if codecs and isinstance(pipeline.collective, UnionAllReduce):
        halved = dataclasses.replace(pipeline.collective, dtype="bf16")
        variants[f"{label} | bf16"] = dataclasses.replace(pipeline, collective=halved)
    return variants


RECIPES: dict[str, Callable[..., Pipeline]] = {
    build.__name__.replace("_", "-"): build
    for build in (
        methods.dense, auto, methods.fp16, methods.bf16, methods.int8, methods.int4, methods.topk,
        methods.chunk_topk, methods.randomk, methods.dgc,
        methods.dragonn, methods.mstopk, methods.gaussiank, methods.signsgd, methods.terngrad,
        methods.qsgd, methods.topk_dsa, methods.omnireduce, methods.union, methods.clt_k,
        methods.micro, methods.zen, methods.spardl, methods.s2,
        methods.parallax, methods.gtopk, methods.ok_topk, methods.sketchml, methods.skcompress,
        methods.deepreduce, methods.powersgd,
    )
} | {"3lc": methods.three_lc}  # fmt: skip


def recipes() -> tuple[str, ...]:
    """The names that `recipe` knows."""
    return tuple(RECIPES)


def recipe(given: Pipeline | str | Mapping[str, Any], **settings: Any) -> Pipeline:
    """A pipeline from any of the ways to write one, with these settings in place of its own.

    A name, `"topk"`, or with settings, `"topk(0.01)"`; four pieces,
    `"topk(0.01) | raw+bf16 | allgather | residual"`; a dict, or JSON or YAML of one, with the
    key `recipe` or with the fields of `Pipeline`; or a pipeline itself. Settings are a named
    recipe's own, or fields of `Pipeline`.

    A dict of patterns, as `fnmatch` knows them, gives every parameter the recipe of the first that
    matches its name; settings then count for all of them.

    >>> by_name = recipe({"*norm*": "dense", "*": "topk(0.02)"})
    >>> by_name.of_tensor("layers.0.mlp.weight").sparsifier
    TopK(density=0.02)
    >>> recipe("topk", density=0.02, unit="model").sparsifier
    TopK(density=0.02)
    """
    if isinstance(given, ByName):
        return ByName.of([(pattern, recipe(own, **settings)) for pattern, own in given.rules])
    if isinstance(given, Pipeline):
        return dataclasses.replace(given, **_fields(settings))
    fields = parse(given)
    if KEY in fields or any(MARKS.intersection(key) for key in fields):
        return _by_names(fields, settings)
    fields |= settings
    if "recipe" in fields:
        return _by_name(fields.pop("recipe"), fields.pop("args", ()), fields)
    if "choices" in fields:
        choices = {label: recipe(choice) for label, choice in fields.pop("choices").items()}
        trial = fields.pop("trial", 3)
        return Auto.between(recipe(fields), choices, trial)
    return Pipeline(**_fields(fields))


def _by_names(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> ByName:
    """Patterns and their recipes: all keys, or pairs under one."""
    if KEY in fields and len(fields) > 1:
        raise RecipeError(f"beside {KEY!r} a recipe by names has nothing; here is {list(fields)}")
    given = fields.get(KEY, fields)
    rules = []
    for pattern, own in given.items() if isinstance(given, Mapping) else given:
        try:
            rules.append((pattern, recipe(own, **settings)))
        except RecipeError as error:
            raise RecipeError(f"the recipe for {pattern!r}: {error}") from error
    return ByName.of(rules)


def _by_name(name: str, positional: Sequence[Any], settings: dict[str, Any]) -> Pipeline:
    """A recipe of the book; settings that are not its own are fields to put in place."""
    own = _settings_of(name)
    if len(positional) > len(own):
        raise RecipeError(f"recipe {name!r} takes at most {len(own)} settings: {own}")
    settings = dict(zip(own, positional, strict=False)) | settings
    for key in settings:
        if key not in own and key not in FIELDS:
            allowed = [*own, *FIELDS]
            raise RecipeError(
                f"recipe {name!r} has no setting {key!r}{near(key, allowed)}; it has "
                f"{', '.join(allowed)}"
            )
    built = RECIPES[name](**{k: v for k, v in settings.items() if k in own})
    replaced = {k: v for k, v in settings.items() if k not in own}
    return dataclasses.replace(built, **build_pieces(replaced))


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a pipeline, with their pieces built."""
    for key in given:
        if key not in FIELDS:
            raise RecipeError(
                f"unknown field {key!r}{near(key, ('recipe', *FIELDS))}; a recipe has "
                f"{', '.join(FIELDS)} (if it is meant to be a parameter's name, write a pattern: "
                f"'*{key}')"
            )
    return build_pieces(given)


def at_density(name: str, density: float | None) -> Pipeline:
    """A recipe by name, with the density if both have one; else as it is named or written."""
    if density is not None and has_density(name):
        return recipe(name, density=density)
    return recipe(name)


def has_density(name: str) -> bool:
    """Whether it is a name, not a written recipe, and has a density to set."""
    return name in RECIPES and "density" in _settings_of(name)


def _settings_of(name: str) -> list[str]:
    """A recipe's own, in order."""
    if name not in RECIPES:
        if name in ROUNDS:
            raise RecipeError(
                f"{name!r} is no recipe but a set-up of local steps: "
                f'thinwire.outer(model, optimizer, "{name}"), and its settings are keywords of that'
            )
        there_are = ", ".join(RECIPES)
        raise RecipeError(
            f"unknown recipe {name!r}{near(name, (*RECIPES, *ROUNDS))}; there are {there_are}"
        )
    return list(inspect.signature(RECIPES[name]).parameters)
