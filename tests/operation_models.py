"""The models of operations.txt: for each standard operation its main settings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from checks import document

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
    sections = re.split(r"^## ", FILE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    found: list[Model] = []
    for section in sections:
        operation, *lines = section.strip().splitlines()
        found += [
            Model(operation, number, _document(line))
            for number, line in enumerate(lines, start=1)
        ]
    return tuple(found)


def _document(statements: str) -> str:
    inputs = re.findall(r"(\w+) = external", statements) or ["x"]
    outputs = [
        name for name in ("y", "z") if re.search(rf"\b{name}\b[^;]*=", statements)
    ]
    body = statements.replace("; ", ";\n")
    return document(body, ", ".join(inputs), ", ".join(outputs))
