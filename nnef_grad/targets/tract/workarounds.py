"""Operations that are right by themselves, and that tract makes wrong next to each other: it
moves one over the other, or makes one of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.bodies import is_short, unrolled
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse, each, where
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import (
    LOOP,
    Graph,
    Operand,
    Operation,
    Tensor,
    shape_of,
    tensors,
)
from nnef_grad.graph.loops import loop_of
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.traits import ELEMENTWISE, PRODUCTS
from nnef_grad.targets.passes import MOVES, leads_to_filter, sources
from nnef_grad.targets.tensors import When


def _reached(graph: Graph, starts: When, passes: When) -> set[Tensor]:
    """The tensors that the results of some operations come to, through others."""
    after: set[Tensor] = set()
    for op in graph.operations:
        if starts(op) or (passes(op) and not after.isdisjoint(op.inputs)):
            after.update(op.outputs)
    return after


# ---- Loops, and constants ----


def _fed(graph: Graph) -> set[Tensor]:
    """The tensors that depend on inputs."""
    return _reached(graph, lambda op: op.name == "external", lambda op: True)


def _scans_data(op: Operation, near: DefUse) -> bool:
    """Whether steps could be put one after the other that scan what is known in advance."""
    scanned = op.inputs[-len(loop_of(op).scanned) :]
    return is_short(op) and not near.fact(_fed).issuperset(scanned)


@each(LOOP)
@where(_scans_data)
def put_steps_on_data(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The steps of a loop that scans constants: tract gives these to each step whole."""
    return unrolled(emit, op)


# ---- Slices with a stride, and reshapes ----

# The operations that a slice does not move over, whatever its axis is.
_STOPS = PRODUCTS | {"tile", "max_pool", "avg_pool", "box"}


def _is_flat(op: Operation) -> bool:
    """Whether a filter has a single point along an axis: a slice moves over it there."""
    return op.name == "conv" and 1 in shape_of(op.operands[1])[2:]


def _reshaped(graph: Graph) -> set[Tensor]:
    return _reached(
        graph,
        lambda op: op.name == "reshape",
        lambda op: op.name not in _STOPS or _is_flat(op),
    )


def _meets_reshape(op: Operation, near: DefUse) -> bool:
    axes = _axes_with_stride(op)
    if not axes or near.fact(_reshaped).isdisjoint(op.inputs):
        return False
    before = near.producers[op.inputs[0]]
    padding = before.attributes["padding"] if before.name == "pad" else None
    return padding is None or not all(any(padding[axis]) for axis in axes)


def _axes_with_stride(op: Operation) -> list[int]:
    if {*op.attributes["stride"]} <= {1}:
        return []
    taken = slice_positions(shape_of(op.operands[0]), **op.settings)
    return [axis for axis, positions in taken.items() if positions.step > 1]


@each("slice")
@where(_meets_reshape)
def hold_steps(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A repetition is between a slice that has a stride, and a reshape: the slice takes the
    first of twice the elements.

    In tract, such a slice moves up to where its elements come from. On its way it meets
    the reshape, and its axis is not there: the graph is refused. It does not move over
    repetitions, nor over padding along all of its axes.
    """
    (x,), axis = op.inputs, _axes_with_stride(op)[0]
    repeats = [1 + (i == axis) for i in range(x.rank)]
    twice = emit("tile", x, repeats=repeats, hint="twice")
    taken = slice_positions(x.shape, **op.settings)
    begins, ends = zip(*((p.start, p.stop) for p in taken.values()), strict=True)
    return emit.emit_again(op, [twice], axes=tuple(taken), begin=begins, end=ends)


# ---- Repetitions, and products ----


def _is_for_product(op: Operation, near: DefUse) -> bool:
    if not _repeated_axes(op) or op.dtype != "scalar":
        return False
    source = near.producers[op.inputs[0]]
    is_data = not source.inputs and source.name != "external"
    return not is_data and op.outputs[0] in near.fact(_multiplied)


def _multiplied(graph: Graph) -> set[Tensor]:
    """Operands of products, through operations of one operand."""
    producers = DefUse(graph).producers
    ends = (
        producers[x].inputs[0] if op.name == "matmul" and _is_batch(producers[x]) else x
        for op in graph.operations
        if op.name in PRODUCTS
        for x in op.inputs
    )
    return sources(graph, ends, lambda op: len(op.operands) == 1)


def _repeated_axes(op: Operation) -> list[int]:
    """The axes of extent 1 that a tile repeats."""
    pairs = zip(shape_of(op.operands[0]), op.attributes["repeats"], strict=True)
    return [axis for axis, (extent, n) in enumerate(pairs) if extent == 1 != n]


def _is_batch(op: Operation) -> bool:
    """Whether matrices are repeated as a whole."""
    axes = _repeated_axes(op) if op.name == "tile" else []
    return len(axes) > 0 and axes[-1] < op.outputs[0].rank - 2


@each("tile")
@where(_is_for_product)
def join_repeats(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """An element is joined to itself, before it is repeated for a product: along an axis of
    extent 1, with nothing between but operations of one operand, over which a repetition
    moves.

    In tract, an axis of extent 1 that is repeated counts as one element in a product
    after it, which is wrong. It does not if another way was taken from one element to
    two, nor if it is matrices as a whole that are repeated.
    """
    (x,), axes = op.inputs, _repeated_axes(op)
    repeats = list(op.attributes["repeats"])
    numbers = (a for a in axes if not has_symbols(repeats[a]))
    axis = next((a for a in numbers if repeats[a] % 2 == 0), axes[0])
    count = repeats[axis]
    # Half of a symbol may be no number: twice as many are made, and half of them taken.
    repeats[axis] = count if has_symbols(count) else (count + 1) // 2
    twice = emit("concat", [x, x], axis=axis, hint="twice")
    if {*repeats} == {1}:
        return [twice]
    return [section(emit, emit("tile", twice, repeats=repeats), {axis: (0, count)})]


# ---- Subtractions, and convolutions ----


@each("sub")
@where(lambda op, near: not near.fact(_convolved).isdisjoint(tensors(op.operands[1:])))
def add_opposites(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The opposite of a convolution is added to what it is subtracted from.

    In tract, the subtraction becomes part of the bias of the convolution, and nothing is
    subtracted. Where a filter has a single position, it becomes the last step of a product
    of matrices, through any operations element by element, and the product is added. The
    opposite of a convolution is not looked at.
    """
    x, y = op.operands
    return [emit("add", x, emit("neg", y, hint="opposite"))]


def _convolved(graph: Graph) -> set[Tensor]:
    """Sums of convolutions, and what is made element by element of single positions."""
    summing = MOVES | {"add", "sub"}
    sums = _reached(graph, lambda op: op.name == "conv", lambda op: op.name in summing)
    return sums | _reached(
        graph, _is_at_one_position, lambda op: op.name in ELEMENTWISE
    )


def _is_at_one_position(op: Operation) -> bool:
    """Whether a filter of several points may have one position only."""
    if op.name != "conv":
        return False
    batch, _, *space = op.outputs[0].shape
    points = shape_of(op.operands[1])[2:]
    return {*points} != {1} and all(
        extent == 1 or has_symbols(extent) for extent in (batch, *space)
    )


# ---- Sums, and filters ----


def _sums_filter(op: Operation, near: DefUse) -> bool:
    (total,), has_place = op.outputs, any(op.attributes["axes"])
    is_open = has_place and total.rank <= 3
    return is_open and total in near.fact(_leading_to_filters)


def _leading_to_filters(graph: Graph) -> set[Tensor]:
    filters = tensors(
        op.operands[1]
        for op in graph.operations
        if op.name == "conv" and op.attributes["groups"] != 1
    )
    return sources(graph, filters, leads_to_filter)


@each("sum_reduce", "mean_reduce")
@where(_sums_filter)
def split_sums(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """There is another axis for the channels of a filter that is a sum over them, for a
    convolution by groups; along any axis: a transposition may make it that of the channels.

    In tract, such a sum becomes a part of a convolution of lines, with the wrong axes. It
    does not if the channels have another axis, or if there are more axes.
    """
    (x,), axes = op.inputs, op.attributes["axes"]
    last = max(axes)
    moved = [axis + 1 if axis == last else axis for axis in axes]
    apart = emit("unsqueeze", x, axes=[last], hint="apart")
    total = emit(op.name, apart, **{**op.settings, "axes": moved}, hint="total")
    return [emit("squeeze", total, axes=[last + 1])]
