"""Casts around the operations that NNEF declares for scalars, and ONNX for integers and
truth values too. Integers above 2^24 are not exact then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nnef_tools.model import Operation, Tensor

from nnef_grad.interop.khronos import dtype_name
from nnef_grad.language.library import Library
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import ArrayType, TensorType

_SCALARS = TensorType("scalar")

# Operations whose results are not whole numbers even if their operands are.
_FRACTIONAL = ("div", "mean_reduce")


def cast_integers(graph: Any, library: Library) -> None:
    """Adds casts to a graph of NNEF operations, in place. Each operation moves from the
    front to the end, where new ones are added: their order is kept.
    """
    casts: dict[Any, Any] = {}
    for operation in graph.operations[:]:
        definition = library.get(operation.type)
        if definition is not None:
            _cast_operands(operation, definition, casts)
        graph.move_operation(0, len(graph.operations) - 1)
        if definition is not None:
            _cast_results(operation, definition)


def _cast_operands(operation: Any, definition: Fragment, casts: dict[Any, Any]) -> None:
    given = operation.inputs
    if not isinstance(given, tuple):
        if _is_of_scalars(definition.operands[0].type):
            operation.inputs = [_as_scalar(x, casts) for x in given]
        return
    declared = definition.operands[: len(given)]
    operation.inputs = tuple(
        _as_scalar(x, casts) if _is_of_scalars(parameter.type) else x
        for parameter, x in zip(declared, given, strict=True)
    )


def _is_of_scalars(type_: Any) -> bool:
    return (type_.item if isinstance(type_, ArrayType) else type_) == _SCALARS


def _as_scalar(x: Any, casts: dict[Any, Any]) -> Any:
    if isinstance(x, list):
        return [_as_scalar(item, casts) for item in x]
    if dtype_name(x.dtype) == "scalar":
        return x
    if x not in casts:
        casts[x] = _cast(x, np.float32, f"{x.name}_scalar")
    return casts[x]


def _cast(x: Any, dtype: type, name: str) -> Any:
    made = Tensor(x.graph, shape=x.shape, dtype=dtype)
    if x.producer is None and x.data is not None:
        made.data = np.asarray(x.data, dtype)
        return made
    made.name = name
    Operation(x.graph, "cast", inputs=(x,), outputs=(made,), attribs={"dtype": dtype})
    return made


def _cast_results(operation: Any, definition: Fragment) -> None:
    """Lets an operation make scalars that are then cast to the type of its result."""
    for result in _wrong_results(operation, definition):
        graph = result.graph
        made = Tensor(
            graph, f"{result.name}_scalar", shape=result.shape, dtype=np.float32
        )
        operation.outputs = tuple(made if t is result else t for t in operation.outputs)
        is_exact = operation.type not in _FRACTIONAL
        Operation(
            graph,
            "cast" if is_exact else "truncate",
            inputs=(made,),
            outputs=(result,),
            attribs={"dtype": result.dtype} if is_exact else {},
        )


def _wrong_results(operation: Any, definition: Fragment) -> Iterator[Any]:
    if isinstance(operation.outputs, tuple):
        pairs = zip(definition.results, operation.outputs, strict=False)
        for parameter, result in pairs:
            if parameter.type == _SCALARS and dtype_name(result.dtype) != "scalar":
                yield result
