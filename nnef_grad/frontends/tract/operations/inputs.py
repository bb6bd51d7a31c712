"""Inputs, variables and conversions: what has a data type; logic on truth values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nnef_grad.frontends.conversion import MOST_ELEMENTS
from nnef_grad.frontends.step import Step
from nnef_grad.frontends.tract.evaluation import document, expansion
from nnef_grad.frontends.values import (
    as_extents,
    converted,
    dtype_of,
    shape_of,
    simple,
)
from nnef_grad.language.labels import label_steps

_INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "tdim")
# The data types of NNEF by those of tract.
DTYPES = {
    **dict.fromkeys(("f16", "f32", "f64"), "scalar"),
    **dict.fromkeys(_INTEGERS, "integer"),
    "bool": "logical",
}


def data_type(step: Step, name: str) -> str:
    """The data type of NNEF for one of tract."""
    dtype = DTYPES.get(name.lower())
    if dtype is None:
        known = ", ".join(DTYPES)
        step.refuse(f"there is no data type '{name}' in NNEF; there are {known}")
    return dtype


@expansion("external", "tract_core_external")
def external(step: Step, *arguments: Any) -> Any:
    """An input with a data type of tract."""
    *named, shape = arguments
    dtype = data_type(step, *named) if named else step.dtype or "scalar"
    whole = document(step).given.shapes(step.hint, tuple(shape))
    return step("external", dtype=dtype, shape=list(whole))


@expansion("variable")
def variable(step: Step, shape: list[int], label: str) -> Any:
    """A variable of the data type that its data have. Integers and truth values are
    known: they are not trained, and not all runtimes have such variables. So is a single
    number of double precision: a number of the Python code, which torch-to-nnef writes
    as a variable.
    """
    stored, dtype = document(step).given.stored, step.dtype or "scalar"
    try:
        label_steps(label)
    except ValueError as error:
        step.refuse(str(error))
    if stored is not None and label in stored:
        header = stored.header(label)
        dtype = header.items.dtype
        is_table = dtype != "scalar" and prod(header.shape) <= MOST_ELEMENTS
        is_number = dtype == "scalar" and not header.shape and header.bits == 64
        if (is_table or is_number) and header.shape == tuple(shape):
            return simple(converted(stored[label], dtype))
    return step("variable", dtype=dtype, shape=shape, label=label)


@expansion("tract_core_cast")
def cast(step: Step, x: Any, to: str) -> Any:
    """Converts types; scalars are truncated to integers."""
    dtype = data_type(step, to)
    # Of a variable with infinities, which a selection leaves out, the data are known.
    numbers = document(step).data_of(x) if dtype == "integer" else None
    if numbers is not None and numbers.size <= MOST_ELEMENTS:
        x = x if np.isfinite(numbers).all() else numbers
    return step.reading.converted(x, dtype, step.hint, step.span)


@expansion("tract_core_shape_of")
def shape(step: Step, x: Any) -> Any:
    """The shape, as known integers."""
    return as_extents(shape_of(x))


# ---- Bits, which are truth values here: NNEF does not have those of integers ----


_LOGIC = {f"tract_core_bit{name}": name for name in ("and", "or", "not")}


@expansion(*_LOGIC)
def logic(step: Step, *operands: Any) -> Any:
    """Logic on truth values; integers are refused."""
    _require_logical(step, operands)
    return step(_LOGIC[step.name], *operands)


@expansion("tract_core_bitxor", "tract_core_xor")
def either(step: Step, x: Any, y: Any) -> Any:
    """Exclusive or of truth values; integers are refused."""
    _require_logical(step, [x, y])
    both = step("and", x, y, hint="both")
    return step("and", step("or", x, y), step("not", both))


def _require_logical(step: Step, operands: Any) -> None:
    is_logical = all(dtype_of(x) == "logical" for x in operands)
    step.require(is_logical, "bits of integers are not in NNEF: use comparisons")
