"""Tensors that are full of one known number: the gradient of a loss begins as ones, and an
optimizer computes with settings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, put_bodies
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.opset import OpSet

# What leaves the numbers of a tensor as they are, in another order or shape.
_MOVING = {"copy", "reshape", "squeeze", "transpose", "unsqueeze"}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def fold_numbers(graph: Graph, opset: OpSet) -> Graph:
    """The graph with a literal in place of each tensor that is full of one number, where
    another operand has the shape of the result.
    """
    known: dict[Tensor, float] = {}

    def number(operand: Operand) -> float | None:
        if isinstance(operand, Tensor):
            return known.get(operand)
        return operand if isinstance(operand, float) else None

    def body(operation: Operation) -> Decompose | None:
        value = _value(operation, [number(x) for x in operation.operands])
        if value is not None:
            known[operation.outputs[0]] = value
            return None if operation.name == "constant" else _full(value)
        operands = tuple(_literal(x, number(x)) for x in operation.operands)
        if operation.name not in _BROADCASTING or operands == operation.operands:
            return None
        return _with(operands) if _has_shape(operation, operands) else None

    return put_bodies(graph, [body(op) for op in graph.operations], opset)


_BROADCASTING = {*_ARITHMETIC, "div", "max", "min", "select"}


def _value(operation: Operation, numbers: Sequence[float | None]) -> float | None:
    """The number that the result of an operation is full of, if that is known."""
    if operation.name == "constant" and operation.outputs[0].dtype == "scalar":
        first, *others = {*operation.attributes["value"]}
        return None if others else first
    found = [n for n in numbers if n is not None]
    if not found or len(found) < len(numbers):
        return None
    if operation.name in _MOVING:
        return found[0]
    if operation.name in _ARITHMETIC:
        return _ARITHMETIC[operation.name](*found)
    is_quotient = operation.name == "div" and found[1] != 0.0
    return found[0] / found[1] if is_quotient else None


def _literal(operand: Operand, number: float | None) -> Operand:
    return operand if number is None else number


def _has_shape(operation: Operation, operands: Sequence[Operand]) -> bool:
    """Whether other operands give the result the shape that it has."""
    return broadcast(*map(shape_of, operands)) == operation.outputs[0].shape


def _full(value: float) -> Decompose:
    def build(emit: Emitter, operation: Operation) -> list[Any]:
        shape = operation.outputs[0].shape
        return [emit("constant", shape=shape, value=(value,))]

    return build


def _with(operands: Sequence[Operand]) -> Decompose:
    return lambda emit, operation: emit.emit_again(operation, operands)
