"""Random values for the inputs and variables of a graph.

They are drawn according to the uses of each tensor, so that operations are defined for
them, and values neither vanish nor explode through many layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.traits import COPYING, FED, MOVING, REGIONS

Array = npt.NDArray[Any]
Generator = np.random.Generator


@dataclass(frozen=True)
class Values:
    """Values for a graph: `inputs` by name, `variables` by label in lower case."""

    inputs: Mapping[str, Array]
    variables: Mapping[str, Array]


def random_values(graph: Graph, seed: int, otherwise: Draw | None = None) -> Values:
    """Values for all inputs and variables.

    Args:
        graph: a flat graph.
        seed: the seed of the random numbers; each tensor has its own sequence.
        otherwise: draws tensors without a decisive use; standard normal by default.
    """
    uses = _uses(graph)
    inputs: dict[str, Array] = {}
    variables: dict[str, Array] = {}
    for index, operation in enumerate(_sources(graph)):
        (tensor,) = operation.outputs
        generator = np.random.default_rng([seed, index])
        value = _value(generator, tensor, uses.get(tensor), otherwise or normal)
        if operation.name == "external":
            inputs[tensor.name] = value
        else:
            label = str(operation.attributes["label"]).lower()
            variables.setdefault(label, value)
    return Values(inputs, variables)


def _sources(graph: Graph) -> Iterator[Operation]:
    return (op for op in graph.operations if op.name in FED)


def _value(generator: Generator, tensor: Tensor, use: Use | None, draw: Draw) -> Array:
    if tensor.dtype == "logical":
        return generator.random(tensor.shape) < 0.5
    if tensor.dtype == "integer":
        most = use.draw(generator, tensor, use.operation) if use else 2
        return generator.integers(0, most, tensor.shape)
    chosen = use.draw if use else draw
    value: Array = chosen(generator, tensor, use.operation if use else None)
    return value


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
    """Scaled by the number of terms of a sum, so that outputs are about as large as
    inputs.
    """
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


def _positions(generator: Generator, tensor: Tensor, operation: Operation) -> int:
    axis = operation.attributes["axis"]
    extent: int = operation.inputs[0].shape[axis]
    return extent


def _elements(generator: Generator, tensor: Tensor, operation: Operation) -> int:
    """An index within a window."""
    return prod(operation.attributes["size"])


def _items(generator: Generator, tensor: Tensor, operation: Operation) -> int:
    """An item of the batch."""
    return operation.inputs[0].shape[0]


_POSITIVE = between(0.5, 1.5)
_NEGATIVE = between(-1.5, -0.5)
_INSIDE_ONE = between(-0.9, 0.9)

# By operation and operand.
_DRAWN: dict[tuple[str, str], Draw] = {
    ("conv", "filter"): _filter,
    ("deconv", "filter"): _filter,
    ("separable_conv", "plane_filter"): _filter,
    ("separable_conv", "point_filter"): _matrix,
    ("separable_deconv", "plane_filter"): _filter,
    ("separable_deconv", "point_filter"): _matrix,
    ("linear", "filter"): _filter,
    ("matmul", "A"): _matrix,
    ("matmul", "B"): _matrix,
    ("batch_normalization", "variance"): _POSITIVE,
    ("batch_normalization", "scale"): _POSITIVE,
    ("log", "x"): _POSITIVE,
    ("log2", "x"): _POSITIVE,
    ("sqrt", "x"): _POSITIVE,
    ("rsqrt", "x"): _POSITIVE,
    ("rcp", "x"): _POSITIVE,
    ("rsqr", "x"): _POSITIVE,
    ("div", "y"): _POSITIVE,
    ("pow", "x"): _POSITIVE,
    ("asin", "x"): _INSIDE_ONE,
    ("acos", "x"): _INSIDE_ONE,
    ("atanh", "x"): _INSIDE_ONE,
    ("tan", "x"): _INSIDE_ONE,
    ("acosh", "x"): between(1.1, 2.0),
    ("clamp", "a"): _NEGATIVE,
    ("clamp", "b"): _POSITIVE,
    ("min_max_linear_quantize", "min"): _NEGATIVE,
    ("min_max_linear_quantize", "max"): _POSITIVE,
    ("linear_quantize", "min"): _NEGATIVE,
    ("linear_quantize", "max"): _POSITIVE,
    ("zero_point_linear_quantize", "scale"): between(0.05, 0.2),
    ("logarithmic_quantize", "max"): _POSITIVE,
    **{(name, "rois"): _regions for name in REGIONS},
    **{(name, "batch_index"): _items for name in REGIONS},
    ("gather", "indices"): _positions,
    ("sample", "index"): _elements,
    ("desample", "index"): _elements,
}


# ---- Uses of tensors ----


@dataclass(frozen=True)
class Use:
    """A use that determines the numbers of a tensor."""

    draw: Draw
    operation: Operation


# The numbers of the result are numbers of the operands.
_MOVES = MOVING | COPYING | {"pad"}
# With a number as the other operand, the result is about as large as the operand.
_SHIFTS = {"add", "mul", "div"}


def _uses(graph: Graph) -> dict[Tensor, Use]:
    """For each tensor the first use that determines it, through operations that only
    move elements.
    """
    uses: dict[Tensor, Use] = {}
    for operation in reversed(graph.operations):
        for operand, draw in _decided(operation):
            uses[operand] = Use(draw, operation)
        inputs = operation.inputs
        if operation.name in _MOVES or (operation.name in _SHIFTS and len(inputs) == 1):
            after = [uses[t] for t in operation.outputs if t in uses]
            for operand in inputs if after else ():
                uses.setdefault(operand, after[0])
    return uses


def _decided(operation: Operation) -> Iterator[tuple[Tensor, Draw]]:
    parameters = operation.definition.operands
    for parameter, operand in zip(parameters, operation.operands, strict=True):
        draw = _DRAWN.get((operation.name, parameter.name))
        if draw is not None and isinstance(operand, Tensor):
            yield operand, draw
