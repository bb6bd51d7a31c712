"""Elements in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.expansions.selection import at_indices, first_largest
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import ARGSORT


def largest(view: View, x: Any, k: Any, axis: int, is_largest: bool) -> Any:
    """The largest or smallest elements, one after the other, and their indices."""
    along = view.axis(axis, len(shape_of(x)))
    if k == 1:
        return first_largest(view, x, along, is_largest)
    return ranked(view, x, along, k, is_descending=is_largest)


def ranked(
    view: View,
    x: Any,
    axis: int,
    ranks: Sequence[int] | Dimension,
    *,
    is_descending: bool = False,
) -> tuple[Any, Any]:
    """The elements with some ranks, or so many of the first, and their indices; of equal
    ones the first is lower.
    """
    is_list, extent = isinstance(ranks, Sequence), shape_of(x)[axis]
    last = max(ranks) + 1 if isinstance(ranks, Sequence) else ranks
    is_there = has_symbols((last, extent)) or 0 <= last <= extent
    view.require(is_there, f"axis {axis} has {extent} elements, and not {last}")
    settings: dict[str, Any] = {"ranks" if is_list else "count": ranks}
    settings["descending"] = is_descending
    indices = view(ARGSORT, x, hint="indices", axis=axis, **settings)
    return at_indices(view, x, indices, axis), indices
