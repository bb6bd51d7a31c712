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


def _normalized(
    call: Call, x: Any, moments: Sequence[Any], weight: Any, bias: Any
) -> Any:
    offset = 0.0 if bias is None else _rows(call, bias)[0]
    scale = 1.0 if weight is None else _rows(call, weight)[0]
    epsilon = call.args.get("eps", call.args.get("epsilon"))
    return call("batch_normalization", x, *moments, offset, scale, epsilon=epsilon)


@aten(
    "batch_norm", "cudnn_batch_norm", "native_batch_norm",
    "_native_batch_norm_legit_no_training", "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_functional",
)  # fmt: skip
def batch_norm(call: Call, x: Any, weight: Any, bias: Any, *_: Any) -> Any:
    """Normalization of each channel, by what is known of it or by the batch."""
    running = [call.args.get(name) for name in ("running_mean", "running_var")]
    if call.args.get("training", False) or running[0] is None:
        axes = [axis for axis in range(len(shape_of(x))) if axis != 1]
        moments = call("moments", x, axes=axes)
        y = _normalized(call, x, moments, weight, bias)
        if call.packet.endswith("_functional"):
            running = _moved(call, x, running, moments)
    else:
        y = _normalized(call, x, _rows(call, *running), weight, bias)
    return y if call.packet == "batch_norm" else call.alone(y, None, None, *running)


def _moved(
    call: Call, x: Any, running: Sequence[Any], moments: Sequence[Any]
) -> list[Any]:
    """The running moments, moved towards the batch's, with an estimate of the variance."""
    (mean, variance), shape = moments, shape_of(x)
    momentum, size = call.args["momentum"], prod(shape) // shape[1]
    unbiased = call("mul", variance, call.ratio(size, size - 1), hint="unbiased")
    made = []
    for old, new in zip(running, (mean, unbiased), strict=True):
        moment = call.reshaped(new, [shape[1]], "moment")
        kept = call("mul", old, 1.0 - momentum, hint="kept")
        part = call("mul", moment, momentum, hint="part")
        made.append(call.stopped(call("add", kept, part)))
    return made


@aten("instance_norm")
def _instance_norm(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any
) -> Any:
    if not call.args["use_input_stats"]:
        return _normalized(call, x, _rows(call, mean, variance), weight, bias)
    moments = call("moments", x, axes=list(range(2, len(shape_of(x)))))
    return _normalized(call, x, moments, weight, bias)


@aten("layer_norm", "native_layer_norm")
def _layer_norm(
    call: Call, x: Any, extents: Sequence[Any], weight: Any, bias: Any, epsilon: float
) -> Any:
    rank = len(shape_of(x))
    axes = list(range(rank - len(extents), rank))
    mean, variance = call("moments", x, axes=axes)
    y = call.expand("normalized", x, mean, variance, epsilon=epsilon)
    rows = (v if v is None else call.of_rank(v, rank) for v in (weight, bias))
    y = _affine(call, y, *rows)
    return call.alone(y) if "native" in call.name else y


def _affine(call: Call, y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else call("mul", y, weight, hint="scaled")
    return y if bias is None else call("add", y, bias)


@aten("native_group_norm")
def group_norm(call: Call, x: Any, weight: Any, bias: Any, *sizes: Any) -> list[Any]:
    """Normalization of each group of channels of each item of the batch."""
    *_, groups, epsilon = sizes
    shape = shape_of(x)
    parts = call.reshaped(x, [shape[0], groups, prod(shape[1:]) // groups], "groups")
    mean, variance = call("moments", parts, axes=[2])
    normal = call.expand("normalized", parts, mean, variance, epsilon=epsilon)
    y = call.reshaped(normal, shape)
    rows = (None if v is None else _rows(call, v)[0] for v in (weight, bias))
    return call.alone(_affine(call, y, *rows))
