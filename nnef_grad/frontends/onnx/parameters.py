"""Warnings about initializers whose gradients are not those of one parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import Problem, listed
from nnef_grad.frontends.values import is_uniform

# Operands that are measured, not learned: the moments of a batch normalization.
_MEASURED = {("BatchNormalization", 3), ("BatchNormalization", 4)}

# Numbers below this one are those of masks.
_MASKED = -1e30


def warnings(graph: Any, arrays: Mapping[str, Array]) -> list[Problem]:
    """Warnings about initializers, for users who train the graph."""
    scalars = {name: x for name, x in arrays.items() if x.dtype.kind == "f"}
    numbers = [name for name, x in scalars.items() if not x.ndim]
    uses = _uses(graph.node)
    messages = []
    if numbers:
        becomes = (
            "become numbers, which have"
            if numbers[1:]
            else "becomes a number, which has"
        )
        messages.append(f"{listed(numbers)} {becomes} no gradient")
    messages += _merged(scalars, uses)
    names = [n for n, x in scalars.items() if x.ndim and _is_other(uses[n], x)]
    if names:
        what, advice = (
            "statistics or masks, not parameters",
            "to leave out their gradients",
        )
        messages.append(f"{what}: {listed(names)}; use wrt {advice}")
    return [Problem(message) for message in messages]


# For each tensor the nodes that read it or a copy of it: the operation, and the place of
# the operand.
_Uses = dict[str, list[tuple[str, int]]]


def _uses(nodes: Iterable[Any]) -> _Uses:
    uses: _Uses = defaultdict(list)
    for node in reversed(list(nodes)):
        for place, name in enumerate(node.input):
            is_copy = node.op_type == "Identity"
            uses[name] += uses[node.output[0]] if is_copy else [(node.op_type, place)]
    return uses


def _merged(scalars: Mapping[str, Array], uses: _Uses) -> Iterator[str]:
    """Exporters merge parameters of equal values, such as all biases that are zero. An
    untrained network has one of each size.
    """
    found = []
    for name, array in scalars.items():
        readers = uses[name]
        if array.ndim != 1 or len(readers) < 2 or _MEASURED.issuperset(readers):
            continue
        if len(set(readers)) > 1 or is_uniform(array):
            kinds = sorted({kind for kind, _ in readers})
            named = " and ".join(f"'{kind}'" for kind in kinds)
            found.append(f"'{name}' is read {len(readers)} times, by {named}")
    if found:
        more = f", and {len(found) - 1} more" if found[1:] else ""
        yield (
            f"{found[0]}{more}: if an exporter has merged parameters of equal values, its"
            " gradient is the sum of theirs; export the network with different values"
        )


def _is_other(uses: list[tuple[str, int]], array: Array) -> bool:
    """Whether it is a statistic or a mask."""
    if uses and _MEASURED.issuperset(uses):
        return True
    return array.size > 0 and float(np.min(array)) < _MASKED
