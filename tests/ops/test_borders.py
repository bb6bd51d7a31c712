"""Borders that repeat elements of the input, in `pad` and in the operations that read
over the edge: gradients held against torch, and what is written.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from support.checks import check_gradients, check_twice, document
from support.windows import Settings, Shape, backward_of, model, volume, written

import nnef_grad
from nnef_grad.graph.extents import as_numbers

BORDERS = ["replicate", "reflect", "reflect-even"]


def refused(text: str) -> str:
    """The message of the error that a text is refused with."""
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(text)
    return caught.value.message


# ---- Padding ----

PADDING: list[tuple[Shape, str]] = [
    ([5], "(1, 1)"),
    ([5], "(0, 3)"),
    ([5], "(4, 0)"),
    ([5], "(4, 4)"),
    ([2, 3, 4], "(0, 0), (0, 0), (2, 1)"),
    ([3, 2, 4], "(2, 1), (0, 0), (0, 3)"),
    ([2, 3, 4, 3], "(0, 0), (0, 0), (1, 1), (2, 2)"),
    ([2, 2, 3, 2, 3], "(1, 0), (0, 1), (2, 1), (0, 0), (1, 2)"),
    # Cut off on one side: less than the padding, more, all of the input.
    ([5], "(-2, 3)"),
    ([5], "(3, -1)"),
    ([5], "(4, -4)"),
    ([4], "(-3, 3)"),
    ([4], "(3, -5)"),
    ([4], "(-5, 3)"),
    ([2, 3, 6], "(0, 0), (1, -1), (-2, -1)"),
    ([1, 2, 4, 5], "(0, 0), (-1, 0), (2, -1), (-2, 2)"),
]


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(("shape", "padding"), PADDING)
def test_pad(shape: Shape, padding: str, border: str) -> None:
    check_twice(model(f"pad(x, padding = [{padding}], border = '{border}')", x=shape))


@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ([1], "(4, 0)"),
        ([1], "(7, 9)"),
        ([1], "(-1, 1)"),
        ([1], "(-2, 6)"),
        ([3, 1, 2], "(0, 0), (2, 2), (9, 9)"),
        ([2], "(100, 50)"),
        ([2, 3, 4, 5], "(0, 0), (0, 0), (11, 0), (-2, 12)"),
        ([3], "(9, -10)"),
        ([3], "(-7, 20)"),
    ],
)
def test_an_edge_may_be_repeated_often(shape: Shape, padding: str) -> None:
    check_twice(model(f"pad(x, padding = [{padding}], border = 'replicate')", x=shape))


def test_a_single_element_has_an_image_beyond_its_edge() -> None:
    check_twice(model("pad(x, padding = [(1, 1)], border = 'reflect-even')", x=[1]))


def random_padding(seed: int) -> str:
    draw = random.Random(seed)
    border = draw.choice(BORDERS)
    shape = [draw.randint(1, 4) for _ in range(1 + seed % 5)]
    padding = [
        random_sides(draw, extent, border) if draw.random() < 0.7 else (0, 0)
        for extent in shape
    ]
    return model(f"pad(x, padding = {padding}, border = '{border}')", x=shape)


def random_sides(draw: random.Random, extent: int, border: str) -> tuple[int, int]:
    widest = {"replicate": 6, "reflect": extent - 1, "reflect-even": extent}[border]
    sides = draw.randint(-extent - 1, widest), draw.randint(-extent - 1, widest)
    return sides if sum(sides) + extent > 0 else random_sides(draw, extent, border)


@pytest.mark.parametrize("seed", range(100))
def test_random_padding(seed: int) -> None:
    (check_gradients if seed % 4 else check_twice)(random_padding(seed))


def test_a_border_that_is_ignored_holds_the_value() -> None:
    text = model("pad(x, padding = [(1, 2), (-1, 1)], border = 'ignore')", x=[3, 4])
    check_twice(text)
    assert "border" not in "".join(
        written(nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text))))
    )


# ---- There is one reflection ----


@pytest.mark.parametrize(
    ("operation", "shapes", "extent", "most", "sides"),
    [
        ("pad(x, padding = [(3, 0)], border = 'reflect')", {"x": [3]}, 3, 2, (3, 0)),
        ("pad(x, padding = [(0, 1)], border = 'reflect')", {"x": [1]}, 1, 0, (0, 1)),
        ("pad(x, padding = [(-9, 8)], border = 'reflect')", {"x": [3]}, 3, 2, (-9, 8)),
        ("conv(x, w, border = 'reflect')", {"x": [1, 1, 2], "w": [1, 1, 5]}, 2, 1, (2, 2)),
        ("deconv(x, w, border = 'reflect', stride = [2])", {"x": [1, 1, 1], "w": [1, 1, 4]}, 1, 0, (1, 1)),
        ("box(x, size = [1, 3], border = 'reflect')", {"x": [4, 1]}, 1, 0, (1, 1)),
        ("debox(x, size = [3, 1], border = 'reflect')", {"x": [1, 4]}, 1, 0, (1, 1)),
        ("max_pool(x, size = [5], border = 'reflect')", {"x": [2]}, 2, 1, (2, 2)),
        ("multilinear_upsample(x, factor = [2], border = 'reflect')", {"x": [1, 1, 1]}, 1, 0, (1, 1)),
        ("multilinear_upsample(x, factor = [2], border = 'reflect', method = 'asymmetric')", {"x": [1, 1, 1]}, 1, 0, (0, 1)),
    ],
)  # fmt: skip
def test_a_reflection_ends_with_the_input(
    operation: str,
    shapes: dict[str, Shape],
    extent: int,
    most: int,
    sides: tuple[int, int],
) -> None:
    assert refused(model(operation, **shapes)) == (
        f"{operation.split('(')[0]}: with border 'reflect' an extent of {extent} can be padded by"
        f" {most} on each side, and is padded by {sides}"
    )


@pytest.mark.parametrize(("border", "most"), [("reflect", 2), ("reflect-even", 3)])
def test_how_far_a_reflection_goes(border: str, most: int) -> None:
    def text(before: int, after: int) -> str:
        padding = f"[({before}, {after})]"
        return model(f"pad(x, padding = {padding}, border = '{border}')", x=[3])

    check_gradients(text(most, most))
    for sides in ((most + 1, 0), (0, most + 1)):
        assert f"padded by {most} on each side, and is padded by {sides}" in refused(
            text(*sides)
        )


@pytest.mark.parametrize(
    "operation",
    [
        "box(x, size = [3], border = 'reflect', padding = [(0, 0)])",
        "box(x, size = [1], border = 'reflect', padding = [(0, 3)], stride = [9])",
        "debox(x, size = [2], border = 'reflect', stride = [2])",
    ],
)
def test_a_reflection_that_is_not_read_may_be_wider(operation: str) -> None:
    check_gradients(model(operation, x=[3]))


# ---- Convolutions ----

CONVOLUTIONS: list[tuple[str, dict[str, Shape]]] = [
    ("conv(x, w", {"x": [2, 3, 7], "w": [4, 3, 3]}),
    ("conv(x, w, b", {"x": [2, 3, 7, 6], "w": [4, 3, 3, 2], "b": [1, 4]}),
    ("conv(x, w, 0.5", {"x": [2, 3, 7], "w": [4, 3, 3]}),
    ("conv(x, w, b", {"x": [1, 2, 4, 5, 3], "w": [3, 2, 2, 3, 2], "b": [1, 3]}),
    ("conv(x, w, stride = [2, 3]", {"x": [2, 3, 7, 8], "w": [4, 3, 3, 4]}),
    # The stride leaves a remainder, which takes padding with it.
    ("conv(x, w, stride = [3], padding = [(2, 2)]", {"x": [2, 3, 9], "w": [4, 3, 2]}),
    ("conv(x, w, stride = [4], padding = [(1, 0)]", {"x": [2, 3, 9], "w": [4, 3, 2]}),
    ("conv(x, w, dilation = [2, 3]", {"x": [2, 3, 7, 8], "w": [4, 3, 3, 2]}),
    ("conv(x, w, padding = [(2, 0), (0, 3)]", {"x": [2, 3, 4, 4], "w": [4, 3, 3, 3]}),
    ("conv(x, w, padding = [(-1, 2), (1, -1)], stride = [1, 2]", {"x": [2, 3, 7, 8], "w": [4, 3, 3, 2]}),
    # A window that has nothing of the input.
    ("conv(x, w, b, padding = [(3, 3)]", {"x": [2, 3, 4], "w": [4, 3, 2], "b": [1, 4]}),
    ("conv(x, w, groups = 2, stride = [2]", {"x": [2, 6, 7], "w": [4, 3, 3]}),
    ("conv(x, w, groups = 0, dilation = [2]", {"x": [2, 3, 7], "w": [6, 1, 3]}),
    ("conv(x, x, padding = [(2, 1)]", {"x": [3, 3, 3]}),
    ("deconv(x, w", {"x": [2, 4, 5], "w": [4, 3, 3]}),
    ("deconv(x, w, b", {"x": [2, 4, 5, 4], "w": [4, 3, 3, 2], "b": [1, 3]}),
    ("deconv(x, w, b", {"x": [1, 3, 2, 3, 2], "w": [3, 2, 2, 3, 2], "b": [1, 2]}),
    ("deconv(x, w, padding = [(0, 0)]", {"x": [2, 4, 5], "w": [4, 3, 3]}),
    ("deconv(x, w, stride = [2, 3]", {"x": [2, 4, 5, 4], "w": [4, 3, 5, 4]}),
    ("deconv(x, w, stride = [2, 3], padding = [(1, 0), (0, 1)], dilation = [2, 1]", {"x": [2, 4, 5, 4], "w": [4, 3, 3, 4]}),
    # The output ends in a gap between windows, or begins in one.
    ("deconv(x, w, stride = [3], output_shape = [2, 3, 14]", {"x": [2, 4, 5], "w": [4, 3, 2]}),
    ("deconv(x, w, stride = [3], padding = [(-1, -2)]", {"x": [2, 4, 5], "w": [4, 3, 2]}),
    ("deconv(x, w, stride = [4], padding = [(-6, -7)]", {"x": [2, 4, 3], "w": [4, 3, 2]}),
    ("deconv(x, w, stride = [3], padding = [(1, 1)], output_shape = [2, 3, 15]", {"x": [2, 4, 5], "w": [4, 3, 4]}),
    # Some of the input is never used.
    ("deconv(x, w, padding = [(4, 1)]", {"x": [2, 4, 6], "w": [4, 3, 3]}),
    ("deconv(x, w, groups = 2, stride = [2]", {"x": [2, 4, 5], "w": [4, 3, 3]}),
    ("deconv(x, w, b, groups = 0", {"x": [2, 4, 5], "w": [4, 1, 3], "b": [1, 4]}),
    ("deconv(x, w, groups = 0, output_shape = [2, 2, 5]", {"x": [2, 4, 5], "w": [4, 1, 3]}),
    ("separable_conv(x, w, v, b, stride = [2, 1]", {"x": [2, 3, 5, 6], "w": [6, 1, 3, 3], "v": [4, 6, 1, 1], "b": [1, 4]}),
    ("separable_deconv(x, w, v, b, stride = [2]", {"x": [2, 4, 5], "w": [6, 1, 4], "v": [4, 6, 1], "b": [1, 6]}),
    ("separable_deconv(x, w, v, stride = [2], output_shape = [2, 6, 9]", {"x": [2, 4, 5], "w": [6, 1, 4], "v": [4, 6, 1]}),
]  # fmt: skip


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(("operation", "shapes"), CONVOLUTIONS)
def test_convolutions(operation: str, shapes: dict[str, Shape], border: str) -> None:
    check_twice(model(f"{operation}, border = '{border}')", **shapes))


def test_what_the_bias_receives_needs_no_padding() -> None:
    text = model(
        "conv(x, w, b, border = 'replicate')", x=[2, 3, 5], w=[4, 3, 3], b=[1, 4]
    )
    checked = check_gradients(text, wrt=["b"])
    assert written(checked.text) == [
        "grad_b_sum = sum_reduce(grad_y, axes = [0, 2]);",
        "grad_b = squeeze(grad_b_sum, axes = [2]);",
    ]


# ---- Box filters, pooling, sampling ----

POOLS = [
    "size = [1, 1, 3, 2]",
    "size = [1, 1, 3, 3], stride = [1, 1, 2, 2]",
    "size = [1, 1, 3, 2], stride = [1, 1, 1, 3], padding = [(0, 0), (0, 0), (2, 0), (1, 1)]",
    "size = [1, 1, 2, 3], dilation = [1, 1, 3, 2]",
    "size = [2, 3, 1, 1], padding = [(1, 0), (1, 1), (0, 0), (0, 0)]",
    "size = [2, 2, 2, 2], stride = [2, 1, 3, 1]",
    "size = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (-1, 1), (2, -2)]",
    "size = [1, 1, 1, 1], padding = [(1, 0), (0, 2), (2, 2), (-1, 1)]",
]


def away_from_zero(x: torch.Tensor) -> torch.Tensor:
    return x + x.sign()


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("windows", POOLS)
@pytest.mark.parametrize(
    "operation",
    [
        "box(x, {})",
        "box(x, {}, normalize = true)",
        "avg_pool(x, {})",
        "rms_pool(x, {})",
        "max_pool(x, {})",
    ],
)
def test_pooling(operation: str, windows: str, border: str) -> None:
    attributes = f"{windows}, border = '{border}'"
    check_twice(
        model(operation.format(attributes), x=[2, 3, 6, 7]),
        shapes="max" not in operation,
        transform=away_from_zero,
    )


@pytest.mark.parametrize("normalize", ["true", "false"])
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(
    "windows",
    [
        *(windows for windows in POOLS if "padding" not in windows),
        "size = [1, 1, 3, 4], stride = [1, 1, 2, 3], padding = [(0, 0), (0, 0), (2, 0), (1, 1)]",
        "size = [2, 3, 1, 1], padding = [(0, 0), (1, 1), (0, 0), (0, 0)]",
        "size = [1, 1, 3, 3], stride = [1, 1, 2, 3], output_shape = [2, 3, 11, 20]",
        "size = [1, 1, 2, 2], padding = [(-1, 0), (0, 0), (-2, -1), (1, -3)]",
    ],
)
def test_debox(windows: str, border: str, normalize: str) -> None:
    attributes = f"{windows}, border = '{border}', normalize = {normalize}"
    check_twice(model(f"debox(x, {attributes})", x=[2, 3, 6, 7]))


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("windows", POOLS)
def test_sampling(windows: str, border: str) -> None:
    attributes = f"{windows}, border = '{border}'"
    sampled = nnef_grad.loads(model(f"box(x, {attributes})", x=[2, 3, 6, 7]))
    text = model(
        f"sample(x, i, {attributes})",
        x=[2, 3, 6, 7],
        i=as_numbers(sampled.tensors["y"].shape),
    )
    check_twice(text, shapes=False, high=volume(windows))


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("windows", POOLS)
def test_max_pool_with_index(windows: str, border: str) -> None:
    attributes = f"{windows}, border = '{border}'"
    body = (
        "    x = external(shape = [2, 3, 6, 7]);\n"
        f"    y, i = max_pool_with_index(x, {attributes});\n"
        f"    z = sample(x, i, {attributes});"
    )
    check_twice(document(body, outputs="y, z"), shapes=False)


def test_an_index_depends_on_nothing() -> None:
    body = (
        "    x = external(shape = [2, 5]);\n"
        "    i = argmax_pool(x, size = [1, 3], border = 'replicate');\n"
        "    s = sample(x, i, size = [1, 3]);\n"
        "    y = exp(s);"
    )
    checked = check_gradients(document(body), shapes=False)
    assert (
        "    i = argmax_pool(x, size = [1, 3], border = 'replicate');" in checked.text
    )


def test_a_copy_that_is_the_maximum_hands_its_gradient_on() -> None:
    text = model("max_pool(x, size = [3], border = 'replicate')", x=[3])
    rising = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    seeds = {"y": torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)}
    checked = check_gradients(text, feeds={"x": rising}, seeds=seeds, shapes=False)
    assert checked.gradients["x"].tolist() == [0.0, 1.0, 110.0]


# ---- Random settings ----

FILTERED = ("conv", "deconv")
POOLED = ("box", "debox", "avg_pool", "max_pool", "sample")


def random_border(seed: int) -> tuple[str, dict[str, Shape]]:
    """An operation with a border; another one where there is no such border around its
    input.
    """
    draw = Settings(seed)
    operation = draw.random.choice([*FILTERED, *POOLED])
    build = random_convolution if operation in FILTERED else random_pool
    invocation, shapes = build(draw, operation, dimensions=1 + seed % 3)
    text = f"{invocation}, border = '{draw.random.choice(BORDERS)}')"
    try:
        nnef_grad.loads(model(text, **shapes))
    except nnef_grad.InvalidGraphError:
        return random_border(seed + 1000)
    return text, shapes


def random_convolution(
    draw: Settings, operation: str, dimensions: int
) -> tuple[str, dict[str, Shape]]:
    size = [draw.between(1, 4 if dimensions < 3 else 2) for _ in range(dimensions)]
    windows = draw.windows(size, largest_stride=4)
    groups, inside, filters = draw.between(1, 3), draw.between(1, 2), draw.between(1, 2)
    outer, inner = groups * inside, groups * filters
    up, down = [2, outer, *windows["up"]], [2, inner, *windows["down"]]
    text = f"{draw.attributes(windows)}, groups = {groups}"
    if operation == "deconv":
        text += f", output_shape = {up}"
    x, y = (down, up) if operation == "deconv" else (up, down)
    shapes: dict[str, Shape] = {
        "x": x,
        "w": [inner, inside, *size],
        "b": [1, y[1]],
    }
    return f"{operation}(x, w, b{text}", shapes


def random_pool(
    draw: Settings, operation: str, dimensions: int
) -> tuple[str, dict[str, Shape]]:
    size = [draw.between(1, 3) for _ in range(dimensions)]
    windows = draw.windows(size)
    text = f"size = {size}{draw.attributes(windows)}"
    up, down = windows["up"], windows["down"]
    if operation == "debox":
        return f"debox(x, {text}, output_shape = {up}", {"x": down}
    if operation == "sample":
        return f"sample(x, i, {text}", {"x": up, "i": down}
    return f"{operation}(x, {text}", {"x": up}


@pytest.mark.parametrize("seed", range(100))
def test_random_settings(seed: int) -> None:
    operation, shapes = random_border(seed)
    (check_gradients if seed % 4 else check_twice)(
        model(operation, **shapes),
        seed=seed,
        shapes=not operation.startswith(("max", "sample")),
        high=volume(operation) if "size = [" in operation else 2,
    )


# ---- What is written ----


def names(statements: Sequence[str]) -> list[str]:
    return [statement.split(" = ")[1].split("(")[0] for statement in statements]


def test_the_gradient_of_replicated_edges() -> None:
    text = backward_of(
        "pad(x, padding = [(0, 0), (0, 0), (2, 1)], border = 'replicate')", x=[2, 3, 5]
    )
    assert written(text) == [
        "first_copies_y = slice(grad_y, axes = [2], begin = [0], end = [3]);",
        "first_y = sum_reduce(first_copies_y, axes = [2]);",
        "inner_y = slice(grad_y, axes = [2], begin = [3], end = [6]);",
        "last_copies_y = slice(grad_y, axes = [2], begin = [6], end = [8]);",
        "last_y = sum_reduce(last_copies_y, axes = [2]);",
        "grad_x = concat([first_y, inner_y, last_y], axis = 2);",
    ]


def test_the_gradient_of_a_reflection() -> None:
    text = backward_of(
        "pad(x, padding = [(0, 0), (0, 0), (2, 1)], border = 'reflect')", x=[2, 3, 5]
    )
    assert written(text) == [
        "inner_y = slice(grad_y, axes = [2], begin = [2], end = [7]);",
        "mirrored_before_y = slice(grad_y, axes = [2], begin = [1], end = [-9], stride = [-1]);",
        "before_y = pad(mirrored_before_y, padding = [(0, 0), (0, 0), (1, 2)]);",
        "folded_y = add(inner_y, before_y);",
        "mirrored_after_y = slice(grad_y, axes = [2], begin = [7], end = [8]);",
        "after_y = pad(mirrored_after_y, padding = [(0, 0), (0, 0), (3, 1)]);",
        "grad_x = add(folded_y, after_y);",
    ]


def test_copies_of_a_single_element_are_summed() -> None:
    text = backward_of("pad(x, padding = [(2, 3)], border = 'replicate')", x=[1])
    assert written(text) == ["grad_x = sum_reduce(grad_y, axes = [0]);"]


def test_a_convolution_reads_a_padded_input() -> None:
    text = backward_of(
        "conv(x, w, border = 'replicate', padding = [(2, -1)], stride = [2])",
        x=[2, 3, 8],
        w=[4, 3, 3],
    )
    assert written(text)[:2] == [
        "y_padded = pad(x, padding = [(0, 0), (0, 0), (2, 0)], border = 'replicate');",
        "grad_y_padded = deconv(grad_y, w, padding = [(0, -1)], stride = [2]);",
    ]


def test_a_deconvolution_reads_the_windows_over_its_ends() -> None:
    text = backward_of(
        "deconv(x, w, border = 'replicate', stride = [2])", x=[2, 4, 5], w=[4, 3, 4]
    )
    assert written(text)[:2] == [
        "y_padded = pad(x, padding = [(0, 0), (0, 0), (1, 1)], border = 'replicate');",
        "grad_y_padded = conv(grad_y, w, padding = [(3, 3)], stride = [2]);",
    ]


@pytest.mark.parametrize("border", BORDERS)
def test_nothing_is_padded_where_the_border_is_not_read(border: str) -> None:
    windows = "size = [2], stride = [2], padding = [(0, 1)]"
    text = backward_of(f"avg_pool(x, {windows}, border = '{border}')", x=[6])
    assert names(written(text)) == ["div", "debox"]
