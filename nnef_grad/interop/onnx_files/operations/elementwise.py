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
        node.emit("cast", x)


@conversion("IsNaN")
def is_nan(node: Node, x: Tensor) -> None:
    """Whether elements differ from themselves. Exporters ask so for rows of a softmax
    that are masked completely: it is not a number there, but here minus infinity is the
    smallest number.
    """
    producer = x.producer
    if producer is None or producer.type != "softmax":
        node.emit("ne", x, x)
        return
    (given,), axes = producer.inputs, producer.attribs["axes"]
    if _has_open_rows(given, axes):
        value = np.zeros(x.shape, np.bool_)
        node.emit("constant", value=value, shape=list(x.shape), dtype=np.bool_)
    else:
        node.emit("is_masked", given, x, axes=axes)


def _has_open_rows(x: Tensor, axes: list[int]) -> bool:
    """Whether no row is masked completely by a constant that is added."""
    made = x.producer
    if made is None or made.type != "Add":
        return False
    masks = [value for value in map(constant, made.inputs) if value is not None]
    if len(masks) != 1:
        return False
    wide = np.broadcast_to(masks[0], x.shape)
    return bool((wide.max(axis=tuple(axes)) > -np.inf).all())


@conversion("Where")
def where(node: Node, condition: Tensor, x: Tensor, y: Tensor) -> None:
    """A choice, or a copy where the condition is the same everywhere."""
    value, rank = constant(condition), node.result.rank
    taken = y if value is not None and not value.any() else x
    is_known = value is not None and value.any() == value.all()
    if is_known and taken.shape == node.result.shape:
        node.emit("copy", taken)
    else:
        node.emit("select", *(node.of_rank(t, rank) for t in (condition, x, y)))


@conversion("Xor")
def xor(node: Node, x: Tensor, y: Tensor) -> None:
    """Whether just one operand holds."""
    node.emit("ne", *(node.of_rank(t, node.result.rank) for t in (x, y)))


@conversion("Mod")
def modulo(node: Node, x: Tensor, y: Tensor) -> None:
    """The remainder: with the sign of the divisor, or with `fmod` of the dividend."""
    name = "remainder" if node.get("fmod", 0) else "modulo"
    node.emit(name, *(node.of_rank(t, node.result.rank) for t in (x, y)))


@conversion("Dropout")
def dropout(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """The identity: dropout has no effect in inference."""
    node.require(not any(node.items("training_mode", 2, 0)), "it must not train")
    node.require(not node.uses(1), "the mask must not be used")
    node.emit("copy", x)
