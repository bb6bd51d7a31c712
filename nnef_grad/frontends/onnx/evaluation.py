"""Nodes whose operands are all known, computed by onnx on a function of this node alone.
Networks repeat their layers: an evaluator serves all nodes that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, cast
from warnings import catch_warnings, simplefilter

import numpy as np
import onnx
import onnx.reference
from onnx.defs import get_schema
from onnx.helper import (
    get_attribute_value,
    make_function,
    make_opsetid,
    make_tensor_type_proto,
    np_dtype_to_tensor_dtype,
)
from onnx.numpy_helper import from_array
from onnx.shape_inference import infer_node_outputs

from nnef_grad.base.arrays import Array

# For thousands of different nodes.
_CACHED = 10_000
STRING = onnx.TensorProto.STRING


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
    # The logarithm of zero, or the mean of nothing, is what the model asks for.
    with np.errstate(all="ignore"), catch_warnings():
        simplefilter("ignore")
        results = iter(evaluator.run(None, fed, attributes={}))
    return [np.asarray(next(results)) if name else None for name in alone.output]  # type: ignore[misc]


# ---- What that takes ----


def work_of(node: Any, operands: list[Array | None], version: int) -> int:
    """How many elements onnx computes for the results of a node, at most."""
    if node.op_type in _FUNCTIONS:
        return 0
    named = {n: x for n, x in zip(node.input, operands, strict=True) if x is not None}
    given = sum(x.size for x in named.values())
    # Of each element with each other.
    most = prod(max(1, x.size) for x in named.values())
    if most <= _SMALL and node.op_type not in _SIZED:
        return given + most
    results = [kind.tensor_type for kind in _inferred(node, named, version)]
    sizes = [_most_elements(kind, given) for kind in results if kind.HasField("shape")]
    if not sizes and node.op_type in _SIZED:
        raise ValueError("the shape of its result is not known")
    times = _TIMES.get(node.op_type, 1)
    if STRING in {_type(x) for x in named.values()} | {r.elem_type for r in results}:
        times *= _TIMES_OF_TEXT
    met = _met(node.op_type, [*named.values()], sizes)
    return times * (given + sum(sizes or [most]) + met)


def _inferred(node: Any, named: Mapping[str, Array], version: int) -> Iterable[Any]:
    """The types of the results; shapes may depend on operands of few elements."""
    types = {n: make_tensor_type_proto(_type(x), x.shape) for n, x in named.items()}
    small = {n: from_array(x, n) for n, x in named.items() if x.size <= _SMALL}
    schema, opsets = get_schema(node.op_type, version, ""), [make_opsetid("", version)]
    made = infer_node_outputs(schema, node, types, small, opset_imports=opsets)
    return cast("Iterable[Any]", made.values())


def _type(array: Array) -> int:
    is_text = array.dtype.kind in "OSU"
    return STRING if is_text else int(np_dtype_to_tensor_dtype(array.dtype))


def _most_elements(kind: Any, given: int) -> int:
    """The elements of a result: an extent that depends on values counts as many as there
    are given ones.
    """
    return prod(
        e.dim_value if e.HasField("dim_value") else given for e in kind.shape.dim
    )


def _met(kind: str, operands: Sequence[Array], sizes: Sequence[int]) -> int:
    """How many pairs of elements meet."""
    if kind in ("MatMul", "Gemm"):
        return sizes[0] * max(operands[0].shape, default=1)
    is_any = kind in ("Einsum", "NonMaxSuppression")
    return prod(x.size for x in operands) if is_any else 0


# Operations whose operands say which shape the result has.
_SIZED = (
    "AffineGrid", "CenterCropPad", "ConstantOfShape", "Expand", "OneHot", "Pad", "Range",
    "Tile",
)  # fmt: skip
# Operands of at most so many elements may say what shape a result has.
_SMALL = 1000
# What onnx computes more slowly than others, and how many times. Texts are objects.
_TIMES = {
    "Erf": 10, "GatherND": 40, "MeanVarianceNormalization": 40, "Mish": 10,
    "NonMaxSuppression": 100, "Scatter": 40, "ScatterElements": 40, "ScatterND": 40,
    "TopK": 5, "Unique": 5,
}  # fmt: skip
_TIMES_OF_TEXT = 100


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
