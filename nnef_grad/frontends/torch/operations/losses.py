"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.reductions import (
    axes_of,
    log_softmax,
    reduced,
    without,
)
from nnef_grad.frontends.values import dtype_of, shape_of

# How PyTorch counts what becomes of the losses.
_REDUCTIONS = {1: "mean_reduce", 2: "sum_reduce"}


def finished(call: Call, losses: Any, reduction: int) -> Any:
    """The losses, their mean, or their sum."""
    if not reduction:
        return losses
    return reduced(call, _REDUCTIONS[reduction], losses, axes_of(call, losses, None))


# ---- Element by element ----

_LOSSES = {"mse_loss": "square_loss", "l1_loss": "absolute_loss",
           "soft_margin_loss": "soft_margin_loss"}  # fmt: skip


@aten(*_LOSSES)
def loss(call: Call, x: Any, target: Any, reduction: int = 1) -> Any:
    """A loss without settings."""
    name = _LOSSES[call.node.target.overloadpacket.__name__]
    operands = call.aligned(*call.scalars(x, target))
    return finished(call, call.expand(name, *operands), reduction)


# ---- Yes or no ----


@aten("binary_cross_entropy")
def binary_cross_entropy(
    call: Call, x: Any, target: Any, weight: Any = None, reduction: int = 1
) -> Any:
    """That of probabilities, whose logarithms are at least -100: where one is less, it has
    no gradient.
    """
    x, target = call.aligned(*call.scalars(x, target))
    return _weighted(
        call, call.expand("binary_cross_entropy", x, target), weight, reduction
    )


@aten("binary_cross_entropy_with_logits")
def binary_cross_entropy_of_logits(
    call: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    positive: Any = None,
    reduction: int = 1,
) -> Any:
    """The same of sigmoid(x), without overflow; `positive` is a weight of yes."""
    x, target = call.aligned(*call.scalars(x, target))
    if positive is None:
        losses = call.expand("sigmoid_cross_entropy", x, target)
    else:
        _, positive = call.aligned(x, positive)
        losses = call.expand("weighted_cross_entropy", x, target, positive)
    return _weighted(call, losses, weight, reduction)


def _weighted(call: Call, losses: Any, weight: Any, reduction: int) -> Any:
    if weight is not None:
        losses = call("mul", *call.aligned(losses, weight), hint="weighted")
    return finished(call, losses, reduction)


# ---- Classes ----


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def negative_log_likelihood(
    call: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
) -> Any:
    """The logarithm of the probability of the target class, negated."""
    return _Classes(call, x, target, weight, ignored).loss(reduction, 0.0)


@aten("nll_loss_forward", "nll_loss2d_forward")
def likelihood_and_weight(call: Call, *arguments: Any) -> list[Any]:
    """The same, and a weight that nothing reads."""
    return [negative_log_likelihood(call, *arguments), None]


@aten("cross_entropy_loss")
def cross_entropy(
    call: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignored: int = -100,
    smoothing: float = 0.0,
) -> Any:
    """The same of softmax(x); the target may be probabilities of all classes."""
    axis = min(len(shape_of(x)) - 1, 1)
    logarithms = log_softmax(call, x, axis)
    if dtype_of(target) != "scalar":
        return _Classes(call, logarithms, target, weight, ignored).loss(
            reduction, smoothing
        )
    if smoothing:
        spread = smoothing / shape_of(x)[axis]
        kept = call("mul", target, 1.0 - smoothing, hint="kept")
        target = call("add", kept, spread, hint="smoothed")
    terms = call("mul", logarithms, target, hint="terms")
    if weight is not None:
        terms = call("mul", terms, _of_classes(call, weight, axis), hint="weighted")
    sums = reduced(call, "sum_reduce", terms, [axis])
    return finished(call, call("neg", sums), reduction)


def _of_classes(call: Call, weight: Any, axis: int) -> Any:
    """A weight for each class as one that has the axes before that of classes."""
    return call("unsqueeze", weight, hint="weights", axes=[0]) if axis else weight


class _Classes:
    """Logarithms of probabilities, and the number of the right class of each item.

    Attributes:
        axis: the axis of classes.
        hit: whether a class is the right one; none is where the number is ignored.
    """

    def __init__(self, call: Call, x: Any, target: Any, weight: Any, ignored: int):
        self.call, self.x = call, x
        self.axis = axis = min(len(shape_of(x)) - 1, 1)
        self.weight = 1.0 if weight is None else _of_classes(call, weight, axis)
        self.count = count = shape_of(x)[axis]
        # An ignored number is that of no class.
        numbers = np.array([-1.0 if i == ignored else i for i in range(count)])
        positions = call.constant(numbers.reshape([1] * axis + [count]), "scalar")
        (row,) = call.scalars(call("unsqueeze", target, hint="target", axes=[axis]))
        self.hit = call("eq", row, positions, hint="is_right")

    def loss(self, reduction: int, smoothing: float) -> Any:
        """The loss; with smoothing, a part of it is that of all classes."""
        call, axis = self.call, self.axis
        terms = self._smoothed(smoothing) if smoothing else self._right()
        every = list(range(len(shape_of(self.x))))
        if not reduction:
            return call("neg", reduced(call, "sum_reduce", terms, [axis]))
        total = call("sum_reduce", terms, hint="total", axes=every)
        if reduction == 1:
            counts = call("select", self.hit, self.weight, 0.0, hint="counts")
            count = call("sum_reduce", counts, hint="count", axes=every)
            total = call("div", total, count, hint="mean")
        return without(call, call("neg", total, hint="negative"), every, is_kept=False)

    def _right(self) -> Any:
        call, weighted = self.call, self.x
        if isinstance(self.weight, float):
            return call("select", self.hit, weighted, 0.0, hint="terms")
        weighted = call("mul", self.x, self.weight, hint="weighted")
        return call("select", self.hit, weighted, 0.0, hint="terms")

    def _smoothed(self, smoothing: float) -> Any:
        call, spread = self.call, smoothing / self.count
        shares = call(
            "select", self.hit, 1.0 - smoothing + spread, spread, hint="share"
        )
        terms = call("mul", self.x, shares, hint="terms")
        if not isinstance(self.weight, float):
            terms = call("mul", terms, self.weight, hint="weighted")
        counts = call("any_reduce", self.hit, hint="is_counted", axes=[self.axis])
        return call("select", counts, terms, 0.0, hint="counted")


# ---- Pairs and triplets ----


@aten("cosine_embedding_loss")
def cosine_embedding_loss(
    call: Call, x: Any, y: Any, target: Any, margin: float = 0.0, reduction: int = 1
) -> Any:
    """1 - cos where the target is 1, and cos above the margin where it is -1."""
    (target,) = call.scalars(target)
    x, y = call.aligned(x, y)
    axis = len(shape_of(target))
    cosine = call.expand("cosine", x, y, axes=[axis], squeezed=[axis])
    losses = call.expand("cosine_embedding", cosine, target, margin=float(margin))
    return finished(call, losses, reduction)


# ---- Refused ----
