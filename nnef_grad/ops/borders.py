"""Borders that repeat elements of the input: 'replicate', 'reflect', 'reflect-even'.

An operation that reads such a border is put together from a `pad` with that border and
the operation itself, which then finds all that it reads in its input:

    y = conv(x, w, border = 'replicate', padding = [(1, 1)])

    padded = pad(x, padding = [(0, 0), (0, 0), (1, 1)], border = 'replicate')
    y = conv(padded, w, padding = [(0, 0)])

The derivative follows: that of `pad` hands the gradients of copies to what was copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.registry import Emit, decomposition
from nnef_grad.ops.windows import (
    REPEATING,
    Padding,
    has_border,
    is_reverse,
    windows_of,
)


def _outside(op: Operation) -> Padding:
    """How many elements are read before and after the input."""
    windows = windows_of(op)
    return windows.outside_down if is_reverse(op) else windows.outside


def _repeats(op: Operation) -> bool:
    """Whether the operation reads elements that its border repeats."""
    return op.attributes["border"] in REPEATING and has_border(_outside(op))


def _padded(emit: Emit, op: Operation) -> Tensor:
    """The input with all that is read outside of it."""
    x, outside, border = op.inputs[0], _outside(op), op.attributes["border"]
    padding = (*((0, 0),) * (x.rank - len(outside)), *outside)
    return emit("pad", x, padding=padding, border=border, hint="padded")


@decomposition("conv", "box", "avg_pool", "max_pool", "sample", when=_repeats)
def basic_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """The operation on the padded input."""
    return [emit(op.name, _padded(emit, op), *op.operands[1:], **_inside(op))]


@decomposition("max_pool_with_index", when=_repeats)
def max_pool_with_index_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """Its two steps on the padded input."""
    padded, attributes = _padded(emit, op), _inside(op)
    index = emit("argmax_pool", padded, **attributes, hint="index")
    return [emit("sample", padded, index, **attributes, hint="output"), index]


def _inside(op: Operation) -> dict[str, Any]:
    """The attributes on what was padded; negative padding stays, as it crops."""
    cropped = [(minimum(p, 0), minimum(q, 0)) for p, q in windows_of(op).padding]
    return {**op.attributes, "border": "constant", "padding": cropped}


@decomposition("deconv", "debox", when=_repeats)
def reverse_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """On the padded input; the padding cuts off what more windows have outside."""
    windows, outside, y = windows_of(op), _outside(op), op.outputs[0]
    pairs = list(zip(windows.axes, outside, strict=True))
    down = tuple(p + axis.down + q for axis, (p, q) in pairs)
    padding = tuple(
        (
            p * axis.stride - axis.begin,
            maximum(axis.end + q * axis.stride - axis.up, 0),
        )
        for axis, (p, q) in pairs
    )
    wider = replace(windows, down=down, padding=padding)
    output_shape = wider.output_shape(*y.shape[: y.rank - len(down)])
    attributes = {**op.attributes, **wider.attributes, "output_shape": output_shape}
    attributes["border"] = "constant"
    if op.name == "deconv":
        attributes["groups"] = groups_of(op)
    return [emit(op.name, _padded(emit, op), *op.operands[1:], **attributes)]
