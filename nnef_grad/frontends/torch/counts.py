"""How many elements a mask takes, and other integers that depend on the values of inputs: what
Python decides by such numbers, and what has as many classes.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch.internals import bounds_of, is_fake, promise
from nnef_grad.frontends.torch.nodes import LIBRARY
from nnef_grad.frontends.torch.symbols import is_number_of_data

LIBRARY.define("one_hot(Tensor x, SymInt count) -> Tensor")
LIBRARY.impl(
    "one_hot",
    lambda x, count: (x.unsqueeze(-1) == torch.arange(count, device=x.device)).long(),
    "CompositeExplicitAutograd",
)
# The least that integers of data can be which are the larger one of two.
_LEAST = WeakTensorKeyDictionary()


@contextmanager
def counting() -> Iterator[None]:
    """Lets functions of Python take such numbers: `len` returns one as PyTorch has it, and
    `max` and `min` make one of an integer and one in a tensor, and do not ask which it is.

    Raises:
        UnsupportedError: the one that is made is written into, which may be the tensor.
    """
    made: list[tuple[torch.Tensor, int]] = []
    with ExitStack() as stack:
        for name, replacement in _OF_PYTHON.items():
            original = getattr(builtins, name)
            patched = replacement(original, made)
            stack.enter_context(patch.object(builtins, name, patched))
        yield
    if any(x._version != version for x, version in made):
        message = "a tensor that 'max' or 'min' of Python returns is written into"
        raise UnsupportedError(f"{message}: make a new one of it")


def _len(original: Callable[..., Any], _: Any) -> Callable[..., Any]:
    def length(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dim() and is_number_of_data(x.shape[0]):
            return x.shape[0]
        return original(x)

    return length


def _extremum(bound: str) -> Callable[..., Callable[..., Any]]:
    """The replacement of `max` and `min`, by the name that the integer has for `clamp`."""

    def replacement(
        original: Callable[..., Any], made: list[tuple[torch.Tensor, int]]
    ) -> Callable[..., Any]:
        def extreme(*args: Any, **kwargs: Any) -> Any:
            if (pair := _pair(args, kwargs)) is None:
                return original(*args, **kwargs)
            x, number = pair
            found = x.clamp(**{bound: number})
            made.append((found, found._version))
            if bound == "min":
                _LEAST[found] = number
            return found

        return extreme

    return replacement


_OF_PYTHON = {"len": _len, "max": _extremum("min"), "min": _extremum("max")}


def _pair(args: Any, kwargs: Any) -> tuple[torch.Tensor, int] | None:
    """An integer in a tensor, and one of Python, if these are the arguments."""
    if kwargs or args[2:] or not args[1:]:
        return None
    x, number = args if isinstance(args[0], torch.Tensor) else args[::-1]
    is_traced = isinstance(x, torch.Tensor) and is_fake(x)
    is_one = is_traced and not x.dim() and x.dtype in _WHOLE
    return (x, number) if is_one and type(number) is int else None


_WHOLE = (torch.int64, torch.int32)


def one_hot(input: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """`torch.nn.functional.one_hot`, also of a number of classes that depends on data: its
    first classes can be read, as many as there are at least.
    """
    is_found = isinstance(num_classes, int) and num_classes == -1
    count, least = input.max() + 1 if is_found else num_classes, None
    if isinstance(count, torch.Tensor):
        least, count = _LEAST.get(count), count.item()
    if not isinstance(count, torch.SymInt):
        return functional.one_hot(input, count)
    if least is not None:
        promise(count >= least)
    y: torch.Tensor = torch.ops.nnef_grad.one_hot(input, count)
    return y


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
