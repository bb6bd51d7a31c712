"""Random numbers: dropout. Its mask is an input of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.model import Drawn
from nnef_grad.frontends.values import shape_of

# The least value of selu, negated: what alpha dropout puts in the place of an element.
_ALPHA = 1.7580993408473766


def kept(call: Call, shape: Sequence[Any], share: float, value: float) -> Any:
    """An input for what is kept: `value` for a share of the elements, and 0 for others."""
    made = call.reading.input(f"{call.hint}_kept", "scalar", shape)
    call.reading.drawn[made] = Drawn(tuple(shape), share, value)
    return made


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(call: Call, x: Any, p: float, is_training: bool) -> Any:
    """Each element, or each channel of each item of the batch, times 0 or 1 / (1 - p). In
    alpha dropout the least value of selu is in its place, and all is scaled and moved so
    that mean and variance stay.
    """
    if not is_training or p == 0:
        return x
    if p == 1:
        return call("mul", x, 0.0)
    is_alpha, shape = "alpha" in call.name, shape_of(x)
    if "feature" in call.name:
        shape = (*shape[:2], *(1 for _ in shape[2:]))
    mask = kept(call, shape, 1.0 - p, 1.0 if is_alpha else 1.0 / (1.0 - p))
    if not is_alpha:
        return call("mul", x, mask)
    scale = 1.0 / sqrt((_ALPHA**2 * p + 1.0) * (1.0 - p))
    return call.expand("self_normalizing", x, mask, _ALPHA, scale=scale, p=p)


@aten("native_dropout")
def native_dropout(call: Call, x: Any, p: float, is_training: bool | None) -> list[Any]:
    """The same, and what is kept."""
    if is_training is False or p in (0, 1):
        every = call.broadcast(is_training is False or p == 0, shape_of(x))
        return [dropout(call, x, p, is_training is not False), every]
    mask = kept(call, shape_of(x), 1.0 - p, 1.0 / (1.0 - p))
    return [call("mul", x, mask), call("gt", mask, 0.0, hint="is_kept")]


@aten("bernoulli.p")
def bernoulli(call: Call, x: Any, p: float = 0.5) -> Any:
    """Ones with a probability that is known, and zeros."""
    return kept(call, shape_of(x), p, 1.0)
