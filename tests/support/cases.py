"""The files of cases/: a model, a line of dashes with the options, the expected output."""

from __future__ import annotations

from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"


RULE = "# ---- nnef-grad "


def cases(folder: str) -> list[Path]:
    return sorted((CASES / folder).glob("*.nnef"))


def split(path: Path) -> tuple[str, str, str]:
    """The model, the options and the expected output of a case."""
    model, _, rest = path.read_text("utf-8").partition(RULE)
    options, _, expected = rest.partition("\n")
    return model, options.strip(), expected
