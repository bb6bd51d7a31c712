"""Loops: the shapes of their results. Their derivative is in autodiff/loops.py, since it is
that of another graph.
"""

from __future__ import annotations

from nnef_grad.graph.ir import LOOP, Shape
from nnef_grad.graph.loops import Loop
from nnef_grad.ops.registry import Shapes, require, shape
from nnef_grad.ops.shape import with_extent


@shape(LOOP)
def loop_shape(*operands: Shape, loop: Loop) -> Shapes:
    """The last values of the states, then what is collected."""
    first = len(operands) - len(loop.scanned)
    scanned = list(zip(operands[first:], loop.scanned, strict=True))
    counts = {whole[way.axis] for whole, way in scanned}
    require(len(counts) == 1, "what is scanned must have one number of steps")
    (count,) = counts
    parts = (with_extent(whole, way.axis, 1) for whole, way in scanned)
    seen = [*operands[:first], *parts]
    names = loop.body.names
    for extents, wanted in zip(seen, loop.body.inputs, strict=True):
        message = f"has shape {list(extents)} in place of {list(wanted.shape)}"
        require(extents == wanted.shape, f"'{names[wanted]}' {message}")
    for state, new in zip(loop.state_inputs, loop.next_values, strict=True):
        require(
            (state.dtype, state.shape) == (new.dtype, new.shape),
            f"state '{names[state]}' of type {state.dtype} and shape {list(state.shape)} becomes"
            f" '{names[new]}' of type {new.dtype} and shape {list(new.shape)}",
        )
    results = [new.shape for new in loop.next_values]
    for index, way in loop.collected:
        part = loop.body.outputs[index].shape
        results.append(with_extent(part, way.axis, part[way.axis] * count))
    return results if len(results) != 1 else results[0]
