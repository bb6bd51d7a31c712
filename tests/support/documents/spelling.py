"""The ways to write a statement: the order of its arguments, keywords where they are not
needed, parentheses, exponents.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from nnef_grad.language.library import STDLIB
from support.random_graphs.graphs import (
    RandomGraph,
    Statement,
    operand_text,
    value_text,
)


class Spelling:
    """Writes each statement in one of its ways."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def document(self, graph: RandomGraph) -> str:
        """A graph with its statements in some spelling."""
        return graph.document([self.statement(s) for s in graph.statements])

    def statement(self, statement: Statement) -> str:
        """Operands by place as far as one likes, all other arguments in any order."""
        names = [p.name for p in STDLIB[statement.operation].operands]
        operands = [self.number(operand_text(o)) for o in statement.operands]
        placed = (
            len(operands) if self.often(0.8) else self.random.randint(0, len(operands))
        )
        keywords = list(zip(names, operands, strict=False))[placed:]
        keywords += [(k, value_text(v)) for k, v in statement.attributes.items()]
        if self.often(0.5):
            self.random.shuffle(keywords)
        arguments = [
            *operands[:placed],
            *(f"{k} = {self.number(v)}" for k, v in keywords),
        ]
        brackets = f"<{statement.dtype}>" if statement.dtype else ""
        left = self.target([operand_text(result) for result in statement.results])
        return f"{left} = {statement.operation}{brackets}({', '.join(arguments)});"

    def target(self, results: Sequence[str]) -> str:
        """Several results may stand in parentheses."""
        joined = ", ".join(results)
        return f"({joined})" if len(results) > 1 and self.often(0.5) else joined

    def number(self, text: str) -> str:
        """A number may be written with an exponent."""
        if not text.lstrip("-").replace(".", "", 1).isdigit() or "." not in text:
            return text
        return f"{float(text):.3e}" if self.often(0.1) else text

    def often(self, chance: float) -> bool:
        return self.random.random() < chance
