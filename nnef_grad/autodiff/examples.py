"""Where the examples of a batch are in each tensor, and whether they meet.

An axis of each input counts examples. From there they are followed through the graph, to an
axis of each tensor that depends on one: an operation moves that axis, or leaves it where
it is, or joins it with others. Examples meet where an operation computes an element from
several of them: a sum over the batch, a slice of it, batch normalization by its moments.
What depends on no input is shared by all examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.example_axes import Axes, axes_of, shape_text
from nnef_grad.base.errors import NoDerivativeError, UsageError
from nnef_grad.emit.bodies import is_short, unrolled
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import Decompose, inline, inline_fully
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.examples import (
    HAS_ITEMS,
    MAY_MEET,
    PLACES,
    REPEATED,
    MeetError,
    Place,
    PlaceRule,
    Use,
)
from nnef_grad.ops.registry import OpSet


@dataclass(frozen=True)
class Examples:
    """The examples of a graph.

    Attributes:
        count: how many there are.
        places: where they are in each tensor that is not shared by all.
        operands: the same for the operands of operations whose results are not shared; a
            constant may have an item for each example.
        own: these constants.
    """

    count: Dimension
    places: Mapping[Tensor, Place]
    operands: Mapping[Operation, Mapping[Tensor, Place]] = field(default_factory=dict)
    own: Set[Tensor] = frozenset()

    def axes(self, tensors: Iterable[Tensor]) -> Axes:
        """The axes that count examples, of those tensors of which one axis does nothing
        else; None for what is shared.
        """
        extents = {x: x.shape[at] for x in tensors if (at := self._axis(x)) is not None}
        alone = {x for x, extent in extents.items() if extent == self.count}
        return {x: self._axis(x) for x in tensors if x not in extents or x in alone}

    def _axis(self, tensor: Tensor) -> int | None:
        place = self.places.get(tensor)
        return None if place is None or not tensor.rank else place.axis

    def of(self, operation: Operation) -> Mapping[Tensor, Place]:
        """Where the examples are in what an operation has and makes."""
        every = (*operation.inputs, *operation.outputs)
        places = {x: self.places[x] for x in every if x in self.places}
        if operation not in self.operands and not self.own.isdisjoint(every):
            # They were followed through its body.
            name = operation.name
            message = (
                f"'{name}' has a constant with items for the examples of the batch"
            )
            raise NoDerivativeError(message, operation.span)
        return {**places, **self.operands.get(operation, {})}


def find_examples(
    graph: Graph,
    axes: Axes,
    outputs: Sequence[Tensor],
    wrt: Sequence[Tensor],
    active: Iterable[Tensor],
    opset: OpSet,
) -> Examples:
    """The examples of a graph, in what leads to outputs and in what these are differentiated
    with respect to.

    Args:
        graph: the graph.
        axes: the axis of each input and output that counts examples.
        outputs: the outputs.
        wrt: what they are differentiated with respect to.
        active: what gradients flow through: a shared tensor of these that has an item for
            each example must have been made so from what has none.
        opset: the operations that there are.

    Raises:
        UsageError: the axis of an input or output does not count examples.
        NoDerivativeError: the examples meet in an operation, which the error names, or it
            is not known to keep them apart.
    """
    graph = _in_known_operations(graph, opset)
    operations = _needed(graph.operations, (*outputs, *wrt))
    count = _count(graph, operations, axes)
    if count == 1:
        made = (op.outputs[0] for op in operations if op.name == "external")
        inputs = [x for x in made if has_examples(x, axes)]
        places = dict.fromkeys(_dependent(operations, inputs), Place(0))
        places |= {x: _place(x, axes) for x in inputs}
        _check_outputs(graph, axes, outputs, count)
        return Examples(count, places)
    active = _dependent(operations, active)
    # Shared tensors that have an item for each example: those that gradients flow through,
    # and data that such are made of.
    repeated: dict[Tensor, Place] = {}
    while True:
        search = _Search(graph, count, axes, repeated)
        search.follow(operations, outputs)
        found = {x: p for x, p in search.own.items() if x in active}
        if not found.keys() - search.places.keys():
            break
        further = _repeated_in(operations, found, count)
        if further.keys() <= repeated.keys():
            (x, *_) = found.keys() - search.places.keys()
            raise NoDerivativeError(HAS_ITEMS.format("", graph.names[x]))
        repeated |= further
    found = {**search.own, **search.places}
    _check_outputs(graph, axes, outputs, count, found)
    own = search.own.keys() - search.places.keys()
    return Examples(count, search.places, search.operands, own)


def has_examples(x: Tensor, axes: Axes) -> bool:
    """Whether an axis of a tensor, an input or output, counts examples."""
    return axes.get(x) is not None


def _place(x: Tensor, axes: Axes) -> Place:
    return Place(axes[x] or 0)


def _check_outputs(
    graph: Graph,
    axes: Axes,
    outputs: Iterable[Tensor],
    count: Dimension,
    places: Mapping[Tensor, Place] | None = None,
) -> None:
    for y in outputs:
        axis, *_ = place = _place(y, axes)
        is_there = places is None or places.get(y) == place
        if not is_there or y.shape[axis : axis + 1] != (count,):
            what = f"axis {axis} of the output '{graph.names[y]}'"
            message = f"{what}, of shape {shape_text(y)}, does not count examples"
            raise UsageError(message)


def _dependent(
    operations: Iterable[Operation], tensors: Iterable[Tensor]
) -> set[Tensor]:
    """Some tensors, and those that depend on them."""
    dependent = {*tensors}
    for operation in operations:
        if not dependent.isdisjoint(operation.inputs):
            dependent.update(operation.outputs)
    return dependent


def _repeated_in(
    operations: Sequence[Operation],
    found: Mapping[Tensor, Place],
    count: Dimension,
) -> dict[Tensor, Place]:
    """What makes shared tensors have an item for each example: themselves, or data that they
    are made of, such as the first state of a recurrent layer.
    """
    result: dict[Tensor, Place] = {}
    made = {x: op for op in operations for x in op.outputs}
    for tensor, place in found.items():
        if made[tensor].name in REPEATED:
            result[tensor] = place
            continue
        before = (x for op in _needed(operations, [tensor]) for x in op.outputs)
        data = [
            x for x in before if made[x].name == "constant" and count in x.shape[:2]
        ]
        result |= {x: Place(x.shape.index(count)) for x in data} or {tensor: place}
    return result


def refuse_meeting(backward: Backward, opset: OpSet) -> None:
    """Refuses gradients in which examples meet, whatever the rules of the user do."""
    graph = backward.graph
    gradients = [graph.tensors[name] for name in backward.gradients.values()]
    axes = axes_of(graph, gradients, backward.axes)
    find_examples(graph, axes, gradients, (), (), opset.extended(graph.fragments))


def without_loops(graph: Graph, opset: OpSet) -> Graph:
    """The graph with the steps of loops one after the other, if they are not too many."""

    def body(operation: Operation) -> Decompose | None:
        return unrolled if is_short(operation) else None

    return inline(graph, body, opset)


def _in_known_operations(graph: Graph, opset: OpSet) -> Graph:
    """The graph with bodies in the place of operations through which examples are not
    followed.
    """

    def body(operation: Operation) -> Decompose | None:
        has_body = operation.definition.body is not None
        return instantiate_body if has_body and operation.name not in PLACES else None

    return inline_fully(graph, body, opset)


def _needed(
    operations: Sequence[Operation], outputs: Iterable[Tensor]
) -> list[Operation]:
    """The operations that outputs depend on, in order."""
    needed, found = {*outputs}, list[Operation]()
    for operation in reversed(operations):
        if not needed.isdisjoint(operation.outputs):
            needed.update(operation.inputs)
            found.append(operation)
    return found[::-1]


def _count(graph: Graph, operations: Iterable[Operation], axes: Axes) -> Dimension:
    """How many examples there are: the extent of the axis of all inputs that have them."""
    needed = (op.outputs[0] for op in operations if op.name == "external")
    inputs = [x for x in needed if has_examples(x, axes)]
    inputs = inputs or [x for x in graph.inputs if has_examples(x, axes)]
    if not inputs:
        raise UsageError("no input has an axis that counts examples")
    first, *_ = inputs
    extents = {x: x.shape[(at := axes[x] or 0) : at + 1] for x in inputs}
    for x in inputs:
        told = f"axis {axes[x]} of '{graph.names[x]}', of shape {shape_text(x)},"
        if not extents[x]:
            raise UsageError(f"{told} should count examples, and is not there")
        if extents[x] != extents[first]:
            other = f"axis {axes[first]} of '{graph.names[first]}', of shape {shape_text(first)},"
            raise UsageError(f"{other} and {told} do not count the same examples")
    return first.shape[axes[first] or 0]


class _Search:
    """Follows examples through operations; `repeated` are shared tensors that have an item
    for each example.
    """

    def __init__(
        self,
        graph: Graph,
        count: Dimension,
        axes: Axes,
        repeated: Mapping[Tensor, Place],
    ) -> None:
        self.graph, self.count, self.repeated = graph, count, repeated
        self.axes = axes
        self.places: dict[Tensor, Place] = {}
        self.operands: dict[Operation, Mapping[Tensor, Place]] = {}
        # The shared tensors that have an item for each example.
        self.own: dict[Tensor, Place] = {}

    def follow(
        self, operations: Iterable[Operation], outputs: Iterable[Tensor]
    ) -> None:
        for operation in operations:
            made = operation.outputs
            if operation.name == "external":
                if has_examples(made[0], self.axes):
                    self.places[made[0]] = _place(made[0], self.axes)
            elif not self.places.keys().isdisjoint(operation.inputs):
                self._add(operation, None, PLACES)
            else:
                wanted = [self.repeated[t] for t in made if t in self.repeated]
                if wanted:
                    self._add(operation, wanted[0], REPEATED)

        for y in outputs:
            # It may be a gradient, which is a constant of a linear function.
            place = _place(y, self.axes)
            if y not in self.places and self.count in y.shape[place.axis :][:1]:
                self.own[y] = place

    def _add(
        self, operation: Operation, wanted: Place | None, rules: Mapping[str, PlaceRule]
    ) -> None:
        at = {x: self.places[x] for x in operation.inputs if x in self.places}
        use = Use(operation, self.count, at, wanted)
        try:
            if (rule := rules.get(operation.name)) is None:
                raise MeetError(MAY_MEET)
            place = rule(use)
        except MeetError as error:
            name = self.graph.names[operation.outputs[0]]
            told = error.args[0] if wanted is None else HAS_ITEMS
            message = told.format(operation.name, name)
            raise NoDerivativeError(message, operation.span) from None
        self.places.update(dict.fromkeys(operation.outputs, place))
        self.operands[operation] = {**at, **use.own}
        self.own |= use.own
