"""Takes back the rewrites of simplify.py that did not pay, when the graph is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nnef_grad.build.arguments import Call
from nnef_grad.graph.ir import Graph, Tensor, tensors
from nnef_grad.graph.passes import prune


def restore(graph: Graph, simplified: Mapping[Tensor, Call]) -> Graph:
    """The graph without needless operations: what a tensor is a simpler form of takes
    its place where this leaves fewer operations.

    Args:
        graph: a graph with all operations that were emitted, needed or not.
        simplified: what tensors are a simpler form of.
    """
    uses = _Uses(graph)
    for place, operation in enumerate(graph.operations):
        call = simplified.get(operation.outputs[0])
        if call is None or not uses.all_precede(tensors(call.operands), place):
            continue
        before, written = operation.inputs, replace(operation, **call._asdict())
        if not uses.is_needed(place):
            # What may need it again is as it was written, too.
            uses.operations[place] = written
        elif uses.hold(written.inputs) < uses.release(before):
            uses.operations[place] = written
        else:
            uses.hold(before)
            uses.release(written.inputs)
    return prune(replace(graph, operations=tuple(uses.operations)))


class _Uses:
    """How often the results of each operation are used, while operations change.

    Attributes:
        operations: all of them; those that are not used have no effect.
    """

    def __init__(self, graph: Graph) -> None:
        self.operations = list(graph.operations)
        pairs = enumerate(graph.operations)
        self._places = {t: place for place, op in pairs for t in op.outputs}
        self._counts: Counter[int] = Counter()
        self.hold((*graph.inputs, *graph.outputs))

    def is_needed(self, place: int) -> bool:
        """Whether the results of the operation at a place are used."""
        return self._counts[place] > 0

    def all_precede(self, operands: Iterable[Tensor], place: int) -> bool:
        """Whether tensors are computed before a place."""
        return all(self._places[tensor] < place for tensor in operands)

    def hold(self, operands: Iterable[Tensor]) -> int:
        """Adds a use of each tensor, and returns how many operations that adds."""
        return self._count(operands, 1, 1)

    def release(self, operands: Iterable[Tensor]) -> int:
        """Ends a use of each tensor, and returns how many operations that removes."""
        return self._count(operands, -1, 0)

    def _count(self, operands: Iterable[Tensor], step: int, turn: int) -> int:
        """Operations whose count turns take their own operands along."""
        pending, turned = list(operands), 0
        while pending:
            place = self._places[pending.pop()]
            self._counts[place] += step
            if self._counts[place] == turn:
                turned += 1
                pending += self.operations[place].inputs
        return turned
