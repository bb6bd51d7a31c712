"""Errors planted in rules, and whether the check finds them in a network.

python -m support.planted model.nnef  # each rule off by a factor, at full size
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nnef_grad
from nnef_grad.autodiff.rules import Rules

# Given what emits operations, the operation, the gradients of its results and the right
# ones of its operands, wrong ones of these.
Change = Callable[
    [Any, nnef_grad.Operation, Sequence[Any], Sequence[Any]], Sequence[Any]
]

WITHOUT_RULE = {"external", "variable", "constant"}


def planted(operation: str, change: Change, only: str | None = None) -> Rules:
    """Rules of which that for an operation is wrong; or for the only one of these
    operations whose result is called so.
    """
    rules, right = Rules(), Rules().rule(operation)
    assert right is not None, operation
    vjp = right.vjp
    assert vjp is not None, operation

    @rules.vjp(operation)
    def rule(emit: Any, op: nnef_grad.Operation, *gradients: Any) -> Sequence[Any]:
        found = vjp(emit, op, *gradients)
        is_wrong = only is None or emit.called(op.outputs[0]) == only
        return change(emit, op, gradients, found) if is_wrong else found

    return rules


def scaled(factor: float) -> Change:
    """Every gradient off by a factor."""

    def change(
        emit: Any, operation: nnef_grad.Operation, received: Any, right: Sequence[Any]
    ) -> Sequence[Any]:
        return [_times(emit, gradient, factor) for gradient in right]

    return change


def _times(emit: Any, gradient: Any, factor: float) -> Any:
    if isinstance(gradient, (tuple, list)):
        return tuple(_times(emit, item, factor) for item in gradient)
    is_tensor = isinstance(gradient, nnef_grad.Tensor)
    return emit("mul", gradient, factor) if is_tensor else gradient


# ---- In networks ----


def rules_of(graph: nnef_grad.Graph) -> list[str]:
    """The operations of a graph that have a rule; in place of one that is differentiated
    by its body, those of the body.
    """
    names = {operation.name for operation in graph.operations} - WITHOUT_RULE
    without = {name for name in names if Rules().rule(name) is None}
    if without:
        text = nnef_grad.dumps(graph)
        names = set(rules_of(nnef_grad.loads(text, expand=sorted(without))))
    return sorted(names)


def places(graph: nnef_grad.Graph) -> Iterator[tuple[str, str | None]]:
    """Each rule everywhere, and where its operation comes first, by the result."""
    for operation in rules_of(graph):
        yield operation, None
        same = [op for op in graph.operations if op.name == operation]
        if len(same) > 1:
            yield operation, graph.names[same[0].outputs[0]]


def found(
    graph: nnef_grad.Graph, rules: Rules, wrt: str | Sequence[str] = "inputs"
) -> nnef_grad.CheckedGradient:
    """What the check says of the first gradient, by rules that are wrong."""
    backward = nnef_grad.differentiate(graph, wrt=wrt, rules=rules)
    return nnef_grad.check(graph, backward, rules=rules).gradients[0]


def main(path: str) -> None:
    """Plants each error, one after the other."""
    graph = nnef_grad.load(Path(path))
    for operation, only in [("", None), *places(graph)]:
        rules = planted(operation, scaled(1.001), only) if operation else Rules()
        begin = time.process_time()
        result = found(graph, rules)
        seconds = time.process_time() - begin
        what = f"{operation} {only or 'everywhere'}" if operation else "nothing planted"
        told = f"{result.verdict:6} {result.error:.1e}  {seconds:.0f} s"
        print(f"{Path(path).stem}: {what}: {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
