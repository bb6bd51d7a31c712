"""Variables that are no parameters: their values or their uses tell.

A document declares what is learned and what a framework calls a buffer in the same way. What
is told here is what no training begins with: a mask, the waves of positions, the number that
fills what is masked, the zeros that a recurrent layer begins with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import LOOP, Graph, Tensor
from nnef_grad.graph.loops import is_loop, loop_of

# The uses of a tensor: the name of an operation, and the place of the operand.
Uses = set[tuple[str, int]]

# What only brings elements to other places.
_ARRANGING = {"copy", "reshape", "squeeze", "unsqueeze", "transpose", "tile", "slice"}
_FILLING: Uses = {("select", 1), ("select", 2)}
# The place of a state that a loop begins with; and how torch-to-nnef labels it, as a loop of
# few steps is unrolled.
_BEGINNING: Uses = {(LOOP, -1)}
_OF_BEGINNING = "_0_init"
# No score comes near: what is added to one of them is a mask.
_MASKED = -1e4
# Positions that are looked at, at least and at most, and the error of a wave.
_FEWEST, _MOST, _TOLERANCE = 5, 64, 1e-3


def buffers(graph: Graph, data: Mapping[str, Array]) -> dict[str, str]:
    """The kind of each variable that is no parameter, by name; its value is among the data,
    by label, if it is known.
    """
    uses, labels, tensors = _uses(graph), graph.labels, graph.tensors
    kinds = {
        name: _kind(label, np.asarray(data[label]), uses[tensors[name]])
        for name, label in labels.items()
        if np.size(data.get(label, ()))
    }
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind(label: str, value: Array, uses: Uses) -> str | None:
    if _is_mask(value):
        return "a mask"
    if _is_of_waves(value):
        return "sines and cosines of positions"
    if value.size == 1 and uses and uses <= _FILLING:
        return "a number that fills what is masked"
    is_state = uses == _BEGINNING or label.endswith(_OF_BEGINNING)
    if is_state and not value.any():
        return "the zeros that a recurrent layer begins with"
    return None


def _uses(graph: Graph) -> dict[Tensor, Uses]:
    """The uses of each tensor, wherever its elements are brought to."""
    uses: dict[Tensor, Uses] = defaultdict(set)
    for tensor in graph.outputs:
        uses[tensor].add(("", 0))
    for op in reversed(graph.operations):
        first = states = len(op.inputs)
        if is_loop(op):
            loop = loop_of(op)
            first = len(loop.full)
            states = first + loop.states
        for place, operand in enumerate(op.inputs):
            if op.name in _ARRANGING:
                uses[operand] |= uses[op.outputs[0]]
            else:
                uses[operand].add((op.name, -1 if first <= place < states else place))
    return uses


def _is_mask(value: Array) -> bool:
    """Whether it is zero or next to minus infinity, or a triangle of ones."""
    if np.min(value) <= _MASKED:
        return bool(np.all((value == 0) | (value <= _MASKED)))
    if value.ndim < 2 or value.shape[-1] == 1 or value.shape[-1] != value.shape[-2]:
        return False
    ones = np.ones(value.shape)
    return bool((value == np.tril(ones)).all() or (value == np.triu(ones)).all())


def _is_of_waves(value: Array) -> bool:
    """Whether it has sines and cosines along an axis, of frequencies that may differ."""
    largest = np.max(np.abs(value))
    if value.ndim < 2 or not 0.5 < largest < 1 + _TOLERANCE:
        return False
    axes = [axis for axis, extent in enumerate(value.shape) if extent >= _FEWEST]
    return any(_are_waves(np.moveaxis(value, axis, 0)[:_MOST]) for axis in axes)


def _are_waves(values: Array) -> bool:
    """Whether f(p - 1) + f(p + 1) = 2 cos(w) f(p), with a frequency w for each column that
    is not zero for all of them.
    """
    columns = values.reshape(len(values), -1).astype(np.float64)
    middle, around = columns[1:-1], columns[:-2] + columns[2:]
    squares = np.maximum((middle * middle).sum(0), np.finfo(np.float64).tiny)
    twice_cosine = (middle * around).sum(0) / squares
    error = np.abs(around - twice_cosine * middle).max(0)
    size = np.abs(columns).max(0)
    is_wave = (error <= _TOLERANCE * size) & (np.abs(twice_cosine) <= 2 + _TOLERANCE)
    return bool(is_wave.all() and (np.abs(twice_cosine) < 1.99).any())
