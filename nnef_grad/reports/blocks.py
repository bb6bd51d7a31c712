"""Which forward operation each operation of a backward graph stands beside.

An operation of a derivative has its forward operation as `origin`; a forward operation
that is computed again has the results of the forward graph. What is neither belongs to
an operation that was replaced by others, before it was differentiated or for a target:
it stands where those stand that read its results.
"""

from __future__ import annotations

from collections.abc import Iterable

from nnef_grad.autodiff.backward import Backward
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.traits import DATA

Places = dict[Tensor, int]


def hosts(graph: Graph) -> list[int]:
    """For each operation, the index of the one that it is drawn with: variables and
    constants are drawn with the first operation that reads them, all others alone.
    """
    readers: Places = {}
    for index, operation in enumerate(graph.operations):
        for tensor in operation.inputs:
            readers.setdefault(tensor, index)
    return [
        readers.get(op.outputs[0], index) if op.name in DATA else index
        for index, op in enumerate(graph.operations)
    ]


def blocks(forward: Graph, backward: Backward) -> list[int]:
    """For each operation of the backward graph, the index of the forward operation that
    it is drawn beside.
    """
    places = _known_places(forward, backward)
    operations = backward.graph.operations
    _place_replaced(places, operations)
    _place_rest(places, operations)
    _place_kept(places, operations)
    # What nothing reads, and is made of nothing, is at the end: zeros, the gradient of a
    # tensor without influence.
    last = len(forward.operations) - 1
    own = (_place_of(places, op.outputs) for op in operations)
    return [last if place is None else place for place in own]


def _known_places(forward: Graph, backward: Backward) -> Places:
    """The places of what a backward graph has of the forward graph, which may have been
    read apart from it, and of the gradients of outputs.
    """
    pairs = zip(forward.operations, hosts(forward), strict=True)
    known = {forward.names[t]: index for op, index in pairs for t in op.outputs}
    known |= {s: known[y] for y, s in backward.seeds.items() if y in known}
    names = backward.graph.names.items()
    return {tensor: known[name] for tensor, name in names if name in known}


def _place_replaced(places: Places, operations: Iterable[Operation]) -> None:
    """Places what an operation was replaced by: its results lead to a tensor that the
    forward graph has.
    """
    # The forward operations: those in the backward graph, and those of its derivatives.
    own = [op for op in operations if op.origin is None]
    origins = dict.fromkeys(op.origin for op in operations if op.origin is not None)
    involved = [*own, *origins]
    readers: dict[Tensor, list[Tensor]] = {}
    for operation in involved:
        for tensor in operation.inputs:
            readers.setdefault(tensor, []).extend(operation.outputs)
    waiting = [t for op in involved for t in op.outputs if t not in places]
    before = None
    while waiting != before:
        before = waiting
        for tensor in reversed(waiting):
            led_to = [places[t] for t in readers.get(tensor, ()) if t in places]
            if led_to:
                places[tensor] = min(led_to)
        waiting = [tensor for tensor in waiting if tensor not in places]


def _place_rest(places: Places, operations: tuple[Operation, ...]) -> None:
    """Places the tensors of derivatives with those of their forward operation; then what
    has no other place with the first operation that reads it, or where its operands are.
    """
    for operation in operations:
        if operation.origin is not None:
            _put(places, operation.outputs, _place_of(places, operation.origin.outputs))
    for operation in reversed(operations):
        _put(places, operation.inputs, _place_of(places, operation.outputs))
    for operation in operations:
        _put(places, operation.outputs, _place_of(places, operation.inputs[::-1]))


def _place_kept(places: Places, operations: tuple[Operation, ...]) -> None:
    """Places what an optimizer keeps of each variable with the gradient that it meets: what
    is read at one place alone.
    """
    read: dict[Tensor, set[int | None]] = {}
    for operation in reversed(operations):
        for tensor in operation.outputs:
            if len(readers := read.get(tensor, set())) == 1:
                _put(places, [tensor], *readers)
        place = _place_of(places, operation.outputs)
        for tensor in operation.inputs:
            read.setdefault(tensor, set()).add(place)


def _put(places: Places, tensors: Iterable[Tensor], place: int | None) -> None:
    """Gives tensors a place, if there is one, but for those that have another."""
    if place is not None:
        for tensor in tensors:
            places.setdefault(tensor, place)


def _place_of(places: Places, tensors: Iterable[Tensor]) -> int | None:
    return next((places[t] for t in tensors if t in places), None)
