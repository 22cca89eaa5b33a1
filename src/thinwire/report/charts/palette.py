"""Colours and line styles. Figures are drawn in the light ones; a page names them by variables."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

_COLOURS = {  # light, dark
    "paper": ("#fcfcfb", "#17181a"),
    "ink": ("#1b1c1e", "#ecebe7"),
    "faint": ("#63666b", "#a0a3a7"),
    "rule": ("#dcddda", "#383a3d"),
    "hue-0": ("#1f5fd0", "#6ea4ff"),
    "hue-1": ("#d1480b", "#ff8a4c"),
    "hue-2": ("#23803a", "#5cc678"),
    "hue-3": ("#b8237a", "#f57ebd"),
    "hue-4": ("#7a4ce0", "#b296ff"),
    "hue-5": ("#0b7f8f", "#4cc8d8"),
    "hue-6": ("#98700a", "#e0b545"),
}
LIGHT, DARK = ({name: pair[i] for name, pair in _COLOURS.items()} for i in (0, 1))
HUES = tuple(name for name in LIGHT if name.startswith("hue-"))
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 2.5), (8, 2.5, 2, 2.5), (12, 3, 5, 3))
BASELINES = ("torch-dense", "dense")  # what all others are compared with


@dataclass(frozen=True)
class Look:
    """How a series is told apart: a colour, and a dash pattern once the hues are used up."""

    colour: str  # a name in LIGHT
    dash: tuple[float, ...] = ()
    width: float = 1.6
    own: str = ""  # of one in the background: the colour it has when it is pointed at

    def in_the_background(self) -> "Look":
        """Thin and grey, until it is pointed at."""
        return replace(self, colour="faint", dash=(), width=0.7, own=self.own or self.colour)

    def swatch(self) -> str:
        """A short sample of the line for an HTML table."""
        dash = " ".join(f"{length:g}" for length in self.dash)
        return (
            '<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><path d="M0 5H28" '
            f'fill="none" style="stroke:var(--{self.colour})" stroke-width="{self.width}" '
            f'stroke-dasharray="{dash or "none"}"/></svg>'
        )


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for every name; a baseline is a heavy line in the text's own colour."""
    names = list(dict.fromkeys(names))
    baselines = [name for name in BASELINES if name in names]
    others = [name for name in names if name not in BASELINES]
    chosen = {name: Look("ink", DASHES[i], 2.4) for i, name in enumerate(baselines)}
    for i, name in enumerate(others):
        chosen[name] = Look(HUES[i % len(HUES)], DASHES[i // len(HUES) % len(DASHES)])
    return chosen


def variables(colours: dict[str, str]) -> str:
    """As CSS declarations."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
