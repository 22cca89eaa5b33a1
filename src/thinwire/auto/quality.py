"""How near a recipe stays to the loss of a dense exchange, in three tiers.

Which recipes are near is not a matter of opinion: `docs/results/converge-*.json` has their final
losses beside bfloat16's, and a test holds `NEAR` against them; it names the one that is behind.
"""

from typing import Literal, get_args

from thinwire.collective import Dense, FewBits, LowRank
from thinwire.errors import RecipeError
from thinwire.pipeline import Pipeline
from thinwire.settings import check_choice
from thinwire.sparsify import Everything

Quality = Literal["exact", "near", "fast"]
NEAR = ("bf16", "int8", "int4", "powersgd(0.125,'bf16')")
NEAR_SHARE = 0.125  # of a model's width: the rank that was measured on two of them
FAST = ("powersgd(16)", "powersgd", "topk", "topk-dsa", "gtopk", "ok-topk", "union", "omnireduce")
IN_WORDS: dict[Quality, str] = {
    "exact": "the same loss, but for how sums are rounded",
    "near": "within one deviation of bfloat16's final loss on transformers that we measured",
    "fast": "behind at equal steps: it takes more of them to the same loss",
}


def choices_of(quality: Quality) -> tuple[str, ...]:
    """The recipes by name that a tier admits beside dense."""
    check_choice("quality", quality, get_args(Quality))
    return {"exact": (), "near": NEAR, "fast": (*NEAR, *FAST)}[quality]


def quality_of(recipe: Pipeline) -> Quality:
    """The tier of a recipe, by its pieces: `fast` is what sends a selection, or a lower rank."""
    if len(recipe.alternatives) > 1:
        raise RecipeError(f"{recipe!r} is several recipes, each of a tier of its own")
    if recipe.is_plain_sum:
        return "exact"
    if not isinstance(recipe.sparsifier, Everything) or recipe.codec is not None:
        return "fast"
    match recipe.collective:
        case Dense() | FewBits():
            return "near"
        case LowRank(rank=rank) if NEAR_SHARE <= rank < 1:
            return "near"
    return "fast"


def admits(quality: Quality, recipe: Pipeline) -> bool:
    """Whether a tier lets this recipe in."""
    tiers = get_args(Quality)
    return tiers.index(quality_of(recipe)) <= tiers.index(quality)
