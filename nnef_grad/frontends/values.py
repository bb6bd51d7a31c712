"""The values that front ends read.

    Value ::= Tensor | Known | string | [Value, ...]
    Known ::= logical | integer | scalar | an array of numpy, of rank 1 at least

A known value is one that is computed when the document is read: a number, a shape, a table.
Where a tensor of the graph is wanted it becomes a literal or a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import Extent, has_symbols
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.language.types import LARGEST, MAX_INTEGER
from nnef_grad.ops.elementwise import broadcast_shape

# By the kinds of numpy; objects are extents with symbols, beside numbers perhaps.
DTYPES = {
    "b": "logical",
    "i": "integer",
    "u": "integer",
    "f": "scalar",
    "O": "integer",
    # Of ml_dtypes, such as bfloat16.
    "V": "scalar",
}
_NUMPY: dict[str, npt.DTypeLike] = {
    "logical": np.bool_,
    "integer": np.int64,
    "scalar": np.float64,
}


def is_known(value: object) -> bool:
    """Whether a value is known when the document is read; text is not a value here."""
    if isinstance(value, (list, tuple)):
        return all(map(is_known, value))
    return isinstance(value, (bool, int, float, Extent, np.ndarray))


def is_open(value: Any) -> bool:
    """Whether there are extents with symbols in a known value, or in one of several."""
    if isinstance(value, (list, tuple)):
        return any(map(is_open, value))
    return not isinstance(value, Tensor) and np.asarray(value).dtype.kind == "O"


def as_extents(extents: Iterable[Any]) -> Array:
    """Extents as an array: of integers, or of objects where some have symbols."""
    given = tuple(extents)
    return np.array(given, object if has_symbols(given) else np.int64)


def without_objects(value: Any) -> Array:
    """An array that was computed of extents: of objects only where some have symbols."""
    array = np.asarray(value)
    if array.dtype.kind != "O" or any(isinstance(x, Extent) for x in array.flat):
        return array
    return np.array(array.tolist())


def is_uniform(array: Array) -> bool:
    """Whether all elements are equal, of which there is one at least."""
    return bool(array.size) and bool((array == array.flat[0]).all())


def simple(array: Array) -> Any:
    """The array, or its number where it has no axes."""
    return array if array.ndim else array.item()


def shape_of(value: Any) -> Shape:
    """The shape of a tensor or of a known value."""
    return value.shape if isinstance(value, Tensor) else np.asarray(value).shape


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape of the result of operands whose axes are aligned from the right."""
    rank = max(map(len, shapes))
    return broadcast_shape(*((1,) * (rank - len(shape)) + shape for shape in shapes))


def dtype_of(value: Any) -> str:
    """The data type of a tensor or of a known value."""
    if isinstance(value, Tensor):
        return value.dtype
    return DTYPES[np.asarray(value).dtype.kind]


def common_dtype(values: Iterable[Any]) -> str:
    """The data type of the first tensor among values, which may be in lists, or the one that
    holds all numbers.
    """
    lists = (x if isinstance(x, (list, tuple)) else [x] for x in values)
    operands = list(chain.from_iterable(lists))
    dtypes = [x.dtype for x in operands if isinstance(x, Tensor)]
    if dtypes:
        return dtypes[0]
    kinds = {*map(dtype_of, operands)}
    return next((k for k in ("scalar", "integer") if k in kinds), "logical")


def converted(value: Any, dtype: str) -> Array:
    """A known value as an array of a data type. Numbers become integers by truncation.
    Infinities, and what does not fit, become the largest number.
    """
    array = np.asarray(value)
    if dtype == "integer" and is_open(array):
        return array
    if dtype == "integer" and array.dtype.kind == "f":
        array = np.nan_to_num(np.clip(array, -MAX_INTEGER, MAX_INTEGER))
    numbers = array.astype(_NUMPY[dtype])
    return np.clip(numbers, -LARGEST, LARGEST) if dtype == "scalar" else numbers


def described(value: Any) -> str:
    """A value, in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, value))}]"
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    return str(value).lower() if isinstance(value, bool) else str(value)


def items_of(value: Any) -> Sequence[Any]:
    """The items of an array, known or not; one value alone is an array of one."""
    if isinstance(value, np.ndarray):
        items: list[Any] = value.tolist()
        return items
    return value if isinstance(value, (list, tuple)) else [value]
