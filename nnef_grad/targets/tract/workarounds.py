"""Passes over operations that are right by themselves, and that tract makes wrong next to
each other: it moves one over the other, or makes one of two.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of, tensors
from nnef_grad.ops.parts import section, slice_positions
from nnef_grad.ops.traits import ELEMENTWISE, PRODUCTS
from nnef_grad.targets.fusion_workarounds import MOVING, When, is_passing, sources
from nnef_grad.targets.registry import Relations, replaced


def _reached(graph: Graph, starts: When, passes: When) -> set[Tensor]:
    """The tensors that the results of some operations come to, through others."""
    found: set[Tensor] = set()
    for op in graph.operations:
        if starts(op) or (passes(op) and not found.isdisjoint(op.inputs)):
            found.update(op.outputs)
    return found


# The operations that a slice does not move over, whatever its axis is.
_STOPS = PRODUCTS | {"tile", "max_pool", "avg_pool", "box"}


def _is_flat(op: Operation) -> bool:
    """Whether a filter has a single point along an axis: a slice moves over it there."""
    return op.name == "conv" and 1 in shape_of(op.operands[1])[2:]


class _Neighbours(Relations):
    """The neighbours of operations, for passes that ask about few."""

    @cached_property
    def reshaped(self) -> Set[Tensor]:
        """Slices of the results of reshapes."""
        return _reached(
            self._graph,
            lambda op: op.name == "reshape",
            lambda op: op.name not in _STOPS or _is_flat(op),
        )

    @cached_property
    def convolved(self) -> Set[Tensor]:
        """Sums of the results of convolutions."""
        return _reached(
            self._graph,
            lambda op: op.name == "conv",
            lambda op: op.name in _SUMMING,
        )

    @cached_property
    def convolved_once(self) -> Set[Tensor]:
        """Element-wise operations on convolutions at a single position."""
        return _reached(
            self._graph, _is_at_one_position, lambda op: op.name in ELEMENTWISE
        )

    @cached_property
    def multiplied(self) -> Set[Tensor]:
        """Operands of products, through operations of one operand."""
        ends = (
            self.producers[x].inputs[0]
            if op.name == "matmul" and _is_batch(self.producers[x])
            else x
            for op in self._graph.operations
            if op.name in PRODUCTS
            for x in op.inputs
        )
        return sources(self._graph, ends, lambda op: len(op.operands) == 1)


def hold_steps(graph: Graph) -> Graph:
    """The graph with a repetition between a slice that has a stride, and a reshape.

    In tract, such a slice moves up to where its elements come from. On its way it meets
    the reshape, and its axis is not there: the graph is refused. It does not move over
    repetitions, nor over padding along all of its axes.
    """
    near = _Neighbours(graph)

    def is_open(op: Operation) -> bool:
        axes = _axes_with_stride(op)
        if not axes or near.reshaped.isdisjoint(op.inputs):
            return False
        before = near.producers[op.inputs[0]]
        padding = before.attributes["padding"] if before.name == "pad" else None
        return padding is None or not all(any(padding[axis]) for axis in axes)

    return replaced(graph, {"slice"}, _held, is_open)


def _axes_with_stride(op: Operation) -> list[int]:
    if {*op.attributes["stride"]} <= {1}:
        return []
    taken = slice_positions(shape_of(op.operands[0]), **op.settings)
    return [axis for axis, positions in taken.items() if positions.step > 1]


def _held(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The slice of twice the elements, of which it takes the first ones: where it ends
    is counted from the first.
    """
    (x,), axis = op.inputs, _axes_with_stride(op)[0]
    repeats = [1 + (i == axis) for i in range(x.rank)]
    twice = emit("tile", x, repeats=repeats, hint="twice")
    taken = slice_positions(x.shape, **op.settings)
    begins, ends = zip(*((p.start, p.stop) for p in taken.values()), strict=True)
    return emit.emit_again(op, [twice], axes=tuple(taken), begin=begins, end=ends)


def join_repeats(graph: Graph) -> Graph:
    """The graph with an element joined to itself, before it is repeated for a product:
    along an axis of extent 1, with nothing between but operations of one operand, over
    which a repetition moves.

    In tract, an axis of extent 1 that is repeated counts as one element in a product
    after it, which is wrong. It does not if another way was taken from one element to
    two, nor if it is matrices as a whole that are repeated.
    """
    near = _Neighbours(graph)

    def is_open(op: Operation) -> bool:
        if not _repeated_axes(op):
            return False
        source = near.producers[op.inputs[0]]
        is_given = not source.inputs and source.name != "external"
        if op.dtype != "scalar" or is_given:
            return False
        return op.outputs[0] in near.multiplied

    return replaced(graph, {"tile"}, _doubled, is_open)


def _repeated_axes(op: Operation) -> list[int]:
    """The axes of extent 1 that a tile repeats."""
    pairs = zip(shape_of(op.operands[0]), op.attributes["repeats"], strict=True)
    return [axis for axis, (extent, n) in enumerate(pairs) if extent == 1 != n]


def _is_batch(op: Operation) -> bool:
    """Whether matrices are repeated as a whole."""
    axes = _repeated_axes(op) if op.name == "tile" else []
    return len(axes) > 0 and axes[-1] < op.outputs[0].rank - 2


def _doubled(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The repetition of twice the element: two elements are no single one."""
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


_SUMMING = frozenset(f"{MOVING} add sub".split())


def add_opposites(graph: Graph) -> Graph:
    """The graph with the opposite of a convolution added to what it is subtracted from.

    In tract, the subtraction becomes part of the bias of the convolution, and nothing is
    subtracted. Where a filter has a single position, it becomes the last step of a product
    of matrices, through any operations element by element, and the product is added. The
    opposite of a convolution is not looked at.
    """
    near = _Neighbours(graph)

    def is_open(op: Operation) -> bool:
        return any(
            x in near.convolved or x in near.convolved_once
            for x in tensors(op.operands[1:])
        )

    return replaced(graph, {"sub"}, _opposite_added, is_open)


def _is_at_one_position(op: Operation) -> bool:
    """Whether a filter of several points may have one position only."""
    if op.name != "conv":
        return False
    batch, _, *space = op.outputs[0].shape
    points = shape_of(op.operands[1])[2:]
    return {*points} != {1} and all(
        extent == 1 or has_symbols(extent) for extent in (batch, *space)
    )


def _opposite_added(emit: Emitter, op: Operation) -> Sequence[Operand]:
    x, y = op.operands
    return [emit("add", x, emit("neg", y, hint="opposite"))]


def split_sums(graph: Graph) -> Graph:
    """The graph with another axis for the channels of a filter that is a sum over them,
    for a convolution by groups.

    In tract, such a sum becomes a part of a convolution of lines, with the wrong axes. It
    does not if the channels have another axis, or if there are more axes.
    """
    filters = tensors(
        op.operands[1]
        for op in graph.operations
        if op.name == "conv" and op.attributes["groups"] != 1
    )
    found = sources(graph, filters, is_passing)

    def is_open(op: Operation) -> bool:
        """Along any axis: a transposition may make it that of the channels."""
        has_place = any(op.attributes["axes"]) and op.outputs[0].rank <= 3
        return has_place and op.outputs[0] in found

    return replaced(graph, {"sum_reduce", "mean_reduce"}, _split, is_open)


def _split(emit: Emitter, op: Operation) -> Sequence[Operand]:
    (x,), axes = op.inputs, op.attributes["axes"]
    last = max(axes)
    moved = [axis + 1 if axis == last else axis for axis in axes]
    apart = emit("unsqueeze", x, axes=[last], hint="apart")
    total = emit(op.name, apart, **{**op.settings, "axes": moved}, hint="total")
    return [emit("squeeze", total, axes=[last + 1])]
