"""Reductions, normalizations, and losses."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from nnef_grad.frontends.expansions.reductions import product
from nnef_grad.frontends.expansions.selection import last_of_equals
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.language.library import STDLIB

_REDUCTIONS = {
    "ReduceL1": "norm_1", "ReduceL2": "norm_2", "ReduceLogSum": "log_reduce",
    "ReduceLogSumExp": "log_sum_exp", "ReduceMax": "max_reduce",
    "ReduceMean": "mean_reduce", "ReduceMin": "min_reduce", "ReduceSum": "sum_reduce",
    "ReduceSumSquare": "square_reduce",
}  # fmt: skip

# What they do to each element, where none are added.
_OF_EACH = {
    "ReduceL1": "abs", "ReduceL2": "abs", "ReduceLogSum": "log", "ReduceSumSquare": "sqr",
}  # fmt: skip


@onnx_op(*_REDUCTIONS, "ReduceProd")
def _reduction(node: Node, x: Any, *_: Any) -> Any:
    """A reduction: over all axes if none are given, unless that is a no-op."""
    items = node.items("axes", 1, [])
    axes = node.axes(items, len(shape_of(x)))
    if not axes or (not items and node.get("noop_with_empty_axes", 0)):
        each = _OF_EACH.get(node.kind)
        return node(each, x) if each else x
    name = _REDUCTIONS.get(node.kind, "")
    if not name:
        reduced = product(node, x, axes)
    elif name in STDLIB:
        reduced = node(name, x, axes=axes)
    else:
        reduced = node.expand(name, node.scalars(x), axes=axes)
    if dtype_of(x) == "integer":
        # Of a mean, the fraction goes.
        reduced = node.converted(reduced, "integer")
    return _kept(node, reduced, axes)


def _kept(node: Node, reduced: Any, axes: list[int]) -> Any:
    return reduced if node.get("keepdims", 1) else node("squeeze", reduced, axes=axes)


_INDICES = {"ArgMax": "argmax_reduce", "ArgMin": "argmin_reduce"}


@onnx_op(*_INDICES)
def _index(node: Node, x: Any) -> Any:
    """Where the greatest or the least element is: the first one of several, or the last."""
    along = node.along(0, x)
    if not node.get("select_last_index", 0):
        return _kept(node, node(_INDICES[node.kind], x, axes=[along]), [along])
    return _kept(node, last_of_equals(node, _INDICES[node.kind], x, along), [along])


@onnx_op("Hardmax")
def _hardmax(node: Node, x: Any) -> Any:
    """One at the first greatest element of each row, and zero elsewhere."""
    shape, along = shape_of(x), node.along(-1 if node.version >= 13 else 1, x)
    if node.version < 13:
        # The axes from the one that is given are one row.
        x, along = (
            node.reshaped(x, [prod(shape[:along]), prod(shape[along:])], "rows"),
            1,
        )
    index = node.scalars(node("argmax_reduce", x, axes=[along], hint="index"))
    positions = node.positions(shape_of(x)[along], along, len(shape_of(x)))
    hit = node("eq", index, positions, hint="hit")
    return node.reshaped(node("select", hit, 1.0, 0.0, hint="one"), shape)


@onnx_op("Softmax", "LogSoftmax")
def _softmax(node: Node, x: Any) -> Any:
    """Before version 13, the axis is the first of those that are summed over."""
    axes = [node.along(-1, x)] if node.version >= 13 else _from(node, x, 1)
    if node.kind == "LogSoftmax":
        return node.expand("log_softmax", x, axes=axes)
    return node("softmax", x, axes=axes)


def _from(node: Node, x: Any, default: int = -1) -> list[int]:
    """The axes starting from the one that is given."""
    return list(range(node.along(default, x), len(shape_of(x))))


@onnx_op("BatchNormalization")
def _batch_normalization(
    node: Node, x: Any, scale: Any, offset: Any, mean: Any, variance: Any
) -> Any:
    """Normalization by the moments from training, or by those of the operand."""
    if node.get("training_mode", 0):
        axes = [axis for axis in range(len(shape_of(x))) if axis != 1]
        return _normalized(node, x, node.row(scale), node.row(offset), axes)
    channels = map(node.row, (mean, variance, offset, scale))
    return node("batch_normalization", x, *channels, epsilon=node.get("epsilon", 1e-5))


@onnx_op("LayerNormalization")
def _layer_normalization(node: Node, x: Any, scale: Any, offset: Any = None) -> Any:
    rank = len(shape_of(x))
    wide = node.of_rank(scale, rank)
    added = 0.0 if offset is None else node.of_rank(offset, rank)
    return _normalized(node, x, wide, added, _from(node, x))


@onnx_op("InstanceNormalization")
def _instance_normalization(node: Node, x: Any, *channels: Any) -> Any:
    scale, offset = map(node.row, channels)
    return _normalized(node, x, scale, offset, range(2, len(shape_of(x))))


@onnx_op("MeanVarianceNormalization")
def _mean_variance_normalization(node: Node, x: Any) -> Any:
    rank = len(shape_of(x))
    axes = [node.axis(axis, rank) for axis in node.get("axes", [0, 2, 3])]
    return _normalized(node, x, 1.0, 0.0, axes, epsilon=0.0)


def _normalized(
    node: Node,
    x: Any,
    scale: Any,
    offset: Any,
    axes: Iterable[int],
    epsilon: float = 1e-5,
) -> Any:
    used = any(map(node.uses, range(1, len(node.proto.output))))
    node.require(not used, "only Y must be used")
    settings: Any = {"axes": list(axes), "epsilon": node.get("epsilon", epsilon)}
    return node.expand("layer_normalization", x, scale, offset, **settings)


@onnx_op("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(node: Node, x: Any, scale: Any) -> Any:
    wide = node.of_rank(scale, len(shape_of(x)))
    settings: Any = {"axes": _from(node, x), "epsilon": node.get("epsilon", 1e-5)}
    return node.expand("rms_normalization", x, wide, **settings)


@onnx_op("GroupNormalization")
def _group_normalization(node: Node, x: Any, scale: Any, offset: Any) -> Any:
    """Before version 21 there is a scale for each group, not for each channel."""
    node.require(node.version >= 21, "the version must be at least 21")
    shape, groups = shape_of(x), node.get("num_groups", 1)
    parts = node.reshaped(x, [shape[0], groups, prod(shape[1:]) // groups], "groups")
    normal = _normalized(node, parts, 1.0, 0.0, [2])
    scaled = node("mul", node.reshaped(normal, shape), node.row(scale), hint="scaled")
    return node("add", scaled, node.row(offset))


@onnx_op("LpNormalization")
def _lp_normalization(node: Node, x: Any) -> Any:
    p = node.get("p", 2)
    node.require(p in (1, 2), "p must be 1 or 2")
    return node.expand(f"l{p}_normalized", x, axes=[node.along(-1, x)])


@onnx_op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node, x: Any) -> Any:
    axes = list(range(2, len(shape_of(x))))
    if node.kind == "GlobalLpPool":
        return node.expand("norm", x, axes=axes, p=float(node.get("p", 2)))
    name = "mean_reduce" if node.kind == "GlobalAveragePool" else "max_reduce"
    return node(name, x, axes=axes)


# ---- Losses of classes ----

_LOSSES = {"mean": "nll_mean", "none": "nll", "sum": "nll_sum"}


@onnx_op("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(
    node: Node, x: Any, target: Any, weight: Any = None
) -> Any:
    """The elements of the target classes, negated, and weighted by class."""
    name, rank = _LOSSES[node.get("reduction", "mean")], len(shape_of(x))
    number = node.scalars(node("unsqueeze", target, axes=[1]))
    wide = node.row(weight, 1.0)
    # No class has the number -1.
    settings: Any = {"ignored": float(node.get("ignore_index", -1))}
    if name != "nll":
        settings["axes"] = list(range(rank - 1))
    positions = node.positions(shape_of(x)[1], 1, rank)
    loss = node.expand(name, x, number, wide, positions, **settings)
    return node("squeeze", loss, axes=settings["axes"]) if name != "nll" else loss


@onnx_op("SoftmaxCrossEntropyLoss")
def _cross_entropy(node: Node, x: Any, target: Any, weight: Any = None) -> list[Any]:
    """The loss of the logarithms of probabilities, and these."""
    chances = node.expand("log_softmax", x, axes=[1])
    return [_negative_log_likelihood(node, chances, target, weight), chances]
