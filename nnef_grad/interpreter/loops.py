"""Loops: their bodies are applied to one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import LOOP, Graph
from nnef_grad.graph.loops import Loop, Way
from nnef_grad.interpreter.registry import evaluation

Apply = Callable[[Graph, Sequence[Array]], "list[Array]"]


@evaluation(LOOP)
def scan(*operands: Array, loop: Loop, apply: Apply) -> Any:
    """The last values of states, then what was collected; `apply` evaluates bodies."""
    whole = len(operands) - len(loop.scanned)
    full, states = operands[: len(loop.full)], list(operands[len(loop.full) : whole])
    ways = list(zip(operands[whole:], loop.scanned, strict=True))
    outputs: list[list[Array]] = []
    for step in range(ways[0][0].shape[ways[0][1].axis]):
        parts = [_part(x, way, step) for x, way in ways]
        outputs.append(apply(loop.body, [*full, *states, *parts]))
        states = outputs[-1][: loop.states]
    gathered = [
        np.concatenate([o[i] for o in outputs][:: way.direction], way.axis)
        for i, way in loop.collected
    ]
    results = [*states, *gathered]
    return results if len(results) > 1 else results[0]


def _part(x: Array, way: Way, step: int) -> Array:
    count = x.shape[way.axis]
    place = step if way.direction > 0 else count - 1 - step
    return x.take([place], way.axis)
