"""The documentation as a site: the pages of docs/ as they are, and references that code writes.

make site          # sphinx-build -W: a warning, as of a link that leads nowhere, is an error
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # Sphinx imports this file, and reference.py weft

import reference  # noqa: E402

project = "weft"
copyright = "the authors of weft, under the Apache License 2.0"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "weft"
html_copy_source = False
html_static_path, html_css_files = ["site"], ["wide.css"]
exclude_patterns = ["_build"]
suppress_warnings = ["misc.highlighting_failure"]  # parts of programs, as of C, need not parse
myst_heading_anchors = 3  # TUNING.md#a-schedule-by-moves, as on other sites that show Markdown
highlight_language = "text"
nitpicky = True


def setup(app: object) -> None:
    """Writes the references before Sphinx looks for pages."""
    app.connect("builder-inited", lambda app: reference.write(Path(app.srcdir) / "reference"))  # type: ignore[attr-defined]
