"""The costs of operations, held against calculations by hand and against torch's count."""

from __future__ import annotations

import pytest
import torch
from support import reference
from support.checks import document
from support.operation_models import Model, models
from torch.utils.flop_counter import FlopCounterMode

import nnef_grad
from nnef_grad.graph.ir import LOOP, STOP, Operation
from nnef_grad.language.library import STDLIB
from nnef_grad.ops import traits
from nnef_grad.ops.costs import (
    COSTS,
    READ,
    bytes_moved,
    multiply_adds,
)


def operation(statement: str, **inputs: str) -> Operation:
    """The last operation of a model with inputs of some shapes."""
    externals = [f"{x} = external(shape = {shape});" for x, shape in inputs.items()]
    body = "\n".join([*externals, f"{statement};"])
    return nnef_grad.loads(document(body, ", ".join(inputs))).operations[-1]


# 2 * 9 windows of 3 x 3 over 4 channels, for 6 filters.
CONV = 2 * 9 * (6 * 4 * 9)


@pytest.mark.parametrize(
    ("statement", "inputs", "count"),
    [
        (
            "y = conv(x, w, padding = [(0,0), (0,0)])",
            {"x": "[2,4,5,5]", "w": "[6,4,3,3]"},
            CONV,
        ),
        # The padding is counted, the bias is not.
        ("y = conv(x, w, 1.0)", {"x": "[2,4,3,3]", "w": "[6,4,3,3]"}, CONV),
        (
            "y = conv(x, w, groups = 2)",
            {"x": "[2,8,3,3]", "w": "[6,4,3,3]"},
            CONV,
        ),
        (
            "y = deconv(x, w, padding = [(0,0), (0,0)])",
            {"x": "[2,6,3,3]", "w": "[6,4,3,3]"},
            CONV,
        ),
        # 2 * 9 windows: of 3 x 3 for each of 4 channels, of 4 channels for each of 6.
        (
            "y = separable_conv(x, w, p)",
            {"x": "[2,4,3,3]", "w": "[4,1,3,3]", "p": "[6,4,1,1]"},
            2 * 9 * (4 * 9 + 6 * 4),
        ),
        (
            "y = separable_deconv(x, w, p, stride = [2,2])",
            {"x": "[2,6,3,3]", "w": "[4,1,3,3]", "p": "[6,4,1,1]"},
            2 * 9 * (4 * 9 + 6 * 4),
        ),
        ("y = matmul(x, w)", {"x": "[2,3,4]", "w": "[1,4,5]"}, 2 * 3 * 5 * 4),
        (
            "y = matmul(x, w, transposeA = true)",
            {"x": "[4,3]", "w": "[4,5]"},
            3 * 5 * 4,
        ),
        ("y = linear(x, w, 1.0)", {"x": "[3,4]", "w": "[5,4]"}, 3 * 5 * 4),
        ("y = avg_pool(x, size = [1,1,3,3])", {"x": "[2,4,5,5]"}, 2 * 4 * 25 * 9),
        (
            "y = debox(x, size = [1,1,2,2], stride = [1,1,2,2], padding = [(0,0),(0,0),(0,0),(0,0)])",
            {"x": "[2,4,5,5]"},
            2 * 4 * 25 * 4,
        ),
        ("y = max_pool(x, size = [1,1,3,3])", {"x": "[2,4,5,5]"}, 0),
        ("y = sum_reduce(x, axes = [0])", {"x": "[2,3]"}, 6),
        ("m, y = moments(x, axes = [0])", {"x": "[2,3]"}, 12),
        (
            "y = local_response_normalization(x, size = [1,5,1,1])",
            {"x": "[2,4,3,3]"},
            2 * 4 * 9 * 5,
        ),
        (
            "y = multilinear_upsample(x, factor = [2,2])",
            {"x": "[2,4,3,3]"},
            2 * 4 * 36 * 4,
        ),
        (
            "y = multilinear_upsample(x, factor = [1,2])",
            {"x": "[2,4,3,3]"},
            2 * 4 * 18 * 2,
        ),
        ("y = mul(x, w)", {"x": "[2,3]", "w": "[2,3]"}, 0),
        ("y = transpose(x, axes = [1,0])", {"x": "[2,3]"}, 0),
    ],
)
def test_multiply_adds(statement: str, inputs: dict[str, str], count: int) -> None:
    assert multiply_adds(operation(statement, **inputs)) == count


@pytest.mark.parametrize("name", ["box", "avg_pool"])
def test_multiply_adds_of_a_literal(name: str) -> None:
    assert multiply_adds(operation(f"y = {name}(2.0, size = [])", x="[2]")) == 1


REGIONS = "external(shape = [5,4]);\ni = external<integer>(shape = [5,1]);"


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("roi_resample(x, r, i, output_size = [2,2])", 5 * 3 * 4 * 4),
        (
            "avg_roi_align(x, r, i, output_size = [2,2], sampling_rate = [3,3])",
            5 * 3 * 4 * 9 * 5,
        ),
        (
            "max_roi_align(x, r, i, output_size = [2,2], sampling_rate = [3,3])",
            5 * 3 * 4 * 9 * 4,
        ),
        ("avg_roi_pool(x, r, i, output_size = [2,2])", 5 * 3 * 64),
        ("max_roi_pool(x, r, i, output_size = [2,2])", 0),
    ],
)
def test_multiply_adds_of_regions(statement: str, count: int) -> None:
    body = f"x = external(shape = [1,3,8,8]);\nr = {REGIONS}\ny = {statement};"
    graph = nnef_grad.loads(document(body, "x, r, i"))
    assert multiply_adds(graph.operations[-1]) == count


@pytest.mark.parametrize(
    ("statement", "inputs", "bytes_"),
    [
        ("y = add(x, w)", {"x": "[2,3]", "w": "[2,1]"}, 4 * (6 + 2 + 6)),
        ("y = mul(x, x)", {"x": "[2,3]"}, 4 * (6 + 6)),
        ("y = lt(x, 0.0)", {"x": "[2,3]"}, 4 * 6 + 6),
        ("y = reshape(x, shape = [6])", {"x": "[2,3]"}, 0),
        ("y = unsqueeze(x, axes = [0])", {"x": "[2,3]"}, 0),
        ("y = transpose(x, axes = [1,0])", {"x": "[2,3]"}, 4 * (6 + 6)),
        ("y = slice(x, axes = [0], begin = [0], end = [1])", {"x": "[2,3]"}, 4 * 6),
        ("y = sum_reduce(x, axes = [0,1])", {"x": "[2,3]"}, 4 * 7),
    ],
)
def test_bytes_moved(statement: str, inputs: dict[str, str], bytes_: int) -> None:
    assert bytes_moved(operation(statement, **inputs)) == bytes_


def test_what_a_graph_is_given_moves_no_bytes() -> None:
    body = "x = external(shape = [2]);\nc = constant(shape = [2], value = [1.0]);"
    graph = nnef_grad.loads(document(f"{body}\ny = add(x, c);"))
    assert [bytes_moved(op) for op in graph.operations] == [0, 0, 24]


def test_the_tables_are_of_operations() -> None:
    assert COSTS.keys() | READ <= {*STDLIB, LOOP}


# They count nothing: they compare, move or scale single elements.
FREE = (
    traits.SOURCES
    | traits.ELEMENTWISE
    | traits.MOVING
    | traits.DECISIONS
    | {
        "update",
        "max_pool",
        "max_pool_with_index",
        "sample",
        "max_reduce",
        "min_reduce",
    }
    | {"max_roi_pool", "gather", "pad", "nearest_downsample", "nearest_upsample"}
    | {"batch_normalization"}
    | {name for name in STDLIB if name.endswith("_quantize")}
)


def test_each_operation_of_the_standard_counts_or_is_listed() -> None:
    assert STDLIB.keys() - COSTS.keys() == FREE - {STOP}


# To repeat a border, the oracle pads what a reverse operation reads.
PRODUCTS = [
    model
    for model in models()
    if model.operation in {"conv", "matmul"}
    or (model.operation == "deconv" and "border" not in model.text)
]


@pytest.mark.parametrize("model", PRODUCTS, ids=lambda model: model.name)
def test_products_count_as_much_as_in_torch(model: Model) -> None:
    graph = nnef_grad.loads(model.text)
    feeds, variables = reference.random_feeds(model.text, torch.Generator())
    with FlopCounterMode(display=False) as counter:
        reference.evaluate(model.text, feeds, variables)
    assert 2 * sum(map(multiply_adds, graph.operations)) == counter.get_total_flops()
