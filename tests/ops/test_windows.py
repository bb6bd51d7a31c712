"""Convolution, pooling, box filters and sampling: shapes, messages, gradients, held
against torch and the Khronos parser.
"""

from __future__ import annotations

import nnef
import pytest
import torch
from support.checks import accept, check_gradients, check_twice, document
from support.windows import Settings, Shape, backward_of, model, volume, written

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from nnef_grad.ops.windows import (
    Windows,
    automatic_padding,
    downscaling,
    upscaling,
)

# ---- The arithmetic ----


@pytest.mark.parametrize(
    ("up", "size", "stride", "dilation", "padding"),
    [
        (8, 3, 1, 1, (1, 1)),
        (8, 3, 2, 1, (0, 1)),  # the odd element goes after
        (7, 3, 2, 1, (1, 1)),
        (8, 2, 1, 1, (0, 1)),
        (8, 1, 1, 1, (0, 0)),
        (
            8,
            1,
            3,
            1,
            (0, 0),
        ),  # a stride wider than the window needs no padding, and none is negative
        (9, 3, 1, 2, (2, 2)),
        (10, 3, 3, 2, (2, 2)),
        (1, 5, 1, 1, (2, 2)),
    ],
)
def test_automatic_padding(
    up: int, size: int, stride: int, dilation: int, padding: tuple[int, int]
) -> None:
    assert automatic_padding((up,), (size,), (stride,), (dilation,)) == (padding,)


@pytest.mark.parametrize(
    ("up", "size", "padding", "stride", "dilation", "down"),
    [
        (8, 3, (0, 0), 1, 1, 6),
        (8, 3, (1, 1), 1, 1, 8),
        (8, 3, (1, 0), 2, 1, 4),
        (8, 3, (0, 0), 2, 1, 3),  # one element is left over
        (9, 3, (0, 0), 1, 3, 3),
        (8, 3, (-1, -2), 1, 1, 3),
        (2, 3, (0, 1), 5, 1, 1),
    ],
)
def test_down_scaled_extents(
    up: int, size: int, padding: tuple[int, int], stride: int, dilation: int, down: int
) -> None:
    windows = downscaling((up,), (size,), (padding,), (stride,), (dilation,))
    assert windows.down == (down,)
    assert windows.has_natural_extents == (
        (down - 1) * stride + (size - 1) * dilation + 1 - sum(padding) == up
    )


def test_up_scaled_extents_are_multiples_if_the_padding_is_automatic() -> None:
    assert upscaling((4, 5), (3, 3), (), (2, 3), (), ()).up == (8, 15)


def test_up_scaled_extents_are_those_asked_for() -> None:
    assert [
        upscaling((4,), (3,), ((0, 0),), (2,), (), shape).up
        for shape in ((), (9,), (10,))
    ] == [(9,), (9,), (10,)]


def test_defaults_are_resolved() -> None:
    windows = downscaling((8, 8), (3, 3), (), (), ())
    assert windows == Windows((8, 8), (8, 8), (3, 3), ((1, 1), (1, 1)), (1, 1), (1, 1))


@pytest.mark.parametrize(
    ("up", "padding", "basic", "reverse"),
    [
        (6, (0, 0), (0, 0), (0, 0)),  # windows of 2 with stride 2 tile the input
        (6, (1, 1), (1, 1), (0, 0)),
        (6, (1, 0), (1, 0), (0, 1)),
        (6, (0, 2), (0, 2), (0, 0)),
        (7, (0, 0), (0, 0), (0, 1)),  # a further window would begin at the last element
        (7, (-1, 0), (0, 0), (1, 0)),  # one before the first would end at the first
        (6, (0, 1), (0, 0), (0, 0)),  # the padding is never reached
        (10, (-4, -3), (0, 0), (2, 2)),
    ],
)
def test_what_is_read_outside(
    up: int, padding: tuple[int, int], basic: tuple[int, int], reverse: tuple[int, int]
) -> None:
    windows = downscaling((up,), (2,), (padding,), (2,), ())
    assert windows.outside == (basic,)
    assert windows.outside_down == (reverse,)


@pytest.mark.parametrize("padding", [(0, 0), (3, 1), (-2, 4), (9, 9)])
@pytest.mark.parametrize(("size", "dilation"), [(2, 1), (3, 2), (2, 5), (4, 3)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_how_many_elements_lie_inside(
    padding: tuple[int, int], size: int, dilation: int, stride: int
) -> None:
    (axis,) = downscaling((10,), (size,), (padding,), (stride,), (dilation,)).axes
    places = [list(axis.positions(window)) for window in range(axis.down)]
    counts = [sum(0 <= place < axis.up for place in window) for window in places]
    assert axis.counts_inside == tuple(counts)


def test_elements_of_long_windows_are_not_counted_one_by_one() -> None:
    (axis,) = downscaling((100_000,), (100_000,), ((99_999, 0),)).axes
    assert sum(axis.counts_inside) == 100_000 * 100_001 // 2


# ---- Shapes ----

SHAPES = [
    ("conv(x, w)", {"x": [2, 3, 8, 9], "w": [4, 3, 3, 3]}, [2, 4, 8, 9]),
    ("conv(x, w, stride = [2, 3])", {"x": [2, 3, 8, 10], "w": [4, 3, 3, 3]}, [2, 4, 4, 4]),
    ("conv(x, w, padding = [(0, 0), (1, 2)])", {"x": [2, 3, 8, 9], "w": [4, 3, 3, 3]}, [2, 4, 6, 10]),
    ("conv(x, w, padding = [(0, 0)], dilation = [3])", {"x": [2, 3, 9], "w": [4, 3, 3]}, [2, 4, 3]),
    ("conv(x, w, groups = 3)", {"x": [2, 6, 8], "w": [9, 2, 3]}, [2, 9, 8]),
    ("conv(x, w, groups = 0)", {"x": [2, 6, 8], "w": [12, 1, 3]}, [2, 12, 8]),
    ("deconv(x, w)", {"x": [2, 4, 8, 9], "w": [4, 3, 3, 3]}, [2, 3, 8, 9]),
    ("deconv(x, w, stride = [2, 3])", {"x": [2, 4, 4, 4], "w": [4, 3, 3, 3]}, [2, 3, 8, 12]),
    ("deconv(x, w, stride = [3], padding = [(1, 0)])", {"x": [2, 4, 4], "w": [4, 3, 3]}, [2, 3, 11]),
    ("deconv(x, w, stride = [3], output_shape = [2, 3, 10])", {"x": [2, 4, 4], "w": [4, 3, 3]}, [2, 3, 10]),
    ("deconv(x, w, stride = [3], padding = [(1, 0)], output_shape = [2, 3, 13])", {"x": [2, 4, 4], "w": [4, 3, 3]}, [2, 3, 13]),
    ("deconv(x, w, groups = 2)", {"x": [2, 4, 8], "w": [4, 3, 3]}, [2, 6, 8]),
    ("deconv(x, w, groups = 0)", {"x": [2, 4, 8], "w": [4, 1, 3]}, [2, 4, 8]),
    ("deconv(x, w, groups = 0, output_shape = [2, 2, 8])", {"x": [2, 4, 8], "w": [4, 1, 3]}, [2, 2, 8]),
    ("separable_conv(x, w, v, stride = [2])", {"x": [2, 3, 8], "w": [6, 1, 3], "v": [5, 6, 1]}, [2, 5, 4]),
    ("separable_deconv(x, w, v, stride = [2])", {"x": [2, 5, 4], "w": [6, 1, 3], "v": [5, 6, 1]}, [2, 6, 8]),
    ("box(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2])", {"x": [2, 3, 8, 9]}, [2, 3, 4, 5]),
    ("avg_pool(x, size = [2, 3], padding = [(0, 0), (0, 0)])", {"x": [4, 5]}, [3, 3]),
    ("rms_pool(x, size = [2, 3], padding = [(0, 1), (0, 0)], dilation = [3, 1])", {"x": [4, 5]}, [2, 3]),
    ("max_pool(x, size = [2, 3], padding = [(-1, 0), (0, 0)])", {"x": [4, 5]}, [2, 3]),
    ("debox(x, size = [2, 3], stride = [2, 3])", {"x": [4, 5]}, [8, 15]),
    ("debox(x, size = [2, 3], stride = [2, 3], output_shape = [7, 13])", {"x": [4, 5]}, [7, 13]),
    ("desample(x, i, size = [1, 3], stride = [1, 3])", {"x": [4, 5], "i": [4, 5]}, [4, 15]),
    ("nearest_downsample(x, factor = [2, 3])", {"x": [2, 3, 4, 6]}, [2, 3, 2, 2]),
    ("area_downsample(x, factor = [2, 3])", {"x": [2, 3, 4, 6]}, [2, 3, 2, 2]),
    ("nearest_upsample(x, factor = [2, 3])", {"x": [2, 3, 4, 6]}, [2, 3, 8, 18]),
    ("multilinear_upsample(x, factor = [2], method = 'aligned', border = 'constant')", {"x": [2, 3, 4]}, [2, 3, 8]),
    ("max_roi_pool(x, r, i, output_size = [2, 3])", {"x": [2, 3, 8, 8], "r": [5, 4], "i": [5]}, [5, 3, 2, 3]),
    ("roi_resample(x, r, i, output_size = [2, 3], method = 'aligned')", {"x": [2, 3, 8, 8], "r": [5, 4], "i": [5]}, [5, 3, 2, 3]),
    ("avg_roi_align(x, r, i, output_size = [2, 3], sampling_rate = [2, 2])",
     {"x": [2, 3, 8, 8], "r": [5, 4], "i": [5]}, [5, 3, 2, 3]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "shapes", "expected"),
    SHAPES,
    ids=[operation for operation, *_ in SHAPES],
)
def test_shapes(operation: str, shapes: dict[str, Shape], expected: Shape) -> None:
    text = model(operation, **shapes)
    graph = nnef_grad.loads(text)
    assert list(graph.tensors["y"].shape) == expected
    accept(text, graph)


# The inference of the Khronos parser is stricter than the specification here, or wrong.
SPECIFIED = [
    (
        "sample(x, i, size = [1, 3], stride = [1, 3])",
        {"x": [4, 15], "i": [4, 5]},
        [4, 5],
    ),
    (
        "max_roi_pool(x, r, i, output_size = [2, 3])",
        {"x": [2, 3, 8, 8], "r": [5, 4], "i": [5, 1]},
        [5, 3, 2, 3],
    ),
    (
        "avg_roi_pool(x, r, i, output_size = [2])",
        {"x": [2, 3, 8], "r": [5, 2], "i": [5, 1]},
        [5, 3, 2],
    ),
    *(
        ("conv(x, w, b)", {"x": [2, 3, 8], "w": [4, 3, 3], "b": bias}, [2, 4, 8])
        for bias in ([], [1], [1, 1], [1, 4], [1, 1, 1], [1, 4, 1])
    ),
]


@pytest.mark.parametrize(("operation", "shapes", "expected"), SPECIFIED)
def test_shapes_by_the_specification(
    operation: str, shapes: dict[str, Shape], expected: Shape
) -> None:
    assert (
        list(nnef_grad.loads(model(operation, **shapes)).tensors["y"].shape) == expected
    )


X, W = [2, 4, 8, 8], [6, 4, 3, 3]
TILES = "size = [1, 1, 2, 2], stride = [1, 1, 2, 2]"

REFUSED = [
    ("conv(x, w, b)", {"x": X, "w": W, "b": [6]},
     "the bias must have the shape [1, 6], or be a single element, but has the shape [6]"),
    ("conv(x, w, b)", {"x": X, "w": W, "b": [1, 4]},
     "the bias must have the shape [1, 6], or be a single element, but has the shape [1, 4]"),
    ("conv(x, w, b)", {"x": X, "w": W, "b": [2, 6]},
     "the bias must have the shape [1, 6], or be a single element, but has the shape [2, 6]"),
    ("conv(x, w, b)", {"x": X, "w": W, "b": [1, 6, 1, 1, 1]},
     "the bias must have the shape [1, 6], or be a single element, but has the shape [1, 6, 1, 1, 1]"),
    ("conv(x, w)", {"x": X, "w": [6, 4, 3]},
     "the filter must have the rank of the input, and their shapes are [6, 4, 3] and [2, 4, 8, 8]"),
    ("conv(x, w)", {"x": [4], "w": [4]}, "the input must have batch and channels, but has the shape [4]"),
    ("conv(x, w)", {"x": X, "w": [6, 3, 3, 3]},
     "the filter has 3 channels for each of 1 groups, and the input has 4 channels in all"),
    ("conv(x, w, groups = 2)", {"x": X, "w": W},
     "the filter has 4 channels for each of 2 groups, and the input has 4 channels in all"),
    ("conv(x, w, groups = 4)", {"x": X, "w": [6, 1, 3, 3]}, "'groups' must divide the number of filters, and they are 4 and 6"),
    ("conv(x, w, groups = 0)", {"x": X, "w": [6, 1, 3, 3]}, "'groups' must divide the number of filters, and they are 4 and 6"),
    ("conv(x, w, groups = -1)", {"x": X, "w": W}, "'groups' must not be negative, but is -1"),
    ("conv(x, w, stride = [2])", {"x": X, "w": W},
     "'stride' must have an item for each of the 2 dimensions of a window, or none, but is [2]"),
    ("conv(x, w, padding = [(1, 1)])", {"x": X, "w": W},
     "'padding' must have an item for each of the 2 dimensions of a window, or none, but is [(1, 1)]"),
    ("conv(x, w, stride = [2, 0])", {"x": X, "w": W}, "the items of 'stride' must be positive, and 'stride' is [2, 0]"),
    ("conv(x, w, dilation = [-1, 1])", {"x": X, "w": W}, "the items of 'dilation' must be positive, and 'dilation' is [-1, 1]"),
    ("conv(x, w, border = 'ignore')", {"x": X, "w": W},
     "'border' must be one of 'constant', 'replicate', 'reflect', 'reflect-even', but is 'ignore'"),
    ("conv(x, w, padding = [(0, 0), (0, -1)], dilation = [1, 4])", {"x": X, "w": W},
     "windows over [3, 9] elements do not fit in the padded extents [8, 7], with 'padding' = [(0, 0), (0, -1)]"),
    ("deconv(x, w)", {"x": X, "w": W}, "there are 6 filters, and the input has 4 channels"),
    ("deconv(x, w, groups = 0)", {"x": X, "w": [4, 2, 3, 3]}, "with 'groups' = 0 the filter must have 1 channel, and it has 2"),
    ("deconv(x, w, output_shape = [8, 8])", {"x": X, "w": [4, 2, 3, 3]},
     "'output_shape' must have 4 items, or none at all, but is [8, 8]"),
    ("deconv(x, w, output_shape = [2, 4, 8, 8])", {"x": X, "w": [4, 2, 3, 3]},
     "'output_shape' must begin with [2, 2], batch and channels, but is [2, 4, 8, 8]"),
    ("deconv(x, w, output_shape = [2, 2, 15, 17], stride = [2, 2])", {"x": X, "w": [4, 2, 3, 3]},
     "'output_shape' with extents [15, 17] is down-scaled to [8, 9], and the input has [8, 8]"),
    ("deconv(x, w, output_shape = [2, 2, 0, 8])", {"x": X, "w": [4, 2, 3, 3]},
     "the items of 'output_shape' must be positive, and 'output_shape' is [2, 2, 0, 8]"),
    ("deconv(x, w, output_shape = [2, 0, 8, 8], groups = 0)", {"x": X, "w": [4, 1, 3, 3]},
     "the items of 'output_shape' must be positive, and 'output_shape' is [2, 0, 8, 8]"),
    (f"debox(x, {TILES}, output_shape = [2, 4, 0, 16])", {"x": X},
     "the items of 'output_shape' must be positive, and 'output_shape' is [2, 4, 0, 16]"),
    ("deconv(x, w, padding = [(5, 5), (0, 0)])", {"x": X, "w": [4, 2, 3, 3]},
     "the up-scaled extents must be positive, but are [0, 10], with 'padding' = [(5, 5), (0, 0)]"),
    ("separable_conv(x, w, v)", {"x": X, "w": [4, 2, 3, 3], "v": [5, 4, 1, 1]},
     "with 'plane_filter', the filter has 2 channels for each of 4 groups, and the input has 4 channels in all"),
    ("separable_conv(x, w, v)", {"x": X, "w": [4, 1, 3, 3], "v": [5, 3, 1, 1]},
     "with 'point_filter', the filter has 3 channels for each of 1 groups, and the input has 4 channels in all"),
    ("separable_deconv(x, w, v)", {"x": X, "w": [4, 1, 3, 3], "v": [5, 4, 1, 1]},
     "with 'point_filter', there are 5 filters, and the input has 4 channels"),
    ("separable_deconv(x, w, v)", {"x": X, "w": [6, 1, 3, 3], "v": [4, 5, 1, 1]},
     "with 'plane_filter', there are 6 filters, and the input has 5 channels"),
    ("box(x, size = [3, 3])", {"x": X},
     "'size' must have an item for each of the 4 dimensions of a window, but is [3, 3]"),
    ("box(x, size = [1, 1, 0, 1])", {"x": X}, "the items of 'size' must be positive, and 'size' is [1, 1, 0, 1]"),
    ("max_pool(x, size = [1, 1, 2, 2], border = 'zero')", {"x": X},
     "'border' must be one of 'ignore', 'constant', 'replicate', 'reflect', 'reflect-even', but is 'zero'"),
    (f"debox(x, {TILES}, output_shape = [2, 4, 18, 16])", {"x": X},
     "'output_shape' with extents [2, 4, 18, 16] is down-scaled to [2, 4, 9, 8], and the input has [2, 4, 8, 8]"),
    (f"sample(x, i, {TILES})", {"x": X, "i": X},
     "the index must have the shape [2, 4, 4, 4] of the output, but has [2, 4, 8, 8]"),
    (f"desample(x, i, {TILES})", {"x": X, "i": [2, 4, 4, 4]},
     "the index must have the shape [2, 4, 8, 8] of the input, but has [2, 4, 4, 4]"),
    (f"desample(x, i, {TILES}, border = 'ignore')", {"x": X, "i": X}, "'border' must be 'constant', but is 'ignore'"),
    ("area_downsample(x, factor = [2, 3])", {"x": X},
     "'factor' must divide the spatial extents, and they are [2, 3] and [8, 8]"),
    ("nearest_upsample(x, factor = [2])", {"x": X}, "'factor' must have an item for each of 2 spatial dimensions, but is [2]"),
    ("nearest_upsample(x, factor = [2, 0])", {"x": X}, "the items of 'factor' must be positive, and 'factor' is [2, 0]"),
    ("multilinear_upsample(x, factor = [2, 2], method = 'cubic')", {"x": X},
     "'method' must be one of 'symmetric', 'asymmetric', 'aligned', but is 'cubic'"),
    ("avg_roi_pool(x, r, i, output_size = [2, 2])", {"x": X, "r": [5, 2], "i": [5]},
     "'rois' must have 4 columns, two for each spatial dimension, but has the shape [5, 2]"),
    ("avg_roi_pool(x, r, i, output_size = [2, 2])", {"x": X, "r": [5, 4], "i": [4]},
     "'batch_index' must have the shape [5, 1] or [5], but has [4]"),
    ("max_roi_align(x, r, i, output_size = [2, 2], sampling_rate = [2])", {"x": X, "r": [5, 4], "i": [5]},
     "'sampling_rate' must have an item for each of 2 spatial dimensions, but is [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "shapes", "message"), REFUSED)
def test_what_does_not_fit_is_refused(
    operation: str, shapes: dict[str, Shape], message: str
) -> None:
    with pytest.raises(nnef_grad.InvalidGraphError) as error:
        nnef_grad.loads(model(operation, **shapes))
    assert f"{operation.split('(')[0]}: {message}" in str(error.value)


# ---- Gradients of convolutions ----

CONVOLUTIONS = [
    ("conv(x, w)", {"x": [2, 3, 7], "w": [4, 3, 3]}),
    ("conv(x, w, b)", {"x": [2, 3, 7, 6], "w": [4, 3, 3, 2], "b": [1, 4]}),
    ("conv(x, w, b)", {"x": [1, 2, 4, 5, 3], "w": [3, 2, 2, 3, 2], "b": [1, 3]}),
    ("conv(x, w, 0.5)", {"x": [2, 3, 7], "w": [4, 3, 3]}),
    *(
        ("conv(x, w, b)", {"x": [2, 3, 7], "w": [4, 3, 3], "b": bias})
        for bias in ([], [1], [1, 1], [1, 4, 1], [1, 1, 1])
    ),
    # A 1x1 convolution, and one that covers the input.
    ("conv(x, w, padding = [(0, 0), (0, 0)])", {"x": [2, 3, 4, 5], "w": [6, 3, 1, 1]}),
    ("conv(x, w, padding = [(0, 0), (0, 0)])", {"x": [2, 3, 4, 5], "w": [6, 3, 4, 5]}),
    # The stride leaves a remainder, which the windows never reach.
    (
        "conv(x, w, stride = [3, 2], padding = [(0, 0), (0, 0)])",
        {"x": [2, 3, 8, 7], "w": [4, 3, 2, 2]},
    ),
    ("conv(x, w, stride = [2, 3])", {"x": [2, 3, 7, 8], "w": [4, 3, 3, 2]}),
    ("conv(x, w, stride = [4], padding = [(1, 0)])", {"x": [2, 3, 9], "w": [4, 3, 2]}),
    ("conv(x, w, dilation = [2, 3])", {"x": [2, 3, 7, 8], "w": [4, 3, 3, 2]}),
    (
        "conv(x, w, stride = [3], dilation = [2], padding = [(2, 1)])",
        {"x": [2, 3, 11], "w": [4, 3, 3]},
    ),
    # Padding: asymmetric, wider than the window, negative, and so wide that nothing but
    # zeros is read.
    ("conv(x, w, padding = [(2, 0), (0, 3)])", {"x": [2, 3, 4, 4], "w": [4, 3, 3, 3]}),
    ("conv(x, w, padding = [(5, 4)])", {"x": [2, 3, 4], "w": [4, 3, 2]}),
    (
        "conv(x, w, padding = [(-1, -2), (1, -1)], stride = [1, 2])",
        {"x": [2, 3, 7, 8], "w": [4, 3, 3, 2]},
    ),
    (
        "conv(x, w, b, padding = [(5, 0)], stride = [7])",
        {"x": [2, 3, 3], "w": [4, 3, 2], "b": [1, 4]},
    ),
    ("conv(x, w, groups = 2, stride = [2])", {"x": [2, 6, 7], "w": [4, 3, 3]}),
    (
        "conv(x, w, groups = 2, padding = [(0, 0), (1, 0), (0, 0)])",
        {"x": [2, 4, 3, 4, 3], "w": [2, 2, 2, 2, 3]},
    ),
    ("conv(x, w, groups = 3)", {"x": [2, 3, 7], "w": [6, 1, 3]}),
    ("conv(x, w, groups = 0, dilation = [2])", {"x": [2, 3, 7], "w": [6, 1, 3]}),
    ("conv(x, x, padding = [(1, 1)])", {"x": [3, 3, 3]}),
    # A border that is never read is as good as zeros.
    (
        "conv(x, w, border = 'replicate', padding = [(0, 0)])",
        {"x": [2, 3, 7], "w": [4, 3, 3]},
    ),
    (
        "conv(x, w, border = 'reflect', padding = [(0, 1)], stride = [2])",
        {"x": [2, 3, 7], "w": [4, 3, 3]},
    ),
    ("deconv(x, w)", {"x": [2, 4, 5], "w": [4, 3, 3]}),
    ("deconv(x, w, b)", {"x": [2, 4, 5, 4], "w": [4, 3, 3, 2], "b": [1, 3]}),
    ("deconv(x, w, b)", {"x": [1, 3, 2, 3, 2], "w": [3, 2, 2, 3, 2], "b": [1]}),
    ("deconv(x, w, stride = [2, 3])", {"x": [2, 4, 5, 4], "w": [4, 3, 3, 2]}),
    (
        "deconv(x, w, stride = [2, 3], padding = [(1, 0), (0, 1)], dilation = [2, 1])",
        {"x": [2, 4, 5, 4], "w": [4, 3, 3, 2]},
    ),
    (
        "deconv(x, w, stride = [3], output_shape = [2, 3, 13])",
        {"x": [2, 4, 5], "w": [4, 3, 4]},
    ),
    (
        "deconv(x, w, stride = [3], padding = [(1, 1)], output_shape = [2, 3, 15])",
        {"x": [2, 4, 5], "w": [4, 3, 4]},
    ),
    (
        "deconv(x, w, stride = [3], padding = [(-1, -2)])",
        {"x": [2, 4, 5], "w": [4, 3, 2]},
    ),
    ("deconv(x, w, groups = 2, stride = [2])", {"x": [2, 4, 5], "w": [4, 3, 3]}),
    ("deconv(x, w, b, groups = 0)", {"x": [2, 4, 5], "w": [4, 1, 3], "b": [1, 4]}),
    (
        "deconv(x, w, groups = 0, output_shape = [2, 2, 5])",
        {"x": [2, 4, 5], "w": [4, 1, 3]},
    ),
    (
        "deconv(x, w, border = 'replicate', stride = [3], padding = [(0, 0)])",
        {"x": [2, 4, 5], "w": [4, 3, 3]},
    ),
    (
        "separable_conv(x, w, v, b, stride = [2, 1])",
        {"x": [2, 3, 5, 6], "w": [6, 1, 3, 3], "v": [4, 6, 1, 1], "b": [1, 4]},
    ),
    (
        "separable_conv(x, w, v, groups = 2)",
        {"x": [2, 4, 5], "w": [4, 1, 3], "v": [6, 2, 1]},
    ),
    (
        "separable_deconv(x, w, v, b, stride = [2])",
        {"x": [2, 4, 5], "w": [6, 1, 3], "v": [4, 6, 1], "b": [1, 6]},
    ),
    (
        "separable_deconv(x, w, v, stride = [2], output_shape = [2, 6, 9])",
        {"x": [2, 4, 5], "w": [6, 1, 3], "v": [4, 6, 1]},
    ),
]

# Where the shape rule of the Khronos parser refuses what the specification allows.
PICKY = ([1], [1, 1], [1, 4, 1], [1, 1, 1])


@pytest.mark.parametrize(("operation", "shapes"), CONVOLUTIONS)
def test_convolutions(operation: str, shapes: dict[str, Shape]) -> None:
    check_twice(model(operation, **shapes), shapes=shapes.get("b") not in PICKY)


# ---- Gradients of box filters, pooling, sampling ----

POOLS = [
    "size = [1, 1, 3, 2]",
    "size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]",
    "size = [1, 1, 3, 3], stride = [1, 1, 2, 2]",
    "size = [1, 1, 3, 2], stride = [1, 1, 1, 3], padding = [(0, 0), (0, 0), (2, 0), (1, 1)]",
    "size = [1, 1, 2, 3], dilation = [1, 1, 3, 2]",
    "size = [2, 3, 1, 1], padding = [(0, 0), (1, 1), (0, 0), (0, 0)]",
    "size = [2, 2, 2, 2], stride = [2, 1, 3, 1]",
    "size = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (-1, 1), (0, -2)]",
    "size = [1, 1, 1, 1], stride = [1, 1, 2, 3]",
]


@pytest.mark.parametrize("border", ["constant", "ignore"])
@pytest.mark.parametrize("windows", POOLS)
@pytest.mark.parametrize("operation", ["box", "avg_pool", "rms_pool", "max_pool"])
def test_pooling(operation: str, windows: str, border: str) -> None:
    check_twice(
        model(f"{operation}(x, {windows}, border = '{border}')", x=[2, 3, 6, 7]),
        shapes=operation != "max_pool",
    )


@pytest.mark.parametrize(
    "operation",
    ["box(x, {}, normalize = true)", "box(x, {}, normalize = true, border = 'ignore')"],
)
@pytest.mark.parametrize("windows", POOLS)
def test_normalized_box(operation: str, windows: str) -> None:
    check_twice(model(operation.format(windows), x=[2, 3, 6, 7]))


@pytest.mark.parametrize("normalize", ["true", "false"])
@pytest.mark.parametrize("border", ["constant", "ignore"])
@pytest.mark.parametrize(
    "windows",
    [
        *POOLS,
        "size = [1, 1, 3, 3], stride = [1, 1, 2, 3], output_shape = [2, 3, 11, 20]",
    ],
)
def test_debox(windows: str, border: str, normalize: str) -> None:
    check_twice(
        model(
            f"debox(x, {windows}, border = '{border}', normalize = {normalize})",
            x=[2, 3, 6, 7],
        )
    )


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_pooling_of_any_rank(rank: int) -> None:
    shape = [4, 3, 3, 2, 3][:rank]
    for operation in ("avg_pool", "max_pool"):
        check_gradients(
            model(f"{operation}(x, size = {[2] * rank}, border = 'ignore')", x=shape)
        )


@pytest.mark.parametrize("border", ["replicate", "reflect", "reflect-even"])
@pytest.mark.parametrize("operation", ["box", "avg_pool", "max_pool"])
def test_a_border_that_is_not_read(operation: str, border: str) -> None:
    padding = "padding = [(0, 0), (0, 0), (0, 0), (0, 1)]"
    check_gradients(
        model(
            f"{operation}(x, {TILES}, {padding}, border = '{border}')", x=[2, 3, 6, 6]
        )
    )


@pytest.mark.parametrize("windows", POOLS)
@pytest.mark.parametrize("border", ["constant", "ignore"])
def test_max_pool_with_index(windows: str, border: str) -> None:
    body = (
        f"    x = external(shape = [2, 3, 6, 7]);\n    y, i = max_pool_with_index(x, {windows}, border = '{border}');\n"
        f"    z = sample(x, i, {windows});"
    )
    check_twice(document(body, outputs="y, z"), shapes=False)


@pytest.mark.parametrize("windows", POOLS)
@pytest.mark.parametrize("operation", ["sample", "desample"])
def test_sampling(operation: str, windows: str) -> None:
    # The index has the shape of the down-scaled side, where the operation has none of
    # its own to tell it.
    boxes = nnef_grad.loads(model(f"box(x, {windows})", x=[2, 3, 6, 7]))
    small = as_numbers(boxes.tensors["y"].shape)
    shape = {"sample": (2, 3, 6, 7), "desample": small}[operation]
    check_twice(
        model(f"{operation}(x, i, {windows})", x=shape, i=small),
        shapes=False,
        high=volume(windows),
    )


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    text = model("max_pool(x, size = [1, 1, 2], stride = [1, 1, 2])", x=[1, 1, 4])
    checked = check_gradients(
        text, feeds={"x": torch.ones(1, 1, 4, dtype=torch.float64)}
    )
    first, second = checked.seeds["y"].flatten().tolist()
    assert checked.gradients["x"].flatten().tolist() == [first, 0.0, second, 0.0]


def test_downsampling_and_upsampling_follow_from_their_bodies() -> None:
    for operation in ("nearest_downsample", "area_downsample", "nearest_upsample"):
        check_twice(model(f"{operation}(x, factor = [2, 3])", x=[2, 3, 4, 6]))


# ---- What is written ----


def test_the_gradients_of_a_convolution() -> None:
    text = backward_of(
        "conv(x, w, b, stride = [2], padding = [(1, 0)])",
        x=[2, 3, 8],
        w=[4, 3, 3],
        b=[1, 4],
    )
    assert written(text) == [
        "grad_x = deconv(grad_y, w, padding = [(1, 0)], stride = [2]);",
        "input_by_channel_y = transpose(x, axes = [1, 0, 2]);",
        "grad_by_channel_y = transpose(grad_y, axes = [1, 0, 2]);",
        "filter_grad_by_channel_y = conv(input_by_channel_y, grad_by_channel_y, padding = [(1, 0)], dilation = [2]);",
        "grad_w = transpose(filter_grad_by_channel_y, axes = [1, 0, 2]);",
        "grad_b_sum = sum_reduce(grad_y, axes = [0, 2]);",
        "grad_b = squeeze(grad_b_sum, axes = [2]);",
    ]


def test_what_the_stride_never_reached_is_cropped() -> None:
    text = backward_of(
        "conv(x, w, stride = [3], padding = [(0, 0)], groups = 0)",
        x=[2, 4, 9],
        w=[4, 1, 2],
    )
    assert written(text) == [
        "grad_x = deconv(grad_y, w, padding = [(0, 0)], stride = [3], output_shape = [2, 4, 9], groups = 4);",
        "input_groups_y = reshape(x, shape = [2, 4, 1, 9]);",
        "input_groups_by_channel_y = transpose(input_groups_y, axes = [2, 1, 0, 3]);",
        "input_by_channel_y = reshape(input_groups_by_channel_y, shape = [1, 8, 9]);",
        "grad_by_channel_y = transpose(grad_y, axes = [1, 0, 2]);",
        "filter_grad_by_channel_y = conv(input_by_channel_y, grad_by_channel_y, padding = [(0, -1)], dilation = [3], groups = 4);",
        "grad_w = transpose(filter_grad_by_channel_y, axes = [1, 0, 2]);",
    ]


def test_the_gradient_of_a_maximum() -> None:
    assert written(
        backward_of(
            "max_pool(x, size = [1, 1, 3], stride = [1, 1, 2], border = 'ignore')",
            x=[2, 3, 8],
        )
    ) == [
        "index_y = argmax_pool(x, size = [1, 1, 3], border = 'ignore', padding = [(0, 0), (0, 0), (0, 1)], stride = [1, 1, 2]);",
        "grad_x = desample(grad_y, index_y, size = [1, 1, 3], padding = [(0, 0), (0, 0), (0, 1)], stride = [1, 1, 2]);",
    ]


def test_a_mean_is_divided_by_what_is_inside() -> None:
    assert written(
        backward_of("avg_pool(x, size = [1, 2, 3], border = 'ignore')", x=[2, 3, 4])
    ) == [
        "valid_1_y = constant(shape = [1, 3, 1], value = [2.0, 2.0, 1.0]);",
        "valid_2_y = constant(shape = [1, 1, 4], value = [2.0, 3.0, 3.0, 2.0]);",
        "valid_y = mul(valid_1_y, valid_2_y);",
        "share_y = div(grad_y, valid_y);",
        "grad_x = debox(share_y, size = [1, 2, 3], padding = [(0, 0), (0, 1), (1, 1)]);",
    ]
    padding = "padding = [(0, 0), (0, 0), (0, 0)]"
    assert "share_y = div(grad_y, 6.0);" in written(
        backward_of(
            f"avg_pool(x, size = [1, 2, 3], border = 'ignore', {padding})", x=[2, 3, 4]
        )
    )


# ---- Random settings ----


def random_convolution(seed: int) -> tuple[str, dict[str, Shape]]:
    draw = Settings(seed)
    operation = draw.random.choice(["conv", "deconv"])
    size = [draw.between(1, 4 if seed % 3 < 2 else 2) for _ in range(1 + seed % 3)]
    windows = draw.windows(size)
    groups, inside, filters = draw.between(1, 3), draw.between(1, 2), draw.between(1, 2)
    outer, inner = groups * inside, groups * filters
    batch = draw.between(1, 3)
    sides = {
        "conv": ([batch, outer, *windows["up"]], inner),
        "deconv": ([batch, inner, *windows["down"]], outer),
    }
    x, channels = sides[operation]
    text = (
        draw.attributes(windows)
        + f", groups = {0 if inside == 1 and draw.often(0.5) else groups}"
    )
    if operation == "deconv":
        text += f", output_shape = {[batch, outer, *windows['up']]}"
    bias = draw.random.choice([[1, channels], []])
    return f"{operation}(x, w, b{text})", {
        "x": x,
        "w": [inner, inside, *size],
        "b": bias,
    }


@pytest.mark.parametrize("seed", range(150))
def test_random_convolutions(seed: int) -> None:
    operation, shapes = random_convolution(seed)
    text = model(operation, **shapes)
    accept(text, nnef_grad.loads(text))
    (check_gradients if seed % 5 else check_twice)(text, seed=seed)


def random_pool(seed: int) -> tuple[str, dict[str, Shape]]:
    draw = Settings(seed)
    operation = draw.random.choice(
        ["box", "debox", "avg_pool", "max_pool", "sample", "desample"]
    )
    size = [
        draw.random.choice([1, 1, 2]),
        draw.random.choice([1, 1, 2]),
        *(draw.between(1, 3) for _ in range(seed % 3)),
    ]
    windows = draw.windows(size, largest_stride=2 if len(size) == 4 else 3)
    reverse = operation in ("debox", "desample")
    text = f", size = {size}{draw.attributes(windows)}"
    text += (
        f", border = '{draw.random.choice(['ignore', 'constant'])}'"
        if "sample" not in operation
        else ""
    )
    text += f", output_shape = {windows['up']}" if reverse else ""
    text += ", normalize = true" if "box" in operation and draw.often(0.5) else ""
    indexed = "sample" in operation
    shapes: dict[str, Shape] = {
        "x": windows["down" if reverse else "up"],
        **({"i": windows["down"]} if indexed else {}),
    }
    return f"{operation}(x{', i' if indexed else ''}{text})", shapes


@pytest.mark.parametrize("seed", range(120))
def test_random_pools(seed: int) -> None:
    operation, shapes = random_pool(seed)
    text = model(operation, **shapes)
    accept(text, nnef_grad.loads(text), shapes=not operation.startswith("sample"))
    twice, sampled = seed % 4 == 0, "sample" in operation or "max" in operation
    (check_twice if twice else check_gradients)(
        text, seed=seed, shapes=not sampled, high=volume(operation)
    )


def test_windows_larger_than_the_padded_input_pass_the_khronos_shape_rule_but_not_ours() -> (
    None
):
    text = model("conv(x, w, padding = [(0, 0)])", x=[1, 1, 2], w=[1, 1, 4])
    parsed = nnef.parse_string(text)
    nnef.infer_shapes(parsed)
    assert parsed.tensors["y"].shape == [1, 1, -1]
    with pytest.raises(
        nnef_grad.InvalidGraphError, match="do not fit in the padded extents"
    ):
        nnef_grad.loads(text)
