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
from nnef_grad.graph.names import substitute
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
    kept: list[Operation] = []
    for operation in graph.operations:
        operation = substitute(operation, passed)
        result = operation.outputs[0]
        # Where it chose between a tensor and the same without its gradient.
        is_needless = operation.name == "select" and (
            operation.operands[1] is operation.operands[2]
            and shape_of(operation.operands[1]) == result.shape
        )
        if is_needless and result not in graph.outputs:
            passed[result] = operation.operands[1]
        elif operation.name != STOP:
            kept.append(operation)
        elif result in graph.outputs:
            kept.append(replace(operation, definition=STDLIB["copy"]))
        else:
            passed[result] = operation.operands[0]
    # The text shows whose derivatives others are.
    shown = {
        t: graph.names[x] if isinstance(x, Tensor) else repr(x)
        for t, x in passed.items()
    }
    return replace(graph, operations=tuple(kept), names={**graph.names, **shown})
