"""Sphinx settings: `make docs`."""

import thinwire

project = "thinwire"
release = version = thinwire.__version__
copyright = "the thinwire authors"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "thinwire"
exclude_patterns = ["_build"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository outside docs/
