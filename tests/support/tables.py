"""Tables of docs/tables/, which pages of the documentation show and filter."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "tables"


def csv_of(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as text."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def hold(texts: dict[Path, str], *, rewrite: bool) -> None:
    """Asserts that files have these texts, or writes them."""
    for path, text in texts.items():
        if rewrite:
            path.write_text(text, "utf-8")
        assert path.read_text("utf-8") == text, f"{path.name}: --rewrite-cases"
