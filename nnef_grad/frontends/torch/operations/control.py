"""Branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.torch.call import Call, higher
from nnef_grad.frontends.values import is_known


@higher("cond")
def branches(
    call: Call, condition: Any, then: Any, otherwise: Any, operands: Sequence[Any]
) -> Any:
    """Both branches, and a choice of each result; no gradient reaches the other branch."""
    if is_known(condition):
        return call.reading.run(then if condition else otherwise, operands)
    pairs = zip(
        *(call.reading.run(branch, operands) for branch in (then, otherwise)),
        strict=True,
    )
    is_true = call.typed(condition, "logical")
    return [call("select", is_true, *pair) for pair in pairs]
