"""Operations that introduce tensors, move elements, or convert them to other types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import ARGSORT, Shape
from nnef_grad.interpreter.registry import UndefinedError, enter, require
from nnef_grad.interpreter.sliding import extended
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.shape import reshape_shape
from nnef_grad.ops.windows import Padding


def _constant(shape: Shape, value: tuple[Any, ...], dtype: npt.DTypeLike) -> Array:
    """One value fills the shape; otherwise there is one for each element."""
    extents = as_numbers(shape)
    return np.broadcast_to(np.array(value, dtype), prod(extents)).reshape(extents)


def _split(value: Array, axis: int, ratios: tuple[int, ...]) -> list[Array]:
    """Sections in the given ratios."""
    unit = value.shape[axis] // sum(ratios)
    *inner, _ = accumulate(unit * ratio for ratio in ratios)
    return np.split(value, inner, axis)


def _slice(input: Array, **attributes: Any) -> Array:
    output = input
    for axis, taken in slice_positions(input.shape, **attributes).items():
        first, last, step = as_numbers((taken.start, taken.stop, taken.step))
        output = output.take(np.arange(first, last, step), axis)
    return output


def _pad(input: Array, padding: Padding, border: str, value: float) -> Array:
    """The tensor extended by its border, or cropped; 'ignore' has no effect here."""
    columns = zip(padding, input.shape, strict=True)
    ranges = [(-before, extent + after) for (before, after), extent in columns]
    return extended(input, ranges, border, value)


def gather(input: Array, indices: Array, axis: int) -> Array:
    """The elements at the indices, whose shape takes the place of the axis."""
    extent = input.shape[axis]
    require(
        np.all((indices >= 0) & (indices < extent)),
        f"the items of 'indices' must be in 0..{extent - 1}, the positions on axis {axis}",
    )
    return input.take(indices, axis)


def argsort(
    x: Array, axis: int, count: int, ranks: Sequence[int], descending: bool
) -> Array:
    """The indices of the elements with some ranks, or of the first; of equal ones the first."""
    order = np.argsort(-x if descending else x, axis, kind="stable")
    return order.take(list(ranks) or np.arange(count), axis)


# ---- Data types ----


def cast(input: Array, dtype: npt.DTypeLike) -> Array:
    """Each element, converted as by the built-in function of the data type's name."""
    kind, is_text = np.dtype(dtype).kind, input.dtype.kind == "U"
    if kind == "b":
        return np.asarray(input != ("" if is_text else 0))
    if kind == "U":
        return input if is_text else _text(input)
    if kind == "i" and input.dtype.kind == "f":
        floor = np.floor(input)
        require(
            (floor < 2.0**63).all(), "only numbers below 2^63 can be cast to integers"
        )
        # As runtimes do: the logarithm of 0 is cast in branches that are not taken.
        return np.maximum(floor, -(2.0**63)).astype(np.int64)
    try:
        return input.astype(np.float64 if kind == "f" else np.int64)
    except ValueError as error:
        raise UndefinedError(f"a string is not a number: {error}") from None


def _text(x: Array) -> Array:
    """Each element as a literal."""
    spelled = np.array([str(value) for value in x.ravel().tolist()], np.str_)
    lower = np.char.lower(spelled) if x.dtype.kind == "b" else spelled
    return lower.reshape(x.shape)


enter(
    {
        # The array that is fed is passed as an operand: these operations have none.
        "external": lambda data, **declared: data,
        "variable": lambda data, **declared: data,
        "constant": _constant,
        # The new value of the variable, from the next run on.
        "update": lambda variable, value: value,
        "cast": cast,
        "reshape": lambda x, **to: x.reshape(reshape_shape(x.shape, **to)),
        "squeeze": lambda x, axes: np.squeeze(x, axes),
        "unsqueeze": lambda x, axes: np.expand_dims(x, axes),
        "transpose": lambda x, axes: x.transpose(*axes, *range(len(axes), x.ndim)),
        "concat": np.concatenate,
        "stack": np.stack,
        "split": _split,
        "unstack": lambda x, axis: list(np.moveaxis(x, axis, 0)),
        "slice": _slice,
        "pad": _pad,
        "tile": lambda x, repeats: np.tile(x, repeats),
        "gather": gather,
        ARGSORT: argsort,
    }
)
