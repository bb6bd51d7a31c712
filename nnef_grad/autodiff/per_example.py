"""Gradients of what all examples of a batch share, for each of them.

What has an item for each example receives its gradient from the rule, as ever: where the
examples do not meet, the gradient of a sum over them is that of each. Only where an operand is
shared, the rule is applied to one example, and what it emits is batched: a product of matrices
becomes a batched product, a convolution one by groups. The gradient of a shared tensor has a
leading axis, with an item for each example, and is batched through what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any

from nnef_grad.autodiff.batching import batch
from nnef_grad.autodiff.example_axes import Axes
from nnef_grad.autodiff.examples import Examples, find_examples
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor, map_tensors
from nnef_grad.graph.loops import external
from nnef_grad.graph.passes import prune
from nnef_grad.graph.quotients import exact_quotient
from nnef_grad.ops.examples import Place
from nnef_grad.ops.shape import reshaped

# Emits the gradients of operands, of their shapes, from what an operation has received.
Pull = Callable[
    [Emitter, Operation, "tuple[Any, ...]"], "Iterable[tuple[Tensor, Tensor]]"
]


def separated(
    emit: Emitter,
    graph: Graph,
    axes: Axes,
    outputs: Sequence[Tensor],
    wrt: Sequence[Tensor],
    active: Iterable[Tensor],
) -> tuple[Axes, Set[Tensor], Separation | None]:
    """The separation of the examples of a graph: their axes, with those of `wrt`; shared tensors
    whose gradients get an axis for the one example that there is; and the gradients for each
    of several.
    """
    examples = find_examples(graph, axes, outputs, wrt, active, emit.opset)
    axes = {**examples.axes(wrt), **axes}
    if examples.count == 1:
        return axes, {x for x in wrt if x not in examples.places}, None
    return axes, frozenset(), Separation(emit, examples)


class Separation:
    """The gradients of shared tensors, for each example, in what an emitter emits."""

    def __init__(self, emit: Emitter, examples: Examples) -> None:
        self._emit, self._examples = emit, examples
        self._separated: dict[tuple[Tensor, Place], Tensor] = {}

    def is_shared(self, tensor: Tensor) -> bool:
        """Whether all examples share a tensor."""
        return tensor not in self._examples.places

    def full(self, tensor: Tensor) -> Shape:
        """The shape of the gradient of a tensor."""
        is_shared = self.is_shared(tensor)
        return (self._examples.count, *tensor.shape) if is_shared else tensor.shape

    def pull_back(
        self, operation: Operation, received: tuple[Any, ...], pull: Pull
    ) -> list[tuple[Tensor, Tensor]]:
        """The gradients of the shared operands of an operation, with the leading axis."""
        one = _OneExample(self._emit, operation, self._examples)
        with one.emit.deriving(operation):
            of_one = one.received(operation.results, received)
            pulled = pull(one.emit, one.operation, of_one)
        gradients = [(x, d) for x, d in pulled if x in one.shared]
        body = one.body([d for _, d in gradients])
        used = {*body.outputs, *(x for op in body.operations for x in op.inputs)}
        many = {
            stand_in: self._apart(*whole, stand_in.shape)
            for stand_in, whole in one.whole.items()
            if stand_in in used
        }
        results = batch(self._emit, body, many)
        return [(x, results.get(d) or self._repeated(d)) for x, d in gradients]

    def _repeated(self, gradient: Tensor) -> Tensor:
        """A gradient that is the same for all examples, for each."""
        repeats = [self._examples.count, *(1 for _ in gradient.shape)]
        single = self._emit("unsqueeze", gradient, axes=[0])
        return self._emit("tile", single, repeats=repeats)

    def _apart(self, tensor: Tensor, place: Place | None, one: Shape) -> Tensor:
        """The tensor with the examples along a leading axis, before those of one example,
        whose shape is given.
        """
        if place is None:
            return tensor
        key = tensor, place
        if key not in self._separated:
            self._separated[key] = self._moved(tensor, place)
        return reshaped(
            self._emit, self._separated[key], (self._examples.count, *one), hint="rows"
        )

    def _moved(self, tensor: Tensor, place: Place) -> Tensor:
        emit, shape, count = self._emit, tensor.shape, self._examples.count
        axis, inner = place
        outer = exact_quotient(shape[axis], count * inner)
        lead, tail = ([n] if n != 1 else [] for n in (outer, inner))
        after = shape[axis + 1 :]
        name = emit.called(tensor)
        if lead or tail:
            parts = (*shape[:axis], *lead, count, *tail, *after)
            tensor = reshaped(emit, tensor, parts, hint=f"{name}_parts")
        if (position := axis + len(lead)) != 0:
            others = [a for a in range(tensor.rank) if a != position]
            order = [position, *others]
            tensor = emit("transpose", tensor, axes=order, hint=f"{name}_moved")
        hint = f"{name}_by_example"
        if not lead and not tail:
            return emit("unsqueeze", tensor, axes=[axis + 1], hint=hint)
        if lead and tail:
            whole = (count, *shape[:axis], outer * inner, *after)
            return reshaped(emit, tensor, whole, hint=hint)
        return tensor


class _OneExample:
    """An operation on one example, in an emitter of its own."""

    def __init__(self, emit: Emitter, operation: Operation, examples: Examples) -> None:
        self._whole_emit, self._examples = emit, examples
        self.emit = Emitter(emit.opset, naming=emit.naming)
        # What stands for a tensor: that, and the place of the examples in it, if it has not
        # the leading axis.
        self.whole: dict[Tensor, tuple[Tensor, Place | None]] = {}
        self.shared: set[Tensor] = set()
        places = examples.of(operation)
        self._are_rows = _multiplies_rows(operation, places)
        stand_ins: dict[Tensor, Tensor] = {}
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor not in stand_ins:
                stand_ins[tensor] = self._stand_in(tensor, places.get(tensor))
        self.operation = _of_one(operation, stand_ins)

    def _stand_in(self, tensor: Tensor, place: Place | None) -> Tensor:
        """The stand-in for a tensor in one example: itself, if it is shared."""
        if place is None:
            self.shared.add(tensor)
            self.emit.append(external(tensor))
            return tensor
        extent = exact_quotient(tensor.shape[place.axis], self._examples.count)
        before, after = tensor.shape[: place.axis], tensor.shape[place.axis + 1 :]
        shape = (*before, extent, *after)
        if self._are_rows:
            shape = (*[1] * (len(shape) - 2), prod(shape[:-1]), shape[-1])
        return self._new(tensor, shape, place)

    def _new(self, tensor: Tensor, shape: Shape, place: Place | None) -> Tensor:
        hint = self._whole_emit.called(tensor)
        stand_in = self.emit.tensor(tensor.dtype, shape, hint)
        self.emit.append(external(stand_in))
        self.whole[stand_in] = tensor, place
        return stand_in

    def received(self, results: Any, gradients: Any) -> Any:
        """The gradients of results for one example."""
        if isinstance(results, tuple):
            pairs = zip(results, gradients, strict=True)
            return tuple(self.received(*pair) for pair in pairs)
        if gradients is None:
            return None
        if (place := self._examples.places.get(results)) is not None:
            return self._stand_in(gradients, place)
        return self._new(gradients, gradients.shape[1:], None)

    def body(self, gradients: Sequence[Tensor]) -> Graph:
        """The body of the operations emitted for gradients."""
        operations = tuple(self.emit.operations)
        outputs = [x for op in operations for x in op.outputs]
        named = self._whole_emit.names
        names = {
            x: named[x] if x in self.shared else self.emit.called(x) for x in outputs
        }
        whole = Graph("body", (), tuple(gradients), operations, names)
        return prune(whole)


def _multiplies_rows(operation: Operation, places: Mapping[Tensor, Place]) -> bool:
    """Whether all rows of an operand are multiplied by one shared matrix: they are as many
    rows of one matrix, and no product for each batch of them is summed.
    """
    if operation.name != "matmul" or operation.attributes["transposeA"]:
        return False
    rows, matrix = operation.inputs
    is_one = prod(matrix.shape[:-2]) == 1
    return is_one and rows in places and matrix not in places


def _of_one(operation: Operation, stand_ins: Mapping[Tensor, Tensor]) -> Operation:
    """An operation with others in the place of its tensors, and the attributes for them."""
    operands, results = map_tensors(
        stand_ins.__getitem__, (operation.operands, operation.results)
    )
    one = operation.rewired(operands, results)
    settings: Any = {**operation.settings}
    shape = one.outputs[0].shape
    if operation.name == "tile":
        pairs = zip(shape, one.inputs[0].shape, strict=True)
        settings["repeats"] = tuple(exact_quotient(*pair) for pair in pairs)
    elif settings.get("output_shape"):
        settings["output_shape"] = (shape[0], *settings["output_shape"][1:])
    return replace(one, attributes=settings)
