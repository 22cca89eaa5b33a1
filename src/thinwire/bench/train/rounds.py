"""`sparseloco@15`: local steps, by a set-up's name or a recipe, and how many make a round."""

from dataclasses import dataclass

from thinwire.errors import ThinwireError
from thinwire.frontends.local.setups import setup

AT = "@"


@dataclass(frozen=True, slots=True)
class Rounds:
    """What `thinwire.outer` is given."""

    recipe: str
    every: int


def rounds_of(name: str) -> Rounds | None:
    """None where a recipe exchanges at every step."""
    recipe, at, every = name.rpartition(AT)
    if not at:
        return None
    if not every.isdigit():
        raise ThinwireError(f"{name!r}: after {AT} comes the number of local steps, as diloco@30")
    setup(recipe, every=int(every))  # refuses what cannot be
    return Rounds(recipe, int(every))
