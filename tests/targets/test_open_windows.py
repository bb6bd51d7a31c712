"""Windows, borders and parts of images with open extents: one backward graph computes the
gradients of each size, as it is and lowered, and refuses the sizes that the network refuses.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.symbols import with_numbers
from nnef_grad.interpreter.random_values import random_values

HEAD = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;
extension tract_symbol T;
graph net( x ) -> ( y )
{
    x = external(shape = [B, 3, T]);
    w = variable(shape = [2, 3, 4], label = 'w');
"""
N = "tract_core_shape_of(x)[2]"

# Statements, and numbers of T that they take.
MODELS = {
    # Where the windows begin depends on T: so does the phase that an element is at.
    "automatic_padding": ("y = conv(x, w, stride = [3]);", (1, 2, 3, 4, 5, 8)),
    "point": ("y = conv(x, w, stride = [2], dilation = [2]);", (1, 2, 5, 6)),
    # For some numbers nothing is reflected.
    "reflected_to_a_multiple": (
        f"y = pad(x, padding = [(0, 0), (0, 0), (({N} + 2) / 3 * 3 - {N}, 0)], border = 'reflect');",
        (3, 4, 5, 6),
    ),
    # Cropped after, by a number, and padded before, by what is computed.
    "reversed_by_two": (
        f"y = slice(x, axes = [2], begin = [-1], end = [-{N} - 1], stride = [-2]);",
        (1, 2, 5),
    ),
    # At T = 1 nothing is reflected, and a slice is empty that ends at 0.
    "reflected_after": (
        "y = conv(x, w, stride = [2], padding = [(2, 2)], border = 'reflect');",
        (3, 4, 5),
    ),
    "reflected_at_one": (
        """r = nearest_upsample(x, factor = [1]);
    k = slice(w, axes = [2], begin = [0], end = [1]);
    y = conv(r, k, stride = [2], padding = [(0, 1)], border = 'reflect');""",
        (1, 2, 3),
    ),
    # No window steps over a single element.
    "dilated_average": (
        "y = avg_pool(x, size = [1, 1, 2], border = 'ignore', dilation = [1, 1, 2], padding = [(0, 0), (0, 0), (0, 2)]);",
        (1, 2, 5),
    ),
    "dilated_maximum": (
        "c = conv(x, w, stride = [3]);"
        "y = max_pool(c, size = [1, 1, 3], border = 'ignore', stride = [1, 1, 2], dilation = [1, 1, 2]);",
        (1, 2, 4, 9),
    ),
    # Sums need no elements.
    "sums_of_nothing": (
        "y = box(x, size = [1, 1, 2], border = 'ignore', dilation = [1, 1, 2]);",
        (1, 2, 3),
    ),
    # What is divided may be negative.
    "quotient_of_less_than_nothing": (
        f"""a = pad(x, padding = [(0, 0), (0, 0), (0, 6 - (4 - {N}) / 2)]);
    y = conv(a, w, stride = [2]);""",
        (1, 4, 5, 8),
    ),
    "halves": (
        f"""a = nearest_downsample(x, factor = [2]);
    b = nearest_upsample(a, factor = [2]);
    y = add(x, slice(b, axes = [2], begin = [0], end = [{N}]));""",
        (2, 4, 6),
    ),
    # A sum over rows that are padded: B may be odd.
    "sum_of_padded": (
        "s = slice(x, axes = [0], begin = [0], end = [(B + 1) / 2]);"
        "y = sum_reduce(s, axes = [0]);",
        (2, 3),
    ),
}


def backward(name: str, **symbols: int) -> nnef_grad.Graph:
    text = f"{HEAD}    {MODELS[name][0]}\n}}\n"
    graph = nnef_grad.loads(text, symbols=symbols or None)
    return nnef_grad.differentiate(graph).graph


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", [None, "onnx", "tract"])
def test_one_graph_has_the_gradients_of_each_size(
    name: str, target: str | None
) -> None:
    made = backward(name)
    try:
        lowered = nnef_grad.lower(made, target) if target else None
    except NnefGradError as error:
        # tract reflects so many elements as a document says.
        if target != "tract" or "a reflection of" not in error.message:
            raise
        pytest.skip(error.message)
    for steps in MODELS[name][1]:
        sized = backward(name, B=3, T=steps)
        values = random_values(sized, seed=steps)
        graph, data = (lowered.graph, lowered.data) if lowered else (made, {})
        found = nnef_grad.evaluate(graph, values.inputs, {**values.variables, **data})
        agree(found, nnef_grad.evaluate(sized, values.inputs, values.variables))


def agree(found: Any, wanted: Any) -> None:
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("target", ["onnx", "tract"])
def test_what_grows_with_an_extent_does_not_grow_with_its_square(target: str) -> None:
    """The gradient of a filter of each channel, whose form depends on costs."""
    text = """version 1.0;
    extension tract_symbol W;
    graph net( x ) -> ( y )
    {
        x = external(shape = [1, 8, 4, W]);
        w = variable(shape = [8, 1, 5, 5], label = 'w');
        y = conv(x, w, padding = [(2, 2), (2, 2)], groups = 8);
    }"""
    made = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    lowered = nnef_grad.lower(made, target).graph
    one, two = (with_numbers(lowered, {"W": width}) for width in (64, 128))
    for small, large in zip(one.operations, two.operations, strict=True):
        for x, y in zip(small.outputs, large.outputs, strict=True):
            assert prod(y.shape) <= 3 * prod(x.shape)


# ---- Sizes that are refused ----

PAIRS = f"""a = conv(x, w, stride = [2], padding = [(3, 1)]);
    b = reshape(a, shape = [tract_core_shape_of(a)[2] / 2, 2], axis_start = 2, axis_count = 1);
    y = add(mean_reduce(b, axes = [2, 3]), {N});"""


def test_numbers_between_those_that_are_taken() -> None:
    """T / 2 + 1 must be even: T is 2, 3, 6, 7 and so on."""
    statements = PAIRS.rsplit("\n", 1)[0] + "\n    y = mean_reduce(b, axes = [2, 3]);"
    graph = nnef_grad.loads(f"{HEAD}    {statements}\n}}\n")
    taken = []
    for steps in range(1, 9):
        with suppress(NnefGradError):
            with_numbers(graph, {"T": steps})
            taken.append(steps)
    assert taken == [2, 3, 6, 7]


def test_operands_that_are_not_broadcast_for_some_numbers() -> None:
    text = f"""{HEAD}
    h = slice(x, axes = [2], begin = [0], end = [({N} + 1) / 2]);
    y = add(x, h);
}}
"""
    graph = nnef_grad.loads(text)
    data = {"w": np.zeros((2, 3, 4))}
    for steps, fits in ((1, True), (2, True), (4, False)):
        values = {"x": np.ones((1, 3, steps))}
        if fits:
            assert nnef_grad.evaluate(graph, values, data)["y"].shape == (1, 3, steps)
        else:
            with pytest.raises(NnefGradError, match="do not fit"):
                nnef_grad.evaluate(graph, values, data)


# ---- Graphs after each other ----

PLANE = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol H;
extension tract_symbol W;
graph net( x ) -> ( a, z )
{{
    x = external(shape = [1, 1, H, W]);
    a = box(x, size = {size}, padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);
    z = mean_reduce(x, axes = [2, 3]);
}}
"""


def test_a_graph_does_not_get_the_range_of_another() -> None:
    """H * W has the same text whichever of the two is at least 2."""
    for size, numbers in (
        ([1, 1, 2, 1], {"H": 2, "W": 1}),
        ([1, 1, 1, 2], {"H": 1, "W": 2}),
    ):
        graph = nnef_grad.loads(PLANE.format(size=size))
        backward = nnef_grad.differentiate(graph).graph
        shape = with_numbers(backward, numbers).tensors["x"].shape
        assert shape == (1, 1, numbers["H"], numbers["W"])


def test_rests_next_to_each_other() -> None:
    """T / 2 + 1 is even where T leaves 2 or 3 when it is divided by 4."""
    statements = """a = max_pool(x, size = [1, 1, 2], stride = [1, 1, 2], border = 'ignore',
        padding = [(0, 0), (0, 0), (0, 2)]);
    b = reshape(a, shape = [-1, 2], axis_start = 2, axis_count = 1);
    y = mean_reduce(b, axes = [2, 3]);"""
    graph = nnef_grad.loads(f"{HEAD}    {statements}\n}}\n")
    assert [str(extent) for extent in graph.inputs[0].shape] == ["B", "3", "T"]
    taken = []
    for steps in range(1, 9):
        try:
            with_numbers(graph, {"T": steps})
            taken.append(steps)
        except NnefGradError:
            continue
    assert taken == [2, 3, 6, 7]


def test_windows_of_one_element() -> None:
    text = f"""{HEAD}
    y = box(x, size = [1, 1, 1], border = 'ignore', normalize = true);
}}
"""
    graph = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    x = np.arange(6.0).reshape(1, 3, 2)
    found = nnef_grad.evaluate(graph, {"x": x, "grad_y": x}, {"w": np.ones((2, 3, 4))})
    np.testing.assert_array_equal(found["grad_x"], x)
