"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import shape_of


def _rows(call: Call, *values: Any) -> list[Any]:
    """Vectors of channels as rows, whose axis is the second."""
    return [call("unsqueeze", x, axes=[0], hint="row") for x in values]


@aten(
    "batch_norm",
    "cudnn_batch_norm",
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
)
def batch_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *settings: Any,
) -> Any:
    """Normalization of each channel, by what is known of it or by the batch."""
    is_training = settings[0] if isinstance(settings[0], bool) else False
    epsilon = settings[-2] if isinstance(settings[-1], bool) else settings[-1]
    if is_training or mean is None:
        y, _, _ = _by_the_batch(call, x, weight, bias, epsilon)
    else:
        y = _normalized(call, x, _rows(call, mean, variance), weight, bias, epsilon)
    return y if call.name.startswith("aten.batch_norm") else [y, None, None, None]


def _normalized(
    call: Call, x: Any, moments: Sequence[Any], weight: Any, bias: Any, epsilon: float
) -> Any:
    offset, scale = (
        number if given is None else _rows(call, given)[0]
        for given, number in ((bias, 0.0), (weight, 1.0))
    )
    return call("batch_normalization", x, *moments, offset, scale, epsilon=epsilon)


def _by_the_batch(
    call: Call, x: Any, weight: Any, bias: Any, epsilon: float
) -> tuple[Any, Any, Any]:
    """The normalized tensor, and the moments [1, C, 1, ...] of the batch."""
    axes = [axis for axis in range(len(shape_of(x))) if axis != 1]
    mean, variance = call("moments", x, axes=axes)
    return (
        _normalized(call, x, (mean, variance), weight, bias, epsilon),
        mean,
        variance,
    )


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_the_batch(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    is_training: bool,
    momentum: float,
    epsilon: float,
) -> list[Any]:
    """Normalization of each channel by the batch."""
    return [_by_the_batch(call, x, weight, bias, epsilon)[0], None, None]


@aten("_native_batch_norm_legit_functional")
def batch_norm_in_training(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_variance: Any,
    is_training: bool,
    momentum: float,
    epsilon: float,
) -> list[Any]:
    """The normalized tensor, two that nothing reads, and the running moments, which move
    towards those of the batch: the variance is what one estimates from it.
    """
    if not is_training:
        moments = _rows(call, running_mean, running_variance)
        y = _normalized(call, x, moments, weight, bias, epsilon)
        return [y, None, None, running_mean, running_variance]
    y, mean, variance = _by_the_batch(call, x, weight, bias, epsilon)
    shape = shape_of(x)
    size = prod(shape) // shape[1]
    unbiased = call("mul", variance, call.ratio(size, size - 1), hint="unbiased")
    moved = [
        _moved(call, running, call.reshaped(new, [shape[1]], "moment"), momentum)
        for running, new in ((running_mean, mean), (running_variance, unbiased))
    ]
    return [y, None, None, *moved]


def _moved(call: Call, running: Any, new: Any, momentum: float) -> Any:
    kept = call("mul", running, 1.0 - momentum, hint="kept")
    return call.stopped(call("add", kept, call("mul", new, momentum, hint="part")))


@aten("instance_norm")
def instance_norm(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    uses_input: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """Normalization of each channel of each item of the batch."""
    if not uses_input:
        return _normalized(call, x, _rows(call, mean, variance), weight, bias, epsilon)
    axes = list(range(2, len(shape_of(x))))
    found = call("moments", x, axes=axes)
    return _normalized(call, x, found, weight, bias, epsilon)


@aten("layer_norm", "native_layer_norm")
def layer_norm(
    call: Call, x: Any, extents: Sequence[Any], weight: Any, bias: Any, epsilon: float
) -> Any:
    """Normalization over the last axes."""
    rank = len(shape_of(x))
    axes = list(range(rank - len(extents), rank))
    mean, variance = call("moments", x, axes=axes)
    y = call.expand("normalized", x, mean, variance, epsilon=epsilon)
    y = _affine(call, y, *call.aligned_or_none(weight, bias, rank=rank))
    return [y, None, None] if "native" in call.name else y


def _affine(call: Call, y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else call("mul", y, weight, hint="scaled")
    return y if bias is None else call("add", y, bias)


@aten("native_group_norm")
def group_norm(call: Call, x: Any, weight: Any, bias: Any, *sizes: Any) -> list[Any]:
    """Normalization of each group of channels of each item of the batch; nothing reads its
    moments.
    """
    *_, groups, epsilon = sizes
    shape = shape_of(x)
    parts = call.reshaped(x, [shape[0], groups, prod(shape[1:]) // groups], "groups")
    mean, variance = call("moments", parts, axes=[2])
    normal = call.expand("normalized", parts, mean, variance, epsilon=epsilon)
    y = call.reshaped(normal, shape)
    rows = (None if v is None else _rows(call, v)[0] for v in (weight, bias))
    return [_affine(call, y, *rows), None, None]
