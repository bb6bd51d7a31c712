"""Marks in a graph: a copy that no gradient flows through.

In a text it is a `copy` whose result has a name that says so: `stop_gradient`, or one that
begins with `stop_gradient_`. In a graph it is an operation of its own, so that no pass takes
it for a copy.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from nnef_grad.graph.ir import STOP, Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.graph.loops import with_bodies
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.language.library import STDLIB
from nnef_grad.language.syntax import Fragment

_NAME = re.compile(rf"{STOP}(_\w+)?")


@cache
def stop_definition() -> Fragment:
    """The declaration of the operation."""
    return replace(STDLIB["copy"], name=STOP)


def says_stop(name: str) -> bool:
    """Whether the copy with this name lets no gradient through."""
    return _NAME.fullmatch(name) is not None


def without_stops(graph: Graph) -> Graph:
    """The graph for those that do not differentiate it: without the marks, in loops too."""
    graph = with_bodies(graph, without_stops)
    if all(operation.name != STOP for operation in graph.operations):
        return graph
    passed: dict[Tensor, Operand] = {}

    def unmarked(operation: Operation) -> Fate:
        result = operation.outputs[0]
        # Where it chose between a tensor and the same without its gradient.
        is_needless = operation.name == "select" and (
            operation.operands[1] is operation.operands[2]
            and shape_of(operation.operands[1]) == result.shape
        )
        if not is_needless and operation.name != STOP:
            return operation
        if result in graph.outputs:
            copy = replace(operation, definition=STDLIB["copy"])
            return operation if is_needless else copy
        passed[result] = operation.operands[1 if is_needless else 0]
        return {result: passed[result]}

    graph = sweep(graph, unmarked)
    # The text shows whose derivatives others are.
    shown = {
        t: graph.names[x] if isinstance(x, Tensor) else repr(x)
        for t, x in passed.items()
    }
    return replace(graph, names={**graph.names, **shown})
