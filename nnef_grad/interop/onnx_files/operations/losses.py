"""Losses of classes."""

from __future__ import annotations

from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion

_REDUCTIONS = {"mean": "nll_mean", "none": "nll", "sum": "nll_sum"}


@conversion("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    node: Node, x: Tensor, target: Tensor, weight: Tensor | None = None
) -> None:
    """The elements of the target classes, negated, and weighted by class."""
    reduction = node.get("reduction", "mean")
    wide = node.literal(1.0) if weight is None else node.row(weight)
    axes = [] if reduction == "none" else list(range(target.rank))
    node.emit(
        _REDUCTIONS[reduction],
        *(x, node.unsqueeze(target, [1]), wide),
        node.positions(x.shape[1], 1, x.rank),
        # No class has the number -1.
        ignored=float(node.get("ignore_index", -1)),
        axes=axes or None,
        squeezed=axes,
    )


@conversion("SoftmaxCrossEntropyLoss")
def cross_entropy(
    node: Node, x: Tensor, target: Tensor, weight: Tensor | None = None
) -> None:
    """The loss of the logarithms of probabilities, and these."""
    named = next((t for t in node.results[1:] if t.name), None)
    chances = named or node.tensor(x.shape, x.dtype)
    node.emit("log_softmax", x, results=(chances,), axes=[1])
    negative_log_likelihood(node, chances, target, weight)
