"""The page of a report, as one text of HTML.

Names and labels come from models that nobody vouches for. In the page they are JSON,
which the scripts show as text, never as HTML; and the page says by its policy that it
runs its own scripts alone, and loads nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).parent / "page"
# In this order: each uses those before it. In the page they are one function, which leaves
# the window as it was, but for the one name that main.js gives it.
SCRIPTS = (
    "vendor/dagre.min.js",
    *("model.js", "layout.js", "draw.js", "scene.js", "view.js", "details.js"),
    *("tables.js", "plot.js", "memory.js", "training.js", "compare.js", "save.js"),
    *("search.js", "main.js"),
)
# Of dagre: every page has a copy of it.
NOTICE = "vendor/dagre.LICENSE"


def page(contents: Mapping[str, Any]) -> str:
    """The page with some contents; see `nnef_grad.reports.contents`."""
    parts = [f"/*!\n{_read(NOTICE)}*/", "(() => {", *map(_read, SCRIPTS), "})();"]
    script = "\n".join(parts)
    style = _read("report.css")
    return Template(_read("report.html")).substitute(
        title=escape(str(contents["title"])),
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}",
        style=style,
        script=script,
        contents=_inside_script(contents),
    )


def _read(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The name of a script or a style sheet in a content security policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _inside_script(contents: Mapping[str, Any]) -> str:
    """JSON that ends no script, whatever its strings are."""
    text = json.dumps(contents, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c")
