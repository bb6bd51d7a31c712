"""Element-wise operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.interop.khronos import dtype_name
from nnef_grad.interop.onnx_files.node import Node, Tensor, constant, conversion

# The operation in NNEF, and its attributes with their defaults in ONNX.
_UNARY: dict[str, tuple[str, dict[str, Any]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "Erf": ("erf", {}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "Mish": ("mish", {}),
    "Reciprocal": ("rcp", {}),
    "Selu": ("selu", {"alpha": 1.67326319, "gamma": 1.05070102}),
    "Softsign": ("softsign", {}),
    "SpaceToDepth": ("space_to_depth", {"blocksize": None}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}

# Attributes with another name in NNEF.
_ATTRIBUTES = {"gamma": "lambda", "blocksize": "block"}


@conversion(*_UNARY)
def unary(node: Node, x: Tensor) -> None:
    """An activation or another unary function."""
    name, defaults = _UNARY[node.kind]
    given = {_ATTRIBUTES.get(k, k): node.get(k, v) for k, v in defaults.items()}
    node.emit(name, x, **given)


@conversion("Gelu")
def gelu(node: Node, x: Tensor) -> None:
    """x * P(X <= x), or its approximation."""
    names = {"none": "gelu", "tanh": "gelu_by_tanh"}
    node.emit(names[node.get("approximate", "none")], x)


@conversion("Clip")
def clip(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Bounds are attributes before version 11."""
    low, high = _bound(node, "min", 1), _bound(node, "max", 2)
    name = "copy" if low is None else "max"
    if high is not None:
        name = "min" if low is None else "clamp"
    node.emit(name, x, low, high)


def _bound(node: Node, name: str, place: int) -> Tensor | None:
    value = node.get(name, None)
    return node.operand(place) if value is None else node.literal(value)


_PAIRWISE = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}


@conversion(*_PAIRWISE)
def pairwise(node: Node, x: Tensor, *others: Tensor) -> None:
    """Any number of operands in ONNX, two in NNEF."""
    for y in others:
        shape = np.broadcast_shapes(x.shape, y.shape)
        pair = [node.of_rank(operand, len(shape)) for operand in (x, y)]
        x = node.tensor(shape, node.result.dtype)
        node.emit(_PAIRWISE[node.kind], *pair, results=(x,))
    if node.kind == "Mean":
        node.emit("div", x, node.literal(1 + len(others)))
    else:
        node.emit("copy", x)


@conversion("Pow")
def power(node: Node, x: Tensor, y: Tensor) -> None:
    """Powers, of mixed types in ONNX: integer constants become scalars."""
    base = node.of_rank(x, node.result.rank)
    value = constant(y) if np.dtype(y.dtype).kind in "iu" else None
    exponent = y if value is None else node.literal(value)
    node.emit("pow", base, node.of_rank(exponent, node.result.rank))


@conversion("Cast")
def cast(node: Node, x: Tensor) -> None:
    """Casts; scalars are truncated to integers."""
    dtype = node.result.dtype
    given, made = map(dtype_name, (x.dtype, dtype))
    if given == made:
        node.emit("copy", x)
    elif (given, made) == ("scalar", "integer"):
        node.emit("truncate", x)
    else:
        node.emit("cast", x, dtype=dtype)


@conversion("Dropout")
def dropout(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """The identity: dropout has no effect in inference."""
    node.require(not any(node.items("training_mode", 2, 0)), "it must not train")
    node.require(not node.uses(1), "the mask must not be used")
    node.emit("copy", x)
