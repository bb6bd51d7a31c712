"""Nodes whose operands are all known, computed by onnx on a function of this node alone.
Networks repeat their layers: an evaluator serves all nodes that are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx.helper import get_attribute_value, make_function

from nnef_grad.base.arrays import Array

# For thousands of different nodes.
_CACHED = 10_000


def evaluate(node: Any, operands: list[Array | None], opsets: Any) -> list[Array]:
    """The results of a node; None for an operand that is left out. onnx may raise anything."""
    if node.op_type in _FUNCTIONS:
        return [_FUNCTIONS[node.op_type](node, operands)]
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.name = ""
    for side, letter in ((alone.input, "x"), (alone.output, "y")):
        side[:] = [f"{letter}{i}" if name else "" for i, name in enumerate(side)]
    sides = ([name for name in side if name] for side in (alone.input, alone.output))
    function = make_function("", "node", *sides, [alone], opsets)
    evaluator = _evaluator(function.SerializeToString())
    fed = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
    # The logarithm of zero is what the model wants, if it asks for it.
    with np.errstate(all="ignore"):
        results = iter(evaluator.run(None, fed, attributes={}))
    return [np.asarray(next(results)) if name else None for name in alone.output]  # type: ignore[misc]


@lru_cache(_CACHED)
def _evaluator(function: bytes) -> Any:
    return onnx.reference.ReferenceEvaluator(onnx.FunctionProto.FromString(function))


def _gather_elements(node: Any, operands: list[Any]) -> Array:
    """The evaluator of onnx chooses among 31 slices at most."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return np.take_along_axis(operands[0], operands[1], axis)


def _constant(node: Any, _: list[Any]) -> Array:
    (attribute,) = node.attribute
    value = get_attribute_value(attribute)
    if attribute.name == "value":
        return np.asarray(onnx.numpy_helper.to_array(value))
    kinds = {"value_float": np.float32, "value_int": np.int64}
    return np.asarray(value, kinds[attribute.name.removesuffix("s")])


_FUNCTIONS: dict[str, Callable[[Any, list[Any]], Array]] = {
    "Constant": _constant,
    "GatherElements": _gather_elements,
}
