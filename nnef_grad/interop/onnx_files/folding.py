"""Constant folding of an ONNX model: exporters compute with shapes, known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
from onnx.helper import make_node, make_tensor_value_info

from nnef_grad.interop.khronos import Array

# Operations with a different result in each run.
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")

# Operations that depend only on the shape of their operand.
_OF_SHAPES = ("Shape", "Size")

# Operations whose shapes not all versions of onnx infer: they are those of operands.
_SHAPED_AS_INPUT = ("GroupNormalization", "MeanVarianceNormalization")


def fold(model: Any) -> Any:
    """The model with all shapes that can be inferred, and with computations on shapes
    and constants folded.
    """
    while True:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        if not (_fold_once(model) or _fill_in_shape(model.graph)):
            return model


def shape_in(info: Any) -> tuple[int, ...] | None:
    """The shape of a tensor in the file, if it is completely known."""
    kind = info.type.tensor_type
    extents = kind.shape.dim
    if not kind.HasField("shape") or not all(e.HasField("dim_value") for e in extents):
        return None
    return tuple(extent.dim_value for extent in extents)


def dtype_of(initializer: Any) -> Any:
    """The numpy type of the elements of an initializer."""
    return onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)


def _fill_in_shape(graph: Any) -> bool:
    """Adds a shape that onnx does not infer, and returns whether there is one."""
    infos = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
    for node in graph.node:
        given = infos.get(node.input[0]) if node.op_type in _SHAPED_AS_INPUT else None
        if given is None or shape_in(given) is None:
            continue
        result = node.output[0]
        made = infos[result] if result in infos else graph.value_info.add(name=result)
        if shape_in(made) is None:
            made.type.CopyFrom(given.type)
            return True
    return False


def _fold_once(model: Any) -> bool:
    """Folds each node once, and returns whether anything was folded. Parameters are not
    folded: their dependents have gradients.
    """
    graph = model.graph
    integers = (i for i in graph.initializer if dtype_of(i).kind in "iub")
    known = {i.name: onnx.numpy_helper.to_array(i) for i in integers}
    shapes = {v.name: shape_in(v) for v in (*graph.input, *graph.value_info)}
    nodes: list[Any] = []
    is_changed = False
    for node in graph.node:
        values = _values_of(node, known, shapes, model.opset_import)
        if node.op_type == "If" and node.input[0] in known:
            nodes += _branch(node, bool(known[node.input[0]]))
        elif values is None:
            nodes.append(node)
        else:
            known.update(values)
            nodes += [_constant(name, value) for name, value in values.items()]
        is_changed |= nodes[-1] is not node and node.op_type != "Constant"
    del graph.node[:]
    graph.node.extend(nodes)
    return is_changed


def _values_of(
    node: Any,
    known: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...] | None],
    opsets: Any,
) -> dict[str, Array] | None:
    """The results of a node by name, if they are known before the model is run."""
    feeds = {name: known.get(name) for name in node.input if name}
    shape = shapes.get(node.input[0]) if node.op_type in _OF_SHAPES else None
    if shape is not None:
        # This allocates no memory for the elements.
        feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
    is_open = any(array is None for array in feeds.values())
    is_source = not feeds and node.op_type != "Constant"
    if is_open or is_source or node.op_type.startswith(_RANDOM):
        return None
    sides = (feeds, node.output)
    infos = ([make_tensor_value_info(name, 0, None) for name in side] for side in sides)
    graph = onnx.helper.make_graph([node], "node", *infos)
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    try:
        found = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    except Exception:
        # The node is kept, and the converter reports it if it cannot convert it.
        return None
    return dict(zip(node.output, map(np.asarray, found), strict=True))


def _branch(node: Any, is_true: bool) -> list[Any]:
    """The nodes of the branch of an `If` that is taken."""
    wanted = "then_branch" if is_true else "else_branch"
    (branch,) = (a.g for a in node.attribute if a.name == wanted)
    data = [make_node("Constant", [], [i.name], value=i) for i in branch.initializer]
    names = zip(branch.output, node.output, strict=True)
    results = [make_node("Identity", [inner.name], [outer]) for inner, outer in names]
    return [*data, *branch.node, *results]


def _constant(name: str, value: Array) -> Any:
    tensor = onnx.numpy_helper.from_array(value, name)
    return make_node("Constant", [], [name], value=tensor)
