"""Losses of each element that PyTorch writes longer: those of classes and pairs are read as
it decomposes them.
"""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.reductions import axes_of, reduced

# How PyTorch counts what becomes of the losses.
_REDUCTIONS = {1: "mean_reduce", 2: "sum_reduce"}


@aten("soft_margin_loss", "binary_cross_entropy")
def loss(call: Call, x: Any, target: Any, *settings: Any) -> Any:
    """A loss, with a weight for the elements of some. The logarithms of probabilities are
    at least -100: where one is less, it has no gradient.
    """
    *weights, reduction = settings or (1,)
    made = call.expand(call.packet, *call.aligned(*call.scalars(x, target)))
    if weights and weights[0] is not None:
        made = call("mul", *call.aligned(made, weights[0]), hint="weighted")
    if not reduction:
        return made
    return reduced(call, _REDUCTIONS[reduction], made, axes_of(call, made, None))
