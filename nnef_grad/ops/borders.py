"""Borders that repeat elements of the input: 'replicate', 'reflect', 'reflect-even'.

An operation that reads such a border is put together from a `pad` with that border and
the operation itself, which then finds all that it reads in its input:

    y = conv(x, w, border = 'replicate', padding = [(1, 1)])

    padded = pad(x, padding = [(0, 0), (0, 0), (1, 1)], border = 'replicate')
    y = conv(padded, w, padding = [(0, 0)])

The derivative follows: that of `pad` hands the gradients of copies to what was copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.ops.conv import conv_windows, deconv_groups, deconv_windows
from nnef_grad.ops.pool import basic_windows, reverse_windows
from nnef_grad.ops.registry import Emit, decomposition
from nnef_grad.ops.windows import (
    REPEATING,
    Padding,
    Windows,
    basic_outside,
    reverse_outside,
)

Reads = tuple[Callable[[Operation], Windows], Callable[[Windows], Padding]]

# For each operation its windows, and what they read outside of its input.
_READS: dict[str, Reads] = {
    "conv": (conv_windows, basic_outside),
    "deconv": (deconv_windows, reverse_outside),
    "box": (basic_windows, basic_outside),
    "debox": (reverse_windows, reverse_outside),
    "avg_pool": (basic_windows, basic_outside),
    "max_pool": (basic_windows, basic_outside),
    "max_pool_with_index": (basic_windows, basic_outside),
    "sample": (basic_windows, basic_outside),
}


def _windows(op: Operation) -> Windows:
    windows, _ = _READS[op.name]
    return windows(op)


def _outside(op: Operation) -> Padding:
    _, outside = _READS[op.name]
    return outside(_windows(op))


def _repeats(op: Operation) -> bool:
    """Whether the operation reads elements that its border repeats."""
    return op.attributes["border"] in REPEATING and any(map(any, _outside(op)))


def _padded(emit: Emit, op: Operation) -> Tensor:
    """The input with all that is read outside of it."""
    x, outside = op.inputs[0], _outside(op)
    batch_and_channels = ((0, 0),) * (x.rank - len(outside))
    padding = (*batch_and_channels, *outside)
    return emit(
        "pad", x, padding=padding, border=op.attributes["border"], hint="padded"
    )


# ---- Basic operations ----


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
    """The attributes of an operation on what was padded. Negative padding stays: it
    crops.
    """
    cropped = tuple((min(p, 0), min(q, 0)) for p, q in _windows(op).padding)
    return {**op.attributes, "border": "constant", "padding": cropped}


# ---- Reverse operations ----


@decomposition("deconv", when=_repeats)
def deconv_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """The deconvolution of the padded input."""
    output_shape, groups = op.attributes["output_shape"], op.attributes["groups"]
    groups = deconv_groups(op.inputs[0].shape, output_shape, groups)
    x, *others = _padded(emit, op), *op.operands[1:]
    return [emit("deconv", x, *others, **_cut_out(op), groups=groups)]


@decomposition("debox", when=_repeats)
def debox_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """The reverse box filter on the padded input."""
    size, normalize = op.attributes["size"], op.attributes["normalize"]
    x = _padded(emit, op)
    return [emit("debox", x, size=size, **_cut_out(op), normalize=normalize)]


def _cut_out(op: Operation) -> dict[str, Any]:
    """The attributes for which the padded input gives the same output: it has more
    windows, and the padding cuts off what these have outside of the output.
    """
    windows, outside = _windows(op), _outside(op)
    down = (
        p + extent + q for extent, (p, q) in zip(windows.down, outside, strict=True)
    )
    columns = zip(
        windows.begin, windows.end, windows.up, windows.stride, outside, strict=True
    )
    padding = (
        (p * s - first, max(last + q * s - extent, 0))
        for first, last, extent, s, (p, q) in columns
    )
    wider = replace(windows, down=tuple(down), padding=tuple(padding))
    output_shape = () if wider.has_natural_extents else op.outputs[0].shape
    return {**wider.attributes, "output_shape": output_shape}
