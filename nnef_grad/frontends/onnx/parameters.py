"""Warnings about initializers whose gradients are not those of one parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import onnx

from nnef_grad.base.errors import Problem
from nnef_grad.frontends.values import Array, is_uniform

# Operands that are measured, not learned: the moments of a batch normalization.
_MEASURED = {("BatchNormalization", 3), ("BatchNormalization", 4)}

# Numbers below this one are those of masks.
_MASKED = -1e30

_SHOWN = 3


# A node that reads a tensor: its operation, and the place of the operand.
Use = tuple[str, int]


def warnings(graph: Any, value: Callable[[Any], Array]) -> list[Problem]:
    """Warnings about initializers, for users who train the graph."""
    scalars = [i for i in graph.initializer if _is_float(i)]
    uses = _uses(graph.node)
    return [
        Problem(message)
        for message in chain(
            _numbers(scalars),
            _merged(scalars, uses, value),
            _no_parameters(scalars, uses, value),
        )
    ]


def _is_float(initializer: Any) -> bool:
    kind = onnx.helper.tensor_dtype_to_np_dtype(initializer.data_type)
    return bool(kind.kind == "f")


def _uses(nodes: Iterable[Any]) -> dict[str, list[Use]]:
    """The uses of each tensor, and of its copies."""
    uses: dict[str, list[Use]] = defaultdict(list)
    for node in reversed(list(nodes)):
        for place, name in enumerate(node.input):
            is_copy = node.op_type == "Identity"
            uses[name] += uses[node.output[0]] if is_copy else [(node.op_type, place)]
    return uses


def _numbers(scalars: Iterable[Any]) -> Iterator[str]:
    for scalar in scalars:
        if not scalar.dims:
            yield f"'{scalar.name}' becomes a number, which has no gradient"


def _merged(
    scalars: Iterable[Any], uses: dict[str, list[Use]], value: Callable[[Any], Array]
) -> Iterator[str]:
    """Exporters merge parameters of equal values, such as all biases that are zero."""
    for vector in scalars:
        found = uses[vector.name]
        if len(vector.dims) != 1 or len(found) < 2 or _MEASURED.issuperset(found):
            continue
        array = value(vector)
        if len(set(found)) > 1 or is_uniform(array):
            kinds = sorted({kind for kind, _ in found})
            named = " and ".join(f"'{kind}'" for kind in kinds)
            yield (
                f"'{vector.name}' is read {len(found)} times, by {named}: if an exporter has"
                " merged parameters of equal values, its gradient is the sum of theirs;"
                " export the network with different values"
            )


def _no_parameters(
    scalars: Iterable[Any], uses: dict[str, list[Use]], value: Callable[[Any], Array]
) -> Iterator[str]:
    names = [
        i.name for i in scalars if i.dims and _is_no_parameter(uses[i.name], i, value)
    ]
    if names:
        more = len(names) - _SHOWN
        shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
        counted = f"{shown} and {more} more" if more > 0 else shown
        yield (
            f"statistics or masks, not parameters: {counted}; use wrt to leave out their"
            " gradients"
        )


def _is_no_parameter(
    uses: list[Use], initializer: Any, value: Callable[[Any], Array]
) -> bool:
    if uses and _MEASURED.issuperset(uses):
        return True
    array = value(initializer)
    return array.size > 0 and float(np.min(array)) < _MASKED
