"""Batching: computes a graph for many values of one input at once.

Tensors that depend on the input get a new leading axis, with an item for each value; all
others are computed once, as they were. Shapes align from the left, so element by element
nothing else has to be done than to give the other operands a leading axis too. Other
operations count their axes one further; convolutions take the new axis into the batch
or the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import instantiate_body
from nnef_grad.build.inline import inline
from nnef_grad.errors import NoDerivativeError
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, tensors
from nnef_grad.graph.names import step_names
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import (
    ELEMENTWISE,
    LOCAL_NORMALIZATION,
    POOLING,
    REDUCTIONS,
    SAMPLING,
)


def batch(
    emit: Emitter,
    graph: Graph,
    input: Tensor,
    values: Tensor,
) -> dict[Tensor, Tensor]:
    """Emits the operations of a graph, for many values of an input.

    Args:
        emit: emits the operations; its opset has those of the graph.
        graph: a flat graph.
        input: the input that is replaced.
        values: what replaces it, with a leading axis in front of the input's.

    Returns:
        For each tensor of the graph that depends on the input, the tensor with the
        leading axis. All other tensors of the graph are emitted as they are.

    Raises:
        NoDerivativeError: an operation on the way has no form for many values at once.
    """
    graph = _decompose_unknown(graph, input, emit.opset)
    many = {input: values}
    for operation in graph.operations:
        if any(t in many for t in operation.inputs):
            many.update(_batch_operation(emit, operation, many))
        elif input not in operation.outputs:
            emit.append(operation)
    return many


def _dependents(graph: Graph, input: Tensor) -> set[Tensor]:
    found = {input}
    for operation in graph.operations:
        if not found.isdisjoint(operation.inputs):
            found.update(operation.outputs)
    return found


def _decompose_unknown(graph: Graph, input: Tensor, opset: OpSet) -> Graph:
    """The graph with the operations decomposed that have no batching rule."""
    while True:
        found = _dependents(graph, input)
        inlined = inline(
            graph,
            lambda op, found=found: (  # type: ignore[misc]
                instantiate_body
                if op.name not in _RULES
                and op.definition.body is not None
                and not found.isdisjoint(op.inputs)
                else None
            ),
            opset,
        )
        if inlined is graph:
            return graph
        graph = inlined


def _batch_operation(
    emit: Emitter, operation: Operation, many: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """The results with the new axis, by the results without it."""
    form = _RULES.get(operation.name)
    if form is None:
        message = f"'{operation.name}' has no form for many values at once"
        raise NoDerivativeError(message, operation.span)
    emit.origin = operation.origin
    emit.naming = step_names(f"{{}}_{operation.outputs[0].name}")
    results = form(_Many(emit, operation, many))
    pairs = list(zip(tensors(operation.results), tensors(results), strict=True))
    for plain, widened in pairs:
        emit.set_hint(widened, plain.name)
    return dict(pairs)


@dataclass(frozen=True)
class _Many:
    """An operation with operands some of which have the new axis."""

    emit: Emitter
    operation: Operation
    many: Mapping[Tensor, Tensor]

    @property
    def count(self) -> int:
        """How many values there are: the extent of the new axis."""
        return next(iter(self.many.values())).shape[0]

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.operation.attributes)

    @property
    def result(self) -> Shape:
        """The shape of the result, without the new axis."""
        return self.operation.outputs[0].shape

    def has_axis(self, operand: Operand) -> bool:
        return isinstance(operand, Tensor) and operand in self.many

    def aligned(self, operand: Operand) -> Any:
        """The operand with a leading axis, of extent 1 where it does not depend on the
        input; what has rank 0 is aligned with anything.
        """
        if isinstance(operand, tuple):
            return tuple(map(self.aligned, operand))
        if isinstance(operand, Tensor) and operand in self.many:
            return self.many[operand]
        is_single = isinstance(operand, Tensor) and operand.rank > 0
        return self._single(operand) if is_single else operand

    def repeated(self, operand: Operand) -> Any:
        """The operand with the new axis, in full."""
        if isinstance(operand, tuple):
            return tuple(map(self.repeated, operand))
        if not isinstance(operand, Tensor) or operand in self.many:
            return self.aligned(operand)
        repeats = [self.count] + [1] * operand.rank
        repeated = self.emit("tile", self._single(operand), repeats=repeats)
        self.emit.set_hint(repeated, f"{operand.name}_repeated")
        return repeated

    def _single(self, operand: Any) -> Tensor:
        single = self.emit("unsqueeze", operand, axes=[0])
        self.emit.set_hint(single, f"{operand.name}_aligned")
        return single

    def again(self, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
        """The operation with other operands and attributes."""
        return self.emit.emit_again(self.operation, operands, **attributes)


BatchingRule = Callable[[_Many], Sequence[Any]]


# ---- Element by element ----


def elementwise(op: _Many) -> Sequence[Any]:
    """All operands get the axis, of extent 1 where nothing depends on the input."""
    return op.again(*map(op.aligned, op.operation.operands))


# ---- Axes counted one further ----


def _further(axes: Sequence[int]) -> Shape:
    return tuple(axis + 1 for axis in axes)


def with_axes(op: _Many) -> Sequence[Any]:
    """The attribute `axes` names some of the axes."""
    (x,) = op.operation.operands
    return op.again(op.aligned(x), axes=_further(op.attributes["axes"]))


def with_axis(op: _Many) -> Sequence[Any]:
    """The attribute `axis` names one axis; operands are joined in full."""
    operands = map(op.repeated, op.operation.operands)
    return op.again(*operands, axis=op.attributes["axis"] + 1)


def transpose(op: _Many) -> Sequence[Any]:
    """The new axis stays in front."""
    (x,) = op.operation.operands
    return op.again(op.aligned(x), axes=(0, *_further(op.attributes["axes"])))


def reshape(op: _Many) -> Sequence[Any]:
    """To the shape of the result, after the new axis."""
    (x,) = op.operation.operands
    return (op.emit("reshape", op.aligned(x), shape=(op.count, *op.result)),)


def tile(op: _Many) -> Sequence[Any]:
    """The new axis is not repeated."""
    (x,) = op.operation.operands
    return op.again(op.aligned(x), repeats=(1, *op.attributes["repeats"]))


def pad(op: _Many) -> Sequence[Any]:
    """The new axis is not padded."""
    (x,) = op.operation.operands
    return op.again(op.aligned(x), padding=((0, 0), *op.attributes["padding"]))


def gather(op: _Many) -> Sequence[Any]:
    """Along an axis one further; the indices are the same for all values."""
    x, indices = op.operation.operands
    if op.has_axis(indices):
        message = "'gather' has no form for many indices at once"
        raise NoDerivativeError(message, op.operation.span)
    return op.again(op.aligned(x), indices, axis=op.attributes["axis"] + 1)


# ---- Windows over all axes ----

_ONE_EACH: Mapping[str, Any] = {
    "size": 1,
    "padding": (0, 0),
    "stride": 1,
    "dilation": 1,
}


def windows(op: _Many) -> Sequence[Any]:
    """The windows do not extend along the new axis."""
    attributes = {
        name: (one, *op.attributes[name])
        for name, one in _ONE_EACH.items()
        if op.attributes.get(name)
    }
    if op.attributes.get("output_shape"):
        attributes["output_shape"] = (op.count, *op.attributes["output_shape"])
    return op.again(*map(op.repeated, op.operation.operands), **attributes)


# ---- Convolutions ----


def conv(op: _Many) -> Sequence[Any]:
    """The new axis goes into the batch, or, where there are many filters, into the
    channels.
    """
    x, w, *_ = op.operation.inputs
    several = _by_groups if op.has_axis(x) else _by_channels
    convolved = (several if op.has_axis(w) else _by_batch)(op, x, w)
    return (op.emit("add", convolved, op.aligned(op.operation.operands[2])),)


def _by_batch(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Many images are a larger batch."""
    batch = op.count * x.shape[0]
    images = reshaped(op.emit, op.many[x], (batch, *x.shape[1:]), hint="images")
    convolved = _convolved(op, images, w, op.result[1])
    return reshaped(op.emit, convolved, (op.count, *op.result))


def _by_groups(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on as many images make as many times the groups."""
    emit, many, groups = op.emit, op.count, op.count * _groups(op, x)
    batch, channels, *extents = x.shape
    merged = (batch, many * channels, *extents)
    order = (1, 0, 2)
    images = _rearranged(emit, op.many[x], (many, batch), order, merged, "images")
    shape = (many * w.shape[0], *w.shape[1:])
    filters = reshaped(emit, op.many[w], shape, hint="filters")
    convolved = _convolved(op, images, filters, many * op.result[1], groups=groups)
    whole = (many, *op.result)
    return _rearranged(emit, convolved, (batch, many), order, whole, "channels")


def _by_channels(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on the same images give as many times the channels."""
    groups = _groups(op, x)
    filters = _filters_by_group(op, w, groups)
    convolved = _convolved(op, x, filters, op.count * op.result[1], groups=groups)
    apart, order = (x.shape[0], groups, op.count), (2, 0, 1, 3)
    whole = (op.count, *op.result)
    return _rearranged(op.emit, convolved, apart, order, whole, "channels")


def _convolved(
    op: _Many, images: Tensor, filters: Tensor, channels: int, **attributes: Any
) -> Tensor:
    """The operation on other images, with other filters, which give that many
    channels.
    """
    given = op.attributes.get("output_shape")
    if given:
        attributes["output_shape"] = (images.shape[0], channels, *given[2:])
    convolved: Tensor
    (convolved,) = op.again(images, filters, **attributes)
    op.emit.set_hint(convolved, op.emit.naming("convolved"))
    return convolved


def _filters_by_group(op: _Many, w: Tensor, groups: int) -> Tensor:
    """The filters in such an order that the channels which a group writes stand
    together.
    """
    first, second, *window = w.shape
    if op.operation.name == "deconv":
        apart = (op.count, first)
        shape = (first, op.count * second, *window)
    else:
        apart = (op.count, groups)
        shape = (op.count * first, second, *window)
    return _rearranged(op.emit, op.many[w], apart, (1, 0, 2), shape, "filters")


def _groups(op: _Many, x: Tensor) -> int:
    """The number of groups; 0 is one for each channel of the large side."""
    given: int = op.attributes["groups"]
    return given or (x.shape[1] if op.operation.name == "conv" else op.result[1])


def _rearranged(
    emit: Emitter, x: Tensor, apart: Shape, order: Shape, shape: Shape, hint: str
) -> Tensor:
    """The elements in another order of the leading axes that they are taken apart to;
    all after them goes as one axis.
    """
    extents = (*apart, prod(x.shape) // prod(apart))
    moved = reshaped(emit, x, extents, hint=f"{hint}_apart")
    proper = [axis for axis in order if extents[axis] > 1]
    if proper != sorted(proper):
        moved = emit("transpose", moved, axes=order, hint=f"{hint}_in_order")
    return reshaped(emit, moved, shape, hint=hint)


# ---- The forms of the operations ----


def folded(op: _Many) -> Sequence[Any]:
    """The new axis goes into the batch, where that is an axis like any other."""
    (x,) = op.operation.inputs
    images = reshaped(
        op.emit, op.many[x], (op.count * x.shape[0], *x.shape[1:]), hint="images"
    )
    (resized,) = op.again(images)
    return (reshaped(op.emit, resized, (op.count, *op.result)),)


_WITH_AXES = REDUCTIONS | {
    "moments", "softmax", "l1_normalization", "l2_normalization", "squeeze", "unsqueeze",
    "slice",
}  # fmt: skip
_WITH_WINDOWS = (
    POOLING
    | LOCAL_NORMALIZATION
    | {"debox", "sample", "desample", "max_pool_with_index"}
)
_RULES: dict[str, BatchingRule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(_WITH_AXES, with_axes),
    **dict.fromkeys(("split", "unstack", "concat", "stack"), with_axis),
    **dict.fromkeys(_WITH_WINDOWS, windows),
    **dict.fromkeys(SAMPLING, folded),
    "conv": conv,
    "deconv": conv,
    "transpose": transpose,
    "reshape": reshape,
    "tile": tile,
    "pad": pad,
    "gather": gather,
    # The new axis is a batch of matrices.
    "matmul": elementwise,
}
