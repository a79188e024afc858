"""The page of a report: a template, a style and a script, with the data as JSON in one file.

html = page(gather("softmax", compiled, options))
data_in(html)["title"]          # "softmax": the data, read back
"""

import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = '<script type="application/json" id="data">', "</script>"


def page(data: dict[str, Any]) -> str:
    """One file that needs no other, and no network."""
    text = json.dumps(finite(data), separators=(",", ":"), ensure_ascii=False)
    parts = {
        "TITLE": escape(data["title"]),
        "STYLE": (HERE / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": (HERE / "page.js").read_text(encoding="utf-8"),
        # In a script element only its end, and a comment's begin, are special.
        "DATA": text.replace("</", "<\\/").replace("<!--", "<\\u0021--"),
    }
    html = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], html)


def data_in(html: str) -> dict[str, Any]:
    """The data of a page."""
    return json.loads(html.partition(BEGIN)[2].partition(END)[0])


def finite(value: Any) -> Any:
    """Replaces NaN and infinities by None, as JSON has none of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}  # type: ignore[misc]
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value  # type: ignore[misc]
