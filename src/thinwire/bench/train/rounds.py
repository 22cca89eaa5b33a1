"""`sparseloco@15`: local steps, by a set-up's name or a recipe, and how many make a round.

`sparseloco@15/0.7/0.6` has Nesterov's outer steps of this learning rate and momentum instead of the
set-up's own. `sparseloco@15+4` is applied 4 steps after it was sent, and travels behind them.
`int4@5+1(fragments=5, moments=mean)` has other settings of `thinwire.outer` too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from thinwire.errors import ThinwireError
from thinwire.frontends.local.setups import OuterFactory, setup

AT = "@"
_NUMBER = r"\d+(?:\.\d+)?"
_ROUND = re.compile(rf"(\d+)(?:\+(\d+))?(?:/({_NUMBER})/({_NUMBER}))?(?:\((.*)\))?", re.ASCII)
_KINDS = {"fragments": int, "blend": float, "hold": float, "own": float, "moments": str}


@dataclass(frozen=True, slots=True)
class Rounds:
    """What `thinwire.outer` is given; what is None is the set-up's own."""

    recipe: str
    every: int
    outer: OuterFactory | None = None
    delay: int | None = None
    others: dict[str, Any] = field(default_factory=dict)  # settings by name


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
            "momentum, as diloco@30/0.7/0.9, and other settings, as diloco@30(moments=mean)"
        )
    every, later, rate, momentum, written = found.groups()
    delay = None if later is None else int(later)
    outer = None if rate is None else _outer(float(rate), float(momentum))
    others = dict(_settings(written or ""))
    setup(recipe, every=int(every), outer=outer, delay=delay, **others)  # refuses what cannot be
    return Rounds(recipe, int(every), outer, delay, others)


def _settings(written: str) -> Iterator[tuple[str, Any]]:
    for one in filter(None, map(str.strip, written.split(","))):
        name, _, value = one.partition("=")
        if name not in _KINDS:
            raise ThinwireError(f"{one!r} is no setting of local steps: {', '.join(_KINDS)}")
        try:
            yield name, _KINDS[name](value)
        except ValueError as error:
            raise ThinwireError(f"{one!r}: {error}") from error


def _outer(rate: float, momentum: float) -> OuterFactory:
    # SGD refuses nesterov=True without a momentum.
    return partial(torch.optim.SGD, lr=rate, momentum=momentum, nesterov=momentum > 0)
