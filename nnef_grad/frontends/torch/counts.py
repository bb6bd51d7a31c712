"""How many elements a mask takes, and other integers that depend on the values of inputs, and what
Python decides by such numbers.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any
from unittest.mock import patch

import torch

from nnef_grad.frontends.torch.internals import bounds_of
from nnef_grad.frontends.torch.symbols import is_number_of_data


@contextmanager
def counting() -> Iterator[None]:
    """Lets `len` return such a number as PyTorch has it: Python's takes integers alone."""
    original = builtins.len

    def length(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dim() and is_number_of_data(x.shape[0]):
            return x.shape[0]
        return original(x)

    with patch.object(builtins, "len", length):
        yield


@dataclass
class Bounds:
    """What answers say of numbers that depend on data: the least and the largest that each can be,
    by its symbol.
    """

    _of: dict[Any, tuple[float, float]] = field(default_factory=dict)

    def decide(self, asked: torch.SymBool) -> bool | None:
        """Whether a number and an integer are related so, if that follows from the bounds."""
        truths = {*self._truths(asked).values()}
        return truths.pop() if len(truths) == 1 else None

    def learn(self, asked: torch.SymBool, is_so: bool) -> None:
        """Takes bounds from an answer."""
        points = self._truths(asked)
        held = [n for n, truth in points.items() if truth == is_so]
        if held:
            (symbol,) = asked.node.expr.free_symbols
            least, most = self._bounds(asked, symbol)
            is_open = least == -inf and points[min(points)] == is_so
            least = -inf if is_open else min(held)
            is_open = most == inf and points[max(points)] == is_so
            self._of[symbol] = least, inf if is_open else max(held)

    def _bounds(self, asked: torch.SymBool, symbol: Any) -> tuple[float, float]:
        return self._of.get(symbol) or bounds_of(asked, symbol)

    def _truths(self, asked: torch.SymBool) -> dict[float, bool]:
        """Whether a relation holds, at the bounds and around the integer that it names, where alone
        this changes; nothing, if it is another one.
        """
        relation = asked.node.expr
        symbols, sides = relation.free_symbols, getattr(relation, "args", ())
        numbers = [side for side in sides if side.is_Integer]
        is_simple = (
            len(sides) == 2 and len(numbers) == 1 and not symbols.isdisjoint(sides)
        )
        if not (is_simple and relation.is_Relational):
            return {}
        (symbol,), number = symbols, int(numbers[0])
        least, most = bounds = self._bounds(asked, symbol)
        points = (*filter(isfinite, bounds), *range(number - 1, number + 2))
        inside = [n for n in points if least <= n <= most]
        return {n: bool(relation.subs(symbol, int(n))) for n in inside}
