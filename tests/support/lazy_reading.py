"""A reading of expressions that computes nothing but what is taken: the oracle for
branches that are not.

An expression of NNEF is one of Python too. A tensor is a shape and a function that gives
an element; a `select` asks for an element of the branch that its condition chooses, so the
other branch is not even computed, and torch differentiates what is left.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

Index = tuple[int, ...]
Shape = tuple[int, ...]


class Lazy:
    """A tensor whose elements are computed when they are asked for."""

    def __init__(self, shape: Sequence[int], at: Callable[[Index], Any]) -> None:
        self.shape = tuple(shape)
        self.at = cache(at)

    def indices(self) -> Iterator[Index]:
        """All indices, row by row."""
        return product(*map(range, self.shape))

    def extent(self, axis: int) -> int:
        """The extent along an axis; 1 where there is none."""
        return self.shape[axis] if axis < len(self.shape) else 1

    def broadcast_at(self, index: Index) -> Any:
        """The element that is repeated at an index of a larger tensor."""
        return self.at(
            tuple(i if n > 1 else 0 for i, n in zip(index, self.shape, strict=False))
        )


def of_numbers(shape: Shape, numbers: Sequence[Tensor]) -> Lazy:
    """A tensor of given elements."""
    indices = list(product(*map(range, shape)))
    return Lazy(shape, dict(zip(indices, numbers, strict=True)).__getitem__)


def read(expression: str, x: Lazy) -> Lazy:
    """The value of an expression in x."""
    value: Lazy = _value(ast.parse(expression.strip(), mode="eval").body, x)
    return value


def gradients(
    y: Lazy, weights: Sequence[Tensor], numbers: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of a weighted sum with respect to the numbers it is made of."""
    terms = [w * y.at(i) for w, i in zip(weights, y.indices(), strict=True)]
    total: Any = sum(terms)
    if not total.requires_grad:
        return [torch.zeros(()) for _ in numbers]
    return list(
        torch.autograd.grad(
            total, list(numbers), create_graph=True, materialize_grads=True
        )
    )


# ---- Expressions ----

_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le,
}  # fmt: skip


def _value(node: Any, x: Lazy) -> Any:
    if isinstance(node, ast.Name):
        return x
    if isinstance(node, ast.Constant):
        return _literal(ast.literal_eval(node))
    if isinstance(node, ast.UnaryOp):
        return _each(operator.neg, _value(node.operand, x))
    if isinstance(node, ast.BinOp):
        return _each(
            _OPERATORS[type(node.op)], _value(node.left, x), _value(node.right, x)
        )
    if isinstance(node, ast.Compare):
        compared = _value(node.left, x), _value(node.comparators[0], x)
        return _each(_OPERATORS[type(node.ops[0])], *compared)
    if isinstance(node, ast.List):
        return [_value(item, x) for item in node.elts]
    operands = [_value(argument, x) for argument in node.args]
    attributes = {k.arg: ast.literal_eval(k.value) for k in node.keywords}
    return OPERATIONS[node.func.id](*operands, **attributes)


def _literal(value: float) -> Lazy:
    number = torch.tensor(value, dtype=torch.float64)
    return Lazy((), lambda index: number)


def _common_shape(*operands: Lazy) -> Shape:
    rank = max(len(o.shape) for o in operands)
    return tuple(max(o.extent(axis) for o in operands) for axis in range(rank))


def _each(function: Callable[..., Any], *operands: Lazy) -> Lazy:
    shape = _common_shape(*operands)
    return Lazy(
        shape, lambda index: function(*(o.broadcast_at(index) for o in operands))
    )


def _select(condition: Lazy, taken: Lazy, otherwise: Lazy) -> Lazy:
    def at(index: Index) -> Tensor:
        chosen = taken if bool(condition.broadcast_at(index)) else otherwise
        number: Tensor = chosen.broadcast_at(index)
        return number

    return Lazy(_common_shape(condition, taken, otherwise), at)


# ---- Operations ----


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    return x if bool(x > y) else y


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    return x if bool(x < y) else y


def _relu(x: Tensor) -> Tensor:
    return x if bool(x > 0.0) else torch.zeros((), dtype=torch.float64)


def _reduced(
    fold: Callable[[list[Tensor]], Tensor], x: Lazy, axes: Sequence[int]
) -> Lazy:
    def at(index: Index) -> Tensor:
        ranges = [
            range(n) if axis in axes else (index[axis],)
            for axis, n in enumerate(x.shape)
        ]
        return fold([x.at(i) for i in product(*ranges)])

    return Lazy([1 if axis in axes else n for axis, n in enumerate(x.shape)], at)


def _mean(numbers: list[Tensor]) -> Tensor:
    total: Any = sum(numbers)
    return total / len(numbers)


def _largest(numbers: list[Tensor]) -> Tensor:
    """The mean of the ties, which share the gradient."""
    values = [float(n.detach()) for n in numbers]
    ties = [n for n, v in zip(numbers, values, strict=True) if v == max(values)]
    return _mean(numbers if any(map(math.isnan, values)) else ties)


def _reshape(x: Lazy, shape: Sequence[int]) -> Lazy:
    order = list(x.indices())
    places = {i: k for k, i in enumerate(product(*map(range, shape)))}
    return Lazy(shape, lambda index: x.at(order[places[index]]))


def _transpose(x: Lazy, axes: Sequence[int]) -> Lazy:
    def at(index: Index) -> Tensor:
        source = dict(zip(axes, index, strict=True))
        number: Tensor = x.at(tuple(source[axis] for axis in range(len(axes))))
        return number

    return Lazy([x.shape[axis] for axis in axes], at)


def _shifted(index: Index, axis: int, by: int) -> Index:
    return (*index[:axis], index[axis] + by, *index[axis + 1 :])


def _slice(
    x: Lazy, axes: Sequence[int], begin: Sequence[int], end: Sequence[int]
) -> Lazy:
    ((axis,), (first,), (last,)) = axes, begin, end
    shape = (*x.shape[:axis], last - first, *x.shape[axis + 1 :])
    return Lazy(shape, lambda index: x.at(_shifted(index, axis, first)))


def _concat(parts: list[Lazy], axis: int) -> Lazy:
    def at(index: Index) -> Tensor:
        offset = index[axis]
        for part in parts:
            if offset < part.shape[axis]:
                number: Tensor = part.at((*index[:axis], offset, *index[axis + 1 :]))
                return number
            offset -= part.shape[axis]
        raise IndexError(index)

    extent = sum(part.shape[axis] for part in parts)
    shape = parts[0].shape
    return Lazy((*shape[:axis], extent, *shape[axis + 1 :]), at)


def _tile(x: Lazy, repeats: Sequence[int]) -> Lazy:
    shape = [n * r for n, r in zip(x.shape, repeats, strict=True)]
    return Lazy(
        shape,
        lambda index: x.at(tuple(i % n for i, n in zip(index, x.shape, strict=True))),
    )


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "exp", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "sinh", "cosh", "asin",
        "acos", "atan", "acosh", "atanh", "sigmoid", "abs", "neg",
    )},
    "rcp": lambda x: 1.0 / x,
    "sqr": lambda x: x * x,
    "rsqr": lambda x: 1.0 / (x * x),
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "relu": _relu,
}  # fmt: skip

OPERATIONS: Mapping[str, Callable[..., Lazy]] = {
    **{name: (lambda x, f=f: _each(f, x)) for name, f in FUNCTIONS.items()},
    "pow": lambda x, y: _each(torch.pow, x, y),
    "max": lambda x, y: _each(_maximum, x, y),
    "min": lambda x, y: _each(_minimum, x, y),
    "clamp": lambda x, a, b: _each(_maximum, _each(_minimum, x, b), a),
    "select": _select,
    "sum_reduce": lambda x, axes: _reduced(lambda numbers: sum(numbers), x, axes),
    "mean_reduce": lambda x, axes: _reduced(_mean, x, axes),
    "max_reduce": lambda x, axes: _reduced(_largest, x, axes),
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "tile": _tile,
}
