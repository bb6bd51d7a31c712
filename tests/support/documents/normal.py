"""Graphs in a form in which ours and those of the Khronos parser can be compared.

Operations stay in their order, with all defaults filled in. Tensors are numbered as
they appear, since each parser names the intermediate ones in its own way. Scalars are
rounded to 32 bits, as the Khronos parser has them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from nnef_grad.language.types import ArrayType, TupleType, Type

Normal = dict[str, Any]


def of_ours(graph: nnef_grad.Graph, *, shapes: bool = True) -> Normal:
    """The form of one of our graphs, with or without the shapes of its tensors."""
    numbers = _Numbers()

    def number(tensor: nnef_grad.Tensor) -> str:
        return numbers[graph.names[tensor]]

    operations = [
        _operation(
            op.name,
            op.dtype,
            [
                _ours(p.type, o, number)
                for p, o in zip(op.definition.operands, op.operands, strict=True)
            ],
            {
                p.name: _ours(p.type, op.settings[p.name], number)
                for p in op.definition.attributes
            },
            [
                _ours(r.type, value, number)
                for r, value in zip(op.definition.results, op.results, strict=True)
            ],
        )
        for op in graph.operations
    ]
    return _graph(
        graph.name,
        graph.input_names,
        graph.output_names,
        operations,
        numbers,
        {
            name: (t.dtype, list(as_numbers(t.shape)) if shapes else None)
            for name, t in graph.tensors.items()
        },
    )


def of_khronos(graph: Any) -> Normal:
    """The form of a graph of the Khronos parser, from the plain values that it sent."""
    numbers = _Numbers()
    operations = [
        _operation(
            name,
            dtype,
            [_theirs(value, numbers) for _, value in inputs],
            {key: _theirs(value, numbers) for key, value in attributes},
            [_theirs(value, numbers) for _, value in outputs],
        )
        for name, dtype, inputs, attributes, outputs in graph["operations"]
    ]
    return _graph(
        graph["name"],
        graph["inputs"],
        graph["outputs"],
        operations,
        numbers,
        {n: (t, graph["shapes"][n]) for n, t in graph["dtypes"].items()},
    )


class _Numbers(dict[str, str]):
    """A number for each name, in the order in which they are asked for."""

    def __missing__(self, name: str) -> str:
        self[name] = f"%{len(self)}"
        return self[name]


def _operation(
    name: str, dtype: str | None, operands: Any, attributes: Any, results: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype,
        "operands": operands,
        "attributes": attributes,
        "results": results,
    }


def _graph(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    operations: list[dict[str, Any]],
    numbers: _Numbers,
    tensors: Mapping[str, tuple[str, list[int] | None]],
) -> Normal:
    return {
        "name": name,
        "inputs": [(name, numbers[name]) for name in inputs],
        "outputs": [(name, numbers[name]) for name in outputs],
        "operations": operations,
        "tensors": {numbers[name]: type_ for name, type_ in tensors.items()},
    }


def _ours(type_: Type, value: Any, number: Callable[[nnef_grad.Tensor], str]) -> Any:
    if isinstance(value, nnef_grad.Tensor):
        return number(value)
    if isinstance(type_, ArrayType):
        return [_ours(type_.item, item, number) for item in value]
    if isinstance(type_, TupleType):
        return tuple(
            _ours(t, item, number) for t, item in zip(type_.items, value, strict=True)
        )
    return _literal(value)


_SEQUENCES: dict[str, Callable[[Any], Any]] = {"list": list, "tuple": tuple}


def _theirs(value: Any, numbers: _Numbers) -> Any:
    if not isinstance(value, dict):
        return _literal(value)
    ((kind, content),) = value.items()
    if kind == "tensor":
        return numbers[content]
    return _SEQUENCES[kind](_theirs(item, numbers) for item in content)


def _literal(value: Any) -> str:
    """`repr` tells 1 from 1.0 from true, and 0.0 from -0.0."""
    return repr(rounded(value)) if isinstance(value, float) else repr(value)


def rounded(value: float) -> float:
    """The nearest number of 32 bits."""
    try:
        (result,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    assert isinstance(result, float)
    return result
