"""The extents of inputs, of which a file may leave some open, and what is computed of these
when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.frontends.onnx.entry import Wanted
from nnef_grad.frontends.reading import valid_name
from nnef_grad.frontends.values import Array, without_objects
from nnef_grad.graph.extents import symbol
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.names import NameSupply


def input_shapes(inputs: Sequence[Any], wanted: Wanted) -> dict[str, Shape]:
    """The shape of each input, by name. What the file leaves open, and nobody gives, is a
    symbol, called as in the file.

    Raises:
        UsageError: there is no such input or symbol, or a rank is another one.
    """
    _refuse_unknown("input", wanted.shapes, [value.name for value in inputs])
    supply, named = NameSupply(), dict[str, str]()

    def extent(value: Any, axis: int, dimension: Any) -> Any:
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            return int(dimension.dim_value)
        word = dimension.dim_param or f"{value.name}_{axis}"
        if word not in named:
            named[word] = supply.fresh(valid_name(word))
        return wanted.symbols.get(named[word], symbol(named[word]))

    found = {}
    for value in inputs:
        own = enumerate(value.type.tensor_type.shape.dim)
        shape: Shape = tuple(extent(value, *dimension) for dimension in own)
        if wanted.batch is not None and shape:
            shape = (wanted.batch, *shape[1:])
        found[value.name] = _given(value.name, shape, wanted.shapes)
    _refuse_unknown("symbol", wanted.symbols, [*named.values()])
    return found


def _refuse_unknown(
    kind: str, given: Mapping[str, object], known: Sequence[str]
) -> None:
    for name in given:
        if name not in known:
            names = ", ".join(map(repr, known))
            there = f"the {kind}s are {names}" if known else f"there are no {kind}s"
            message = f"there is no {kind} '{name}'{suggestion(name, list(known))}"
            raise UsageError(f"{message}; {there}")


def _given(name: str, shape: Shape, given: Mapping[str, Sequence[int]]) -> Shape:
    """The shape that is given for an input, or its own."""
    if name not in given:
        return shape
    wanted = tuple(given[name])
    if len(shape) != len(wanted):
        ranks = f"has the rank {len(shape)}, and {list(wanted)} is given"
        raise UsageError(f"the input '{name}' {ranks}")
    return wanted


# ---- What is computed of extents with symbols ----


def compute(kind: str, operands: Sequence[Any]) -> Array | None:
    """The result of a node of which some operand is an extent with a symbol, or has one,
    and all are known; None for one that is not computed here.

    Raises:
        OpenExtentError: it depends on the number.
    """
    if kind not in _FUNCTIONS:
        return None
    return without_objects(_FUNCTIONS[kind](*(np.asarray(x, object) for x in operands)))


# Extents are positive: rounding down is truncation.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.floor_divide,
    "Mod": np.remainder,
    "Neg": np.negative,
    "Max": np.maximum,
    "Min": np.minimum,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Where": lambda condition, x, y: np.where(condition.astype(bool), x, y),
}
