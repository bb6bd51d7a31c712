"""Discrete Fourier transforms, of a signal or its windows."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.expansions.spectra import transformed, waves
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import Dimension, OpenExtentError, has_symbols


@onnx_op("STFT")
def _of_windows(node: Node, x: Any, step: Any, window: Any = None, *_: Any) -> Any:
    """[batch, length] or [batch, length, 1] gives [batch, windows, frequencies, 2]."""
    if len(shape_of(x)) == 3:
        node.require(shape_of(x)[2] == 1, "the signal must be real")
        x = node("squeeze", x, axes=[2])
    size = shape_of(window)[0] if node.operand(3) is None else node.items("size", 3)[0]
    count = _frequencies(node, size)
    node.reading.spend(2 * size * count)
    table = waves(size, count, 1)[0]
    filters: Any = table.reshape(size, 2 * count).T.reshape(2 * count, 1, size)
    if window is not None:
        row = node("unsqueeze", window, axes=[0, 1], hint="window")
        filters = node("mul", node.constant(filters, "scalar"), row, hint="filters")
    (stride,) = node.items("step", 1)
    signal = node("unsqueeze", x, axes=[1], hint="signal")
    spectra = node.other("Conv", signal, filters, attributes={"strides": [int(stride)]})
    batch, windows = shape_of(spectra)[0], shape_of(spectra)[2]
    parts = node.reshaped(spectra, [batch, 2, count, windows], "parts")
    return node.transposed(parts, [0, 3, 2, 1])


@onnx_op("DFT")
def _transform(node: Node, x: Any, *_: Any) -> Any:
    """[..., n, ..., 1 or 2] gives [..., frequencies, ..., 2], along an axis."""
    shape, last = shape_of(x), len(shape_of(x)) - 1
    given = node.get("axis", 1) if node.version < 20 else node.items("axis", 2, -2)[0]
    along = node.axis(given, last + 1)
    if has_symbols(shape[along]):
        raise OpenExtentError(f"the transform needs the number of {shape[along]}")
    (size,) = node.items("dft_length", 1, shape[along])
    inverse, count = bool(node.get("inverse", 0)), _frequencies(node, size)
    node.require(not inverse or count == size, "onesided must be 0 for an inverse")
    x = _of_length(node, x, along, size)
    divisor = size if inverse else 1
    return transformed(node, x, along, count, is_inverse=inverse, divisor=divisor)


def _frequencies(node: Node, size: Dimension) -> Dimension:
    is_half = node.get("onesided", int(node.kind == "STFT"))
    return size // 2 + 1 if is_half else size


def _of_length(node: Node, x: Any, axis: int, size: int) -> Any:
    """The first elements along an axis, or these and zeros."""
    shape = shape_of(x)
    if size <= shape[axis]:
        is_whole = size == shape[axis]
        return x if is_whole else node.piece(x, axis, 0, size, "first")
    padding = [(0, size - shape[axis] if a == axis else 0) for a in range(len(shape))]
    return node("pad", x, padding=padding, value=0.0)
