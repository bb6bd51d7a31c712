"""Random values for the inputs and variables of a graph.

They are drawn according to the uses of each tensor, so that operations are defined for
them, and values neither vanish nor explode through many layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.language.labels import label_key
from nnef_grad.ops.traits import COPYING, FED, MOVING, REGIONS

Generator = np.random.Generator


@dataclass(frozen=True)
class Values:
    """Values for a graph: `inputs` by name, `variables` by label in lower case."""

    inputs: Mapping[str, Array]
    variables: Mapping[str, Array]


def random_values(graph: Graph, seed: int, otherwise: Draw | None = None) -> Values:
    """Values of inputs and variables; `otherwise` draws where no use decides."""
    uses = _uses(graph)
    inputs: dict[str, Array] = {}
    variables: dict[str, Array] = {}
    sources = (operation for operation in graph.operations if operation.name in FED)
    for index, operation in enumerate(sources):
        (tensor,) = operation.outputs
        generator = np.random.default_rng([seed, index])
        value = _value(generator, tensor, uses.get(tensor), otherwise or normal)
        if operation.name == "external":
            inputs[graph.names[tensor]] = value
        else:
            variables.setdefault(label_key(str(operation.attributes["label"])), value)
    return Values(inputs, variables)


def _value(
    generator: Generator, tensor: Tensor, use: Use | None, otherwise: Draw
) -> Any:
    if tensor.dtype == "logical":
        # Half of them: where all are alike, a branch might not be looked at.
        shape = as_numbers(tensor.shape)
        return generator.permutation(prod(shape)).reshape(shape) % 2 == 0
    draw, operation = use or (otherwise, None)
    if tensor.dtype == "integer":
        most = draw(generator, tensor, operation) if use else 2
        return generator.integers(0, most, tensor.shape)
    return draw(generator, tensor, operation)


# ---- Distributions ----

# Draws numbers for a tensor, given the operation that uses it; for an integer tensor it
# returns their upper bound.
Draw = Callable[[Generator, Tensor, Any], Any]


def normal(generator: Generator, tensor: Tensor, operation: Any) -> Array:
    """Standard normal numbers."""
    return generator.standard_normal(tensor.shape)


def between(low: float, high: float) -> Draw:
    """Uniform numbers in a range."""

    def draw(generator: Generator, tensor: Tensor, operation: Any) -> Array:
        return generator.uniform(low, high, tensor.shape)

    return draw


def _filter(generator: Generator, tensor: Tensor, operation: Operation) -> Array:
    """Scaled by the number of terms, so that outputs are about as large as inputs."""
    shape = operation.inputs[1].shape
    terms = shape[0] if operation.name == "deconv" else prod(shape[1:])
    return generator.standard_normal(tensor.shape) * sqrt(2.0 / max(terms, 1))


def _matrix(generator: Generator, tensor: Tensor, operation: Operation) -> Array:
    """As for a filter; the terms are rows or columns."""
    terms = max(tensor.shape[-2:], default=1)
    return generator.standard_normal(tensor.shape) / sqrt(terms)


def _regions(generator: Generator, tensor: Tensor, operation: Operation) -> Array:
    """Corners of regions that lie inside the input, the first before the last."""
    extents = operation.inputs[0].shape[2:]
    corners = np.sort(generator.random((tensor.shape[0], 2, len(extents))), axis=1)
    regions: Array = (corners * np.array(extents)).reshape(tensor.shape)
    return regions


# Operands, as operation.operand, and what draws them.
_TABLE: dict[str, Draw] = {
    "conv.filter deconv.filter linear.filter": _filter,
    "separable_conv.plane_filter separable_deconv.plane_filter": _filter,
    "separable_conv.point_filter separable_deconv.point_filter": _matrix,
    "matmul.A matmul.B": _matrix,
    "log.x log2.x sqrt.x rsqrt.x rcp.x rsqr.x div.y pow.x clamp.b": between(0.5, 1.5),
    "batch_normalization.variance batch_normalization.scale": between(0.5, 1.5),
    "min_max_linear_quantize.max linear_quantize.max": between(0.5, 1.5),
    "logarithmic_quantize.max": between(0.5, 1.5),
    "min_max_linear_quantize.min linear_quantize.min clamp.a": between(-1.5, -0.5),
    "zero_point_linear_quantize.scale": between(0.05, 0.2),
    "asin.x acos.x atanh.x tan.x": between(-0.9, 0.9),
    "acosh.x": between(1.1, 2.0),
    " ".join(f"{name}.rois" for name in REGIONS): _regions,
    " ".join(f"{name}.batch_index" for name in REGIONS): (
        lambda generator, tensor, operation: operation.inputs[0].shape[0]
    ),
    "gather.indices": (
        lambda generator, tensor, operation: operation.inputs[0].shape[
            operation.attributes["axis"]
        ]
    ),
    # An index within a window.
    "sample.index desample.index": (
        lambda generator, tensor, operation: prod(operation.attributes["size"])
    ),
}
_DRAWN = {operand: draw for row, draw in _TABLE.items() for operand in row.split()}


# ---- Uses of tensors ----

# A use that determines the numbers of a tensor.
Use = tuple["Draw", Operation]

# The numbers of the result are numbers of the operands.
_MOVES = MOVING | COPYING | {"pad"}
# With a number as the other operand, the result is about as large as the operand.
_SHIFTS = {"add", "mul", "div"}


def _uses(graph: Graph) -> dict[Tensor, Use]:
    """The first use that determines each tensor, through what only moves elements."""
    uses: dict[Tensor, Use] = {}
    for operation in reversed(graph.operations):
        parameters = operation.definition.operands
        for parameter, operand in zip(parameters, operation.operands, strict=True):
            draw = _DRAWN.get(f"{operation.name}.{parameter.name}")
            if draw is not None and isinstance(operand, Tensor):
                uses[operand] = draw, operation
        inputs = operation.inputs
        if operation.name in _MOVES or (operation.name in _SHIFTS and len(inputs) == 1):
            after = [uses[t] for t in operation.outputs if t in uses]
            for operand in inputs if after else ():
                uses.setdefault(operand, after[0])
    return uses
