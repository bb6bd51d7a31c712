"""Reductions and operations on shapes: their shape functions, their rules against
torch, and what is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import nnef
import pytest
import torch
from support import reference
from support.checks import Checked, check_gradients, check_twice, document

import nnef_grad
from nnef_grad.ops.parts import slice_shape
from nnef_grad.ops.registry import ShapeError

Shapes = dict[str, list[int]]


def net(statements: str, inputs: Shapes, outputs: str = "") -> str:
    """A graph of some statements; without `outputs`, it returns what the last statement
    assigns.

    The inputs are given by their shapes. One that is called `index` holds integers, one
    that is called `flag` truth values.
    """
    dtypes = {"index": "integer", "flag": "logical"}
    externals = [
        f"{name} = external<{dtypes.get(name, 'scalar')}>(shape = {shape});"
        for name, shape in inputs.items()
    ]
    last = statements.rstrip("; \n").split(";")[-1]
    returned = outputs or ", ".join(re.findall(r"\w+", last.split("=")[0]))
    return document(
        "\n".join([*externals, f"{statements};"]), ", ".join(inputs), returned
    )


def operations(checked: Checked) -> list[str]:
    """The operations of a backward graph, without those by which its tensors enter."""
    return [
        op.name
        for op in checked.backward.graph.operations
        if op.name not in ("external", "constant")
    ]


# ---- Shapes ----

SHAPES: list[tuple[str, Shapes, list[list[int]]]] = [
    # reshape: 0 keeps an extent, -1 takes what remains; axis_start and axis_count say
    # which axes are replaced
    ("y = reshape(x, shape = [6, 4])", {"x": [2, 3, 4]}, [[6, 4]]),
    ("y = reshape(x, shape = [0, -1])", {"x": [2, 3, 4]}, [[2, 12]]),
    ("y = reshape(x, shape = [-1])", {"x": [2, 3, 4]}, [[24]]),
    ("y = reshape(x, shape = [-1])", {"x": []}, [[1]]),
    ("y = reshape(x, shape = [])", {"x": [1, 1]}, [[]]),
    ("y = reshape(x, shape = [1, 1, 1])", {"x": []}, [[1, 1, 1]]),
    ("y = reshape(x, shape = [-1], axis_start = 1)", {"x": [2, 3, 4]}, [[2, 12]]),
    ("y = reshape(x, shape = [0, 2, -1], axis_start = 1)", {"x": [2, 3, 4]}, [[2, 3, 2, 2]]),
    ("y = reshape(x, shape = [3, -1], axis_start = 1, axis_count = 1)", {"x": [2, 6, 4]}, [[2, 3, 2, 4]]),
    ("y = reshape(x, shape = [12], axis_count = 2)", {"x": [2, 6, 4]}, [[12, 4]]),
    ("y = reshape(x, shape = [1], axis_start = 2, axis_count = 0)", {"x": [2, 3]}, [[2, 3, 1]]),
    ("y = reshape(x, shape = [], axis_start = 1, axis_count = 1)", {"x": [2, 1, 3]}, [[2, 3]]),
    # transpose: axes beyond the list stay
    ("y = transpose(x, axes = [2, 0, 1])", {"x": [2, 3, 4]}, [[4, 2, 3]]),
    ("y = transpose(x, axes = [1, 0])", {"x": [2, 3, 4]}, [[3, 2, 4]]),
    ("y = transpose(x, axes = [])", {"x": [2, 3]}, [[2, 3]]),
    ("y = transpose(x, axes = [3, 4, 0, 1, 2])", {"x": [1, 2, 3, 4, 5]}, [[4, 5, 1, 2, 3]]),
    # squeeze counts its axes in the input, unsqueeze in the output
    ("y = squeeze(x, axes = [0, 2])", {"x": [1, 3, 1]}, [[3]]),
    ("y = squeeze(x, axes = [2, 0])", {"x": [1, 3, 1]}, [[3]]),
    ("y = squeeze(x, axes = [])", {"x": [1, 3]}, [[1, 3]]),
    ("y = unsqueeze(x, axes = [0, 2])", {"x": [3, 4]}, [[1, 3, 1, 4]]),
    ("y = unsqueeze(x, axes = [2, 0])", {"x": [3, 4]}, [[1, 3, 1, 4]]),
    ("y = unsqueeze(x, axes = [3, 1, 0])", {"x": [3, 4]}, [[1, 1, 3, 1, 4]]),
    ("y = unsqueeze(x, axes = [0, 1])", {"x": []}, [[1, 1]]),
    # joining and dividing
    ("y = concat([a, b], axis = 1)", {"a": [2, 3], "b": [2, 1]}, [[2, 4]]),
    ("y = concat([a], axis = 0)", {"a": [5]}, [[5]]),
    ("[a, b, c] = split(x, axis = 1, ratios = [1, 3, 2])", {"x": [2, 12]}, [[2, 2], [2, 6], [2, 4]]),
    ("[a] = split(x, axis = 0, ratios = [7])", {"x": [14]}, [[14]]),
    ("y = stack([a, b, c], axis = 1)", {"a": [2, 3], "b": [2, 3], "c": [2, 3]}, [[2, 3, 3]]),
    ("y = stack([a, b], axis = 0)", {"a": [], "b": []}, [[2]]),
    ("[a, b] = unstack(x, axis = 1)", {"x": [3, 2, 4]}, [[3, 4], [3, 4]]),
    ("[a, b] = unstack(x, axis = 0)", {"x": [2]}, [[], []]),
    # slice: negative offsets count from the end, offsets outside are clamped, end = 0
    # is the end where all strides are 1
    ("y = slice(x, axes = [1], begin = [1], end = [3])", {"x": [4, 5]}, [[4, 2]]),
    ("y = slice(x, axes = [1, 0], begin = [1, 2], end = [3, 4])", {"x": [4, 5]}, [[2, 2]]),
    ("y = slice(x, axes = [0], begin = [-3], end = [-1])", {"x": [5]}, [[2]]),
    ("y = slice(x, axes = [0], begin = [2], end = [99])", {"x": [5]}, [[3]]),
    ("y = slice(x, axes = [0], begin = [2], end = [0])", {"x": [5]}, [[3]]),
    ("y = slice(x, axes = [0, 1], begin = [2, 1], end = [0, 2], stride = [1, 1])", {"x": [5, 3]}, [[3, 1]]),
    ("y = slice(x, axes = [0], begin = [0], end = [5], stride = [2])", {"x": [5]}, [[3]]),
    ("y = slice(x, axes = [0], begin = [1], end = [-1], stride = [2])", {"x": [6]}, [[2]]),
    ("y = slice(x, axes = [0], begin = [-1], end = [-6], stride = [-1])", {"x": [5]}, [[5]]),
    ("y = slice(x, axes = [0], begin = [-1], end = [-99], stride = [-2])", {"x": [5]}, [[3]]),
    ("y = slice(x, axes = [0], begin = [4], end = [0], stride = [-1])", {"x": [5]}, [[4]]),
    ("y = slice(x, axes = [0], begin = [3], end = [0], stride = [-2])", {"x": [5]}, [[2]]),
    ("y = slice(x, axes = [], begin = [], end = [])", {"x": [5]}, [[5]]),
    ("y = slice(x, axes = [0], begin = [2], end = [2])", {"x": [5]}, [[0]]),
    # pad: negative paddings crop
    ("y = pad(x, padding = [(0, 0), (1, 2)])", {"x": [2, 3]}, [[2, 6]]),
    ("y = pad(x, padding = [(-1, 2), (0, -2)], value = 1.0)", {"x": [2, 3]}, [[3, 1]]),
    ("y = pad(x, padding = [(2, 1)], border = 'reflect')", {"x": [4]}, [[7]]),
    ("y = pad(x, padding = [])", {"x": []}, [[]]),
    ("y = tile(x, repeats = [1, 3])", {"x": [2, 3]}, [[2, 9]]),
    # gather: the shape of the indices takes the place of the axis
    ("y = gather(x, index, axis = 1)", {"x": [2, 3, 4], "index": [5, 6]}, [[2, 5, 6, 4]]),
    ("y = gather(x, index)", {"x": [3, 2], "index": []}, [[2]]),
    # reductions keep the rank
    ("y = sum_reduce(x, axes = [2, 0])", {"x": [2, 3, 4]}, [[1, 3, 1]]),
    ("y = mean_reduce(x, axes = [])", {"x": [2, 3]}, [[2, 3]]),
    ("y = argmax_reduce(x, axes = [1])", {"x": [2, 3]}, [[2, 1]]),
    ("y = any_reduce(flag, axes = [0])", {"flag": [2, 3]}, [[1, 3]]),
    ("m, v = moments(x, axes = [0])", {"x": [2, 3]}, [[1, 3], [1, 3]]),
    # matrix products: batches are broadcast, from the left as everywhere
    ("y = matmul(a, b)", {"a": [2, 3], "b": [3, 4]}, [[2, 4]]),
    ("y = matmul(a, b, transposeA = true)", {"a": [3, 2], "b": [3, 4]}, [[2, 4]]),
    ("y = matmul(a, b, transposeB = true)", {"a": [2, 3], "b": [4, 3]}, [[2, 4]]),
    ("y = matmul(a, b, transposeA = true, transposeB = true)", {"a": [3, 2], "b": [4, 3]}, [[2, 4]]),
    ("y = matmul(a, b)", {"a": [5, 1, 2, 3], "b": [1, 6, 3, 4]}, [[5, 6, 2, 4]]),
    ("y = linear(x, w)", {"x": [2, 3], "w": [4, 3]}, [[2, 4]]),
    ("y = linear(x, w, b)", {"x": [2, 3], "w": [4, 3], "b": [1, 4]}, [[2, 4]]),
    # what has the shape of its operand
    ("y = softmax(x)", {"x": [2, 3]}, [[2, 3]]),
    ("y = l1_normalization(x, axes = [1])", {"x": [2, 3]}, [[2, 3]]),
    ("y = l2_normalization(x, axes = [0, 1])", {"x": [2, 3]}, [[2, 3]]),
    ("y = local_response_normalization(x, size = [1, 3])", {"x": [2, 4]}, [[2, 4]]),
    ("y = local_mean_normalization(x, size = [1, 2])", {"x": [2, 4]}, [[2, 4]]),
    ("y = local_variance_normalization(x, size = [1, 3], bias = 1.0)", {"x": [2, 4]}, [[2, 4]]),
    ("y = local_contrast_normalization(x, size = [1, 3], bias = 1.0)", {"x": [2, 4]}, [[2, 4]]),
    ("y = batch_normalization(x, m, 1.0, 0.0, s, epsilon = 0.1)", {"x": [2, 3, 4], "m": [1, 3], "s": [2, 1, 4]}, [[2, 3, 4]]),
]  # fmt: skip

# The Khronos inference inserts the axes of unsqueeze one after the other, and so at
# other places where they do not ascend.
INFERENCE_IS_WRONG = {
    "y = unsqueeze(x, axes = [2, 0])",
    "y = unsqueeze(x, axes = [3, 1, 0])",
}


@pytest.mark.parametrize(("statement", "inputs", "expected"), SHAPES)
def test_shape(statement: str, inputs: Shapes, expected: list[list[int]]) -> None:
    text = net(statement, inputs)
    assert [list(t.shape) for t in nnef_grad.loads(text).outputs] == expected


@pytest.mark.parametrize(("statement", "inputs", "expected"), SHAPES)
def test_shape_of_what_torch_computes(
    statement: str, inputs: Shapes, expected: list[list[int]]
) -> None:
    text = net(statement, inputs)
    feeds, variables = reference.random_feeds(text, torch.Generator().manual_seed(0))
    assert [
        list(t.shape) for t in reference.outputs(text, feeds, variables)
    ] == expected


@pytest.mark.parametrize(("statement", "inputs", "expected"), SHAPES)
def test_shape_by_the_khronos_inference(
    statement: str, inputs: Shapes, expected: list[list[int]]
) -> None:
    graph = nnef.parse_string(net(statement, inputs))
    nnef.infer_shapes(graph)
    found = [graph.tensors[name].shape for name in graph.outputs]
    assert (found == expected) != (statement in INFERENCE_IS_WRONG)


def test_slices_are_those_of_the_khronos_inference() -> None:
    for begin, end, stride in itertools.product(
        range(-7, 8), range(-7, 8), (-3, -2, -1, 1, 2, 3)
    ):
        arguments = ([begin], [end], [stride])
        assert _extent(slice_shape, *arguments) == _extent(
            nnef.shapes.slice_shape, *arguments
        ), arguments


def _extent(function: Callable[..., Sequence[Any]], *arguments: list[int]) -> Any:
    try:
        return function([5], [0], *arguments)[0]
    except (ShapeError, AssertionError):
        return None


@pytest.mark.parametrize(
    "statement",
    [
        "y = min_max_linear_quantize(x, 0.0, b, bits = 8, signed = true, symmetric = false)",
        "y = zero_point_linear_quantize(x, 0, b, bits = 8, signed = true, symmetric = false)",
        "y = linear_quantize(x, 0.0, b, bits = 8)",
        "y = logarithmic_quantize(x, b, bits = 8)",
    ],
)
def test_shape_of_quantisation(statement: str) -> None:
    text = net(statement, {"x": [2, 3, 4], "b": [1, 3]})
    assert [t.shape for t in nnef_grad.loads(text).outputs] == [(2, 3, 4)]


# ---- What is refused ----


@pytest.mark.parametrize(
    ("statement", "inputs", "message"),
    [
        ("y = reshape(x, shape = [5])", {"x": [2, 3]}, "'shape' [5] does not fit the extents [2, 3] of volume 6"),
        ("y = reshape(x, shape = [4, -1])", {"x": [2, 3]}, "'shape' [4, -1] does not fit the extents [2, 3] of volume 6"),
        ("y = reshape(x, shape = [-1, -1])", {"x": [2, 3]}, "'shape' may have one item -1, but is [-1, -1]"),
        ("y = reshape(x, shape = [-2])", {"x": [2, 3]}, "the items of 'shape' must be at least -1, but are [-2]"),
        ("y = reshape(x, shape = [0, 0, 0])", {"x": [2, 3]},
         "an item 0 of 'shape' keeps an extent, and there is none in [2, 3] for each 0 of [0, 0, 0]"),
        ("y = reshape(x, shape = [6], axis_start = 3)", {"x": [2, 3]}, "'axis_start' must be in 0..2 for rank 2, but is 3"),
        ("y = reshape(x, shape = [6], axis_start = 1, axis_count = 2)", {"x": [2, 3]},
         "'axis_count' must be in -1..1 from axis 1 on, but is 2"),
        ("y = transpose(x, axes = [0, 2])", {"x": [2, 3, 4]}, "'axes' must be a permutation of 0..1, but are [0, 2]"),
        ("y = transpose(x, axes = [0, 1, 2])", {"x": [2, 3]}, "'axes' may have 2 items for rank 2, but have 3"),
        ("y = squeeze(x, axes = [0, 1])", {"x": [1, 3]},
         "only extents of 1 can be squeezed, and those of axes [0, 1] are [1, 3]"),
        ("y = squeeze(x, axes = [2])", {"x": [1, 3]}, "'axes' must be in 0..1 for rank 2, but are [2]"),
        ("y = squeeze(x, axes = [0, 0])", {"x": [1, 3]}, "'axes' must differ, but are [0, 0]"),
        ("y = squeeze(x, axes = [0])", {"x": []}, "a tensor of rank 0 has no axes, and 'axes' are [0]"),
        ("y = unsqueeze(x, axes = [3])", {"x": [1, 3]}, "'axes' must be in 0..2 for rank 3, but are [3]"),
        ("y = unsqueeze(x, axes = [-1])", {"x": [1, 3]}, "'axes' must be in 0..2 for rank 3, but are [-1]"),
        ("y = concat<scalar>([], axis = 0)", {"x": [2]}, "there is nothing to concatenate"),
        ("y = concat([x, b], axis = 0)", {"x": [2, 3], "b": [2, 4]},
         "the shapes must agree in all dimensions but 0, but are [2, 3], [2, 4]"),
        ("y = concat([x, b], axis = 0)", {"x": [2, 3], "b": [2]},
         "the shapes must agree in all dimensions but 0, but are [2, 3], [2]"),
        ("y = concat([x, x], axis = 2)", {"x": [2, 3]}, "'axis' must be in 0..1 for rank 2, but is 2"),
        ("y = concat([x, x], axis = 0)", {"x": []}, "a tensor of rank 0 has no axis, and 'axis' is 0"),
        ("[y] = split(x, axis = 0, ratios = [])", {"x": [2]}, "'ratios' must not be empty"),
        ("[y, z] = split(x, axis = 0, ratios = [1, 0])", {"x": [2]}, "'ratios' must be positive, but are [1, 0]"),
        ("[y, z] = split(x, axis = 1, ratios = [1, 2])", {"x": [2, 4]},
         "the sum 3 of 'ratios' must divide the extent of axis 1, which is 4"),
        ("y = stack([x, b], axis = 0)", {"x": [2], "b": [3]}, "the shapes must be equal, but are [2], [3]"),
        ("y = stack([x, x], axis = 2)", {"x": [2]}, "'axis' must be in 0..1 for rank 2, but is 2"),
        ("y = stack<scalar>([], axis = 0)", {"x": [2]}, "there is nothing to stack"),
        ("[y, z] = unstack(x, axis = 1)", {"x": [2]}, "'axis' must be in 0..0 for rank 1, but is 1"),
        ("y = slice(x, axes = [0], begin = [1, 2], end = [3])", {"x": [5]},
         "'begin' must have an item for each of 1 axes, but has 2"),
        ("y = slice(x, axes = [0], begin = [1], end = [])", {"x": [5]}, "'end' must have an item for each of 1 axes, but has 0"),
        ("y = slice(x, axes = [0, 1], begin = [0, 0], end = [1, 1], stride = [1])", {"x": [5, 5]},
         "'stride' must have an item for each of 2 axes, but has 1"),
        ("y = slice(x, axes = [0], begin = [1], end = [2], stride = [0])", {"x": [5]},
         "the items of 'stride' must not be 0, but are [0]"),
        ("y = slice(x, axes = [0], begin = [3], end = [2])", {"x": [5]},
         "there is no slice from 3 to 2 with stride 1 along axis 0 of extent 5"),
        ("y = slice(x, axes = [0], begin = [3], end = [0], stride = [2])", {"x": [5]},
         "there is no slice from 3 to 0 with stride 2 along axis 0 of extent 5"),
        ("y = slice(x, axes = [0], begin = [1], end = [3], stride = [-1])", {"x": [5]},
         "there is no slice from 1 to 3 with stride -1 along axis 0 of extent 5"),
        ("y = slice(x, axes = [0], begin = [5], end = [3], stride = [-1])", {"x": [5]},
         "there is no slice from 5 to 3 with stride -1 along axis 0 of extent 5"),
        ("y = slice(x, axes = [0], begin = [-6], end = [3])", {"x": [5]},
         "there is no slice from -6 to 3 with stride 1 along axis 0 of extent 5"),
        ("y = slice(x, axes = [1], begin = [0], end = [1])", {"x": [5]}, "'axes' must be in 0..0 for rank 1, but are [1]"),
        ("y = pad(x, padding = [(1, 1)])", {"x": [5, 5]}, "'padding' must have an item for each of 2 dimensions, but has 1"),
        ("y = pad(x, padding = [(1, 1)], border = 'mirror')", {"x": [5]},
         "'border' must be one of 'constant', 'replicate', 'reflect', 'reflect-even', 'ignore', but is 'mirror'"),
        ("y = pad(x, padding = [(-3, -2)])", {"x": [5]}, "the padded extents must be positive, but are [0]"),
        ("y = tile(x, repeats = [2])", {"x": [5, 5]}, "'repeats' must have an item for each of 2 dimensions, but has 1"),
        ("y = tile(x, repeats = [0])", {"x": [5]}, "'repeats' must be positive, but are [0]"),
        ("y = gather(x, index, axis = 1)", {"x": [5], "index": [2]}, "'axis' must be in 0..0 for rank 1, but is 1"),
        ("y = sum_reduce(x, axes = [1])", {"x": [5]}, "'axes' must be in 0..0 for rank 1, but are [1]"),
        ("y = mean_reduce(x, axes = [1, 1])", {"x": [5, 5]}, "'axes' must differ, but are [1, 1]"),
        ("m, v = moments(x, axes = [2])", {"x": [5, 5]}, "'axes' must be in 0..1 for rank 2, but are [2]"),
        ("y = matmul(x, b)", {"x": [2, 3], "b": [2, 3]}, "the inner extents must be equal, but are 3 in A and 2 in B"),
        ("y = matmul(x, b)", {"x": [2, 3], "b": [3]}, "the ranks of A and B must be equal, and their shapes are [2, 3] and [3]"),
        ("y = matmul(x, x)", {"x": [2]}, "A and B must have rank 2 at least, and their shapes are [2] and [2]"),
        ("y = matmul(x, b)", {"x": [2, 1, 1], "b": [3, 1, 1]},
         "the shapes [2] and [3] cannot be broadcast: dimensions align from the left"),
        ("y = linear(x, w, b)", {"x": [2, 3], "w": [4, 3], "b": [4]},
         "the shapes [2, 4] and [4] cannot be broadcast: dimensions align from the left"),
        ("y = softmax(x)", {"x": [3]}, "'axes' must be in 0..0 for rank 1, but are [1]"),
        ("y = l2_normalization(x, axes = [3])", {"x": [2, 3]}, "'axes' must be in 0..1 for rank 2, but are [3]"),
        ("y = local_mean_normalization(x, size = [3])", {"x": [2, 3]},
         "'size' must have an item for each of 2 dimensions, but has 1"),
        ("y = local_mean_normalization(x, size = [1, 0])", {"x": [2, 3]}, "'size' must be positive, but is [1, 0]"),
        ("y = batch_normalization(x, m, 1.0, 0.0, 1.0, epsilon = 0.1)", {"x": [2, 3], "m": [3]},
         "'mean' of shape [3] cannot be broadcast to 'input' of shape [2, 3]"),
        ("y = linear_quantize(x, 0.0, m, bits = 8)", {"x": [2, 3], "m": [2, 3, 1]},
         "'max' of shape [2, 3, 1] cannot be broadcast to 'x' of shape [2, 3]"),
        ("y = linear_quantize(x, 0.0, 1.0, bits = 0)", {"x": [2, 3]}, "'bits' must be positive, but is 0"),
    ],
)  # fmt: skip
def test_misuse_is_refused(statement: str, inputs: Shapes, message: str) -> None:
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(net(statement, inputs))
    operation = re.split(r"[<(]", statement.split("= ")[1])[0]
    assert caught.value.message == f"{operation}: {message}"
    assert caught.value.span is not None
    assert caught.value.span.text == operation


EMPTY = "e = slice(x, axes = [0], begin = [1], end = [1]);"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("[] = unstack(e, axis = 0); y = copy(x)", "unstack: there is nothing to unstack"),
        ("y = pad(e, padding = [(0, 2)], border = 'replicate')",
         "pad: with border 'replicate' an extent of 0 cannot be padded"),
        ("y = box(e, size = [2], padding = [(1, 1)], border = 'replicate')",
         "box: with border 'replicate' an extent of 0 cannot be padded"),
    ],
)  # fmt: skip
def test_nothing_cannot_be_repeated_nor_unstacked(
    statements: str, message: str
) -> None:
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(net(f"{EMPTY}\n{statements}", {"x": [2]}))
    assert caught.value.message == message


# ---- Gradients ----
#
# Each setting of an operation stands with the operations that its backward graph is
# made of.

RESHAPING: list[tuple[str, Shapes, str]] = [
    ("y = reshape(x, shape = [6, 4])", {"x": [2, 3, 4]}, "reshape"),
    ("y = reshape(x, shape = [0, -1])", {"x": [2, 3, 4]}, "reshape"),
    ("y = reshape(x, shape = [2, 3])", {"x": [2, 3]}, "copy"),
    ("y = reshape(x, shape = [1, 1])", {"x": []}, "reshape"),
    ("y = reshape(x, shape = [])", {"x": [1]}, "reshape"),
    ("y = reshape(x, shape = [4, 3], axis_start = 1)", {"x": [2, 3, 4]}, "reshape"),
    ("y = reshape(x, shape = [3, -1], axis_start = 1, axis_count = 1)", {"x": [2, 6, 4]}, "reshape"),
    ("y = transpose(x, axes = [2, 0, 1])", {"x": [2, 3, 4]}, "transpose"),
    ("y = transpose(x, axes = [1, 0])", {"x": [2, 3, 4]}, "transpose"),
    ("y = transpose(x, axes = [3, 4, 0, 1, 2])", {"x": [1, 2, 3, 4, 5]}, "transpose"),
    ("y = transpose(x, axes = [0, 1])", {"x": [2, 3, 4]}, "copy"),
    ("y = transpose(x, axes = [])", {"x": [2, 3]}, "copy"),
    ("y = squeeze(x, axes = [2, 0])", {"x": [1, 3, 1]}, "unsqueeze"),
    ("y = squeeze(x, axes = [0])", {"x": [1]}, "unsqueeze"),
    ("y = squeeze(x, axes = [])", {"x": [1, 3]}, "copy"),
    ("y = unsqueeze(x, axes = [0, 2])", {"x": [3, 4]}, "squeeze"),
    ("y = unsqueeze(x, axes = [2, 0, 4])", {"x": [3, 4]}, "squeeze"),
    ("y = unsqueeze(x, axes = [0])", {"x": []}, "squeeze"),
    ("y = unsqueeze(x, axes = [])", {"x": [3]}, "copy"),
]  # fmt: skip

JOINING: list[tuple[str, Shapes, str]] = [
    ("y = concat([a, b], axis = 0)", {"a": [2], "b": [3]}, "slice slice"),
    ("y = concat([a, b, c], axis = 1)", {"a": [2, 1, 3], "b": [2, 4, 3], "c": [2, 2, 3]}, "slice slice slice"),
    ("y = concat([a, b], axis = 4)", {"a": [1, 2, 1, 2, 2], "b": [1, 2, 1, 2, 1]}, "slice slice"),
    ("y = concat([x, x], axis = 0)", {"x": [2, 3]}, "slice slice add"),
    ("y = concat([x], axis = 1)", {"x": [2, 3]}, "copy"),
    ("y = stack([a, b], axis = 0)", {"a": [], "b": []}, "slice squeeze slice squeeze"),
    ("y = stack([a, b], axis = 1)", {"a": [2, 3], "b": [2, 3]}, "slice squeeze slice squeeze"),
    ("y = stack([x, x, x], axis = 2)", {"x": [2, 3]}, "slice squeeze slice squeeze slice squeeze add add"),
    ("y = stack([x], axis = 0)", {"x": [3]}, "squeeze"),
]  # fmt: skip

# With an output named, the other parts have no gradient.
DIVIDING: list[tuple[str, Shapes, str, str]] = [
    ("[a, b, c] = split(x, axis = 1, ratios = [1, 3, 2])", {"x": [2, 12]}, "a, b, c", "concat"),
    ("[a, b, c] = split(x, axis = 1, ratios = [1, 3, 2])", {"x": [2, 12]}, "a, c", "concat"),
    ("[a, b, c] = split(x, axis = 1, ratios = [1, 3, 2])", {"x": [2, 12]}, "b", "pad"),
    ("[a, b, c] = split(x, axis = 2, ratios = [1, 1, 1])", {"x": [2, 2, 3]}, "b", "pad"),
    ("[a, b, c] = split(x, axis = 2, ratios = [1, 1, 1])", {"x": [2, 2, 3]}, "c", "pad"),
    ("[a, b, c] = split(x, axis = 2, ratios = [1, 1, 1])", {"x": [2, 2, 3]}, "a, b", "concat"),
    ("[a, b] = split(x, axis = 2, ratios = [1, 1])", {"x": [1, 2, 2, 1, 1, 2]}, "a", "pad"),
    ("[a, b, c, d] = split(x, axis = 0, ratios = [1, 1, 1, 1])", {"x": [4]}, "d", "pad"),
    ("[a] = split(x, axis = 0, ratios = [2])", {"x": [4]}, "a", "copy"),
    ("[a, b] = unstack(x, axis = 0)", {"x": [2]}, "a, b", "stack"),
    ("[a, b] = unstack(x, axis = 0)", {"x": [2]}, "b", "unsqueeze pad"),
    ("[a, b, c] = unstack(x, axis = 1)", {"x": [2, 3, 2]}, "a, c", "unsqueeze unsqueeze concat"),
    ("[a, b, c] = unstack(x, axis = 2)", {"x": [2, 3, 3, 2]}, "b", "unsqueeze pad"),
    ("[a] = unstack(x, axis = 1)", {"x": [3, 1]}, "a", "unsqueeze"),
]  # fmt: skip

SLICING: list[tuple[str, Shapes, str]] = [
    ("y = slice(x, axes = [0], begin = [1], end = [4])", {"x": [5]}, "pad"),
    ("y = slice(x, axes = [0], begin = [-3], end = [-1])", {"x": [5]}, "pad"),
    ("y = slice(x, axes = [0], begin = [0], end = [0])", {"x": [5]}, "copy"),
    ("y = slice(x, axes = [1], begin = [1], end = [0])", {"x": [2, 3, 4]}, "pad"),
    ("y = slice(x, axes = [2], begin = [1], end = [3])", {"x": [2, 3, 4]}, "pad"),
    ("y = slice(x, axes = [3, 2], begin = [1, -2], end = [3, 99])", {"x": [1, 2, 4, 5]}, "pad"),
    ("y = slice(x, axes = [1, 2], begin = [1, 0], end = [2, 3])", {"x": [2, 3, 4]}, "pad"),
    ("y = slice(x, axes = [4, 0], begin = [1, 1], end = [2, 2])", {"x": [2, 1, 2, 1, 3]}, "pad"),
    ("y = slice(x, axes = [5], begin = [1], end = [2])", {"x": [1, 1, 2, 1, 1, 3]}, "pad"),
    ("y = slice(x, axes = [0], begin = [0], end = [6], stride = [2])", {"x": [6]}, "unsqueeze pad reshape"),
    ("y = slice(x, axes = [0], begin = [0], end = [5], stride = [2])", {"x": [5]}, "unsqueeze pad reshape slice"),
    ("y = slice(x, axes = [0], begin = [1], end = [8], stride = [3])", {"x": [8]}, "unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [0], begin = [1], end = [-1], stride = [3])", {"x": [9]}, "unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [0], begin = [1], end = [3], stride = [3])", {"x": [9]}, "pad"),
    ("y = slice(x, axes = [1], begin = [0], end = [4], stride = [2])", {"x": [2, 5]}, "unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [2], begin = [1], end = [5], stride = [2])", {"x": [2, 3, 5]}, "unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [2, 3], begin = [0, 1], end = [5, 99], stride = [2, 3])", {"x": [1, 2, 5, 6]},
     "unsqueeze pad reshape unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [0], begin = [-1], end = [-6], stride = [-1])", {"x": [5]}, "slice"),
    ("y = slice(x, axes = [0], begin = [3], end = [0], stride = [-1])", {"x": [5]}, "slice pad"),
    ("y = slice(x, axes = [0], begin = [4], end = [-99], stride = [-2])", {"x": [5]}, "slice unsqueeze pad reshape slice"),
    ("y = slice(x, axes = [1], begin = [-2], end = [0], stride = [-3])", {"x": [2, 7]},
     "slice unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [0, 2, 1], begin = [-1, 1, 0], end = [-9, 4, 2], stride = [-1, 2, 1])", {"x": [3, 2, 4]},
     "slice unsqueeze pad reshape pad"),
    ("y = slice(x, axes = [0, 1], begin = [1, 2], end = [-9, -9], stride = [-1, -1])", {"x": [2, 3]}, "slice"),
    ("y = slice(x, axes = [0], begin = [2], end = [1], stride = [-1])", {"x": [4]}, "pad"),
    ("y = slice(x, axes = [], begin = [], end = [])", {"x": [4]}, "copy"),
]  # fmt: skip

PADDING: list[tuple[str, Shapes, str]] = [
    ("y = pad(x, padding = [(1, 2)])", {"x": [3]}, "slice"),
    ("y = pad(x, padding = [(0, 0), (0, 0)])", {"x": [3, 2]}, "copy"),
    ("y = pad(x, padding = [(1, 0), (0, 2), (1, 1)], value = 3.0)", {"x": [2, 2, 2]}, "slice"),
    ("y = pad(x, padding = [(0, 0), (0, 0), (-1, -2)])", {"x": [2, 2, 5]}, "pad"),
    ("y = pad(x, padding = [(-1, 0), (0, -1)])", {"x": [3, 3]}, "pad"),
    ("y = pad(x, padding = [(0, 0), (2, -1), (-1, 3)])", {"x": [2, 3, 4]}, "pad"),
    ("y = pad(x, padding = [(0, 0), (0, 0), (-1, 0), (1, 0)])", {"x": [2, 3, 4, 2]}, "pad"),
    ("y = pad(x, padding = [(0, 0), (0, -1)], border = 'reflect')", {"x": [2, 3]}, "pad"),
    ("y = pad(x, padding = [(0, 0), (0, 0), (2, 0)], border = 'replicate')", {"x": [2, 3, 4]}, "slice sum_reduce slice concat"),
    ("y = pad(x, padding = [(0, 0), (0, 0), (2, 0)], border = 'reflect')", {"x": [2, 3, 4]}, "slice slice pad add"),
    ("y = pad(x, padding = [(0, 0), (0, 0), (-1, 2)], border = 'reflect-even')", {"x": [2, 3, 4]}, "slice pad slice pad add"),
    ("y = pad(x, padding = [])", {"x": []}, "copy"),
]  # fmt: skip

TILING: list[tuple[str, Shapes, str]] = [
    ("y = tile(x, repeats = [3])", {"x": [2]}, "reshape sum_reduce squeeze"),
    ("y = tile(x, repeats = [3])", {"x": [1]}, "sum_reduce"),
    ("y = tile(x, repeats = [1, 1])", {"x": [2, 3]}, "copy"),
    ("y = tile(x, repeats = [2, 3])", {"x": [4, 5]}, "reshape sum_reduce squeeze"),
    ("y = tile(x, repeats = [2, 1, 3])", {"x": [1, 4, 1]}, "sum_reduce"),
    ("y = tile(x, repeats = [2, 3, 2])", {"x": [2, 1, 3]}, "reshape sum_reduce squeeze"),
    ("y = tile(x, repeats = [1, 2, 1, 2, 1])", {"x": [1, 2, 2, 1, 2]}, "reshape sum_reduce squeeze"),
]  # fmt: skip

ONEHOT = "reshape cast eq select"
GATHERING: list[tuple[str, Shapes, str]] = [
    ("y = gather(x, index)", {"x": [3], "index": [5]}, f"{ONEHOT} reshape matmul reshape"),
    ("y = gather(x, index)", {"x": [3, 2], "index": [5]}, f"{ONEHOT} matmul"),
    ("y = gather(x, index)", {"x": [3, 2, 2], "index": [4, 2]}, f"{ONEHOT} reshape matmul reshape"),
    ("y = gather(x, index)", {"x": [3, 2], "index": []}, f"{ONEHOT} reshape matmul"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3], "index": [5]}, f"{ONEHOT} matmul"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3], "index": []}, f"{ONEHOT} reshape matmul"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3, 2], "index": [5]}, f"{ONEHOT} transpose reshape matmul reshape transpose"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3, 2, 2], "index": [2, 3]},
     f"{ONEHOT} reshape transpose reshape matmul reshape transpose reshape"),
    ("y = gather(x, index, axis = 2)", {"x": [2, 2, 3, 2], "index": [2, 2, 2]},
     f"{ONEHOT} reshape transpose reshape matmul reshape transpose reshape"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3, 2], "index": []}, f"{ONEHOT} reshape matmul reshape transpose"),
    ("y = gather(x, index, axis = 1)", {"x": [1, 3, 2], "index": [4]}, f"{ONEHOT} reshape matmul reshape"),
    ("y = gather(x, index, axis = 1)", {"x": [2, 3, 1], "index": [4]}, f"{ONEHOT} reshape matmul reshape"),
    ("y = gather(x, 2, axis = 1)", {"x": [2, 3]}, "eq select reshape matmul"),
]  # fmt: skip

REDUCING: list[tuple[str, Shapes, str]] = [
    ("y = sum_reduce(x, axes = [0])", {"x": [3]}, "tile"),
    ("y = sum_reduce(x, axes = [2, 0])", {"x": [2, 3, 4]}, "tile"),
    ("y = sum_reduce(x, axes = [1])", {"x": [2, 1, 4]}, "copy"),
    ("y = sum_reduce(x, axes = [])", {"x": []}, "copy"),
    ("y = sum_reduce(x, axes = [0, 1], normalize = true)", {"x": [2, 3, 4]}, "div tile"),
    ("y = sum_reduce(x, axes = [1], normalize = true)", {"x": [2, 1]}, "copy"),
    ("y = mean_reduce(x, axes = [1, 2, 4])", {"x": [2, 3, 2, 2, 2]}, "div tile"),
    ("y = mean_reduce(x, axes = [])", {"x": [3]}, "copy"),
    ("y = max_reduce(x, axes = [1])", {"x": [3, 4]}, "max_reduce eq select sum_reduce div select"),
    ("y = max_reduce(x, axes = [2, 0])", {"x": [3, 4, 2]}, "max_reduce eq select sum_reduce div select"),
    ("y = min_reduce(x, axes = [0, 1, 2])", {"x": [3, 1, 2]}, "min_reduce eq select sum_reduce div select"),
    ("y = max_reduce(x, axes = [1])", {"x": [3, 1]}, "copy"),
    ("y = min_reduce(x, axes = [])", {"x": [3]}, "copy"),
    ("m, v = moments(x, axes = [1])", {"x": [2, 3]}, "moments div div sub mul add"),
    ("m, v = moments(x, axes = [2, 0])", {"x": [4, 3, 2]}, "moments div div sub mul add"),
    ("m, v = moments(x, axes = [])", {"x": [4]}, "moments div sub mul add"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "inputs", "expected"),
    [*RESHAPING, *JOINING, *SLICING, *PADDING, *TILING, *GATHERING, *REDUCING],
)
def test_gradient(statement: str, inputs: Shapes, expected: str) -> None:
    checked = check_gradients(net(statement, inputs), high=3)
    assert " ".join(operations(checked)) == expected


@pytest.mark.parametrize("rows", [1000, 1001, 2000, 2004, 1_000_001])
def test_gradient_of_a_long_table(rows: int) -> None:
    last = [0, 999, rows - 2, rows - 1, rows - 1]
    text = net("y = gather(x, index)", {"x": [rows, 1], "index": [5]})
    checked = check_gradients(text, feeds={"index": torch.tensor(last)})
    assert len(checked.text) < 20_000


def test_a_gradient_that_needs_much_memory_has_a_warning() -> None:
    shapes = {"x": [2, 50_001, 16], "index": [2000]}
    graph = nnef_grad.loads(net("y = gather(x, index, axis = 1)", shapes))
    backward = nnef_grad.differentiate(graph)
    assert backward.warnings == (
        "the gradient of 'x' is a product with 'onehot_y', 2000 x 50001 zeros and ones:"
        " no standard operation adds to elements at indices",
    )
    graph = nnef_grad.loads(
        net("y = gather(x, index)", {"x": [50_000], "index": [2000]})
    )
    assert nnef_grad.differentiate(graph).warnings == ()


def test_a_rule_of_ones_own_without_a_matrix_has_no_warning() -> None:
    rules = nnef_grad.Rules()
    rules.vjp("gather")(lambda emit, op, dy: [0.0, None])
    text = net(
        "y = gather(x, index, axis = 1)", {"x": [2, 50_001, 16], "index": [2000]}
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text), wrt=["x"], rules=rules)
    assert not any("zeros and ones" in warning for warning in backward.warnings)


@pytest.mark.parametrize(("statement", "inputs", "outputs", "expected"), DIVIDING)
def test_gradient_of_parts(
    statement: str, inputs: Shapes, outputs: str, expected: str
) -> None:
    checked = check_gradients(net(statement, inputs, outputs))
    assert " ".join(operations(checked)) == expected


def test_gradient_of_an_empty_slice_is_zeros() -> None:
    statements = (
        "e = slice(x, axes = [1], begin = [2], end = [2]); y = concat([e, z], axis = 1)"
    )
    checked = check_gradients(net(statements, {"x": [2, 3], "z": [2, 1]}))
    assert float(checked.gradients["x"].abs().max()) == 0.0


@pytest.mark.parametrize(
    "statements",
    [
        "y = sum_reduce(e, axes = [1])",
        "y = mean_reduce(e, axes = [1])",
        "m = mean_reduce(e, axes = [0]); n = max_reduce(m, axes = [0]); y = max_reduce(n, axes = [1])",
    ],
)
def test_gradient_of_the_sum_of_nothing_is_zeros(statements: str) -> None:
    empty = "e = slice(x, axes = [1], begin = [2], end = [2])"
    text = net(f"{empty}; {statements}", {"x": [2, 3]})
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    assert "grad_x = constant(shape = [2, 3], value = [0.0]);" in str(backward.graph)


def test_padding_that_leaves_nothing_of_the_operand() -> None:
    checked = check_gradients(
        net("y = pad(x, padding = [(5, -4)], value = 2.0)", {"x": [3]})
    )
    assert float(checked.gradients["x"].abs().max()) == 0.0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_equal_indices_add_up(axis: int) -> None:
    index = torch.tensor([2, 0, 2, 2, 1])
    checked = check_gradients(
        net(f"y = gather(x, index, axis = {axis})", {"x": [3, 4, 3], "index": [5]}),
        feeds={"index": index},
    )
    share = checked.gradients["x"].select(axis, 2)
    assert torch.allclose(
        share, checked.seeds["y"].index_select(axis, torch.tensor([0, 2, 3])).sum(axis)
    )


@pytest.mark.parametrize("operation", ["max_reduce", "min_reduce"])
@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_ties_share_the_gradient(operation: str, axes: list[int]) -> None:
    ties = torch.tensor([[2, 1, 1], [2, 2, 1]], dtype=torch.float64)
    check_gradients(
        net(f"y = {operation}(x, axes = {axes})", {"x": [2, 3]}), feeds={"x": ties}
    )


@pytest.mark.parametrize(
    ("outputs", "expected"), [("m", "div tile"), ("v", "moments div sub mul")]
)
def test_gradient_of_one_of_the_moments(outputs: str, expected: str) -> None:
    checked = check_gradients(
        net("m, v = moments(x, axes = [0, 2])", {"x": [2, 3, 4]}, outputs)
    )
    assert " ".join(operations(checked)) == expected


def test_gradient_does_not_pass_through_an_index() -> None:
    checked = check_gradients(
        net(
            "i = argmax_reduce(x, axes = [0]); s = cast<scalar>(i); y = mul(s, x)",
            {"x": [3, 2]},
        )
    )
    assert " ".join(operations(checked)) == "argmax_reduce cast mul"


@pytest.mark.parametrize("operation", ["any_reduce", "all_reduce"])
def test_gradient_does_not_pass_through_a_truth_value(operation: str) -> None:
    check_gradients(
        net(
            f"c = gt(x, 0.0); any = {operation}(c, axes = [0]); y = select(any, x, 0.0)",
            {"x": [3, 4]},
        )
    )


# ---- Order two ----
#
# What is moved about is a square, so that the first gradient depends on x.


@pytest.mark.parametrize(
    ("statement", "inputs"),
    [
        ("y = reshape(s, shape = [0, -1])", {"x": [2, 3, 4]}),
        ("y = transpose(s, axes = [2, 0, 1])", {"x": [2, 3, 4]}),
        ("y = squeeze(s, axes = [2, 0])", {"x": [1, 3, 1]}),
        ("y = unsqueeze(s, axes = [2, 0])", {"x": [3, 4]}),
        ("y = concat([s, x], axis = 1)", {"x": [2, 3]}),
        ("[a, b, c] = split(s, axis = 1, ratios = [1, 2, 1])", {"x": [2, 4]}),
        ("y = stack([s, x], axis = 1)", {"x": [2, 3]}),
        ("[a, b] = unstack(s, axis = 1)", {"x": [3, 2]}),
        (
            "y = slice(s, axes = [1, 2], begin = [-1, 1], end = [-9, 5], stride = [-2, 3])",
            {"x": [2, 4, 6]},
        ),
        (
            "y = slice(s, axes = [0, 2], begin = [1, -2], end = [2, 0])",
            {"x": [2, 4, 6]},
        ),
        ("y = pad(s, padding = [(1, -1), (0, 0), (-1, 2)])", {"x": [2, 3, 4]}),
        ("y = tile(s, repeats = [2, 1, 3])", {"x": [2, 3, 1]}),
        ("y = gather(s, index, axis = 1)", {"x": [2, 3, 2], "index": [5]}),
        ("y = gather(s, index)", {"x": [3, 2], "index": [2, 2]}),
        ("y = sum_reduce(s, axes = [0], normalize = true)", {"x": [3, 2]}),
        ("y = mean_reduce(s, axes = [0, 1])", {"x": [3, 2]}),
        ("y = max_reduce(s, axes = [1])", {"x": [3, 4]}),
        ("y = min_reduce(s, axes = [0, 2])", {"x": [3, 4, 2]}),
        ("m, v = moments(s, axes = [0, 2])", {"x": [3, 4, 2]}),
        ("m, v = moments(x, axes = [0]); y = div(x, v)", {"x": [4, 2]}),
    ],
)
def test_gradient_twice(statement: str, inputs: Shapes) -> None:
    check_twice(net(f"s = mul(x, x); {statement}", inputs), high=3)
