"""Graphs that were lowered for a target."""

from __future__ import annotations

from nnef_grad.graph.ir import Graph
from nnef_grad.targets import TARGETS
from nnef_grad.targets.facts import RUNTIMES, CommonSubset
from nnef_grad.targets.maxima import around_indices


def lacking(graph: Graph, target: str) -> list[str]:
    """The operations that a runtime of the target must not get."""
    common = CommonSubset([RUNTIMES[name] for name in TARGETS[target]])
    if common.has_indices:
        common.keep(around_indices(graph, common.lacks))
    return [op.name for op in graph.operations if common.lacks(op)]
