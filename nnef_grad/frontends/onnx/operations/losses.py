"""Losses of classes."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.values import shape_of

_REDUCTIONS = {"mean": "nll_mean", "none": "nll", "sum": "nll_sum"}


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(node: Node, x: Any, target: Any, weight: Any = None) -> Any:
    """The elements of the target classes, negated, and weighted by class."""
    reduction, rank = node.get("reduction", "mean"), len(shape_of(x))
    wide = 1.0 if weight is None else node.row(weight)
    axes = [] if reduction == "none" else list(range(rank - 1))
    settings = {"axes": axes} if axes else {}
    made = node.expand(
        _REDUCTIONS[reduction],
        *(x, node.scalars(node("unsqueeze", target, axes=[1])), wide),
        node.positions(shape_of(x)[1], 1, rank),
        # No class has the number -1.
        ignored=float(node.get("ignore_index", -1)),
        **settings,
    )
    return node("squeeze", made, axes=axes) if axes else made


@onnx_op("SoftmaxCrossEntropyLoss")
def cross_entropy(node: Node, x: Any, target: Any, weight: Any = None) -> list[Any]:
    """The loss of the logarithms of probabilities, and these."""
    chances = node.expand("log_softmax", x, axes=[1])
    return [negative_log_likelihood(node, chances, target, weight), chances]
