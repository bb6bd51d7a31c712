"""Batching: computes a graph for many values of some inputs at once.

Tensors that depend on these inputs get a new leading axis, with an item for each value; all
others are computed once, as they were. Shapes align from the left, so element by element
nothing else has to be done than to give the other operands a leading axis too. Other
operations count their axes one further; convolutions take the new axis into the batch
or the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from nnef_grad.base.errors import NoDerivativeError
from nnef_grad.emit.bodies import Decompose, inline, is_short, unrolled
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import (
    ARGSORT,
    Graph,
    Operand,
    Operation,
    Shape,
    Tensor,
    tensors,
)
from nnef_grad.graph.names import with_suffix
from nnef_grad.ops import traits
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import reshaped, transposed
from nnef_grad.ops.windows import windows_of

# A filter with more elements than this makes too many operations.
_MOST_PLACES = 1000


def batch(
    emit: Emitter, graph: Graph, values: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """Emits the operations of a flat graph, for many values of inputs.

    Returns:
        For each tensor of the graph that depends on these, the tensor with the leading
        axis. All other tensors of the graph are emitted as they are, unless they are there.

    Raises:
        NoDerivativeError: an operation on the way has no form for many values at once.
    """
    graph = _decompose_unknown(graph, values, emit.opset)
    new = {x: name for x, name in graph.names.items() if x not in emit.names}
    emit.hints.update(new)
    many = {**values}
    for operation in graph.operations:
        if operation.name == "copy" and operation.operands[0] in many:
            many[operation.outputs[0]] = many[operation.inputs[0]]
        elif any(t in many for t in operation.inputs):
            results = _batched(emit, operation, many)
            many.update(zip(operation.outputs, results, strict=True))
        elif not any(t in many or emit.knows(t) for t in operation.outputs):
            emit.append(operation)
    return many


def _decompose_unknown(graph: Graph, inputs: Iterable[Tensor], opset: OpSet) -> Graph:
    """The graph with the operations decomposed that have no batching rule."""
    dependent = {*inputs}

    def body(operation: Operation) -> Decompose | None:
        """Is asked in the order of the graph."""
        if dependent.isdisjoint(operation.inputs):
            return None
        dependent.update(operation.outputs)
        if is_short(operation):
            return unrolled
        is_known = operation.name in _RULES or operation.definition.body is None
        return None if is_known else instantiate_body

    while (inlined := inline(graph, body, opset)) is not graph:
        graph = inlined
    return graph


def _batched(
    emit: Emitter, operation: Operation, many: Mapping[Tensor, Tensor]
) -> tuple[Tensor, ...]:
    """The results with the new axis."""
    if (form := _RULES.get(operation.name)) is None:
        raise _refusal(operation, "values")
    emit.origin = operation.origin
    emit.naming = with_suffix(emit.called(operation.outputs[0]))
    op = _Many(emit, operation, many)
    first, *others = form(op)
    if isinstance(first, float):
        # It does not depend on the values.
        first = emit("constant", shape=op.whole, value=(first,))
    results = tensors((first, *others))
    for plain, widened in zip(operation.outputs, results, strict=True):
        emit.set_hint(widened, emit.called(plain))
    return results


def _refusal(operation: Operation, what: str) -> NoDerivativeError:
    message = f"'{operation.name}' has no form for many {what} at once"
    return NoDerivativeError(message, operation.span)


@dataclass(frozen=True)
class _Many:
    """An operation, and the tensors that have the new axis, by the same without it."""

    emit: Emitter
    operation: Operation
    many: Mapping[Tensor, Tensor]

    @property
    def count(self) -> Dimension:
        """How many values there are: the extent of the new axis."""
        return next(iter(self.many.values())).shape[0]

    @property
    def whole(self) -> Shape:
        """The shape of the result, with the new axis."""
        return (self.count, *self.operation.outputs[0].shape)

    def aligned(self, operand: Operand) -> Any:
        """The operand with a leading axis, of extent 1 where it does not depend on the
        input; what has rank 0 is aligned with anything.
        """
        if isinstance(operand, tuple):
            return tuple(map(self.aligned, operand))
        if not isinstance(operand, Tensor):
            return operand
        if operand in self.many or operand.rank == 0:
            return self.many.get(operand, operand)
        return self._single(operand)

    def repeated(self, operand: Operand) -> Any:
        """The operand with the new axis, in full."""
        if isinstance(operand, tuple):
            return tuple(map(self.repeated, operand))
        if not isinstance(operand, Tensor) or operand in self.many:
            return self.aligned(operand)
        repeats = [self.count] + [1] * operand.rank
        repeated = self.emit("tile", self._single(operand), repeats=repeats)
        self.emit.set_hint(repeated, f"{self.emit.called(operand)}_repeated")
        return repeated

    def _single(self, operand: Tensor) -> Tensor:
        single = self.emit("unsqueeze", operand, axes=[0])
        self.emit.set_hint(single, f"{self.emit.called(operand)}_aligned")
        return single

    def again(self, *operands: Any, **attributes: Any) -> tuple[Any, ...]:
        """The operation with other operands and attributes."""
        return self.emit.emit_again(self.operation, operands, **attributes)


BatchingRule = Callable[[_Many], Sequence[Any]]


def elementwise(op: _Many) -> Sequence[Any]:
    """All operands get the axis, of extent 1 where nothing depends on the input."""
    return op.again(*map(op.aligned, op.operation.operands))


# ---- Axes counted one further ----


def changed(**changes: Callable[[Any], Any]) -> BatchingRule:
    """All operands get the axis in full, and attributes are changed."""

    def rule(op: _Many) -> Sequence[Any]:
        attributes = {
            n: change(op.operation.settings[n]) for n, change in changes.items()
        }
        return op.again(*map(op.repeated, op.operation.operands), **attributes)

    return rule


def _further(axes: Sequence[int]) -> Shape:
    return tuple(axis + 1 for axis in axes)


def reshape(op: _Many) -> Sequence[Any]:
    """To the shape of the result, after the new axis."""
    return (op.emit("reshape", op.aligned(op.operation.operands[0]), shape=op.whole),)


def gather(op: _Many) -> Sequence[Any]:
    """Along an axis one further; the indices are the same for all values."""
    x, indices = op.operation.operands
    if indices in op.many:
        raise _refusal(op.operation, "indices")
    return op.again(op.aligned(x), indices, axis=op.operation.settings["axis"] + 1)


# ---- Windows over all axes ----


def windows(op: _Many) -> Sequence[Any]:
    """The windows do not extend along the new axis."""
    first: dict[str, Any] = {"padding": (0, 0), "output_shape": op.count}
    attributes = {
        name: (first.get(name, 1), *items)
        for name in ("size", "padding", "stride", "dilation", "output_shape")
        if (items := op.operation.settings.get(name))
    }
    return op.again(*map(op.repeated, op.operation.operands), **attributes)


def folded(op: _Many) -> Sequence[Any]:
    """The new axis goes into the batch, where that is an axis like any other."""
    (resized,) = op.again(_larger_batch(op, op.operation.inputs[0]))
    return (reshaped(op.emit, resized, op.whole),)


def _larger_batch(op: _Many, x: Tensor) -> Tensor:
    shape = (op.count * x.shape[0], *x.shape[1:])
    return reshaped(op.emit, op.many[x], shape, hint="images")


# ---- Convolutions ----


def conv(op: _Many) -> Sequence[Any]:
    """The new axis goes into the batch or, with many filters, into the channels."""
    x, w, *_ = op.operation.inputs
    if w in op.many:
        convolved = _by_groups(op, x, w) if x in op.many else _by_channels(op, x, w)
    elif x in op.many:
        batched = _convolved(op, _larger_batch(op, x), w, op.whole[2])
        convolved = reshaped(op.emit, batched, op.whole)
    else:
        convolved = op.aligned(*op.again(x, w))
    return (op.emit("add", convolved, op.aligned(op.operation.operands[2])),)


def _by_groups(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on as many images make as many times the groups; these have a number."""
    if has_symbols(op.count):
        return _by_places(op, x, w)
    many, order, (batch, channels, *extents) = op.count, (1, 0, 2), x.shape
    merged = (batch, many * channels, *extents)
    images = _rearranged(op.emit, op.many[x], (many, batch), order, merged, "images")
    shape = (many * w.shape[0], *w.shape[1:])
    filters = reshaped(op.emit, op.many[w], shape, hint="filters")
    groups = many * _groups(op, x)
    convolved = _convolved(op, images, filters, many * op.whole[2], groups=groups)
    return _rearranged(op.emit, convolved, (batch, many), order, op.whole, "channels")


def _by_places(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Each element of the result is a product of many filters and as many images."""
    emit, groups, windows = op.emit, _groups(op, x), windows_of(op.operation)
    is_whole = op.operation.name == "conv" and not has_symbols(windows.down)
    if not is_whole or prod(windows.down) > _MOST_PLACES:
        raise _refusal(op.operation, f"filters, whose number '{op.count}' is open,")
    batch, depth = x.shape[0], w.shape[1]
    padding = [(0, 0)] * 3 + [*windows.padding]
    padded = emit("pad", op.many[x], padding=padding, hint="padded")
    shape = (op.count, batch, groups, depth, *padded.shape[3:])
    images = transposed(emit, reshaped(emit, padded, shape, "apart"), (0, 2, 1))
    elements = depth * prod(windows.size)
    shape = (op.count, groups, w.shape[0] // groups, elements)
    filters = reshaped(emit, op.many[w], shape, hint="filters")
    places = []
    for at in product(*map(range, windows.down)):
        begin = [i * axis.stride for i, axis in zip(at, windows.axes, strict=True)]
        reach = [(axis.size - 1) * axis.dilation + 1 for axis in windows.axes]
        end = [i + extent for i, extent in zip(begin, reach, strict=True)]
        axes, stride = [*range(4, images.rank)], windows.dilation
        window = emit("slice", images, axes=axes, begin=begin, end=end, stride=stride)
        shape = (op.count, groups, batch, elements)
        rows = reshaped(emit, window, shape, hint="rows")
        places.append(emit("matmul", rows, filters, transposeB=True, hint="place"))
    by_group = emit("stack", places, axis=4, hint="places")
    by_image = transposed(emit, by_group, (0, 2, 1), hint="by_image")
    return reshaped(emit, by_image, op.whole)


def _by_channels(op: _Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on the same images give as many times the channels."""
    many, groups, (first, second, *window) = op.count, _groups(op, x), w.shape
    if op.operation.name == "deconv":
        apart, shape = (many, first), (first, many * second, *window)
    else:
        apart, shape = (many, groups), (many * first, second, *window)
    filters = _rearranged(op.emit, op.many[w], apart, (1, 0, 2), shape, "filters")
    convolved = _convolved(op, x, filters, many * op.whole[2], groups=groups)
    parts, order = (x.shape[0], groups, many), (2, 0, 1, 3)
    return _rearranged(op.emit, convolved, parts, order, op.whole, "channels")


def _convolved(
    op: _Many, images: Tensor, filters: Tensor, channels: Dimension, **attributes: Any
) -> Tensor:
    """The operation on other images, with other filters, which give some channels."""
    shape = op.operation.settings.get("output_shape")
    if shape:
        attributes["output_shape"] = (images.shape[0], channels, *shape[2:])
    convolved: Tensor
    (convolved,) = op.again(images, filters, **attributes)
    op.emit.set_hint(convolved, op.emit.naming("convolved"))
    return convolved


def _groups(op: _Many, x: Tensor) -> Dimension:
    """The number of groups; 0 is one for each channel of the large side."""
    groups: int = op.operation.settings["groups"]
    return groups or (x.shape[1] if op.operation.name == "conv" else op.whole[2])


def _rearranged(
    emit: Emitter, x: Tensor, apart: Shape, order: Shape, shape: Shape, hint: str
) -> Tensor:
    """The elements in another order of the leading axes that they are split into."""
    extents = (*apart, prod(x.shape) // prod(apart))
    moved = reshaped(emit, x, extents, hint=f"{hint}_apart")
    proper = [axis for axis in order if extents[axis] != 1]
    if proper != sorted(proper):
        moved = emit("transpose", moved, axes=order, hint=f"{hint}_in_order")
    return reshaped(emit, moved, shape, hint=hint)


# ---- The forms of the operations ----

_JOINS = ("split", "unstack", "concat", "stack")
_RULES: dict[str, BatchingRule] = {
    **dict.fromkeys(traits.ELEMENTWISE, elementwise),
    **dict.fromkeys(
        (*traits.ALONG_AXES, "squeeze", "unsqueeze"), changed(axes=_further)
    ),
    **dict.fromkeys((*_JOINS, ARGSORT), changed(axis=lambda axis: axis + 1)),
    **dict.fromkeys(traits.OVER_ALL_AXES, windows),
    **dict.fromkeys(traits.SAMPLING, folded),
    "conv": conv,
    "deconv": conv,
    "transpose": changed(axes=lambda axes: (0, *_further(axes))),
    "reshape": reshape,
    "tile": changed(repeats=lambda repeats: (1, *repeats)),
    "pad": changed(padding=lambda padding: ((0, 0), *padding)),
    "gather": gather,
    # The new axis is a batch of matrices.
    "matmul": elementwise,
}
