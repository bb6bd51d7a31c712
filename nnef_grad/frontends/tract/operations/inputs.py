"""Inputs, variables and conversions: what has a data type; logic on truth values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.errors import Problem
from nnef_grad.emit.whole import is_whole
from nnef_grad.frontends.conversion import MOST_ELEMENTS
from nnef_grad.frontends.tract.evaluation import document, expansion
from nnef_grad.frontends.values import (
    as_extents,
    converted,
    dtype_of,
    is_known,
    shape_of,
    simple,
)
from nnef_grad.frontends.view import View
from nnef_grad.language.labels import label_steps

_INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "tdim")
# The data types of NNEF by those of tract.
DTYPES = {
    **dict.fromkeys(("f16", "f32", "f64"), "scalar"),
    **dict.fromkeys(_INTEGERS, "integer"),
    "bool": "logical",
}
# Those of what `external` declares, and that of extents.
OWN = {"f32", "i64", "bool", "tdim"}


def data_type(view: View, name: str) -> str:
    """The data type of NNEF for one of tract."""
    dtype = DTYPES.get(name.lower())
    if dtype is None:
        known = ", ".join(DTYPES)
        view.refuse(f"there is no data type '{name}' in NNEF; there are {known}")
    return dtype


@expansion("external", "tract_core_external")
def external(view: View, *arguments: Any) -> Any:
    """An input with a data type of tract. One without elements, such as a cache before the
    first turn, is known.
    """
    in_graph = view.reading.caller is None
    view.require(in_graph, "a fragment makes no inputs: make it one of the graph")
    *named, shape = arguments
    dtype = data_type(view, *named) if named else view.dtype or "scalar"
    whole = document(view).given.shapes(view.hint, tuple(shape))
    if 0 in whole:
        message = f"the input '{view.hint}' has no elements: the graph is without it"
        view.reading.warnings.append(Problem(message, view.span))
        return converted(np.zeros(whole), dtype)
    if named and (datum_type := named[0].lower()) not in OWN:
        document(view).datum_types[view.hint] = datum_type
    return view("external", dtype=dtype, shape=list(whole))


@expansion("variable")
def variable(view: View, shape: list[int], label: str) -> Any:
    """A variable of the data type that its data have. Integers and truth values are
    known: they are not trained, and not all runtimes have such variables. So is a single
    number of double precision: a number of the Python code, which torch-to-nnef writes
    as a variable.
    """
    stored, dtype = document(view).given.stored, view.dtype or "scalar"
    try:
        label_steps(label)
    except ValueError as error:
        view.refuse(str(error))
    if stored is not None and label in stored:
        header = stored.header(label)
        dtype = header.items.dtype
        if (
            header.items.is_quantized
            and view.hint not in document(view).given.quantized
        ):
            # tract writes integers as the codes of a quantization.
            dtype = "integer"
        is_table = dtype != "scalar" and prod(header.shape) <= MOST_ELEMENTS
        is_number = dtype == "scalar" and not header.shape and header.bits == 64
        if (is_table or is_number) and header.shape == tuple(shape):
            array = stored.integers(label) if dtype == "integer" else stored[label]
            return simple(converted(array, dtype))
    return view("variable", dtype=dtype, shape=shape, label=label)


@expansion("tract_core_cast")
def cast(view: View, x: Any, to: str) -> Any:
    """Converts types; scalars are truncated to integers. Without a type it is that of the
    quantization info, which says what the numbers of the result become.
    """
    if not to:
        what = "it has no type, neither here nor in graph.quant"
        view.require(view.hint in document(view).given.quantized, what)
        return view("copy", x)
    dtype = data_type(view, to)
    # Of a variable with infinities, which a selection leaves out, the data are known.
    numbers = document(view).data_of(x) if dtype == "integer" else None
    if numbers is not None and numbers.size <= MOST_ELEMENTS:
        x = x if np.isfinite(numbers).all() else numbers
    reading = view.reading
    if dtype == "integer" and not is_known(x) and is_whole(x, reading.emitter.producer):
        # Without truncation, as what is written again.
        return reading.cast(x, dtype, view.hint, view.span)
    return reading.converted(x, dtype, view.hint, view.span)


@expansion("tract_core_shape_of")
def shape(view: View, x: Any) -> Any:
    """The shape, as known integers."""
    return as_extents(shape_of(x))


# ---- Bits, which are truth values here: NNEF does not have those of integers ----


_LOGIC = {f"tract_core_bit{name}": name for name in ("and", "or", "not")}


@expansion(*_LOGIC)
def logic(view: View, *operands: Any) -> Any:
    """Logic on truth values; integers are refused."""
    _require_logical(view, operands)
    return view(_LOGIC[view.name], *operands)


@expansion("tract_core_bitxor", "tract_core_xor")
def either(view: View, x: Any, y: Any) -> Any:
    """Exclusive or of truth values; integers are refused."""
    _require_logical(view, [x, y])
    both = view("and", x, y, hint="both")
    return view("and", view("or", x, y), view("not", both))


def _require_logical(view: View, operands: Any) -> None:
    is_logical = all(dtype_of(x) == "logical" for x in operands)
    view.require(is_logical, "bits of integers are not in NNEF: use comparisons")
