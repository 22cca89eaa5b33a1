"""`sparseloco@15`: local steps, by a set-up's name or a recipe, and how many make a round.

`sparseloco@15/0.7/0.6` has Nesterov's outer steps of this learning rate and momentum instead of the
set-up's own. `sparseloco@15+4` is applied 4 steps after it was sent, and travels behind them.
"""

import re
from dataclasses import dataclass
from functools import partial

import torch

from thinwire.errors import ThinwireError
from thinwire.frontends.local.setups import OuterFactory, setup

AT = "@"
_NUMBER = r"\d+(?:\.\d+)?"
_ROUND = re.compile(rf"(\d+)(?:\+(\d+))?(?:/({_NUMBER})/({_NUMBER}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rounds:
    """What `thinwire.outer` is given; what is None is the set-up's own."""

    recipe: str
    every: int
    outer: OuterFactory | None = None
    delay: int | None = None


def rounds_of(name: str) -> Rounds | None:
    """None where a recipe exchanges at every step."""
    recipe, at, after = name.rpartition(AT)
    if not at:
        return None
    found = _ROUND.fullmatch(after)
    if not found:
        raise ThinwireError(
            f"{name!r}: after {AT} comes the number of local steps, as diloco@30, and maybe how "
            "many later they are applied, as diloco@30+5, and the outer learning rate and "
            "momentum, as diloco@30/0.7/0.9"
        )
    every, later, rate, momentum = found.groups()
    delay = None if later is None else int(later)
    outer = None if rate is None else _outer(float(rate), float(momentum))
    setup(recipe, every=int(every), outer=outer, delay=delay)  # refuses what cannot be
    return Rounds(recipe, int(every), outer, delay)


def _outer(rate: float, momentum: float) -> OuterFactory:
    # SGD refuses nesterov=True without a momentum.
    return partial(torch.optim.SGD, lr=rate, momentum=momentum, nesterov=momentum > 0)
