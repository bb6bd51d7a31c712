"""Discrete Fourier transforms of pairs of real and imaginary parts."""

from __future__ import annotations

from math import prod
from typing import Any

from nnef_grad.frontends.expansions.spectra import transformed, waves
from nnef_grad.frontends.expansions.windows import Axis, conv
from nnef_grad.frontends.tract.evaluation import expansion
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View


@expansion("tract_core_fft")
def transform(view: View, x: Any, axis: int, inverse: bool) -> Any:
    """Frequencies of pairs of parts along an axis; the inverse is not divided by their number."""
    along = _checked(view, x, axis)
    return transformed(view, x, along, shape_of(x)[along], is_inverse=inverse)


@expansion("tract_core_stft")
def of_windows(
    view: View, x: Any, axis: int, frame: int, stride: int, window: Any
) -> Any:
    """Frequencies of parts of a signal along an axis, times a window in their middle."""
    along, shape = _checked(view, x, axis), shape_of(x)
    last = len(shape) - 1
    others = [a for a in range(last) if a != along]
    before = [shape[a] for a in others]
    rows = view.transposed(x, [*others, last, along], "rows")
    signals = view.reshaped(rows, [prod(before), 2, shape[along]], "signals")
    view.reading.spend(4 * frame * frame)
    table = waves(frame, frame, 2).reshape(2, frame, 2 * frame).transpose(2, 0, 1)
    filters = view.constant(table, "scalar")
    if window is not False:
        row = _in_the_middle(view, window, frame)
        filters = view("mul", filters, row, hint="filters")
    sliding = Axis(shape[along], frame, stride, 1, 0, 0)
    spectra = conv(view, signals, filters, 0.0, [sliding], groups=1)
    parts = view.reshaped(spectra, [*before, 2, frame, shape_of(spectra)[2]], "parts")
    places: dict[int, list[int]] = {a: [place] for place, a in enumerate(others)}
    places |= {last: [len(others)], along: [len(others) + 2, len(others) + 1]}
    return view.transposed(parts, [p for a in range(last + 1) for p in places[a]])


def _checked(view: View, x: Any, axis: int) -> int:
    rank = len(shape_of(x))
    view.require(
        rank >= 2 and shape_of(x)[-1] == 2, "the last axis must have two parts"
    )
    view.require(axis < rank - 1, "the last axis is that of the parts")
    return view.axis(axis, rank)


def _in_the_middle(view: View, window: Any, frame: int) -> Any:
    """A window as a row of a frame, with zeros around it."""
    size = shape_of(window)[0]
    view.require(size <= frame, f"a window of {size} is longer than the frame {frame}")
    left = (frame - size) // 2
    row = view("unsqueeze", window, axes=[0, 1], hint="window")
    if size == frame:
        return row
    padding = [(0, 0), (0, 0), (left, frame - size - left)]
    return view("pad", row, hint="window", padding=padding, value=0.0)
