"""Fresh names: they never collide, and names that the user chose are never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.language.lexical import KEYWORDS


class NameSupply:
    """Generates unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*KEYWORDS, *taken}
        self._next: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """The wished name, with the first free numeric suffix if it is taken."""
        name, number = wish, self._next.get(wish, 1)
        while name in self.taken:
            name, number = f"{wish}_{number}", number + 1
        self._next[wish] = number
        self.taken.add(name)
        return name


def assign_names(
    graph: Graph,
    hints: Mapping[str, str],
    pinned: Mapping[Tensor, str],
    reserved: Iterable[str] = (),
) -> Graph:
    """The graph with final names for the tensors with provisional ones, assigned in the
    order of the operations.

    Args:
        graph: a graph, some tensors of which have provisional names.
        hints: the preferred name, by provisional name.
        pinned: the required name, by tensor.
        reserved: names that must not be assigned.
    """
    tensors = graph.tensors
    supply = NameSupply([*tensors.keys() - hints.keys(), *pinned.values(), *reserved])
    final: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in hints:
            wish = pinned.get(tensor) or supply.fresh(hints[name])
            final[name] = Tensor(wish, tensor.dtype, tensor.shape)
    inputs, outputs = (_renamed(ts, final) for ts in (graph.inputs, graph.outputs))
    operations = tuple([_with_names(op, final) for op in graph.operations])
    return replace(graph, inputs=inputs, outputs=outputs, operations=operations)


def _with_names(operation: Operation, final: Mapping[str, Tensor]) -> Operation:
    """The operation with tensors that have final names."""
    operands = _renamed(operation.operands, final)
    results = _renamed(operation.results, final)
    if operands is operation.operands and results is operation.results:
        return operation
    return operation.rewired(operands, results)


def _renamed(values: tuple[Any, ...], final: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """The values with tensors that have final names; the same ones, if they have."""
    found: list[Any] = []
    is_changed = False
    for value in values:
        new = value
        if type(value) is Tensor:
            new = final.get(value.name, value)
        elif type(value) is tuple:
            new = _renamed(value, final)
        found.append(new)
        is_changed = is_changed or new is not value
    return tuple(found) if is_changed else values


def step_names(
    pattern: str, own: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """A function from the names of values inside a rule or a body to those in the
    graph.

    Args:
        pattern: contains `{}` in place of the name of the value.
        own: exceptions, by the name of the value.
    """
    known = own or {}
    return lambda name: known.get(name) or pattern.format(name)


def substitute(operation: Operation, tensors: Mapping[Tensor, Any]) -> Operation:
    """The operation with some of its tensors replaced."""
    if not tensors:
        return operation
    operands = _substitute(operation.operands, tensors)
    results = _substitute(operation.results, tensors)
    if operands is operation.operands and results is operation.results:
        return operation
    return operation.rewired(operands, results)


def _substitute(value: Any, tensors: Mapping[Tensor, Any]) -> Any:
    if isinstance(value, Tensor):
        return tensors.get(value, value)
    if isinstance(value, tuple):
        items = tuple(_substitute(item, tensors) for item in value)
        return value if items == value else items
    return value
