"""Element-wise operations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.tract.operations.inputs import DTYPES
from nnef_grad.frontends.values import (
    broadcast_shapes,
    dtype_of,
    is_known,
    shape_of,
    without_objects,
)
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.library import standard

# Operations of the standard, or fragments, and their attributes with the defaults of ONNX.
FUNCTIONS: dict[str, tuple[str, dict[str, float]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "Erf": ("erf", {}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Mish": ("mish", {}),
    "Reciprocal": ("rcp", {}),
    "Round": ("round_even", {}),
    "Selu": ("scaled_elu", {"alpha": 1.67326319, "gamma": 1.05070102}),
    "Shrink": ("shrink", {"lambd": 0.5, "bias": 0.0}),
    "Softsign": ("softsign", {}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}
# Those that NNEF calls the same, but in small letters.
_SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Exp",
    "Floor", "Log", "Neg", "Not", "Relu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Sqrt", "Tan", "Tanh",
)  # fmt: skip
FUNCTIONS |= {kind: (kind.lower(), {}) for kind in _SAME}


@onnx_op(*FUNCTIONS)
def function(node: Node, x: Any) -> Any:
    """A function of one operand."""
    defaults = FUNCTIONS[node.kind][1]
    settings = {name: node.get(name, value) for name, value in defaults.items()}
    return applied(node, node.kind, settings, x)


def applied(node: Node, kind: str, settings: Mapping[str, float], x: Any) -> Any:
    """A function of one operand, with its settings."""
    name = FUNCTIONS[kind][0]
    emit: Any = node if name in standard() else node.expand
    return emit(name, x, **settings)


@onnx_op("Identity")
def identity(node: Node, x: Any) -> Any:
    """The value itself; of a sequence, too."""
    return [x] if isinstance(x, list) else x


@onnx_op("PRelu")
def prelu(node: Node, x: Any, slope: Any) -> Any:
    """x, or a slope times x where it is negative."""
    return node("prelu", *node.aligned(x, slope))


@onnx_op("Gelu")
def gelu(node: Node, x: Any) -> Any:
    """x * P(X <= x), or its approximation."""
    if node.get("approximate", "none") == "tanh":
        return node.expand("gelu_by_tanh", x)
    return node("gelu", x)


_BINARY = {
    "Add": "add", "And": "and", "Div": "div", "Equal": "eq", "Greater": "gt",
    "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le", "Mul": "mul", "Or": "or",
    "Sub": "sub", "Xor": "ne",
}  # fmt: skip


@onnx_op(*_BINARY)
def binary(node: Node, x: Any, y: Any) -> Any:
    """An operation of two operands."""
    return node(_BINARY[node.kind], *_placed(node, x, y))


def _placed(node: Node, x: Any, y: Any) -> list[Any]:
    """Operands with axes in the same places: before version 7 an attribute says where the
    second one begins.
    """
    if (
        node.version >= 7
        or not node.get("broadcast", 0)
        or "axis" not in node.attributes
    ):
        return node.aligned(x, y)
    rank = len(shape_of(x))
    after = rank - len(shape_of(y)) - node.axis(node.get("axis", 0), rank)
    end = len(shape_of(y))
    return node.aligned(x, node("unsqueeze", y, axes=list(range(end, end + after))))


_SEVERAL = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}


@onnx_op(*_SEVERAL)
def several(node: Node, *operands: Any) -> Any:
    """Any number of operands in ONNX, two in NNEF."""
    name = _SEVERAL[node.kind]
    made = reduce(lambda x, y: node(name, *node.aligned(x, y)), operands)
    return node("div", made, float(len(operands))) if node.kind == "Mean" else made


@onnx_op("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(node: Node, *_: Any) -> Any:
    """Only of known integers."""
    node.refuse("NNEF has no operations on bits")


@onnx_op("Pow")
def power(node: Node, x: Any, y: Any) -> Any:
    """Powers, of mixed types in ONNX: integers become scalars."""
    made = node("pow", *(node.scalars(v) for v in node.aligned(x, y)))
    is_whole = dtype_of(x) == "integer"
    if not is_whole:
        return made
    return node.reading.converted(made, "integer", node.hint, node.span)


@onnx_op("Mod")
def modulo(node: Node, x: Any, y: Any) -> Any:
    """The remainder: with the sign of the divisor, or with `fmod` of the dividend."""
    if all(map(is_known, (x, y))):
        # Of extents with symbols, which are positive.
        return without_objects(np.remainder(*(np.asarray(v, object) for v in (x, y))))
    is_whole = dtype_of(x) == "integer"
    name = "remainder" if node.get("fmod", 0) else "modulo"
    made = node.expand(name, *(node.scalars(v) for v in node.aligned(x, y)))
    return node("cast", made, dtype="integer") if is_whole else made


@onnx_op("Clip")
def clip(node: Node, x: Any, *_: Any) -> Any:
    """Bounds are attributes before version 11."""
    low, high = (
        node.operand(place) if name not in node.attributes else node.get(name, 0.0)
        for name, place in (("min", 1), ("max", 2))
    )
    if low is None and high is None:
        return x
    if low is None:
        return node("min", x, high)
    if high is None:
        return node("max", x, low)
    # In ONNX the upper bound wins where it is the lower one, in NNEF the other one.
    if is_known(low) and is_known(high) and np.all(np.less_equal(low, high)):
        return node("clamp", x, low, high)
    return node("min", node("max", x, low, hint="raised"), high)


@onnx_op("Where")
def where(node: Node, condition: Any, x: Any, y: Any) -> Any:
    """A choice; or one of both where the condition is the same everywhere."""
    shape = broadcast_shapes(*map(shape_of, (condition, x, y)))
    if is_known(condition) and np.size(condition):
        value = np.asarray(condition)
        taken = x if value.all() else y
        if value.any() == value.all() and shape_of(taken) == shape:
            return taken
    return node("select", *node.aligned(condition, x, y))


@onnx_op("IsInf")
def is_infinite(node: Node, x: Any) -> Any:
    """Whether elements are beyond the largest number."""
    sides = node.get("detect_positive", 1), node.get("detect_negative", 1)
    return node.expand("is_inf", x, above=bool(sides[0]), below=bool(sides[1]))


@onnx_op("IsNaN")
def is_nan(node: Node, x: Any) -> Any:
    """Whether elements differ from themselves. Exporters ask so for rows of a softmax
    that are masked completely: it is not a number there, but here minus infinity is the
    smallest number.
    """
    made = node.reading.emitter.made_by(x, "softmax")
    if made is None:
        return node("ne", x, x)
    (given,), axes = made.inputs, list(made.attributes["axes"])
    if _has_open_rows(node, given, axes):
        return np.zeros(shape_of(x), np.bool_)
    return node.expand("is_masked", given, x, axes=axes)


def _has_open_rows(node: Node, x: Tensor, axes: list[int]) -> bool:
    """Whether no row is masked completely by a constant that is added."""
    made_by = node.reading.emitter.made_by
    added = made_by(x, "add")
    found = [made_by(operand, "constant") for operand in added.inputs] if added else []
    constants = [made for made in found if made is not None]
    if len(constants) != 1:
        return False
    (made,) = constants
    shape = made.outputs[0].shape
    values = np.resize(np.array(made.attributes["value"]), shape)
    missing = (1,) * (len(x.shape) - len(shape))
    wide = np.broadcast_to(values.reshape(shape + missing), x.shape)
    return bool((wide.max(axis=tuple(axes)) > -1e38).all())


@onnx_op("Cast", "CastLike")
def cast(node: Node, x: Any, like: Any = None) -> Any:
    """A conversion; scalars are truncated to integers."""
    dtype = (
        dtype_of(like) if node.kind == "CastLike" else DATA_TYPES.get(node.get("to", 0))
    )
    if dtype is None:
        node.refuse("NNEF does not have the data type")
    return node.reading.converted(x, dtype, node.hint, node.span)


_NAMES = {1: "f32", 10: "f16", 11: "f64", 9: "bool", 2: "u8", 3: "i8", 4: "u16", 5: "i16",
          6: "i32", 7: "i64", 12: "u32", 13: "u64"}  # fmt: skip
# The data types of NNEF, by the numbers that ONNX has for types.
DATA_TYPES = {**{number: DTYPES[name] for number, name in _NAMES.items()}, 16: "scalar"}


@onnx_op("Dropout")
def dropout(node: Node, x: Any, *_: Any) -> Any:
    """The identity: dropout has no effect in inference."""
    node.require(
        not any(node.items("training_mode", 2, 0)), "it must not be in training mode"
    )
    node.require(not node.uses(1), "the mask must not be used")
    return x
