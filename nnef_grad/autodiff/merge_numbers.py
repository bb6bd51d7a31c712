"""Merges the numbers that a derivative multiplies tensors with, where an operation less
is left; before, tensors that are full of one number become numbers.

grad_m = neg(total);
share_m = div(grad_m, 32.0);      to    mean_m = mean_reduce(x, axes = [1]);
grad_x = add(grad_y, share_m);          grad_x = sub(grad_y, mean_m);

A number moves along products of tensors that are used once, to another number, or to a
sum, which takes its sign. Where two numbers do not multiply exactly, both stay; and where
tensors between them would be multiplied with a number that is large or small, as these
might become infinite or zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isfinite, prod
from typing import Any, TypeGuard

from nnef_grad.emit.arguments import Call, bind_call
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.graph.passes import count_uses, prune
from nnef_grad.graph.rewriting import Fate, substitute, sweep
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.traits import BROADCASTING, COPYING, MOVING

# How many operations are looked through.
REACH = 8
# What tensors between two numbers are multiplied with is no further from 1.
FAR = 2.0**24
OPPOSITE = {"add": "sub", "sub": "add"}
# Beginnings of names that say what a tensor is multiplied with.
SCALES = ("scaled_", "half_", "share_", "double_")

# The results of products: the first is a multiple of the second, and so on; the last one
# is a product with a number.
Path = tuple[Tensor, ...]


# ---- Tensors that are full of one number: the gradient of a sum begins as ones ----

_ARITHMETIC: dict[str, Callable[..., float]] = {
    "neg": operator.neg,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


def with_known_numbers(
    graph: Graph, full: Mapping[Tensor, float], emit: Emitter
) -> Graph:
    """The graph with a number in place of each tensor that is full of it, or that the
    derivative computes from such tensors alone, where another operand has the shape of the
    result. The forward graph stays as it is.
    """
    if not full:
        return graph
    numbers: dict[Any, float] = {**full}

    def with_known(operation: Operation) -> Fate:
        operands = tuple([numbers.get(o, o) for o in operation.operands])
        is_new = emit.is_new(operation.outputs[0])
        value = _value(operation.name, operands) if is_new else None
        if value is not None:
            numbers.update(dict.fromkeys(operation.outputs, value))
            return _constant(operation, value)
        if operands == operation.operands or not _keeps_shape(operation, operands):
            return operation
        operation = _simplest(replace(operation, operands=operands))
        result = operation.outputs[0]
        is_copy = operation.name == "copy" and result not in graph.outputs
        return {result: operation.inputs[0]} if is_copy else operation

    return prune(sweep(graph, with_known))


def _value(name: str, operands: Sequence[Operand]) -> float | None:
    """The number that the result of an operation on numbers is full of, if it is known."""
    numbers = [x for x in operands if isinstance(x, float)]
    if not numbers or len(numbers) < len(operands):
        return None
    if name in MOVING | COPYING:
        return numbers[0]
    if name not in _ARITHMETIC or (name == "div" and numbers[1] == 0.0):
        return None
    value = _ARITHMETIC[name](*numbers)
    return value if isfinite(value) else None


def _constant(operation: Operation, value: float) -> Operation:
    """Arithmetic as a constant of its value; an operation that moves numbers stays."""
    if operation.name not in _ARITHMETIC:
        return operation
    shape, definition = operation.outputs[0].shape, STDLIB["constant"]
    call = Call(definition, (), {"shape": shape, "value": (value,)}, "scalar")
    return replace(operation, **call._asdict())


def _keeps_shape(operation: Operation, operands: Sequence[Operand]) -> bool:
    """Whether an element-wise operation has a result of the same shape with numbers."""
    shape = operation.outputs[0].shape
    return (
        operation.name in BROADCASTING and broadcast(*map(shape_of, operands)) == shape
    )


def _simplest(operation: Operation) -> Operation:
    """A copy or a negation in place of a product with 1 or -1."""
    number, x = _number(operation)
    if not isinstance(x, Tensor) or abs(number) != 1:
        return operation
    name, dtype = ("copy", "scalar") if number == 1 else ("neg", None)
    return replace(operation, definition=STDLIB[name], operands=(x,), dtype=dtype)


# ---- Numbers in products ----


def merge_numbers(graph: Graph, emit: Emitter) -> Graph:
    """The graph, whose results are all used, with fewer products of tensors and numbers:
    every output has the same elements, but for rounding.
    """
    is_plain = all(_number(operation)[1] is None for operation in graph.operations)
    return graph if is_plain else _Merger(graph, emit).run()


class _Merger:
    """The operations of a graph, which change in their places or go."""

    def __init__(self, graph: Graph, emit: Emitter) -> None:
        self._graph, self._emit = graph, emit
        self._operations: list[Operation | None] = list(graph.operations)
        pairs = enumerate(graph.operations)
        self._places = {t: place for place, op in pairs for t in op.outputs}
        self._uses = count_uses(graph)

    def run(self) -> Graph:
        for step in (self._merge, self._take_mean):
            for place in range(len(self._operations)):
                operation = self._operations[place]
                if operation is not None and self._emit.is_new(operation.outputs[0]):
                    step(operation)
        left = tuple(op for op in self._operations if op is not None)
        return replace(self._graph, operations=left)

    # Steps

    def _merge(self, operation: Operation) -> None:
        """c * (d * x), where other factors may be between the two; and sums."""
        if operation.name in OPPOSITE:
            total = self._once(operation)
            if total.name in OPPOSITE:
                self._take_sign(total)
            return
        number, x = _number(operation)
        path = self._path(x)
        if path and self._multiply(path, number, operation):
            self._replace(operation, path[0])
        elif x is None and operation.name == "mul":
            self._join(operation)

    def _join(self, product: Operation) -> None:
        """(c * x) * (d * y): one of the numbers takes the other."""
        paths = [self._path(factor) for factor in product.operands]
        for kept, taken in (paths, paths[::-1]) if all(paths) else ():
            if len(taken) > 1:
                continue
            last = self._now(taken[0])
            number, x = _number(last)
            if self._multiply(kept, number, product):
                product = self._now(product.outputs[0])
                self._put(product, substitute(product, {taken[0]: x}))
                self._put(last, None)
                return

    def _once(self, total: Operation) -> Operation:
        """x + x, (y + x) + x and (y - x) - x, where a number in x is doubled instead."""
        y, x = total.operands
        path = self._path(x, uses=2)
        first = self._now(path[0]) if y == x and path else self._derived(y)
        if not path or first is None:
            return total
        is_twice = total.name == "add"
        if y != x:
            does_same = (first.name, first.operands[1:]) == (total.name, (x,))
            is_twice = does_same and self._uses[first.outputs[0]] == 1
        if not is_twice or not self._multiply(path, Fraction(2), first):
            return total
        self._uses[path[0]] = 1
        return self._replace(total, first.outputs[0])

    def _take_sign(self, total: Operation) -> None:
        """y + -x, -x + y and y - -x."""
        for index in (1, 0) if total.name == "add" else (1,):
            path = self._path(total.operands[index])
            is_negative = path and _number(self._now(path[-1]))[0] < 0
            if is_negative and self._multiply(path, Fraction(-1), total):
                total = self._now(total.outputs[0])
                kept, taken = total.operands[1 - index], total.operands[index]
                self._set(total, OPPOSITE[total.name], kept, taken)
                return

    def _take_mean(self, operation: Operation) -> None:
        """A sum that is divided by the number of its terms."""
        operands = operation.operands
        total = self._derived(operands[0]) if operation.name == "div" else None
        if total is None or total.name != "sum_reduce" or total.attributes["normalize"]:
            return
        (terms,), axes = total.operands, total.attributes["axes"]
        count = prod(shape_of(terms)[axis] for axis in axes)
        if operands[1] == count and self._uses[total.outputs[0]] == 1:
            self._set(operation, "mean_reduce", terms, axes=axes)
            self._rename(operation.outputs[0], "mean_")
            self._put(total, None)

    # Products

    def _path(self, x: Operand | None, *, uses: int = 1, reach: int = REACH) -> Path:
        """The way from a tensor to the number it is a multiple of, through single uses."""
        product = self._derived(x)
        if product is None or self._uses[product.outputs[0]] != uses or reach == 0:
            return ()
        if _number(product)[1] is not None:
            return product.outputs
        for index in _factors(product):
            rest = self._path(product.operands[index], reach=reach - 1)
            if rest:
                return (*product.outputs, *rest)
        return ()

    def _multiply(self, path: Path, factor: Fraction, user: Operation) -> bool:
        """Multiplies the number at the end of a path, whose beginning an operation
        uses. Returns False where the product is not exact or too far from 1, or is 1
        and there is nothing else.
        """
        last, is_long = self._now(path[-1]), len(path) > 1
        number, x = _number(last)
        product = number * factor
        if is_long and abs(factor) != 1 and not 1 / FAR <= abs(product) <= FAR:
            return False
        if product == 1:
            if not is_long and user.name not in OPPOSITE:
                return False
            next_user = self._now(path[-2]) if is_long else user
            self._put(next_user, substitute(next_user, {path[-1]: x}))
            self._put(last, None)
        else:
            scaled = _scaled(product, x, "div" in (last.name, user.name))
            if scaled is None:
                return False
            self._set(last, *scaled)
        for tensor in path:
            self._rename(tensor, "scaled_")
        return True

    # Operations

    def _now(self, tensor: Tensor) -> Operation:
        """The operation that makes a tensor now."""
        operation = self._operations[self._places[tensor]]
        assert operation is not None
        return operation

    def _derived(self, x: Operand | None) -> Operation | None:
        """The same, if it is of this derivative: the forward graph stays as it is."""
        return self._now(x) if isinstance(x, Tensor) and self._emit.is_new(x) else None

    def _put(self, before: Operation, after: Operation | None) -> None:
        self._operations[self._places[before.outputs[0]]] = after

    def _set(
        self, before: Operation, name: str, *operands: Operand, **attributes: Any
    ) -> None:
        """Puts a call in the place of an operation."""
        definition = self._emit.opset.declarations[name]
        call, _ = bind_call(definition, operands, attributes, None)
        self._put(before, replace(before, **call._asdict()))

    def _replace(self, operation: Operation, tensor: Tensor) -> Operation:
        """Ends an operation: what makes one of its operands makes its result."""
        taken = replace(self._now(tensor), results=operation.results)
        self._put(operation, None)
        self._operations[self._places[tensor]] = taken
        self._places[operation.outputs[0]] = self._places[tensor]
        return taken

    def _rename(self, tensor: Tensor, scale: str) -> None:
        """Changes the name of a tensor that is multiplied with another number now."""
        hint = self._emit.hints[tensor]
        stem = next((hint[len(s) :] for s in SCALES if hint.startswith(s)), hint)
        self._emit.set_hint(tensor, f"{scale}{stem}")


# ---- Products ----


def _number(operation: Operation) -> tuple[Fraction, Operand | None]:
    """The number that an operation multiplies a tensor with, and the tensor, if any."""
    if operation.name == "neg":
        return Fraction(-1), operation.operands[0]
    if operation.name in ("mul", "div"):
        left, right = operation.operands
        if operation.name == "mul" and _is_factor(left):
            return Fraction(left), right
        if _is_factor(right):
            return Fraction(right) ** (1 if operation.name == "mul" else -1), left
    return Fraction(1), None


def _is_factor(operand: Operand) -> TypeGuard[float]:
    return isinstance(operand, float) and operand != 0.0 and isfinite(operand)


def _factors(operation: Operation) -> tuple[int, ...]:
    """The operands that the result of an operation is a multiple of."""
    if operation.name == "select":
        return tuple(i for i in (1, 2) if operation.operands[3 - i] == 0.0)
    return {"mul": (0, 1), "div": (0,)}.get(operation.name, ())


def _scaled(
    factor: Fraction, x: Operand | None, is_division: bool
) -> tuple[Any, ...] | None:
    """An operation and its operands that multiply exactly; None if there is none."""
    divisor = 1 / factor
    if factor == -1:
        return "neg", x
    if _is_exact(divisor) and (is_division or not _is_exact(factor)):
        return "div", x, float(divisor)
    return ("mul", float(factor), x) if _is_exact(factor) else None


def _is_exact(number: Fraction) -> bool:
    """Whether it is a number of double precision, far from the limits of single one."""
    return 1e-30 < abs(number) < 1e30 and Fraction(float(number)) == number
