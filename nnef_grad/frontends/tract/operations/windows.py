"""Convolutions and pools: what tract computes otherwise than the standard."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnef_grad.frontends.step import Step, expansion
from nnef_grad.frontends.values import shape_of
from nnef_grad.language.library import standard


def _settings(step: Step, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(standard()[step.name].attribute_names, values, strict=True))


@expansion("conv")
def conv(step: Step, x: Any, weight: Any, bias: Any, *values: Any) -> Any:
    """A convolution, with the channels of the bias where the standard has them."""
    return step("conv", x, weight, _row(step, bias), **_settings(step, values))


@expansion("deconv")
def deconv(step: Step, x: Any, weight: Any, bias: Any, *values: Any) -> Any:
    """A transposed convolution, whose filter is that of the convolution."""
    settings = _settings(step, values)
    shape = list(settings["output_shape"])
    if len(shape) == len(shape_of(x)) - 2:
        settings["output_shape"] = [shape_of(x)[0], shape_of(weight)[0], *shape]
    turned = _turned(step, weight, settings["groups"] or shape_of(weight)[0])
    return step("deconv", x, turned, _row(step, bias), **settings)


def _turned(step: Step, weight: Any, groups: int) -> Any:
    """The filter [out, in / groups, ...] as [in, out / groups, ...]."""
    step.require(len(shape_of(weight)) >= 2, "the filter must have rank 2 at least")
    made, given, *size = shape_of(weight)
    step.require(made % groups == 0, f"{groups} groups do not divide {made} channels")
    if groups == 1:
        return step.transposed(weight, [1, 0, *range(2, 2 + len(size))], "filter")
    if given == 1 and made == groups:
        return weight
    # The spatial axes go as one, as where the dialect is written.
    shape = [groups, made // groups, given, prod(size)]
    parts = step.reshaped(weight, shape, "groups")
    moved = step.transposed(parts, [0, 2, 1, 3], "exchanged")
    return step.reshaped(moved, [groups * given, made // groups, *size], "filter")


def _row(step: Step, bias: Any) -> Any:
    """The bias as a row of channels; a single number stays."""
    shape = shape_of(bias)
    several = [extent for extent in shape if extent > 1]
    if not shape or (len(shape) == 2 and shape[0] == 1):
        return bias
    step.require(len(several) < 2, f"the bias of shape {list(shape)} is not a row")
    return step.reshaped(bias, [1, *(several or [1])], "bias")


@expansion("max_pool", "max_pool_with_index")
def max_pool(step: Step, x: Any, *values: Any) -> Any:
    """A maximum over what is there, whatever the border is called."""
    settings = _settings(step, values)
    if settings["border"] == "constant":
        settings["border"] = "ignore"
    return step(step.name, x, **settings)


# ---- Blocks of images ----


def blocks(step: Step, x: Any, block: Sequence[int], **sliding: Any) -> Any:
    """The elements of each block of an image, [batch, channels * elements, blocks]: each
    element has a filter of its own, with a one at its place.
    """
    batch, channels, *image = shape_of(x)
    images = step.reshaped(x, [batch * channels, 1, *image], "images")
    made = step("conv", images, _ones(block), 0.0, hint="elements", **sliding)
    counts = shape_of(made)[2:]
    return step.reshaped(made, [batch, channels * prod(block), prod(counts)])


def sum_of_blocks(
    step: Step, x: Any, image: Sequence[int], block: Sequence[int], **sliding: Any
) -> Any:
    """Sums of blocks at their places in an image: what `blocks` does, transposed."""
    columns = zip(image, block, *(sliding[name] for name in _SLIDING), strict=True)
    counts = [
        (n + sum(pad) - dilation * (size - 1) - 1) // stride + 1
        for n, size, pad, stride, dilation in columns
    ]
    size, batch = prod(block), shape_of(x)[0]
    channels = shape_of(x)[1] // size
    made = step(
        "deconv",
        step.reshaped(x, [batch * channels, size, *counts], "columns"),
        *(_ones(block), 0.0),
        hint="sums",
        output_shape=[batch * channels, 1, *image],
        **sliding,
    )
    return step.reshaped(made, [batch, channels, *image])


_SLIDING = ("padding", "stride", "dilation")


def _ones(block: Sequence[int]) -> Any:
    return np.eye(prod(block)).reshape(-1, 1, *block)
