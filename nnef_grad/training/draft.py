"""A graph that is added to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.emit.verifier import verify_order
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, tensors
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import prune, put_inputs_first
from nnef_grad.graph.pipeline import told
from nnef_grad.language.labels import label_key
from nnef_grad.ops.registry import OpSet


class Draft:
    """A graph that grows. It has the operations of an opset, and no variable of its own
    under the labels of those whose values are kept beside it.

    Attributes:
        emit: emits operations after those of the graph.
        inputs: the inputs so far.
        state: the further variables.
        noise: the inputs that noise is drawn for.
    """

    def __init__(
        self,
        graph: Graph,
        opset: OpSet,
        labels: Iterable[str] = (),
    ) -> None:
        self._graph = graph
        self._tensors = graph.tensors
        self._supply = NameSupply(self._tensors)
        self.emit = Emitter(opset.extended(graph.fragments), graph.names, simplify)
        for operation in graph.operations:
            self.emit.append(operation)
        self.inputs = [*graph.inputs]
        self.state: list[Tensor] = []
        self.noise: list[Tensor] = []
        self._labels = {*map(label_key, (*graph.labels.values(), *labels))}

    def tensor(self, name: str) -> Tensor:
        """The tensor of a name in the graph that it was in the beginning."""
        return self._tensors[name]

    def external(
        self, wish: str, shape: Shape, dtype: str = "scalar", *, before: str = ""
    ) -> Tensor:
        """A further input, after the others, or before the one of a name."""
        name = self._supply.fresh(wish)
        tensor = self.emit.emit_named(name, "external", dtype, shape=shape)
        names = [self.emit.names[t] for t in self.inputs]
        place = names.index(before) if before in names else len(names)
        self.inputs.insert(place, tensor)
        return tensor

    def variable(self, wish: str, shape: Shape, label: str) -> Tensor:
        """A further variable, under a label of its own: that wished for, if it is free."""
        number, free = 1, label
        while label_key(free) in self._labels:
            number, free = number + 1, f"{label}_{number}"
        self._labels.add(label_key(free))
        name, how = self._supply.fresh(wish), {"shape": shape, "label": free}
        self.state.append(self.emit.emit_named(name, "variable", "scalar", **how))
        return self.state[-1]

    def named(self, value: Operand, wish: str) -> Tensor:
        """The tensor of a value, under a name of its own: the wish, if it is free."""
        if isinstance(value, Tensor) and self.emit.names.get(value) == wish:
            return value
        return self.emit.pin_name(value, self._supply.fresh(wish))

    def updated(self, variable: Tensor, value: Tensor) -> Tensor:
        """A variable, after it has got a new value."""
        name = self._supply.fresh(f"updated_{self.emit.names[variable]}")
        return self.emit.emit_named(name, "update", variable=variable, value=value)

    def reduced(
        self, tensor: Tensor, operation: str, word: str, first: int = 0
    ) -> Tensor:
        """A reduction of all axes, or of those from the first one on, which are gone: a
        tensor called by a word.
        """
        axes = list(range(first, tensor.rank))
        if not axes:
            return tensor
        single = self.emit(operation, tensor, axes=axes, hint=f"single_{word}")
        return self.emit("squeeze", single, axes=axes, hint=word)

    def finished(self, outputs: Sequence[Tensor], **changes: Any) -> Graph:
        """The graph with these outputs and other fields, such as its notes, without what is
        not used, with final names.
        """
        # The variables of the model, then the state, then all other operations.
        operations = sorted(self.emit.operations, key=lambda op: op.name != "variable")
        interface = {"inputs": tuple(self.inputs), "outputs": tuple(outputs)}
        changes |= {**interface, "operations": tuple(operations)}
        graph = put_inputs_first(prune(replace(self._graph, **changes)))
        names = self.emit.assigned_names(graph.operations, self._supply.taken)
        # Headings show tensors that are not used, too.
        graph = replace(graph, names={**self.emit.hints, **names})
        verify_order(graph)
        told("training-step", graph)
        return graph


def sources_of(operations: Sequence[Operation], *values: Operand) -> set[Tensor]:
    """Tensors and all that they are computed from; nothing, of a number."""
    sources = set(tensors(values))
    for operation in reversed(operations):
        if not sources.isdisjoint(operation.outputs):
            sources.update(operation.inputs)
    return sources
