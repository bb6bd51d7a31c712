"""Element-wise operations; onnx.nnef has those that are formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from nnef_grad.frontends.onnx.narrow import wrapped
from nnef_grad.frontends.onnx.node import FORMULAS, NARROW, Node, onnx_op
from nnef_grad.frontends.values import (
    broadcast_shapes,
    dtype_of,
    is_known,
    is_uniform,
    shape_of,
    without_objects,
)
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.types import LARGEST
from nnef_grad.ops.ranges import INDEX

# Operators that the standard has, too: what reads and what writes files knows these.
UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "neg", "Not": "not",
    "Reciprocal": "rcp", "Relu": "relu", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Sqrt": "sqrt", "Tan": "tan",
    "Tanh": "tanh",
}  # fmt: skip
BINARY = {
    "Add": "add", "And": "and", "Div": "div", "Equal": "eq", "Greater": "gt",
    "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le", "Mul": "mul", "Or": "or",
    "PRelu": "prelu", "Sub": "sub",
}  # fmt: skip
_READ = {**BINARY, "Xor": "ne"}


@onnx_op(*UNARY, *FORMULAS)
def _function(node: Node, x: Any) -> Any:
    return applied(node, node.kind, x, settings_of(node.kind, node.get))


def settings_of(kind: str, setting: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The settings of a function of one operand: each by its name, and its default."""
    defaults = FORMULAS[kind].defaults if kind in FORMULAS else {}
    return {name: setting(name, value) for name, value in defaults.items()}


def applied(node: Node, kind: str, x: Any, settings: Mapping[str, Any]) -> Any:
    """A function of one operand, with its settings."""
    if kind in UNARY:
        return node(UNARY[kind], x)
    return node.expand(kind, x, **settings)


@onnx_op("Identity")
def _identity(node: Node, x: Any) -> Any:
    """The value itself; of a sequence, too."""
    return [x] if isinstance(x, list) else x


@onnx_op(*_READ)
def _binary(node: Node, x: Any, y: Any) -> Any:
    """Before version 7, an attribute says where the second operand begins."""
    is_placed = node.version < 7 and node.get("broadcast", 0)
    if is_placed and "axis" in node.attributes:
        end, rank = len(shape_of(y)), len(shape_of(x))
        after = rank - end - node.along(0, x)
        y = node("unsqueeze", y, axes=list(range(end, end + after)))
    return node(_READ[node.kind], *node.aligned(x, y))


_SEVERAL = {"Max": "max", "Mean": "add", "Min": "min", "Sum": "add"}


@onnx_op(*_SEVERAL)
def _several(node: Node, *operands: Any) -> Any:
    """Any number of operands in ONNX, two in NNEF."""
    name = _SEVERAL[node.kind]
    total = reduce(lambda x, y: node(name, *node.aligned(x, y)), operands)
    return node("div", total, float(len(operands))) if node.kind == "Mean" else total


@onnx_op("Pow")
def _power(node: Node, x: Any, y: Any) -> Any:
    """Powers, of mixed types in ONNX: integers become scalars."""
    power = node("pow", *(node.scalars(v) for v in node.aligned(x, y)))
    return node.converted(power, "integer") if dtype_of(x) == "integer" else power


@onnx_op("Mod")
def _modulo(node: Node, x: Any, y: Any) -> Any:
    """The remainder: with the sign of the divisor, or with `fmod` of the dividend."""
    if all(map(is_known, (x, y))):
        # Of extents with symbols, which are positive.
        return without_objects(np.remainder(*(np.asarray(v, object) for v in (x, y))))
    modulo = "modulo" if dtype_of(x) == "integer" else "scalar_modulo"
    name = "remainder" if node.get("fmod", 0) else modulo
    return node.expand(name, *(node.scalars(v) for v in node.aligned(x, y)))


@onnx_op("Clip")
def _clip(node: Node, x: Any, *_: Any) -> Any:
    """Bounds are attributes before version 11."""
    low, high = node.get("min", node.operand(1)), node.get("max", node.operand(2))
    if low is None:
        return x if high is None else node("min", x, high)
    if high is None:
        return node("max", x, low)
    # In ONNX the upper bound wins where it is the lower one, in NNEF the other one.
    if is_known(low) and is_known(high) and np.all(np.less_equal(low, high)):
        return node("clamp", x, low, high)
    return node("min", node("max", x, low, hint="raised"), high)


@onnx_op("Where")
def _where(node: Node, condition: Any, x: Any, y: Any) -> Any:
    """A choice; or one of both where the condition is the same everywhere."""
    if is_known(condition) and is_uniform(np.asarray(condition)):
        taken = x if np.all(condition) else y
        if shape_of(taken) == broadcast_shapes(*map(shape_of, (condition, x, y))):
            return taken
    return node("select", *node.aligned(condition, x, y))


@onnx_op("IsNaN")
def _is_nan(node: Node, x: Any) -> Any:
    """Whether elements differ from themselves. Exporters ask so for rows of a softmax
    that are masked completely: it is not a number there, but here minus infinity is the
    smallest number.
    """
    softmax = node.reading.emitter.made_by(x, "softmax")
    if softmax is None:
        return node("ne", x, x)
    (given,), axes = softmax.inputs, list(softmax.attributes["axes"])
    if _has_open_rows(node, given, axes):
        node.reading.spend(prod(shape_of(x)))
        return np.zeros(shape_of(x), np.bool_)
    return node.expand("is_masked", given, x, axes=axes)


def _has_open_rows(node: Node, x: Tensor, axes: list[int]) -> bool:
    """Whether no row is masked completely by a constant that is added."""
    made_by = node.reading.emitter.made_by
    added = made_by(x, "add")
    operands = added.inputs if added else ()
    constants = [op for y in operands if (op := made_by(y, "constant")) is not None]
    if len(constants) != 1:
        return False
    shape = constants[0].outputs[0].shape
    values = np.resize(np.array(constants[0].attributes["value"]), shape)
    missing = (1,) * (len(x.shape) - len(shape))
    wide = np.broadcast_to(values.reshape(shape + missing), as_numbers(x.shape))
    return bool((wide.max(axis=tuple(axes)) > -LARGEST).all())


@onnx_op("Cast", "CastLike")
def _cast(node: Node, x: Any, like: Any = None) -> Any:
    dtype = DATA_TYPES.get(node.get("to", 0)) if like is None else dtype_of(like)
    if dtype is None:
        node.refuse("NNEF does not have the data type")
    whole = node.converted(x, dtype)
    bits = NARROW.get(node.get("to", 0))
    is_whole = bits is None or is_known(whole) or _is_index(node, x, *bits)
    return whole if bits is None or is_whole else wrapped(node, x, whole, *bits)


def _is_index(node: Node, x: Any, first: int, count: int) -> bool:
    """Whether what is not known of integers is that they are among some of many bits."""
    return count > INDEX and node.reading.range_of(x).integer_size < first + count


# The data types of NNEF, by the numbers that ONNX has for types.
DATA_TYPES = {
    **dict.fromkeys((1, 10, 11, 16), "scalar"),
    **dict.fromkeys((*range(2, 8), 12, 13), "integer"),
    9: "logical",
}


@onnx_op("Dropout")
def _dropout(node: Node, x: Any, *_: Any) -> Any:
    """The identity: dropout has no effect in inference."""
    is_training = any(node.items("training_mode", 2, 0))
    node.require(not is_training, "it must not be in training mode")
    node.require(not node.uses(1), "the mask must not be used")
    return x
