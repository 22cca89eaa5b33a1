"""Sphinx settings: `make docs`."""

import re
import sys
from pathlib import Path
from typing import Any

import thinwire
from thinwire.types import Piece

project = "thinwire"
release = version = thinwire.__version__
copyright = "the thinwire authors"
sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "recipe_pages"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "thinwire"
exclude_patterns = ["_build"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository outside docs/


def from_plain_text(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text: `code` in backticks, lists by "- ", tables by indentation."""
    out: list[str] = []
    literal = False
    for line in lines:
        indented = line.startswith("    ")
        after_blank = not out or not out[-1].strip()
        if indented and after_blank and not literal:
            literal = True
            out += ["::", ""]
        elif line and not indented:
            literal = False
        in_list = bool(out) and out[-1].startswith(("- ", "  "))
        starts_list = line.startswith("- ") and not in_list
        ends_list = in_list and bool(line) and not line.startswith(("- ", "  "))
        if (starts_list or ends_list) and not after_blank:
            out.append("")
        out.append(line if literal else _escaped(line))
    if what == "class" and issubclass(obj, Piece) and obj.name:
        out += ["", f"In recipes: ``{obj.name}``."]
    lines[:] = out


def _escaped(line: str) -> str:
    """Code as a literal, wherever it stands; no other markup."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        rf"\ `{part}`\ " if part.startswith("`") else re.sub(r"([|*])", r"\\\1", part)
        for part in parts
    )


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", from_plain_text)
