"""A figure as SVG for the middle of a page: the page's fonts, and colours by CSS variables."""

import re
from html import escape
from io import StringIO

import matplotlib
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from thinwire.report.charts.palette import LIGHT

_NAMES = {value: name for name, value in LIGHT.items()}
_LEFT_OUT = re.compile(
    r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", re.DOTALL
)
_COLOUR = re.compile("|".join(_NAMES))


def mark_series(artist: Artist, role: str, series: str, own: str = "") -> None:
    """Let the page find what is drawn for a series: a line, a bar, or its name in the key.

    With a colour of its `own` it is in the background until it is pointed at.
    """
    artist.set_gid(f"mark:{role}{own and '@' + own}:{series}")


def inline_svg(figure: Figure, name: str, title: str) -> str:
    """Without a header, namespaces, style sheet or ids that another figure might have too."""
    out = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    opening = re.search(r"<svg [^>]*?viewBox=\"([^\"]+)\"[^>]*>", text, re.DOTALL)
    assert opening is not None
    text = text[opening.end() :]
    text = _LEFT_OUT.sub("", text)
    text = re.sub(r'<g id="mark:(\w+)(?:@([\w-]+))?:([^"]*)">', _series, text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    text = _COLOUR.sub(lambda colour: f"var(--{_NAMES[colour[0]]})", text)
    text = re.sub(r' d="([^"]*)"', _shorter, text)
    text = re.sub(r">\s+<", ">\n<", text)
    return (
        f'<svg class="chart" viewBox="{opening[1]}" role="img" aria-label="{escape(title)}" '
        f'style="stroke-linejoin: round">{text.strip()}'
    )


def _series(mark: re.Match[str]) -> str:
    role, own, name = mark.groups()
    back = f'class="{role} back" style="--own: var(--{own})"' if own else f'class="{role}"'
    return f'<g {back} data-recipe="{name}"><title>{name}</title>'


def _shorter(path: re.Match[str]) -> str:
    """A path on one line, with a hundredth of a point for its precision."""
    rounded = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", path[1])
    return f' d="{" ".join(rounded.split())}"'
