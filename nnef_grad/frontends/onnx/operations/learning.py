"""Operators of ai.onnx.ml that have gradients: what converters make of scaling, linear models
and kernel machines of scikit-learn. Trees are constant between their thresholds.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import linear
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.validity import LEARNING
from nnef_grad.frontends.values import shape_of


def _rows(node: Node, x: Any) -> Any:
    """A row for each example; a vector is one row."""
    return node.reshaped(x, [1, *shape_of(x)]) if len(shape_of(x)) == 1 else x


def _array(node: Node, name: str, *shape: int) -> Array:
    """Numbers of an attribute, in a shape."""
    numbers = np.asarray(node.get(name, []), np.float32)
    node.require(numbers.size > 0, f"{name} is missing")
    return numbers.reshape(shape) if shape else numbers


def _parameter(node: Node, name: str, *shape: int) -> Any:
    """A variable for the numbers of an attribute, called after the result and the attribute."""
    array = _array(node, name, *shape)
    return node.reading.variable(f"{node.proto.output[-1]}_{name}", array)


def _post(node: Node, scores: Any) -> Any:
    """Scores as the operator returns them."""
    kind = node.get("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return node("sigmoid", scores)
    node.require(kind == "SOFTMAX", f"the transformation {kind} is not supported")
    return node("softmax", scores, axes=[1])


@onnx_op(f"{LEARNING}.Scaler")
def _scaled(node: Node, x: Any) -> Any:
    """(x - offset) * scale, of each feature."""
    centered = node("sub", *node.aligned(node.scalars(x), _array(node, "offset")))
    return node("mul", *node.aligned(centered, _array(node, "scale")))


@onnx_op(f"{LEARNING}.Imputer")
def _imputed(node: Node, x: Any) -> Any:
    """A number of each feature in place of those that are missing."""
    missing, x = node.get("replaced_value_float", 0.0), node.scalars(x)
    numbers = node.aligned(x, _array(node, "imputed_value_floats"))[1]
    is_missing = (
        node.other("IsNaN", x)
        if np.isnan(missing)
        else node("eq", x, float(missing), hint="is_missing")
    )
    return node("select", is_missing, numbers, x)


@onnx_op(f"{LEARNING}.Binarizer")
def _over(node: Node, x: Any) -> Any:
    """One where a number is over a threshold, and zero elsewhere: no gradient."""
    is_over = node(
        "gt", node.scalars(x), float(node.get("threshold", 0.0)), hint="over"
    )
    return node("select", is_over, 1.0, 0.0)


@onnx_op(f"{LEARNING}.ArrayFeatureExtractor")
def _extracted(node: Node, x: Any, places: Any) -> Any:
    """Elements along the last axis; those of a vector are a row."""
    places = node.reshaped(places, [prod(shape_of(places))])
    return node.other("Gather", _rows(node, x), places, attributes={"axis": -1})


@onnx_op(f"{LEARNING}.Normalizer")
def _normalized(node: Node, x: Any) -> Any:
    """Rows over their norms; a row of zeros stays."""
    kind, x = node.get("norm", "MAX"), node.scalars(x)
    axis = [len(shape_of(x)) - 1]
    if kind == "L2":
        squares = node("sum_reduce", node("sqr", x, hint="square"), axes=axis)
        norm = node("sqrt", squares, hint="norm")
    else:
        sizes = x if kind == "MAX" else node("abs", x, hint="size")
        reduction = "max_reduce" if kind == "MAX" else "sum_reduce"
        norm = node(reduction, sizes, axes=axis, hint="norm")
    is_zero = node("eq", norm, 0.0, hint="is_zero")
    return node("div", x, node("select", is_zero, 1.0, norm, hint="divisor"))


@onnx_op(f"{LEARNING}.LinearRegressor")
def _regressed(node: Node, x: Any) -> Any:
    x, count = _rows(node, node.scalars(x)), node.get("targets", 1)
    weight = _parameter(node, "coefficients", count, -1)
    bias = _parameter(node, "intercepts") if node.get("intercepts", []) else None
    return _post(node, linear(node, x, weight, bias))


@onnx_op(f"{LEARNING}.LinearClassifier")
def _classified(node: Node, x: Any) -> list[Any]:
    """The label of the greatest score of each row, and the scores."""
    x, labels = node.scalars(x), list[int](node.get("classlabels_ints", []))
    texts: list[bytes] = node.get("classlabels_strings", [])
    count = len(labels) or len(texts)
    bias = _parameter(node, "intercepts")
    is_whole = shape_of(bias) == (count,)
    node.require(is_whole, "a class without a score of its own is not supported")
    weight = _parameter(node, "coefficients", count, -1)
    scores = linear(node, _rows(node, x), weight, bias)
    places = node("argmax_reduce", scores, axes=[1], hint="place")
    places = node("squeeze", places, axes=[1])
    named = node("gather", np.asarray(labels), places, axis=0) if labels else places
    return [named, _post(node, scores)]


_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@onnx_op(f"{LEARNING}.SVMRegressor")
def _by_kernels(node: Node, x: Any) -> Any:
    """A sum of kernels of the features and each support vector, or a product of the features."""
    x, kind = _rows(node, node.scalars(x)), node.get("kernel_type", "LINEAR")
    node.require(kind in _KERNELS, f"the kernel {kind} is not supported")
    node.require(not node.get("one_class", 0), "one class has no gradient")
    rho = float(_array(node, "rho")[0])
    count = node.get("n_supports", 0)
    weight = _parameter(node, "coefficients", 1, -1)
    similar = _kernel(node, kind, x, count) if count else x
    product = node("matmul", similar, weight, transposeB=True, hint="product")
    return _post(node, node("add", product, rho))


def _kernel(node: Node, kind: str, x: Any, count: int) -> Any:
    """The kernels of rows and support vectors, [rows, vectors]."""
    vectors = _parameter(node, "support_vectors", count, -1)
    gamma, offset, degree = map(float, (*node.get("kernel_params", []), 0, 0, 0)[:3])
    if kind == "RBF":
        one, other = (
            node("unsqueeze", x, axes=[1]),
            node("unsqueeze", vectors, axes=[0]),
        )
        squares = node("sqr", node("sub", one, other, hint="difference"), hint="square")
        distances = node("sum_reduce", squares, axes=[2])
        distances = node("squeeze", distances, axes=[2], hint="distance")
        return node("exp", node("mul", distances, -gamma), hint="kernel")
    products = node("matmul", x, vectors, transposeB=True, hint="similarity")
    if kind == "LINEAR":
        return products
    moved = node("add", node("mul", products, gamma), offset, hint="moved")
    if kind == "SIGMOID":
        return node("tanh", moved, hint="kernel")
    return node("pow", moved, degree, hint="kernel")


@onnx_op(f"{LEARNING}.ZipMap")
def _scores_of(node: Node, scores: Any) -> Any:
    """The scores that it makes dictionaries of, one of each row."""
    node.warn("a row of scores is in the place of each dictionary")
    return scores
