"""The operations that introduce or update tensors, and casts between data types."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.graph.ir import Shape
from nnef_grad.interpreter.registry import Array, UndefinedError, evaluation, require


@evaluation("external", "variable")
def fed(data: Array, **declared: Any) -> Array:
    """The array fed for the tensor, passed as an operand: the operation has none."""
    return data


@evaluation("constant")
def constant(shape: Shape, value: tuple[Any, ...], dtype: npt.DTypeLike) -> Array:
    """One value fills the shape; otherwise there is one for each element."""
    return np.broadcast_to(np.array(value, dtype), prod(shape)).reshape(shape)


@evaluation("update")
def update(variable: Array, value: Array) -> Array:
    """The new value of the variable, from the next run on."""
    return value


# ---- Data types ----


@evaluation("cast")
def cast(input: Array, dtype: npt.DTypeLike) -> Array:
    """Each element, converted as by the built-in function of the data type's name."""
    kind, is_text = np.dtype(dtype).kind, input.dtype.kind == "U"
    if kind == "b":
        return np.asarray(input != ("" if is_text else 0))
    if kind == "U":
        return input if is_text else _text(input)
    if kind == "i" and input.dtype.kind == "f":
        return _floor(input)
    try:
        return input.astype(np.float64 if kind == "f" else np.int64)
    except ValueError as error:
        message = f"a string is not a number: {error}"
        raise UndefinedError(message) from None


def _floor(x: Array) -> Array:
    """The largest integer that is not above a scalar."""
    floor = np.floor(x)
    fits = np.abs(floor) < 2.0**63
    require(fits.all(), "only finite numbers of 63 bits can be cast to integers")
    return floor.astype(np.int64)


def _text(x: Array) -> Array:
    """Each element as a literal."""
    spelled = np.array([str(value) for value in x.ravel().tolist()], np.str_)
    lower = np.char.lower(spelled) if x.dtype.kind == "b" else spelled
    return lower.reshape(x.shape)
