"""Where the examples of a batch are in each tensor, and whether they meet.

Axis 0 of all inputs counts examples. From there they are followed through the graph, to an
axis of each tensor that depends on an input: an operation moves that axis, or leaves it where
it is, or joins it with others. Examples meet where an operation computes an element from
several of them: a sum over the batch, a slice of it, batch normalization by its moments.
What depends on no input is shared by all examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from nnef_grad.autodiff.places import (
    HAS_ITEMS,
    REPEATED,
    RULES,
    UNKNOWN,
    MeetError,
    Place,
    Rule,
    Use,
)
from nnef_grad.base.errors import NoDerivativeError, UsageError
from nnef_grad.emit.bodies import Decompose, inline, is_short, unrolled
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.graph.ir import Graph, Operation, Tensor
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

    count: int
    places: Mapping[Tensor, Place]
    operands: Mapping[Operation, Mapping[Tensor, Place]] = field(default_factory=dict)
    own: Set[Tensor] = frozenset()

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
    outputs: Sequence[Tensor],
    wrt: Sequence[Tensor],
    active: Iterable[Tensor],
    opset: OpSet,
) -> Examples:
    """The examples of a graph, in what leads to outputs and in what these are differentiated
    with respect to.

    Args:
        graph: the graph, in which axis 0 of all inputs counts examples.
        outputs: the outputs, whose axis 0 does.
        wrt: what they are differentiated with respect to.
        active: what gradients flow through: a shared tensor of these that has an item for
            each example must have been made so from what has none.
        opset: the operations that there are.

    Raises:
        UsageError: axis 0 of an input or output does not count examples.
        NoDerivativeError: the examples meet in an operation, which the error names, or it
            is not known to keep them apart.
    """
    graph = _in_known_operations(graph, opset)
    operations = _needed(graph.operations, (*outputs, *wrt))
    count = _count(graph, operations)
    if count == 1:
        inputs = (op.outputs[0] for op in operations if op.name == "external")
        places = dict.fromkeys(_dependent(operations, inputs), Place(0))
        _check_outputs(graph, outputs, count, dict.fromkeys(outputs, Place(0)))
        return Examples(count, places)
    active = _dependent(operations, active)
    # Shared tensors that have an item for each example: those that gradients flow through,
    # and data that such are made of.
    repeated: dict[Tensor, Place] = {}
    while True:
        search = _Search(graph, count, repeated)
        search.follow(operations, outputs)
        found = {x: p for x, p in search.own.items() if x in active}
        if not found.keys() - search.places.keys():
            break
        further = _repeated_in(operations, found, count)
        if further.keys() <= repeated.keys():
            (x, *_) = found.keys() - search.places.keys()
            raise NoDerivativeError(HAS_ITEMS.format("", graph.names[x]))
        repeated |= further
    _check_outputs(graph, outputs, count, {**search.own, **search.places})
    own = search.own.keys() - search.places.keys()
    return Examples(count, search.places, search.operands, own)


def _check_outputs(
    graph: Graph, outputs: Iterable[Tensor], count: int, places: Mapping[Tensor, Place]
) -> None:
    for y in outputs:
        if places.get(y) != Place(0) or y.shape[:1] != (count,):
            what = f"axis 0 of the output '{graph.names[y]}'"
            raise UsageError(f"{what}, of shape {_text(y)}, does not count examples")


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
    count: int,
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
        return instantiate_body if has_body and operation.name not in RULES else None

    while (inlined := inline(graph, body, opset)) is not graph:
        graph = inlined
    return graph


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


def _count(graph: Graph, operations: Iterable[Operation]) -> int:
    """How many examples there are: the extent of axis 0 of all inputs."""
    inputs = [op.outputs[0] for op in operations if op.name == "external"]
    if not (inputs := inputs or [*graph.inputs]):
        raise UsageError("there is no input, whose axis 0 counts examples")
    first, *_ = inputs
    for x in inputs:
        if not x.rank or not first.rank or x.shape[0] != first.shape[0]:
            both = " and ".join(
                f"'{graph.names[t]}' {_text(t)}" for t in {first: 0, x: 0}
            )
            what = "axis 0 of all inputs counts examples, and their shapes are"
            raise UsageError(f"{what} {both}")
    return first.shape[0]


def _text(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


class _Search:
    """Follows examples through operations; `repeated` are shared tensors that have an item
    for each example.
    """

    def __init__(
        self, graph: Graph, count: int, repeated: Mapping[Tensor, Place]
    ) -> None:
        self.graph, self.count, self.repeated = graph, count, repeated
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
                self.places[made[0]] = Place(0)
            elif not self.places.keys().isdisjoint(operation.inputs):
                self._add(operation, None, RULES)
            else:
                wanted = [self.repeated[t] for t in made if t in self.repeated]
                if wanted:
                    self._add(operation, wanted[0], REPEATED)

        for y in outputs:
            # It may be a gradient, which is a constant of a linear function.
            if y not in self.places and y.shape[:1] == (self.count,):
                self.own[y] = Place(0)

    def _add(
        self, operation: Operation, wanted: Place | None, rules: Mapping[str, Rule]
    ) -> None:
        at = {x: self.places[x] for x in operation.inputs if x in self.places}
        use = Use(operation, self.count, at, wanted)
        try:
            if (rule := rules.get(operation.name)) is None:
                raise MeetError(UNKNOWN)
            place = rule(use)
        except MeetError as error:
            name = self.graph.names[operation.outputs[0]]
            told = error.args[0] if wanted is None else HAS_ITEMS
            message = told.format(operation.name, name)
            raise NoDerivativeError(message, operation.span) from None
        self.places.update(dict.fromkeys(operation.outputs, place))
        self.operands[operation] = {**at, **use.own}
        self.own |= use.own
