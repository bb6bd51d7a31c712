"""Loops: the shapes of their results. Their derivative is in autodiff/loops.py, since it is
that of another graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.graph.ir import LOOP, Shape
from nnef_grad.graph.loops import Loop, Way
from nnef_grad.ops.registry import Shapes, require, shape
from nnef_grad.ops.shape import with_extent


@shape(LOOP)
def loop_shape(*operands: Shape, loop: Loop) -> Shapes:
    """The last values of the states, then what is collected."""
    whole = len(operands) - len(loop.scanned)
    count = _steps(operands[whole:], loop.scanned)
    seen = [
        *operands[:whole],
        *(_part(s, way) for s, way in zip(operands[whole:], loop.scanned, strict=True)),
    ]
    names = loop.body.names
    for given, wanted in zip(seen, loop.body.inputs, strict=True):
        found = f"has shape {list(given)} in place of {list(wanted.shape)}"
        require(given == wanted.shape, f"'{names[wanted]}' {found}")
    for state, new in zip(loop.state_inputs, loop.next_values, strict=True):
        require(
            (state.dtype, state.shape) == (new.dtype, new.shape),
            f"state '{names[state]}' of type {state.dtype} and shape {list(state.shape)} becomes"
            f" '{names[new]}' of type {new.dtype} and shape {list(new.shape)}",
        )
    results = [
        *(new.shape for new in loop.next_values),
        *(_whole(loop.body.outputs[i].shape, way, count) for i, way in loop.collected),
    ]
    return results if len(results) != 1 else results[0]


def _steps(shapes: Sequence[Shape], ways: Sequence[Way]) -> int:
    counts = {s[way.axis] for s, way in zip(shapes, ways, strict=True)}
    require(len(counts) == 1, "what is scanned must have one number of steps")
    return counts.pop()


def _part(whole: Shape, way: Way) -> Shape:
    return with_extent(whole, way.axis, 1)


def _whole(part: Shape, way: Way, count: int) -> Shape:
    return with_extent(part, way.axis, part[way.axis] * count)
