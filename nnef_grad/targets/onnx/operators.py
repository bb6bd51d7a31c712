"""How each operation of a graph that is lowered for ONNX Runtime is written: as one of
ONNX's operators, or a few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from nnef_grad.frontends.onnx.operations import elementwise
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import ARGSORT, LOOP, Operand, Operation, Tensor, shape_of
from nnef_grad.graph.loops import loop_of
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.parts import slice_positions
from nnef_grad.ops.shape import Positions
from nnef_grad.ops.windows import AxisWindows, is_reverse, windows_of
from nnef_grad.targets.conditions import is_several
from nnef_grad.targets.onnx.nodes import REDUCTION_OPERATORS, Nodes, writer
from nnef_grad.targets.onnx.precision import DOUBLE
from nnef_grad.targets.tensors import DTYPES


def _own(nodes: Nodes, x: Operand) -> str:
    return nodes.operand(x, _dtype(x))


def _dtype(value: Operand) -> str:
    if isinstance(value, Tensor):
        return value.dtype
    return {bool: "logical", int: "integer"}.get(type(value), "scalar")


def _scalars(nodes: Nodes, *operands: Operand) -> list[str]:
    return [nodes.operand(x, "scalar") for x in operands]


# ---- Operations that are one operator ----

# Its operands, and its attributes from those of the operation.
Operands = Callable[[Nodes, Operation], list[str]]
Attributes = Callable[[Mapping[str, Any]], dict[str, Any]]


def _first(nodes: Nodes, op: Operation) -> list[str]:
    """The operand; a number is in double precision where the result is."""
    (x, *_), (y, *_) = op.operands, op.outputs
    is_wide = not isinstance(x, Tensor) and y.dtype == DOUBLE
    return [nodes.operand(x, y.dtype if is_wide else _dtype(x))]


def _aligned(nodes: Nodes, op: Operation) -> list[str]:
    """Operands of one type, in the rank of the result; a single element needs none beside a
    tensor of that rank. In MNN a known one that has it must not come first.
    """
    dtype, y = next((x.dtype for x in op.inputs), _dtype(op.operands[0])), op.outputs[0]
    whole = is_several(y.shape) and any(x.shape == y.shape for x in op.inputs)
    first = 0 if nodes.is_portable else None
    ranks = (first, *[None] * len(op.operands[1:]))
    return [
        nodes.operand(
            x, dtype, y.rank if is_several(shape_of(x)) or not whole else rank
        )
        for x, rank in zip(op.operands, ranks, strict=True)
    ]


def _chosen(nodes: Nodes, op: Operation) -> list[str]:
    (y,), (condition, *values) = op.outputs, op.operands
    names = [nodes.operand(value, y.dtype, y.rank) for value in values]
    return [nodes.operand(condition, "logical", y.rank), *names]


def _like_result(nodes: Nodes, op: Operation) -> list[str]:
    return [nodes.operand(x, op.outputs[0].dtype) for x in op.operands]


def _with_list(attribute: str) -> Operands:
    """The operand, and the list of integers that the operation has as an attribute."""

    def operands(nodes: Nodes, op: Operation) -> list[str]:
        items = nodes.extents(op.settings[attribute], attribute)
        return [*_first(nodes, op), items]

    return operands


def _with_shape(nodes: Nodes, op: Operation) -> list[str]:
    (y,) = op.outputs
    return [nodes.operand(op.operands[0], y.dtype), nodes.extents(y.shape)]


def _with_diagonal(nodes: Nodes, op: Operation) -> list[str]:
    return [*_first(nodes, op), nodes.constant(op.settings["k"], np.int64, "diagonal")]


def _with_axis(nodes: Nodes, op: Operation) -> list[str]:
    return [*_first(nodes, op), nodes.constant(op.settings["axis"], np.int64, "axis")]


def _with_indices(nodes: Nodes, op: Operation) -> list[str]:
    return [*_first(nodes, op), nodes.operand(op.operands[1], "integer")]


def _parts(nodes: Nodes, op: Operation) -> list[str]:
    (values,) = op.operands
    assert isinstance(values, tuple)
    return [nodes.operand(value, op.outputs[0].dtype) for value in values]


def _axis(own: Mapping[str, Any]) -> dict[str, Any]:
    (axis,) = own["axes"] if "axes" in own else [own["axis"]]
    return {"axis": axis}


def _across_channels(own: Mapping[str, Any]) -> dict[str, Any]:
    return {"size": own["size"][1], **{n: own[n] for n in ("alpha", "beta", "bias")}}


def _named(**names: str) -> Attributes:
    """Attributes by their names in ONNX, from those in NNEF."""
    return lambda own: {name: own[n] for name, n in names.items()}


class _Operator(NamedTuple):
    kind: str
    operands: Operands = _first
    attributes: Attributes = lambda own: {}


_OPERATORS = {
    **{name: _Operator(kind) for kind, name in elementwise.UNARY.items()},
    **{name: _Operator(kind, _aligned) for kind, name in elementwise.BINARY.items()},
    "argmax_reduce": _Operator("ArgMax", _first, _axis),
    "argmin_reduce": _Operator("ArgMin", _first, _axis),
    "clamp": _Operator("Clip", _like_result),
    "concat": _Operator("Concat", _parts, _axis),
    "elu": _Operator("Elu", _first, _named(alpha="alpha")),
    "gather": _Operator("Gather", _with_indices, _axis),
    "leaky_relu": _Operator("LeakyRelu", _first, _named(alpha="alpha")),
    "local_response_normalization": _Operator("LRN", _first, _across_channels),
    "max": _Operator("Max", _aligned),
    "min": _Operator("Min", _aligned),
    "pow": _Operator("Pow", _aligned),
    "reshape": _Operator("Reshape", _with_shape),
    "select": _Operator("Where", _chosen),
    "selu": _Operator("Selu", _first, _named(alpha="alpha", gamma="lambda")),
    "softmax": _Operator("Softmax", _first, _axis),
    "sqr": _Operator("Mul", lambda nodes, op: _first(nodes, op) * 2),
    "tile": _Operator("Tile", _with_list("repeats")),
    "tract_core_broadcast": _Operator("Expand", _with_shape),
    "tract_core_cumsum": _Operator(
        "CumSum", _with_axis, lambda own: {"reverse": int(own["reverse"])}
    ),
    "tract_core_erf": _Operator("Erf"),
    "tract_core_gather_elements": _Operator("GatherElements", _with_indices, _axis),
    "tract_core_trilu": _Operator(
        "Trilu", _with_diagonal, lambda own: {"upper": int(own["upper"])}
    ),
    "transpose": _Operator("Transpose", _first, _named(perm="axes")),
    "unsqueeze": _Operator("Unsqueeze", _with_list("axes")),
}


@writer(*_OPERATORS)
def _write(nodes: Nodes, op: Operation) -> None:
    kind, operands, attributes = _OPERATORS[op.name]
    nodes.node(kind, operands(nodes, op), **attributes(op.settings))


@writer(*REDUCTION_OPERATORS)
def _reduce(nodes: Nodes, op: Operation) -> None:
    if nodes.is_portable:
        _reduce_apart(nodes, op, op.outputs[0].shape)
    else:
        nodes.node(REDUCTION_OPERATORS[op.name], _with_list("axes")(nodes, op))


def _reduce_apart(nodes: Nodes, op: Operation, shape: Sequence[Dimension]) -> None:
    """Without the axes that have one element afterwards, and with those of the shape again.
    OpenVINO 2026.4 puts the elements of a reduction that keeps its axes in another order,
    where its operand has got axes behind them, and takes what it makes a row for a column.
    """
    kind, (x,), reduced = REDUCTION_OPERATORS[op.name], op.inputs, op.outputs[0].shape
    axes = [axis for axis, extent in enumerate(reduced) if extent == 1]
    operands = [_own(nodes, x), nodes.constant(axes, np.int64, "axes")]
    back = [axis for axis, extent in enumerate(shape) if extent == 1]
    if not back:
        nodes.node(kind, operands, keepdims=0)
        return
    hint = f"{nodes.results[0]}_without_axes"
    without = nodes.node(kind, operands, hint=hint, keepdims=0)
    nodes.node("Unsqueeze", [without, nodes.constant(back, np.int64, "axes")])


@writer("squeeze")
def _squeeze(nodes: Nodes, op: Operation) -> None:
    reduction = nodes.squeezed.get(op)
    if reduction is None:
        nodes.node("Squeeze", _with_list("axes")(nodes, op))
    elif nodes.is_portable:
        _reduce_apart(nodes, reduction, op.outputs[0].shape)
    else:
        operands = _with_list("axes")(nodes, reduction)
        nodes.node(REDUCTION_OPERATORS[reduction.name], operands, keepdims=0)


@writer("cast")
def _cast(nodes: Nodes, op: Operation) -> None:
    to = np_dtype_to_tensor_dtype(np.dtype(DTYPES[op.outputs[0].dtype]))
    nodes.node("Cast", _first(nodes, op), to=to)


# ---- Normalization ----


@writer("batch_normalization")
def _batch_normalization(nodes: Nodes, op: Operation) -> None:
    x, mean, variance, offset, scale = op.operands
    channels = [_by_channel(nodes, value) for value in (scale, offset, mean, variance)]
    operands = [*_scalars(nodes, x), *channels]
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
    """A batch of one matrix as a matrix, by which all rows are multiplied at once."""
    batch = op.inputs[1].shape[:-2]
    if not batch or set(batch) != {1}:
        return name
    axes = nodes.extents([*range(len(batch))], "axes")
    return nodes.node("Squeeze", [name, axes], f"{name}_matrix")


@writer("linear")
def _linear(nodes: Nodes, op: Operation) -> None:
    *operands, bias = op.operands
    taken = [*operands, bias] if bias != 0.0 else operands
    nodes.node("Gemm", _scalars(nodes, *taken), transB=1)


@writer("conv", "deconv")
def _convolution(nodes: Nodes, op: Operation) -> None:
    *given, bias = op.operands
    operands = _scalars(nodes, *given)
    if bias != 0.0:
        operands.append(_by_channel(nodes, bias))
    axes = windows_of(op).axes
    if is_reverse(op):
        _spread(nodes, operands, axes, groups_of(op))
    else:
        nodes.node("Conv", operands, **_sliding(axes), group=groups_of(op))


def _spread(
    nodes: Nodes,
    operands: Sequence[str],
    axes: Sequence[AxisWindows],
    groups: Dimension,
) -> None:
    """What ONNX has no word for is cut off: the rest of what a stride may leave over, and
    padding at one end, which some engines lack.
    """
    even = [_evenly_padded(axis) for axis in axes]
    starts = [a.padding[0] - e.padding[0] for a, e in zip(axes, even, strict=True)]
    ends = [start + axis.up for start, axis in zip(starts, axes, strict=True)]
    further = [n - (e.end - e.padding[1]) for n, e in zip(ends, even, strict=True)]
    is_open = [has_symbols(n) for n in further]
    pairs = zip(further, axes, is_open, strict=True)
    most = [a.stride - 1 if free else max(n, 0) for n, a, free in pairs]
    settings = {**_sliding(even), "group": groups, "output_padding": most}
    cut = [i for i, n in enumerate(further) if is_open[i] or starts[i] > 0 or n < 0]
    if not cut:
        nodes.node("ConvTranspose", operands, **settings)
        return
    wide = nodes.node("ConvTranspose", operands, "wide", **settings)
    ranges = {
        "starts": [starts[i] for i in cut],
        "ends": [ends[i] for i in cut],
        "axes": [i + 2 for i in cut],
    }
    numbers = [nodes.extents(values, hint) for hint, values in ranges.items()]
    nodes.node("Slice", [wide, *numbers])


def _evenly_padded(axis: AxisWindows) -> AxisWindows:
    """Padded alike at both ends: as at the beginning, where ONNX has a word for what is then
    missing, or as where there is less of it.
    """
    before, after = axis.padding
    if has_symbols((before, after)):
        return axis
    missing = axis.up - (axis.end - after) + before - after
    is_known = not has_symbols(missing) and 0 <= missing < axis.stride
    padding = before if before > after and is_known else min(before, after)
    return axis._replace(padding=(padding, padding))


def _sliding(axes: Sequence[AxisWindows]) -> dict[str, Any]:
    before, after = zip(*(axis.padding for axis in axes), strict=True)
    size = [axis.size for axis in axes]
    return {
        # That of a gradient may be open; the operand has it.
        **({} if has_symbols(tuple(size)) else {"kernel_shape": size}),
        "pads": [*before, *after],
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.dilation for axis in axes],
    }


@writer("argmax_pool", "avg_pool", "max_pool")
def _pool(nodes: Nodes, op: Operation) -> None:
    """The index is the one that ONNX has: of the element in the whole tensor."""
    # Not along batch and channels.
    operands, settings = _first(nodes, op), _sliding(windows_of(op).axes[2:])
    kind, results = "MaxPool", nodes.results
    if op.name == "argmax_pool":
        results = [nodes.fresh("largest"), *results]
    elif op.name == "avg_pool":
        is_counted = op.attributes["border"] == "constant"
        kind, settings["count_include_pad"] = "AveragePool", int(is_counted)
        # They are ones, for which the operator has no word.
        del settings["dilations"]
    nodes.add(kind, operands, results, **settings)


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


@writer("copy")
def _copy(nodes: Nodes, op: Operation) -> None:
    """MNN leaves out a node that only passes something on."""
    shape = op.outputs[0].shape
    operands = _first(nodes, op)
    if nodes.is_portable and not has_symbols(shape):
        nodes.node("Reshape", [*operands, nodes.extents(shape, "shape")])
    else:
        nodes.node("Identity", operands)


@writer("split")
def _split(nodes: Nodes, op: Operation) -> None:
    axis = op.attributes["axis"]
    sizes = nodes.extents([t.shape[axis] for t in op.outputs], "sizes")
    nodes.node("Split", [*_first(nodes, op), sizes], axis=axis)


@writer("slice")
def _slice(nodes: Nodes, op: Operation) -> None:
    (x,) = op.inputs
    taken, name = slice_positions(x.shape, **op.settings), _own(nodes, x)
    # What goes back has other elements in MNN.
    turned = [a for a, p in taken.items() if nodes.is_portable and _is_turned(p)]
    for axis in turned:
        indices = nodes.constant([*taken.pop(axis)], np.int64, "indices")
        hint = f"{nodes.results[0]}_turned" if taken else ""
        name = nodes.node("Gather", [name, indices], hint, axis=axis)
    if taken or not turned:
        # Before the first element there is no place that would not count from the last.
        stops = [p.stop if p.stop >= 0 else -(2**31) for p in taken.values()]
        starts, steps = (
            [getattr(p, n) for p in taken.values()] for n in ("start", "step")
        )
        rows = {"starts": starts, "ends": stops, "axes": [*taken], "steps": steps}
        named = [nodes.extents(items, hint) for hint, items in rows.items()]
        nodes.node("Slice", [name, *named])


def _is_turned(taken: Positions) -> bool:
    return taken.step < 0 and not has_symbols((taken.start, taken.count))


@writer("pad")
def _pad(nodes: Nodes, op: Operation) -> None:
    before, after = zip(*op.attributes["padding"], strict=True)
    pads = nodes.extents([*before, *after], "pads")
    border = op.attributes["border"]
    mode = {"replicate": "edge"}.get(border, border)
    operands = [*_first(nodes, op), pads]
    if mode == "constant":
        operands.append(nodes.constant(op.attributes["value"], np.float32, "value"))
    nodes.node("Pad", operands, mode=mode)


@writer("nearest_upsample", "multilinear_upsample")
def _upsample(nodes: Nodes, op: Operation) -> None:
    scales = [1.0, 1.0, *map(float, op.attributes["factor"])]
    operands = [*_first(nodes, op), "", nodes.constant(scales, np.float32, "scales")]
    methods = {"symmetric": "half_pixel", "aligned": "align_corners"}
    method = methods.get(str(op.attributes.get("method")), "asymmetric")
    how = {"mode": "nearest", "nearest_mode": "floor"}
    how = {"mode": "linear"} if op.name == "multilinear_upsample" else how
    nodes.node("Resize", operands, coordinate_transformation_mode=method, **how)


# ---- Operations beyond the standard ----


@writer(ARGSORT)
def _sorted(nodes: Nodes, op: Operation) -> None:
    """The operator gives the elements besides."""
    own, results = op.settings, nodes.results
    axis, ranks, count = own["axis"], own["ranks"], own["count"]
    if ranks:
        count, results = max(ranks) + 1, [nodes.fresh("indices")]
    operands = [*_scalars(nodes, *op.operands), nodes.extents([count], "k")]
    how = {"axis": axis, "largest": int(own["descending"])}
    nodes.add("TopK", operands, [nodes.fresh("values"), *results], **how)
    if ranks:
        nodes.node("Gather", [*results, nodes.extents(ranks, "ranks")], axis=axis)


@writer("tract_core_scatter_elements")
def _scatter_elements(nodes: Nodes, op: Operation) -> None:
    x, indices, updates = op.operands
    operands = [_own(nodes, x), nodes.operand(indices, "integer"), _own(nodes, updates)]
    settings = {name: op.settings[name] for name in ("axis", "reduction")}
    nodes.node("ScatterElements", operands, **settings)


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
    carried, results = nodes.carried(loop, op.inputs), nodes.results
    states = [*op.inputs[len(loop.full) :][: loop.states], *carried.values()]
    parts = op.inputs[len(loop.full) + loop.states :]
    kept = [nodes.fresh("kept") for _ in carried]
    inputs, outputs = loop.scanned, [one.along for one in loop.collected]
    # A list without elements has no type: what has none is left out.
    nodes.add(
        "Scan",
        [_own(nodes, x) for x in (*states, *parts)],
        [*results[: loop.states], *kept, *results[loop.states :]],
        body=nodes.body(loop, op.inputs),
        num_scan_inputs=len(inputs),
        scan_input_axes=[along.axis for along in inputs],
        scan_input_directions=[int(along.direction < 0) for along in inputs],
        scan_output_axes=[along.axis for along in outputs] or None,
        scan_output_directions=[int(along.direction < 0) for along in outputs] or None,
    )
