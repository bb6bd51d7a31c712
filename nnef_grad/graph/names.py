"""Fresh names: they never collide, and names that the user chose are never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nnef_grad.base.errors import suggestion
from nnef_grad.graph.ir import Graph, Operation, Tensor, map_tensors
from nnef_grad.language.syntax import KEYWORDS


class NameSupply:
    """Generates unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*KEYWORDS, *taken}
        self._next: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """The wished name, with the first free numeric suffix if it is taken."""
        name = wish
        if name in self.taken:
            number = self._next.get(wish, 1)
            while (name := f"{wish}_{number}") in self.taken:
                number += 1
            self._next[wish] = number + 1
        self.taken.add(name)
        return name


def advice_on(graph: Graph, name: str, known: Sequence[str]) -> str:
    """Advice about an unknown name: labels and names are mixed up easily."""
    for tensor, label in graph.labels.items():
        if label == name:
            return f": this is a label, and the tensor is called '{tensor}'"
    return suggestion(name, known)


def substitute(operation: Operation, tensors: Mapping[Tensor, Any]) -> Operation:
    """The operation with some of its tensors replaced."""
    if not tensors:
        return operation
    old = tensors.keys()
    if old.isdisjoint(operation.inputs) and old.isdisjoint(operation.outputs):
        return operation

    def replaced(tensor: Tensor) -> Any:
        return tensors.get(tensor, tensor)

    return operation.rewired(
        map_tensors(replaced, operation.operands),
        map_tensors(replaced, operation.results),
    )


def with_names(
    graph: Graph, wishes: Mapping[str, str], reserved: Iterable[str] = ()
) -> Graph:
    """The graph with fresh names for some tensors: the wished ones by the old ones."""
    others = (name for name in graph.names.values() if name not in wishes)
    supply = NameSupply((*reserved, *others))
    names = {name: supply.fresh(wish) for name, wish in wishes.items()}
    return replace(
        graph,
        names={tensor: names.get(name, name) for tensor, name in graph.names.items()},
        quantization={
            names.get(name, name): replace(q, tensor=names.get(name, name))
            for name, q in graph.quantization.items()
        },
    )


def with_tensors(graph: Graph, tensors: Mapping[Tensor, Tensor]) -> Graph:
    """The graph with some of its tensors replaced, which keep their names."""
    changed = {old: new for old, new in tensors.items() if old is not new}
    names = {new: graph.names[old] for old, new in changed.items()}
    if not changed:
        return graph
    return replace(
        graph,
        inputs=tuple([changed.get(t, t) for t in graph.inputs]),
        outputs=tuple([changed.get(t, t) for t in graph.outputs]),
        operations=tuple([substitute(op, changed) for op in graph.operations]),
        names={**graph.names, **names},
    )
