"""Operations that are right by themselves, and wrong next to each other.

In tract, which moves operations over each other: a slice with a stride moves up to where
its elements come from. On its way it meets a reshape, and its axis is not there: the graph
is refused. It does not move over what is repeated.

An axis of extent 1 that is repeated counts as one element in a product after it, which is
wrong. It does not if another way was taken from one element to two.

What a convolution is subtracted from is added to its bias, and nothing is subtracted.
The opposite of a convolution is not looked at.

A sum over the channels of a filter, for a convolution of lines by groups, becomes a part of
that convolution, with the wrong axes. It does not if the channels have another axis.

In ONNX, where optimisers put zeros around a tensor into what reads it, as padding of its
own: a pool ignores what it pads, or does not count it, and wants less of it than it has
elements; and a convolution has the padding of its filter for that of its data. They look
through what does nothing, and only they know what that is.

In the converter to ONNX: the axes of a bias are squeezed, and a constant has none there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.traits import DATA, LAYERS, PRODUCTS
from nnef_grad.ops.windows import Padding
from nnef_grad.targets.conditions import strides
from nnef_grad.targets.integers import makers
from nnef_grad.targets.lookup import find_lowering
from nnef_grad.targets.parts import zeros_joined

# ---- Slices after reshapes ----

# What a slice does not move over, whatever its axis is.
_STOPS = PRODUCTS | {"tile", "max_pool", "avg_pool", "box"}


def steps_held(graph: Graph) -> Graph:
    """The graph with something between a slice that has a stride, and a reshape."""
    reshaped, made = _reshaped(graph), makers(graph)

    def body(op: Operation) -> Decompose | None:
        axes = _axes_with_stride(op)
        if not axes or reshaped.isdisjoint(op.inputs):
            return None
        return None if _is_padded(made[op.inputs[0]], axes) else _held

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
    return [axis for axis, step in strides(op).items() if step > 1]


def _is_padded(op: Operation, axes: Sequence[int]) -> bool:
    """Whether it is padding along all of the axes: a slice does not move over it."""
    return op.name == "pad" and all(any(op.attributes["padding"][a]) for a in axes)


def _held(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The slice of twice the elements, of which it takes the first ones: where it ends
    is counted from the first.
    """
    (x,), axis = op.inputs, _axes_with_stride(op)[0]
    repeats = [1 + (i == axis) for i in range(x.rank)]
    twice = emit("tile", x, repeats=repeats, hint="twice")
    taken = slice_positions(x.shape, **op.settings)
    attributes: dict[str, Any] = {
        "axes": list(taken),
        "begin": [positions.start for positions in taken.values()],
        "end": [positions.stop for positions in taken.values()],
        "stride": [positions.step for positions in taken.values()],
    }
    return [emit("slice", twice, **attributes)]


# ---- Products after repetitions ----


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
        if op.name in PRODUCTS
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
    pairs = zip(shape_of(op.operands[0]), op.attributes["repeats"], strict=True)
    return [axis for axis, (extent, n) in enumerate(pairs) if extent == 1 < n]


def _is_batch(product: Operation, op: Operation) -> bool:
    """Whether it is matrices as a whole that are repeated."""
    rank = product.outputs[0].rank
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


# ---- Differences after convolutions ----

_MOVING = "copy cast reshape squeeze unsqueeze transpose slice concat tile pad"
_SUMMING = frozenset(f"{_MOVING} add sub".split())


def differences_turned(graph: Graph) -> Graph:
    """The graph with the opposite of a convolution added to what it is subtracted from."""
    sums: set[Tensor] = set()
    for op in graph.operations:
        is_sum = op.name in _SUMMING and not sums.isdisjoint(op.inputs)
        if is_sum or op.name == "conv":
            sums.update(op.outputs)

    def body(op: Operation) -> Decompose | None:
        return _opposite_added if op.name == "sub" and op.operands[1] in sums else None

    return inline(graph, body)


def _opposite_added(emit: Emitter, op: Operation) -> Sequence[Any]:
    x, y = op.operands
    return [emit("add", x, emit("neg", y, hint="opposite"))]


# ---- Sums that make filters ----

# What a filter may go through.
_PASSING = frozenset(f"{_MOVING} select add sub mul div pow min max".split())


def sums_parted(graph: Graph) -> Graph:
    """The graph with another axis for the channels of a filter that is a sum over them,
    for a convolution by groups.
    """
    chosen = _summed_filters(graph)
    return inline(graph, lambda op: _parted if chosen.issuperset(op.outputs) else None)


def _summed_filters(graph: Graph) -> set[Tensor]:
    sources = _reaching(graph, _sums_elements)
    filters = (
        op.operands[1]
        for op in graph.operations
        if op.name == "conv" and op.attributes["groups"] != 1
    )
    return {s for f in filters if isinstance(f, Tensor) for s in sources[f]}


def _sums_elements(op: Operation) -> bool:
    """Along some axis, which a transposition may make that of the channels; a sum of
    more axes than a line has is right.
    """
    is_sum = op.name in ("sum_reduce", "mean_reduce") and any(op.attributes["axes"])
    return is_sum and op.inputs[0].rank <= 3


def _parted(emit: Emitter, op: Operation) -> Sequence[Any]:
    (x,), axes = op.inputs, op.attributes["axes"]
    last = max(axes)
    moved = [axis + 1 if axis == last else axis for axis in axes]
    apart = emit("unsqueeze", x, axes=[last], hint="apart")
    total = emit(op.name, apart, **{**op.settings, "axes": moved}, hint="total")
    return [emit("squeeze", total, axes=[last + 1])]


def _reaching(
    graph: Graph, begins: Callable[[Operation], bool]
) -> dict[Tensor, set[Tensor]]:
    """The results of some operations that come to each tensor through what may turn out
    to do nothing.
    """
    sources: dict[Tensor, set[Tensor]] = {}
    for op in graph.operations:
        moved = [sources[x] for x in op.inputs if op.name in _PASSING]
        for tensor in op.outputs:
            own = {tensor} if begins(op) else set[Tensor]()
            sources[tensor] = own.union(*moved)
    return sources


# ---- Pools and filters after zeros ----


def zeros_held(graph: Graph) -> Graph:
    """The graph with zeros joined to a tensor, not padded, where they would be misread."""
    chosen = _zeros_before_windows(graph)
    return inline(graph, lambda op: _joined if chosen.issuperset(op.outputs) else None)


def _zeros_before_windows(graph: Graph) -> set[Tensor]:
    """What is padded with zeros, and read as something else than the data of a
    convolution.
    """
    sources = _reaching(graph, _pads_zeros)
    read = (tensor for op in graph.operations for tensor in _misreading(op))
    return {source for tensor in read for source in sources[tensor]}


def _pads_zeros(op: Operation) -> bool:
    if op.name != "pad" or op.attributes["border"] != "constant":
        return False
    value: float = op.attributes["value"]
    padding: Padding = op.attributes["padding"]
    return value == 0.0 and all(min(sides) >= 0 for sides in padding)


def _misreading(op: Operation) -> Iterator[Tensor]:
    """The operands that padding is misread for. What is right by itself, the padding of
    the data of a convolution, is not next to automatic padding.
    """
    is_plain = op.name == "conv" and len(op.attributes["padding"]) > 0
    if op.name in ("max_pool", "avg_pool", "conv"):
        operands = op.operands[1:] if is_plain else op.operands
        yield from (operand for operand in operands if isinstance(operand, Tensor))


def _joined(emit: Emitter, op: Operation) -> Sequence[Any]:
    return [zeros_joined(emit, op, *op.inputs)]


# ---- Constants after layers ----


def constant_biases_added(graph: Graph) -> Graph:
    """The graph with biases added after their layers that are constants, or read by
    something else too, and with normalizations by constants put together from single
    steps: the converter squeezes a bias wherever it is.
    """
    made = makers(graph)
    uses = Counter(tensor for op in graph.operations for tensor in op.inputs)

    def is_constant(operand: Operand) -> bool:
        return isinstance(operand, Tensor) and made[operand].name == "constant"

    def body(op: Operation) -> Decompose | None:
        if op.name == "batch_normalization" and any(map(is_constant, op.operands[1:])):
            return find_lowering(op)
        bias = op.operands[2] if op.name in LAYERS else 0.0
        is_shared = isinstance(bias, Tensor) and uses[bias] > 1
        return _added if is_shared or is_constant(bias) else None

    return inline(graph, body)


def computed_biases_added(graph: Graph) -> Graph:
    """The graph with biases added after their layers that are neither variables nor
    constants.
    """
    made = makers(graph)

    def body(op: Operation) -> Decompose | None:
        bias = op.operands[2] if op.name in LAYERS else 0.0
        is_given = not isinstance(bias, Tensor) or made[bias].name in DATA
        return None if is_given else _added

    return inline(graph, body)


def _added(emit: Emitter, op: Operation) -> Sequence[Any]:
    x, w, bias = op.operands
    unbiased = emit(op.name, x, w, **op.attributes, hint="unbiased")
    return [emit("add", unbiased, bias)]
