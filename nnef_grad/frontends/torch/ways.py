"""The ways through a module to one graph: a condition chooses each result, unless those of one way
are what the others are where the condition says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import NOWHERE
from nnef_grad.emit.assumed import are_equal_where
from nnef_grad.frontends.expansions.branches import branch_results, type_in_words
from nnef_grad.frontends.torch.choices import Choice, Ways
from nnef_grad.frontends.values import dtype_of, is_known
from nnef_grad.frontends.view import View
from nnef_grad.graph.ir import Tensor

_DEPENDS = "what the module returns depends on the values of inputs"


class Number(NamedTuple):
    """A number of Python that a module returns, where it may return a tensor as well."""

    value: float


class Returned(NamedTuple):
    """The results of a module.

    Attributes:
        results: the tensors and numbers, with names.
        updates: the new values of buffers, by their names.
        conditions: what Python has asked for on the way.
    """

    results: list[tuple[str, Any]]
    updates: dict[str, Any]
    conditions: list[Any]


def read_ways(
    ways: Ways[Any],
    read: Callable[[Any], Returned],
    buffer: Callable[[str], Any],
    reading: Any,
) -> Returned:
    """The results of a module on any of its ways.

    Args:
        read: reads one of them.
        buffer: the value of a buffer that nothing has changed.
    """
    if not isinstance(ways, Choice):
        return read(ways)
    one, other = (read_ways(way, read, buffer, reading) for way in ways.both)
    then, otherwise = _with_tensors(one, other), _with_tensors(other, one)
    names, other_names = ([name for name, _ in x.results] for x in (then, otherwise))
    if names != other_names:
        raise UnsupportedError(f"{_DEPENDS}; at {ways.line}")
    moved = [*dict.fromkeys((*then.updates, *otherwise.updates))]
    xs, ys = (
        [
            *(value for _, value in x.results),
            *(x.updates[n] if n in x.updates else buffer(n) for n in moved),
        ]
        for x in (then, otherwise)
    )
    named = [*names, *moved]
    for name, x, y in zip(named, xs, ys, strict=True):
        if (kinds := [*map(type_in_words, (x, y))])[0] != kinds[1]:
            is_told = (
                f"'{name}' is {kinds[0]} on one way, and {kinds[1]} on another one"
            )
            raise UnsupportedError(f"{_DEPENDS}: {is_told}; at {ways.line}")
    made = _chosen(reading, then.conditions[ways.place], named, xs, ys)
    results, news = made[: len(names)], made[len(names) :]
    return Returned(
        [*zip(names, results, strict=True)],
        dict(zip(moved, news, strict=True)),
        then.conditions,
    )


def _with_tensors(returned: Returned, other: Returned) -> Returned:
    """The results of a module, with tensors in place of numbers where it returns these on the
    other way, and without other numbers.
    """
    tensors = {n: x for n, x in other.results if not isinstance(x, Number)}
    results = [
        (name, _as_tensor(x, tensors[name]) if isinstance(x, Number) else x)
        for name, x in returned.results
        if name in tensors or not isinstance(x, Number)
    ]
    return returned._replace(results=results)


def _as_tensor(number: Number, other: Any) -> Array:
    """A number as a tensor of the type of another one."""
    is_scalar = dtype_of(other) == "scalar"
    return np.asarray(float(number.value) if is_scalar else number.value)


def _chosen(
    reading: Any, condition: Any, names: list[str], xs: list[Any], ys: list[Any]
) -> list[Any]:
    """The values where a condition is true, and the others where it is false."""
    if is_known(condition):
        return xs if np.all(condition) else ys
    pairs = [*zip(xs, ys, strict=True)]
    tensors = [p for p in pairs if all(isinstance(x, Tensor) for x in p)]
    if all(_are_known_equal(*pair) for pair in pairs if pair not in tensors):
        operations = reading.emitter.operations
        for value, others in ((False, xs), (True, ys)):
            if are_equal_where(condition, value, operations, tensors):
                return others
    return [
        branch_results(View(reading, "if", name, NOWHERE, None), condition, [x], [y])[0]
        for name, x, y in zip(names, xs, ys, strict=True)
    ]


def _are_known_equal(x: Any, y: Any) -> bool:
    return is_known(x) and is_known(y) and np.array_equal(x, y)
