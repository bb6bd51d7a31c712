"""What depends on the values of tensors: of two branches both are computed, and a condition
chooses each result. No gradient reaches the results that are not chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.frontends.view import View


def branch_results(
    view: View, condition: Any, then: Sequence[Any], otherwise: Sequence[Any]
) -> list[Any]:
    """The results of the first branch if a condition, of one element, is true, and those of
    the second one otherwise.
    """
    whole = view.reshaped(condition, [])
    is_true = view.reading.converted(whole, "logical", f"{view.hint}_chosen", view.span)
    pairs = zip(then, otherwise, strict=True)
    return [_chosen(view, is_true, x, y) for x, y in pairs]


def _chosen(view: View, is_true: Any, x: Any, y: Any) -> Any:
    if x is y:
        return x
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        return branch_results(view, is_true, x, y)
    kinds = [type_in_words(value) for value in (x, y)]
    if kinds[0] != kinds[1]:
        what = f"one returns {kinds[0]}, and the other one {kinds[1]}"
        view.refuse(f"both branches must return the same shapes and types: {what}")
    if is_known(x) and is_known(y) and np.array_equal(x, y):
        return x
    return view("select", is_true, x, y)


def type_in_words(value: Any) -> str:
    """The data type and shape of a value, in words."""
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return f"{dtype_of(value)} {list(shape_of(value))}"
