"""How each operation of a graph that is lowered for ONNX Runtime is written: as one of
ONNX's operators, or a few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from nnef_grad.frontends.onnx.operations import elementwise
from nnef_grad.graph.ir import LOOP, Operand, Operation, Tensor
from nnef_grad.graph.loops import loop_of
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.windows import AxisWindows, is_reverse, windows_of
from nnef_grad.targets.onnx.nodes import TYPES, Nodes, writer


def _dtype(value: Operand) -> str:
    if isinstance(value, Tensor):
        return value.dtype
    return {bool: "logical", int: "integer"}.get(type(value), "scalar")


def _own(nodes: Nodes, x: Operand) -> str:
    return nodes.operand(x, _dtype(x))


def _first(nodes: Nodes, op: Operation) -> str:
    return _own(nodes, op.operands[0])


def _scalars(nodes: Nodes, *operands: Operand) -> list[str]:
    return [nodes.operand(x, "scalar") for x in operands]


# ---- Element by element ----

_UNARY = {
    **{name: kind for kind, name in elementwise.UNARY.items()},
    "copy": "Identity",
    "tract_core_erf": "Erf",
}
_BINARY = {
    **{name: kind for kind, name in elementwise.BINARY.items()},
    "max": "Max",
    "min": "Min",
    "pow": "Pow",
}


@writer(*_UNARY)
def _unary(nodes: Nodes, op: Operation) -> None:
    nodes.node(_UNARY[op.name], [_first(nodes, op)])


@writer(*_BINARY)
def _binary(nodes: Nodes, op: Operation) -> None:
    nodes.node(_BINARY[op.name], _aligned(nodes, op, op.operands))


@writer("select")
def _select(nodes: Nodes, op: Operation) -> None:
    condition, *values = op.operands
    rank = op.outputs[0].rank
    found = [nodes.operand(value, op.outputs[0].dtype, rank) for value in values]
    nodes.node("Where", [nodes.operand(condition, "logical", rank), *found])


def _aligned(nodes: Nodes, op: Operation, values: Sequence[Operand]) -> list[str]:
    """Operands of one type, in the rank of the result."""
    rank = op.outputs[0].rank
    dtype = next((x.dtype for x in values if isinstance(x, Tensor)), _dtype(values[0]))
    return [nodes.operand(value, dtype, rank) for value in values]


@writer("clamp")
def _clip(nodes: Nodes, op: Operation) -> None:
    nodes.node("Clip", _scalars(nodes, *op.operands))


@writer("sqr")
def _square(nodes: Nodes, op: Operation) -> None:
    nodes.node("Mul", [_first(nodes, op)] * 2)


def _axis(settings: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    (axis,) = settings["axes"]
    return {"axis": axis, **others}


# Operators of one operand, and their attributes from those of the operation.
_ATTRIBUTES: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "argmax_reduce": ("ArgMax", lambda own: _axis(own, keepdims=1)),
    "argmin_reduce": ("ArgMin", lambda own: _axis(own, keepdims=1)),
    "elu": ("Elu", lambda own: {"alpha": own["alpha"]}),
    "leaky_relu": ("LeakyRelu", lambda own: {"alpha": own["alpha"]}),
    "local_response_normalization": ("LRN", lambda own: {
        "size": own["size"][1], **{n: own[n] for n in ("alpha", "beta", "bias")}
    }),
    "selu": ("Selu", lambda own: {"alpha": own["alpha"], "gamma": own["lambda"]}),
    "softmax": ("Softmax", _axis),
    "transpose": ("Transpose", lambda own: {"perm": own["axes"]}),
}  # fmt: skip


@writer(*_ATTRIBUTES)
def _with_attributes(nodes: Nodes, op: Operation) -> None:
    kind, attributes = _ATTRIBUTES[op.name]
    nodes.node(kind, [_first(nodes, op)], **attributes(op.settings))


# Operators with an operand that is a list of integers: the attribute, and others.
_WITH_LISTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sum_reduce": ("ReduceSum", "axes", {"keepdims": 1}),
    "mean_reduce": ("ReduceMean", "axes", {"keepdims": 1}),
    "max_reduce": ("ReduceMax", "axes", {"keepdims": 1}),
    "min_reduce": ("ReduceMin", "axes", {"keepdims": 1}),
    "squeeze": ("Squeeze", "axes", {}),
    "unsqueeze": ("Unsqueeze", "axes", {}),
    "tile": ("Tile", "repeats", {}),
}


@writer(*_WITH_LISTS)
def _with_list(nodes: Nodes, op: Operation) -> None:
    kind, name, others = _WITH_LISTS[op.name]
    items = nodes.extents(op.settings[name], name)
    nodes.node(kind, [_first(nodes, op), items], **others)


_RESHAPES = {"reshape": "Reshape", "tract_core_broadcast": "Expand"}


@writer(*_RESHAPES)
def _reshape(nodes: Nodes, op: Operation) -> None:
    (y,) = op.outputs
    x, shape = nodes.operand(op.operands[0], y.dtype), nodes.extents(y.shape)
    nodes.node(_RESHAPES[op.name], [x, shape])


@writer("cast")
def _cast(nodes: Nodes, op: Operation) -> None:
    to = np_dtype_to_tensor_dtype(np.dtype(TYPES[op.outputs[0].dtype]))
    nodes.node("Cast", [_first(nodes, op)], to=to)


# ---- Normalization ----


@writer("batch_normalization")
def _batch_normalization(nodes: Nodes, op: Operation) -> None:
    x, mean, variance, offset, scale = op.operands
    found = [_by_channel(nodes, value) for value in (scale, offset, mean, variance)]
    operands = [*_scalars(nodes, x), *found]
    nodes.node("BatchNormalization", operands, epsilon=op.attributes["epsilon"])


def _by_channel(nodes: Nodes, value: Operand) -> str:
    """[1, C] as [C]."""
    (name,) = _scalars(nodes, value)
    whole = nodes.extents([-1], "shape")
    return nodes.node("Reshape", [name, whole], hint=f"{name}_by_channel")


# ---- Products ----


@writer("matmul")
def _matmul(nodes: Nodes, op: Operation) -> None:
    left, right = _scalars(nodes, *op.operands)
    turned: dict[str, Any] = {
        f"trans{side}": int(op.settings[f"transpose{side}"]) for side in "AB"
    }
    if any(turned.values()):
        nodes.node("Gemm", [left, right], **turned)
    else:
        nodes.node("MatMul", [left, _one_matrix(nodes, op, right)])


def _one_matrix(nodes: Nodes, op: Operation, name: str) -> str:
    """The second operand without batches, where it is a single matrix: ONNX Runtime
    multiplies the rows of all batches by it at once.
    """
    batch = op.inputs[1].shape[:-2]
    if not batch or set(batch) != {1}:
        return name
    axes = nodes.extents([*range(len(batch))], "axes")
    return nodes.node("Squeeze", [name, axes], f"{name}_matrix")


@writer("linear")
def _linear(nodes: Nodes, op: Operation) -> None:
    *operands, bias = op.operands
    given = [*operands, bias] if bias != 0.0 else operands
    nodes.node("Gemm", _scalars(nodes, *given), transB=1)


@writer("conv", "deconv")
def _convolution(nodes: Nodes, op: Operation) -> None:
    *given, bias = op.operands
    operands = _scalars(nodes, *given)
    if bias != 0.0:
        operands.append(_by_channel(nodes, bias))
    axes = windows_of(op).axes
    settings = {**_sliding(axes), "group": groups_of(op)}
    if is_reverse(op):
        further = [a.up - (a.end - a.padding[1]) for a in axes]
        nodes.node("ConvTranspose", operands, output_padding=further, **settings)
    else:
        nodes.node("Conv", operands, **settings)


def _sliding(axes: Sequence[AxisWindows]) -> dict[str, Any]:
    before, after = zip(*(axis.padding for axis in axes), strict=True)
    return {
        "kernel_shape": [axis.size for axis in axes],
        "pads": [*before, *after],
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.dilation for axis in axes],
    }


@writer("argmax_pool", "avg_pool", "max_pool")
def _pool(nodes: Nodes, op: Operation) -> None:
    """The index is the one that ONNX has: of the element in the whole tensor."""
    # Not along batch and channels.
    operands, settings = [_first(nodes, op)], _sliding(windows_of(op).axes[2:])
    if op.name == "argmax_pool":
        nodes.add(
            "MaxPool", operands, [nodes.fresh("largest"), *nodes.results], **settings
        )
    elif op.name == "max_pool":
        nodes.node("MaxPool", operands, **settings)
    else:
        is_counted = int(op.attributes["border"] == "constant")
        kind = "AveragePool"
        nodes.node(kind, operands, count_include_pad=is_counted, **settings)


@writer("sample")
def _sample(nodes: Nodes, op: Operation) -> None:
    flat = [_flat(nodes, x) for x in op.inputs]
    sampled = nodes.node("GatherElements", flat, "sampled", axis=0)
    nodes.node("Reshape", [sampled, nodes.extents(op.outputs[0].shape)])


@writer("desample")
def _desample(nodes: Nodes, op: Operation) -> None:
    """Added to zeros: windows that overlap may have the same maximum."""
    x, index = (_flat(nodes, x) for x in op.inputs)
    shape = op.outputs[0].shape
    one = numpy_helper.from_array(np.zeros(1, np.float32))
    count = nodes.extents([prod(shape)])
    zeros = nodes.node("ConstantOfShape", [count], "zeros", value=one)
    operands, how = [zeros, index, x], {"axis": 0, "reduction": "add"}
    sums = nodes.node("ScatterElements", operands, "sums", **how)
    nodes.node("Reshape", [sums, nodes.extents(shape)])


def _flat(nodes: Nodes, x: Tensor) -> str:
    return nodes.node("Reshape", [_own(nodes, x), nodes.extents([-1])], "flat")


# ---- Shapes ----


@writer("concat")
def _concat(nodes: Nodes, op: Operation) -> None:
    (values,) = op.operands
    assert isinstance(values, tuple)
    operands = [nodes.operand(value, op.outputs[0].dtype) for value in values]
    nodes.node("Concat", operands, axis=op.attributes["axis"])


@writer("split")
def _split(nodes: Nodes, op: Operation) -> None:
    axis = op.attributes["axis"]
    sizes = nodes.extents([t.shape[axis] for t in op.outputs], "sizes")
    nodes.node("Split", [_first(nodes, op), sizes], axis=axis)


@writer("slice")
def _slice(nodes: Nodes, op: Operation) -> None:
    (x,) = op.inputs
    found = op.attributes
    fields = found["axes"], found["begin"], found["end"], found["stride"]
    taken = slice_positions(x.shape, *fields)
    # Before the first element there is no place that would not count from the last.
    stops = [p.stop if p.stop >= 0 else -(2**31) for p in taken.values()]
    starts, steps = ([getattr(p, n) for p in taken.values()] for n in ("start", "step"))
    rows = {"starts": starts, "ends": stops, "axes": [*taken], "steps": steps}
    named = [nodes.extents(items, hint) for hint, items in rows.items()]
    nodes.node("Slice", [_own(nodes, x), *named])


@writer("pad")
def _pad(nodes: Nodes, op: Operation) -> None:
    before, after = zip(*op.attributes["padding"], strict=True)
    pads = nodes.extents([*before, *after], "pads")
    border = op.attributes["border"]
    mode = {"replicate": "edge"}.get(border, border)
    operands = [_first(nodes, op), pads]
    if mode == "constant":
        operands.append(nodes.constant(op.attributes["value"], np.float32, "value"))
    nodes.node("Pad", operands, mode=mode)


@writer("gather")
def _gather(nodes: Nodes, op: Operation) -> None:
    x, indices = op.operands
    operands = [_own(nodes, x), nodes.operand(indices, "integer")]
    nodes.node("Gather", operands, axis=op.attributes["axis"])


@writer("nearest_upsample", "multilinear_upsample")
def _upsample(nodes: Nodes, op: Operation) -> None:
    scales = [1.0, 1.0, *map(float, op.attributes["factor"])]
    named = nodes.constant(scales, np.float32, "scales")
    methods = {"symmetric": "half_pixel", "aligned": "align_corners"}
    how = {"mode": "nearest", "nearest_mode": "floor"}
    if op.name == "multilinear_upsample":
        how = {"mode": "linear"}
    method = methods.get(str(op.attributes.get("method")), "asymmetric")
    operands = [_first(nodes, op), "", named]
    nodes.node("Resize", operands, coordinate_transformation_mode=method, **how)


# ---- Operations beyond the standard ----


@writer("tract_core_trilu")
def _triangle(nodes: Nodes, op: Operation) -> None:
    place = nodes.constant(op.settings["k"], np.int64, "diagonal")
    nodes.node("Trilu", [_first(nodes, op), place], upper=int(op.settings["upper"]))


@writer("tract_core_scatter_nd")
def _scatter(nodes: Nodes, op: Operation) -> None:
    x, indices, updates = [_own(nodes, x) for x in op.operands]
    if _dtype(op.operands[1]) != "integer":
        indices = nodes.node("Cast", [indices], "indices", to=TensorProto.INT64)
    reduction = op.settings["reduction"]
    nodes.node("ScatterND", [x, indices, updates], reduction=reduction)


@writer(LOOP)
def _loop(nodes: Nodes, op: Operation) -> None:
    """The body reads what it sees whole from the graph around it."""
    loop = loop_of(op)
    read = op.inputs[len(loop.full) :]
    inputs, outputs = loop.scanned, [one.way for one in loop.collected]
    # A list without elements has no type: what has none is left out.
    nodes.node(
        "Scan",
        [_own(nodes, x) for x in read],
        body=nodes.body(loop, op.inputs),
        num_scan_inputs=len(inputs),
        scan_input_axes=[way.axis for way in inputs],
        scan_input_directions=[int(way.direction < 0) for way in inputs],
        scan_output_axes=[way.axis for way in outputs] or None,
        scan_output_directions=[int(way.direction < 0) for way in outputs] or None,
    )
