"""The models of operations.txt: for each standard operation its main settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.checks import document

FILE = Path(__file__).parent / "operations.txt"


class Model(NamedTuple):
    """A graph around one operation."""

    operation: str
    number: int
    text: str

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.operation}-{self.number}"


@cache
def models() -> tuple[Model, ...]:
    """All of them, in the order of the file."""
    return tuple(
        Model(operation, number, document_of(line))
        for operation, lines in sections(FILE)
        for number, line in enumerate(lines, start=1)
    )


def sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The sections of a file of graphs: a title, and the lines that are not empty."""
    for section in re.split(r"^## ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, *lines = section.strip().splitlines()
        yield title, [line for line in lines if line]


def document_of(statements: str) -> str:
    """The document of a line, in which y and z are the outputs."""
    inputs = re.findall(r"(\w+) = external", statements) or ["x"]
    outputs = [n for n in ("y", "z") if re.search(rf"\b{n}\b[^;(]*=", statements)]
    body = statements.replace("; ", ";\n")
    return document(body, ", ".join(inputs), ", ".join(outputs))
