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
    kind = np.dtype(dtype).kind
    if input.dtype.kind == "U":
        return _from_text(input, kind)
    return {"f": _scalar, "i": _integer, "b": _logical, "U": _text}[kind](input)


def _scalar(x: Array) -> Array:
    return x.astype(np.float64)


def _integer(x: Array) -> Array:
    """The largest integer that is not above a scalar."""
    floor = np.floor(x)
    fits = np.abs(floor) < 2.0**63
    require(fits.all(), "only finite numbers of 63 bits can be cast to integers")
    return x.astype(np.int64) if x.dtype.kind == "i" else floor.astype(np.int64)


def _logical(x: Array) -> Array:
    return np.asarray(x != 0)


def _text(x: Array) -> Array:
    """Each element as a literal."""
    spelled = np.array([str(value) for value in x.ravel().tolist()], np.str_)
    lower = np.char.lower(spelled) if x.dtype.kind == "b" else spelled
    return lower.reshape(x.shape)


def _from_text(x: Array, kind: str) -> Array:
    if kind == "b":
        return np.asarray(x != "")
    try:
        return x.astype({"f": np.float64, "i": np.int64, "U": np.str_}[kind])
    except ValueError as error:
        message = f"a string is not a number: {error}"
        raise UndefinedError(message) from None
