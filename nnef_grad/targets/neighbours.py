"""Operations that are right by themselves, and wrong next to each other.

In tract, which moves operations over each other: a slice with a stride moves up to where
its elements come from. On its way it meets a reshape, and its axis is not there: the graph
is refused. It does not move over what is repeated.

An axis of extent 1 that is repeated counts as one element in a product behind it, which is
wrong. It does not if another way was taken from one element to two.

In the converter to ONNX: the axes of a bias are squeezed, and a constant has none there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnef_grad.emit import Emitter
from nnef_grad.ir import Graph, Operation, Shape, Tensor, shape_of
from nnef_grad.ops.shape import section
from nnef_grad.passes.inline import Build, inline
from nnef_grad.targets.integers import makers

# ---- Slices behind reshapes ----

# What a slice does not move over, whatever its axis is.
_STOPS = {"tile", "matmul", "linear", "conv", "deconv", "max_pool", "avg_pool", "box"}


def steps_held(graph: Graph) -> Graph:
    """The graph with something between a slice that has a stride, and a reshape."""
    reshaped, made = _reshaped(graph), makers(graph)

    def body(op: Operation) -> Build | None:
        axes = _axes_with_stride(op)
        if not axes or reshaped.isdisjoint(op.inputs):
            return None
        return None if _is_padded(made[next(op.inputs)], axes) else _held

    return inline(graph, body)


def _reshaped(graph: Graph) -> set[Tensor]:
    """The tensors from which a slice would move up to a reshape."""
    found: set[Tensor] = set()
    for op in graph.operations:
        moves = op.name not in _STOPS and not found.isdisjoint(op.inputs)
        if moves or op.name == "reshape":
            found.update(op.outputs)
    return found


def _axes_with_stride(op: Operation) -> list[int]:
    if op.name != "slice":
        return []
    axes: Shape = op.attributes["axes"]
    return [a for a, step in zip(axes, op.attributes["stride"]) if step > 1]


def _is_padded(op: Operation, axes: Sequence[int]) -> bool:
    """Whether it is padding along all of the axes: a slice does not move over it."""
    return op.name == "pad" and all(any(op.attributes["padding"][a]) for a in axes)


def _held(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The slice of twice the elements, of which it takes the first ones."""
    (x,), axis = op.inputs, _axes_with_stride(op)[0]
    repeats = [1 + (i == axis) for i in range(x.rank)]
    twice = emit("tile", x, repeats=repeats, hint="twice")
    return [emit("slice", twice, **op.attributes)]


# ---- Products behind repetitions ----

_PRODUCTS = {"matmul", "linear", "conv", "deconv"}


def repeats_joined(graph: Graph) -> Graph:
    """The graph with an element joined to itself, before it is repeated for a
    product.
    """
    chosen = _repeated_before_products(graph)
    return inline(graph, lambda op: _doubled if chosen.issuperset(op.outputs) else None)


def _repeated_before_products(graph: Graph) -> set[Tensor]:
    """What is repeated along an axis of extent 1, and comes to a product with nothing
    between but operations of one operand, over which a repetition moves.
    """
    made, sources = makers(graph), dict[Tensor, set[Tensor]]()
    for op in graph.operations:
        moved = [sources[x] for x in op.inputs if len(op.operands) == 1]
        for tensor in op.outputs:
            own = {tensor} if _repeats_one(op, made) else set[Tensor]()
            sources[tensor] = own.union(*moved)
    return {
        source
        for op in graph.operations
        if op.name in _PRODUCTS
        for tensor in op.inputs
        for source in sources[tensor]
        if source != tensor or not _is_batch(op, made[tensor])
    }


def _repeats_one(op: Operation, made: Mapping[Tensor, Operation]) -> bool:
    """Whether an axis of extent 1 is repeated, of numbers that the graph computes."""
    if op.name != "tile" or not isinstance(op.operands[0], Tensor):
        return False
    x = op.operands[0]
    is_given = not any(made[x].inputs) and made[x].name != "external"
    return x.dtype == "scalar" and not is_given and bool(_repeated_axes(op))


def _repeated_axes(op: Operation) -> list[int]:
    pairs = zip(shape_of(op.operands[0]), op.attributes["repeats"])
    return [axis for axis, (extent, n) in enumerate(pairs) if extent == 1 < n]


def _is_batch(product: Operation, op: Operation) -> bool:
    """Whether it is matrices as a whole that are repeated."""
    rank = next(product.outputs).rank
    return product.name == "matmul" and max(_repeated_axes(op)) < rank - 2


def _doubled(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The repetition of twice the element: what has two elements is no single one."""
    (x,), axes = op.inputs, _repeated_axes(op)
    repeats: list[int] = list(op.attributes["repeats"])
    axis = next((a for a in axes if repeats[a] % 2 == 0), axes[0])
    count = repeats[axis]
    repeats[axis] = (count + 1) // 2
    twice = emit("concat", [x, x], axis=axis, hint="twice")
    if max(repeats) == 1:
        return [twice]
    return [section(emit, emit("tile", twice, repeats=repeats), {axis: (0, count)})]


# ---- Constants behind layers ----

_LAYERS = {"conv", "deconv", "linear"}


def biases_added(graph: Graph) -> Graph:
    """The graph with biases that are constants added behind their layers."""
    made = makers(graph)

    def body(op: Operation) -> Build | None:
        bias = op.operands[2] if op.name in _LAYERS else None
        is_constant = isinstance(bias, Tensor) and made[bias].name == "constant"
        return _added if is_constant else None

    return inline(graph, body)


def _added(emit: Emitter, op: Operation) -> Sequence[Any]:
    x, w, bias = op.operands
    unbiased = emit(op.name, x, w, **op.attributes, hint="unbiased")
    return [emit("add", unbiased, bias)]
