"""Elements in order: an operation that graphs have and NNEF has not, as runtimes have one, and
the standard compares elements instead. It gives indices; the elements at these are selected
by comparing indices with positions, and so are their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import ARGSORT, Shape
from nnef_grad.language.library import EXTRAS, with_fragments
from nnef_grad.ops.batching import along_axis, batching_rule
from nnef_grad.ops.examples import beside_axis, place_rule
from nnef_grad.ops.ranges import INF, bounded, range_rule
from nnef_grad.ops.registry import require, shape
from nnef_grad.ops.shape import check_axis, with_extent

# The operations of graphs: beside the standard's, the indices of so many elements along an
# axis, in order, of equal ones the first; or of those with some ranks, of which the first is 0.
DECLARED = with_fragments([replace(EXTRAS["argsort"], name=ARGSORT)])


@shape(ARGSORT)
def argsort_shape(
    x: Shape, axis: int, count: Dimension, ranks: Sequence[int], descending: bool
) -> Shape:
    """An index for each rank in the place of the axis."""
    check_axis(axis, len(x))
    extent, taken = x[axis], len(ranks) or count
    last = max(ranks) + 1 if ranks else count
    is_there = has_symbols((extent, last)) or last <= extent
    require(is_there, f"there are {extent} elements, and not {last}")
    return with_extent(x, axis, taken)


# ---- Batching, ranges ----

batching_rule(ARGSORT)(along_axis)
place_rule(ARGSORT)(beside_axis)
range_rule(ARGSORT)(bounded(0.0, INF))
