"""The extents of inputs, of which a file may leave some open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.frontends.onnx.entry import Wanted
from nnef_grad.frontends.reading import valid_name
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
