"""The first operation of each that computes the same, in one graph."""

from __future__ import annotations

from typing import Union

from nnef_grad.emit.arguments import Call, settings_key
from nnef_grad.graph.ir import Operand, Operation, Tensor

Computed = Union[Call, Operation]


class Firsts:
    """Operations, to be found by what they compute. Most begin like none that is looked
    for, with the same name and first tensor: their keys are never asked for.
    """

    def __init__(self) -> None:
        # By their beginnings, those that have no key yet.
        self._begun: dict[object, list[Operation]] = {}
        self._by_key: dict[object, Operation] = {}

    def add(self, operation: Operation) -> None:
        """Adds an operation, which may compute the same as another one."""
        self._begun.setdefault(_beginning(operation), []).append(operation)

    def find(self, call: Computed, settings: str | None = None) -> Operation | None:
        """The first operation that computes what a call does, if there is one; `settings`
        is its `settings_key`, if it is known.
        """
        begun = self._begun.get(_beginning(call))
        if begun is None:
            return None
        for operation in begun:
            self._by_key.setdefault(operation_key(operation), operation)
        begun.clear()
        return self._by_key.get(operation_key(call, settings))

    def first(self, operation: Operation) -> Operation:
        """The first operation that computes the same as one, which is added."""
        earlier = self.find(operation)
        if earlier is None:
            self.add(operation)
        return earlier or operation


def operation_key(call: Computed, settings: str | None = None) -> tuple[object, ...]:
    """Equal for what computes the same; `settings` is its `settings_key`, if known."""
    operands = [o if type(o) is Tensor else _identity(o) for o in call.operands]
    settings = settings_key(call) if settings is None else settings
    return call.definition.name, call.dtype, settings, *operands


def _beginning(call: Computed) -> object:
    name, operands = call.definition.name, call.operands
    first = operands[0] if operands else None
    return (name, first) if type(first) is Tensor else name


def _identity(operand: Operand) -> object:
    """A tensor; for a literal, what is equal for the same one alone."""
    if isinstance(operand, tuple):
        return tuple(map(_identity, operand))
    return operand if isinstance(operand, Tensor) else (type(operand), repr(operand))
