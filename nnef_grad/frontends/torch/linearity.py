"""Whether a backward function is linear in the gradients that it gets, as a derivative is."""

from __future__ import annotations

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.linear import is_linear

ADVICE = "allow_own_backward=True differentiates its forward computation"


def refuse_other_than_linear(graph: Graph, count: int, function: str) -> None:
    """Raises an error, if results are not linear in the first inputs: no derivative is."""
    linear, others = {*graph.inputs[:count]}, set[Tensor]()
    for op in graph.operations:
        depends = not (linear | others).isdisjoint(op.inputs)
        is_right = is_linear(op, linear) and others.isdisjoint(op.inputs)
        if is_right if depends else _is_zero(op):
            linear.update(op.outputs)
        elif depends:
            others.update(op.outputs)
    if not linear.issuperset(graph.outputs):
        message = f"the backward function of '{function}' is not known to be linear"
        raise UnsupportedError(f"{message} in the gradients: {ADVICE}")


def _is_zero(op: Operation) -> bool:
    return op.name == "constant" and {*op.settings["value"]} <= {0.0}
