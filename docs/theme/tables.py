"""Tables that are data. A link to a file of `tables/` that is a paragraph of its own becomes
the link and the table, which tables.js filters by what a reader types.

In a cell, `backquotes` hold code and $dollars$ a formula. Text of several lines is code, which
opens from a word.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path

ALONE = re.compile(r"^\[([^\]\n]+)\]\((\S*tables/[\w-]+\.csv)\)$", re.MULTILINE)
# Outside of code, where a part of a cell is a link, code or a formula.
PART = re.compile(r"`([^`]+)`|\$([^$]+)\$")
# The site's search finds a row by its first cell.
UNSEARCHED = ' data-search-exclude=""'


def with_tables(markdown: str, folder: Path, formula: Callable[[str], str]) -> str:
    """A page whose links to tables are followed by these, as HTML."""

    def shown(link: re.Match[str]) -> str:
        with (folder / link[2]).open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        return f"{link[0]}\n\n{table(link[1], head, rows, formula)}\n"

    return ALONE.sub(shown, markdown)


def table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    formula: Callable[[str], str],
) -> str:
    """A table with a place to type what its rows must contain."""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    first = {cells[0]: cells for cells in reversed(rows)}
    body = "".join(
        _row(cells, formula, is_target=cells is first[cells[0]]) for cells in rows
    )
    label = html.escape(f"Filter: {title}")
    return (
        '<div class="filtered">'
        f'<input type="search" hidden placeholder="Filter {len(rows)} rows" aria-label="{label}">'
        f'<div class="rows"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></div>"
    )


def _row(
    cells: Sequence[str], formula: Callable[[str], str], *, is_target: bool
) -> str:
    """A row; links can lead to the first of a name."""
    name = html.escape(cells[0].strip("`").replace(" ", "-"))
    first, *others = (_cell(cell, formula) for cell in cells)
    shown = "".join(f"<td{UNSEARCHED}>{cell}</td>" for cell in others)
    start = f'<tr id="{name}">' if is_target else "<tr>"
    return f"{start}<td>{first} </td>{shown}</tr>"


def _cell(text: str, formula: Callable[[str], str]) -> str:
    if "\n" in text:
        # A blank line would end the HTML.
        lines = html.escape(text.strip()).replace("\n", "&#10;")
        return (
            f"<details><summary>show</summary><pre><code>{lines}</code></pre></details>"
        )
    shown, end = [], 0
    for part in PART.finditer(text):
        shown.append(html.escape(text[end : part.start()]))
        code = f"<code>{html.escape(part[1] or '')}</code>"
        shown.append(code if part[1] else formula(part[2]))
        end = part.end()
    return "".join([*shown, html.escape(text[end:])])
