"""Reductions, and normalizations."""

from __future__ import annotations

from collections.abc import Iterable

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion, positive

_REDUCTIONS = {
    "ReduceL1": "l1_reduce",
    "ReduceL2": "l2_reduce",
    "ReduceLogSum": "log_reduce",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "max_reduce",
    "ReduceMean": "mean_reduce",
    "ReduceMin": "min_reduce",
    "ReduceSum": "sum_reduce",
    "ReduceSumSquare": "square_reduce",
}

# A product has a factor for each element.
_MOST = 128

_SOFTMAXES = {"LogSoftmax": "log_softmax", "Softmax": "softmax"}


@conversion(*_REDUCTIONS)
def reduction(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """A reduction: over all axes if none are given, unless that is a no-op."""
    reduced = _reduced(node, x)
    squeezed = [] if node.get("keepdims", 1) else reduced
    node.emit(_REDUCTIONS[node.kind], x, axes=reduced, squeezed=squeezed)


def _reduced(node: Node, x: Tensor) -> list[int]:
    """The axes of a reduction."""
    does_nothing = node.get("noop_with_empty_axes", 0)
    given = node.items("axes", 1, []) or ([] if does_nothing else range(x.rank))
    return [axis % x.rank for axis in given]


@conversion("ReduceProd")
def product(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Products along axes, one after the other."""
    axes = sorted(_reduced(node, x))
    for axis in axes:
        shape = [1 if a == axis else n for a, n in enumerate(x.shape)]
        node.require(x.shape[axis] <= _MOST, f"an axis has more than {_MOST} elements")
        places = list(range(x.shape[axis]))
        x = node.step("multiply_along", x, to=shape, axis=axis, places=places)
    if node.get("keepdims", 1) or not axes:
        node.emit("copy", x)
    else:
        node.emit("squeeze", x, axes=axes)


@conversion(*_SOFTMAXES)
def softmax(node: Node, x: Tensor) -> None:
    """Before version 13, the axis is the first of those that are summed over."""
    is_one = node.version >= 13
    axes = _from(x, node.get("axis", -1 if is_one else 1))
    node.emit(_SOFTMAXES[node.kind], x, axes=axes[:1] if is_one else axes)


def _from(x: Tensor, axis: int) -> list[int]:
    """The axes starting from one."""
    return list(range(axis + x.rank if axis < 0 else axis, x.rank))


@conversion("BatchNormalization")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor
) -> None:
    """Normalization by the moments from training, or by those of the operand."""
    if node.get("training_mode", 0):
        axes = [axis for axis in range(x.rank) if axis != 1]
        _normalize(node, (x, node.row(scale), node.row(offset)), axes)
        return
    channels = map(node.row, (mean, variance, offset, scale))
    epsilon = node.get("epsilon", 1e-5)
    node.emit("batch_normalization", x, *channels, epsilon=epsilon)


@conversion("LayerNormalization")
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, offset: Tensor | None = None
) -> None:
    """Normalization by the moments over the last axes."""
    wide = node.of_rank(scale, x.rank)
    added = node.literal(0.0) if offset is None else node.of_rank(offset, x.rank)
    _normalize(node, (x, wide, added), _from(x, node.get("axis", -1)))


@conversion("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, *channels: Tensor) -> None:
    """Normalization by the moments of each channel of each batch item."""
    _normalize(node, (x, *map(node.row, channels)), range(2, x.rank))


@conversion("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> None:
    """Normalization by the moments, without scale or bias."""
    axes = positive(node.get("axes", [0, 2, 3]), x.rank)
    operands = (x, node.literal(1.0), node.literal(0.0))
    node.emit("layer_normalization", *operands, axes=axes, epsilon=0.0)


def _normalize(node: Node, operands: Iterable[Tensor], axes: Iterable[int]) -> None:
    used = any(map(node.uses, range(1, len(node.results))))
    node.require(not used, "only Y must be used")
    epsilon = node.get("epsilon", 1e-5)
    node.emit("layer_normalization", *operands, axes=list(axes), epsilon=epsilon)


@conversion("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> None:
    """Normalization by the root mean square over the last axes."""
    wide, axes = node.of_rank(scale, x.rank), _from(x, node.get("axis", -1))
    epsilon = node.get("epsilon", 1e-5)
    node.emit("rms_normalization", x, wide, axes=axes, epsilon=epsilon)


@conversion("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, offset: Tensor) -> None:
    """Before version 21 there is a scale for each group, not for each channel."""
    node.require(node.version >= 21, "the version must be at least 21")
    node.emit(
        "group_normalization",
        *(x, node.row(scale), node.row(offset)),
        groups=node.get("num_groups", None),
        shape=[0, *x.shape[1:]],
        epsilon=node.get("epsilon", 1e-5),
    )
