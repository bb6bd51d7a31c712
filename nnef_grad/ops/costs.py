"""The costs of an operation, from shapes alone, and the memory of a graph.

A multiply-add is a step of a sum: an element times its weight, added to what is there.
These are counted wherever an operation sums over a window, an axis or a row:

    products    convolutions and matrix products: all that most networks spend
    sums        box filters, means and reductions: the weight of an element is one
    samples     interpolation: two elements along each axis that grows

Windows are counted whole, as if the padding were stored: most runtimes compute them so,
and a convolution costs the same whichever way it is written. A reverse operation costs
what its adjoint does. A bias, what is done element by element, maxima, comparisons and
what only moves elements count nothing: their cost is the memory that they move. So does
an operation of the user's own, of which nothing is known. The costs stand with their
operations, in the file of each family.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

from nnef_grad.graph.ir import Graph, Operation, Tensor, shape_of
from nnef_grad.ops.registry import Function, enter
from nnef_grad.ops.traits import FED, RESHAPING, SOURCES

# The bytes of an element by its type. Scalars are stored in single precision.
ITEM_BYTES = {"scalar": 4, "integer": 4, "logical": 1, "string": 0}


def multiply_adds(operation: Operation) -> Any:
    """How many multiply-adds an operation takes: with open sizes, an extent."""
    count = COSTS.get(operation.name)
    return 0 if count is None else count(operation)


def bytes_moved(operation: Operation) -> Any:
    """How many bytes an operation reads and writes: with open sizes, an extent."""
    # What comes from outside is there, and a tensor in another shape is the same memory.
    if operation.name in SOURCES or operation.name in RESHAPING:
        return 0
    written = sum(map(byte_size, operation.outputs))
    if operation.name in READ:
        # Of the operand, only what becomes an element of the result.
        return sum(map(byte_size, operation.inputs[1:])) + 2 * written
    # One that is used twice is read once.
    return sum(map(byte_size, set(operation.inputs))) + written


def byte_size(tensor: Tensor) -> Any:
    """How many bytes a tensor takes: with an open size, an extent."""
    return ITEM_BYTES[tensor.dtype] * prod(tensor.shape)


# The operations that read a part of their first operand.
READ = frozenset({"slice", "gather", "sample", "nearest_downsample"})


# ---- Multiply-adds ----

# Of an operation; those that are not here take none.
Cost = Callable[[Operation], Any]
COSTS: dict[str, Cost] = {}


def cost_rule(*names: str) -> Callable[[Function], Function]:
    """Enters how many multiply-adds the named operations take."""
    return partial(enter, COSTS, names)


def elements(op: Operation) -> Any:
    """How many elements a result has."""
    return prod(op.outputs[0].shape)


def each_element(op: Operation) -> Any:
    """A multiply-add for each element of the operand."""
    return prod(shape_of(op.operands[0]))


# ---- For people ----


def _scaled(factor: int, units: Sequence[str], number: int) -> str:
    """Four digits of a number, in the unit that it has most ones of."""
    power = 0
    while number >= factor ** (power + 1) and power + 1 < len(units):
        power += 1
    return f"{number / factor**power:.4g} {units[power]}".rstrip()


count_text = partial(_scaled, 1000, ("", "K", "M", "G", "T"))
byte_text = partial(_scaled, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


# ---- Memory ----

# A tensor is alive from the operation that makes it to the last one that reads it. One
# that is another in a new shape (reshape, squeeze, unsqueeze) is a view: it takes no
# memory of its own, as in most runtimes, and keeps that of the other alive. All other
# operations make new memory, even where a runtime might compute in place.


def last_uses(
    graph: Graph, views: Mapping[Tensor, Tensor] | None = None
) -> list[set[Tensor]]:
    """For each operation, the tensors that none reads after it, also through views."""
    views, read, uses = views or {}, set[Tensor](), []
    for operation in reversed(graph.operations):
        touched = {views.get(t, t) for t in (*operation.inputs, *operation.outputs)}
        uses.append(touched - read)
        read |= touched
    return uses[::-1]


def views_of(graph: Graph) -> dict[Tensor, Tensor]:
    """For each view, the tensor whose memory it is."""
    views: dict[Tensor, Tensor] = {}
    for operation in graph.operations:
        if operation.name in RESHAPING and operation.inputs:
            (source,), (view,) = operation.inputs, operation.outputs
            views[view] = views.get(source, source)
    return views


def memory_alive(
    graph: Graph, size: Callable[[Tensor], int], kept: Collection[Tensor] = ()
) -> list[int]:
    """For each operation, the size of the tensors that are alive while it runs, besides
    inputs and variables. The kept ones are alive to the end, whatever reads them.
    """
    views = views_of(graph)
    fed = {t for op in graph.operations if op.name in FED for t in op.outputs}
    lasting = fed | {views.get(t, t) for t in kept}
    alive, peaks = 0, []
    for operation, dead in zip(graph.operations, last_uses(graph, views), strict=True):
        alive += sum(map(size, set(operation.outputs).difference(fed, views)))
        peaks.append(alive)
        alive -= sum(map(size, dead - lasting))
    return peaks


def memory_held(
    graph: Graph, size: Callable[[Tensor], int], inputs: Collection[Tensor]
) -> Iterator[int]:
    """For each operation, the size of those of some inputs that it or a later one reads."""
    uses = last_uses(graph, views_of(graph))
    freed = [sum(size(t) for t in inputs if t in dead) for dead in uses]
    return accumulate(freed[:-1], operator.sub, initial=sum(map(size, inputs)))
