"""Which tensors are alive while a graph is evaluated in the order of its operations.

A tensor is alive from the operation that makes it to the last one that reads it. One
that is another in a new shape (reshape, squeeze, unsqueeze) is a view: it takes no
memory of its own, as in most runtimes, and keeps that of the other alive. All other
operations make new memory, even where a runtime might compute in place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate

from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.ops.traits import FED, RESHAPING


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
    the inputs and variables, which are there from outside. The kept ones are alive to the
    end, whatever reads them.
    """
    views = views_of(graph)
    fed = {t for op in graph.operations if op.name in FED for t in op.outputs}
    lasting = fed | {views.get(t, t) for t in kept}
    alive, peaks = 0, []
    for operation, dead in zip(graph.operations, last_uses(graph, views), strict=True):
        alive += sum(map(size, set(operation.outputs) - fed - views.keys()))
        peaks.append(alive)
        alive -= sum(map(size, dead - lasting))
    return peaks


def memory_held(
    graph: Graph, size: Callable[[Tensor], int], inputs: Collection[Tensor]
) -> Iterator[int]:
    """For each operation, the size of those of some inputs that it or a later one reads:
    they are dropped after their last use.
    """
    uses = last_uses(graph, views_of(graph))
    freed = [sum(size(t) for t in inputs if t in dead) for dead in uses]
    return accumulate(freed[:-1], operator.sub, initial=sum(map(size, inputs)))
