"""The extents that a program leaves open: expressions of sympy to extents of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, mul
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils._sympy import functions

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.graph.extents import Dimension, symbol
from nnef_grad.graph.ir import Shape


class Symbols:
    """The symbols of a program, and their extents.

    Attributes:
        extents: the extent of each symbol of sympy.
    """

    def __init__(self, extents: Mapping[Any, Dimension]) -> None:
        self.extents = dict(extents)

    def extent(self, size: Any) -> Dimension:
        """The extent for a size of PyTorch: an integer, or one with symbols.

        Raises:
            UnsupportedError: it is no polynomial of symbols, or depends on data.
        """
        if isinstance(size, int):
            return size
        if not isinstance(size, torch.SymInt):
            return int(size)
        found: Dimension = self._of(size.node.expr)
        return found

    def learn(self, sizes: Sequence[Any], shape: Shape) -> None:
        """Takes the extents of symbols that depend on data from a shape: where there is
        one, the data were known.
        """
        for size, extent in zip(sizes, shape, strict=False):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if isinstance(expression, sympy.Symbol) and str(expression).startswith("u"):
                self.extents.setdefault(expression, extent)

    def _of(self, expression: Any) -> Any:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            if expression in self.extents:
                return self.extents[expression]
            if str(expression).startswith("u"):
                message = "an extent depends on input values"
                raise UnsupportedError(message)
            return self.extents.setdefault(expression, symbol(str(expression)))
        parts = [self._of(part) for part in expression.args]
        for kind, function in _FUNCTIONS:
            if isinstance(expression, kind):
                return function(*parts)
        raise UnsupportedError(f"the extent {expression} has no polynomial of symbols")


def _power(base: Any, exponent: Any) -> Any:
    return reduce(mul, [base] * int(exponent), 1)


_FUNCTIONS: tuple[tuple[Any, Any], ...] = (
    (sympy.Add, lambda *parts: reduce(add, parts)),
    (sympy.Mul, lambda *parts: reduce(mul, parts)),
    (sympy.Pow, _power),
    (functions.FloorDiv, lambda x, y: x // y),
    (functions.CleanDiv, lambda x, y: x // y),
    (functions.Mod, lambda x, y: x % y),
    (functions.PythonMod, lambda x, y: x % y),
)
