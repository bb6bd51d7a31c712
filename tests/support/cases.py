"""The files of cases/: a model, a line of dashes with the command, the expected output."""

from __future__ import annotations

from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"


def cases(folder: str) -> list[Path]:
    return sorted((CASES / folder).glob("*.nnef"))


def rule(command: str) -> str:
    """What the line of dashes begins with."""
    return f"# ---- {command} "


def split(path: Path, command: str = "nnef-grad") -> tuple[str, str, str]:
    """The model, the options and the expected output of a case."""
    model, _, rest = path.read_text("utf-8").partition(rule(command))
    options, _, expected = rest.partition("\n")
    return model, options.strip(), expected


def compare(
    path: Path, output: str, *, rewrite: bool, command: str = "nnef-grad"
) -> None:
    """Compares the output of a case with what is expected, or writes it there."""
    model, options, expected = split(path, command)
    if rewrite:
        path.write_text(f"{model}{rule(command)}{options}\n{output}", "utf-8")
        return
    assert output == expected
