"""One ONNX node: the types of its results, and their values if those of its operands are
known.

Both are computed by onnx on a model of this node alone. Networks repeat their layers:
what was found for a node holds for all nodes like it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
from onnx.helper import make_graph, make_model, make_tensor_type_proto

from nnef_grad.interop.khronos import Array

# For thousands of different nodes.
_CACHED = 10_000

# Operations whose shapes not all versions of onnx infer: that of the first operand.
_SHAPED_AS_INPUT = ("GroupNormalization", "MeanVarianceNormalization")


def type_of_array(array: Array) -> Any:
    """The ONNX type of a tensor with these elements."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return make_tensor_type_proto(kind, array.shape)


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape of an ONNX type, if it is completely known."""
    extents = kind.tensor_type.shape.dim
    is_known = all(extent.HasField("dim_value") for extent in extents)
    if not kind.tensor_type.HasField("shape") or not is_known:
        return None
    return tuple(extent.dim_value for extent in extents)


def infer_types(
    node: Any, types: Mapping[str, Any], arrays: Mapping[str, Array], opsets: Any
) -> dict[str, Any]:
    """The types of the results of a node by name, as far as onnx infers them.

    Args:
        node: the node.
        types: the types of tensors.
        arrays: the values of those that are known.
        opsets: the versions of the operator sets.

    Raises:
        onnx.shape_inference.InferenceError: the operands do not fit.
    """
    if node.op_type in _SHAPED_AS_INPUT:
        return {node.output[0]: types[node.input[0]]}
    alone, given = _alone(node)
    inputs = [
        onnx.ValueInfoProto(name=inner, type=types[outer])
        for inner, outer in given.items()
        if outer in types
    ]
    # Extents, axes and repeats are vectors: only their values matter for shapes.
    data = [
        onnx.numpy_helper.from_array(arrays[outer], inner)
        for inner, outer in given.items()
        if outer in arrays and arrays[outer].ndim <= 1
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in alone.output if name]
    graph = make_graph([alone], "node", inputs, outputs, data)
    model = make_model(graph, opset_imports=opsets)
    found = map(onnx.TypeProto.FromString, _infer(model.SerializeToString()))
    results = dict(zip(filter(None, node.output), found, strict=True))
    return {name: kind for name, kind in results.items() if kind.WhichOneof("value")}


@lru_cache(_CACHED)
def _infer(model: bytes) -> tuple[bytes, ...]:
    made = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return tuple(result.type.SerializeToString() for result in made.graph.output)


def evaluate(node: Any, arrays: Mapping[str, Array], opsets: Any) -> dict[str, Array]:
    """The values of the results of a node by name.

    Args:
        node: the node.
        arrays: the values of all its operands.
        opsets: the versions of the operator sets.

    Raises:
        Exception: of various types, if onnx cannot evaluate it.
    """
    if node.op_type in _FUNCTIONS:
        return {node.output[0]: _FUNCTIONS[node.op_type](node, arrays)}
    alone, given = _alone(node)
    inputs, outputs = (
        [onnx.ValueInfoProto(name=name) for name in side if name]
        for side in (given, alone.output)
    )
    graph = make_graph([alone], "node", inputs, outputs)
    model = make_model(graph, opset_imports=opsets)
    evaluator = _evaluator(model.SerializeToString())
    # The logarithm of zero is what the model wants, if it asks for it.
    with np.errstate(all="ignore"):
        found = evaluator.run(None, {k: arrays[v] for k, v in given.items()})
    names = filter(None, node.output)
    return dict(zip(names, map(np.asarray, found), strict=True))


@lru_cache(_CACHED)
def _evaluator(model: bytes) -> Any:
    return onnx.reference.ReferenceEvaluator(onnx.ModelProto.FromString(model))


def attribute_of(node: Any, name: str, default: Any = None) -> Any:
    """The value of an attribute of a node, or a default if it is left out."""
    found = (a for a in node.attribute if a.name == name)
    return next(map(onnx.helper.get_attribute_value, found), default)


def _alone(node: Any) -> tuple[Any, dict[str, str]]:
    """A node with names for its places, and its operands by these names."""
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.name = ""
    for side, letter in ((alone.input, "x"), (alone.output, "y")):
        side[:] = [f"{letter}{i}" if name else "" for i, name in enumerate(side)]
    pairs = zip(alone.input, node.input, strict=True)
    return alone, {inner: outer for inner, outer in pairs if outer}


def _gather_elements(node: Any, arrays: Mapping[str, Array]) -> Array:
    """The evaluator of onnx chooses among 31 slices at most."""
    x, indices = (arrays[name] for name in node.input)
    return np.take_along_axis(x, indices, attribute_of(node, "axis", 0))


def _constant(node: Any, _: Mapping[str, Array]) -> Array:
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return np.asarray(onnx.numpy_helper.to_array(value))
    kinds = {"value_float": np.float32, "value_int": np.int64}
    return np.asarray(value, kinds[attribute.name.removesuffix("s")])


_FUNCTIONS: dict[str, Callable[[Any, Mapping[str, Array]], Array]] = {
    "Constant": _constant,
    "GatherElements": _gather_elements,
}
