"""Filters with open extents, as the gradients of filters have: tract wants the numbers.

The gradient is a product for each place of the filter instead, so the number of places must
be known. Where a stride leaves an open number of elements over, the convolution meets places
beyond the filter, which are cut off: they are cropped before.

    places = conv(x, dy, padding = [(1, 1)], dilation = [2]);
    dw = slice(places, axes = [2], begin = [0], end = [3]);
    ->
    dw = conv(x, dy, padding = [(1, 2*((H + 1)/2) - H)], dilation = [2]);
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse, each, where
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Operand, Operation
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.shape import Positions
from nnef_grad.ops.windows import windows_of


def has_open_filter(op: Operation) -> bool:
    """Whether an operation is a convolution whose filter has open extents."""
    return op.name == "conv" and has_symbols(op.inputs[1].shape)


def _cuts_places(op: Operation, near: DefUse) -> bool:
    """Whether a slice takes the first places of such a convolution, a known number."""
    made = near.producers[op.inputs[0]]
    if not has_open_filter(made) or near.uses[op.inputs[0]] != 1:
        return False
    taken = slice_positions(op.inputs[0].shape, **op.settings)
    return all(
        axis >= 2
        and places == Positions(0, places.stop)
        and not has_symbols(places.stop)
        for axis, places in taken.items()
    )


@each("slice")
@where(_cuts_places)
def crop_before(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The convolution with so much padding that it has the places that are taken."""
    made = emit.producer(op.inputs[0])
    assert made is not None
    windows, (y,) = windows_of(made), op.outputs
    padding = [
        (axis.padding[0], axis._replace(down=places).end - axis.up)
        for axis, places in zip(windows.axes, y.shape[2:], strict=True)
    ]
    return emit.emit_again(made, made.operands, padding=tuple(padding))
