"""Sums over the steps of a loop that are computed after it, at once.

    loop:  w' = w + transpose(h) * d        after it:  w = transpose(H) * D

The gradient of a weight is a sum over all steps of products. Where the loop collects the
factors, H and D, it is one product, which is longer: a step has nothing to add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from nnef_grad.autodiff.loop_draft import LoopDraft, Results, Stack
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import RESHAPING

# Emits a sum, given the results of the loop.
Total = Callable[[Emitter, Results], Tensor]
Plan = Callable[[LoopDraft, Operation], Total | None]


def plan_sums(draft: LoopDraft, tensors: Iterable[Tensor]) -> dict[Tensor, Total]:
    """The sums of some tensors of the body over all steps; those that are
    not found here are added up by the loop, and are among its results.
    """
    totals = {}
    for tensor in tensors:
        total = _total(draft, tensor)
        if total is None:
            draft.add_up(tensor)
        else:
            totals[tensor] = total
    return totals


def _total(draft: LoopDraft, tensor: Tensor) -> Total | None:
    """The sum of a tensor of the body over all steps, if it is better computed after it."""
    stack = draft.stacked(tensor)
    if stack is not None:
        return _summed(stack, tensor.shape, ())
    made = draft.emit.producer(tensor)
    plan = None if made is None else _PLANS.get(made.name)
    return None if made is None or plan is None else plan(draft, made)


def _summed(stack: Stack, shape: Shape, axes: Iterable[int]) -> Total:
    """The sum over all steps, and over axes that stay."""
    summed = [0, *(axis + 1 for axis in axes)]

    def total(emit: Emitter, results: Results) -> Tensor:
        rows = _rows(emit, stack, results, shape)
        return emit("squeeze", emit("sum_reduce", rows, axes=summed), axes=[0])

    return total


def _rows(emit: Emitter, stack: Stack, results: Results, part: Shape) -> Tensor:
    """The values at all steps, side by side along a new first axis."""
    whole, axis = stack.find(results), stack.axis
    if axis:
        others = [other for other in range(whole.rank) if other != axis]
        whole = emit("transpose", whole, axes=[axis, *others], hint="steps")
    return reshaped(emit, whole, (whole.shape[0], *part), hint="steps")


def _sum_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A sum over axes: they are summed together with the steps."""
    (x,) = op.inputs
    stack = None if op.attributes["normalize"] else draft.stack(x)
    return None if stack is None else _summed(stack, x.shape, op.attributes["axes"])


def _multiply_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A product of matrices: the axis that it sums is as long as that of all steps."""
    left, right = op.inputs
    if prod(left.shape[:-2]) != 1 or prod(right.shape[:-2]) != 1:
        return None
    stacks = draft.stack(left), draft.stack(right)
    lasts = not op.attributes["transposeA"], op.attributes["transposeB"]
    (result,) = op.outputs

    def total(emit: Emitter, results: Results) -> Tensor:
        columns = [
            _columns(emit, _rows(emit, stack, results, tensor.shape[-2:]), is_last)
            for stack, tensor, is_last in zip(stacks, op.inputs, lasts, strict=True)
            if stack is not None
        ]
        product = emit("matmul", *columns, transposeA=True)
        return reshaped(emit, product, result.shape)

    return None if None in stacks else total


def _columns(emit: Emitter, rows: Tensor, is_last: bool) -> Tensor:
    """Matrices below each other, as one whose rows are summed; these were the last axis."""
    if is_last:
        rows = emit("transpose", rows, axes=[0, 2, 1])
    count, height, width = rows.shape
    return reshaped(emit, rows, (count * height, width), hint="rows")


def _apply_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A linear operation, of the sum of its operand."""
    (x,) = op.inputs
    inner = _total(draft, x)
    if inner is None:
        return None

    def total(emit: Emitter, results: Results) -> Tensor:
        return emit(op.name, inner(emit, results), **op.settings)

    return total


_PLANS: dict[str, Plan] = {
    "matmul": _multiply_later,
    "sum_reduce": _sum_later,
    **dict.fromkeys((*RESHAPING, "transpose", "neg", "copy"), _apply_later),
}
