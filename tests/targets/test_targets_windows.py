"""Window operations lowered for the targets: random settings, ties, what is written, and
what the runtimes make of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from support.checks import document
from support.lowered import lacking
from support.networks import network, small_network
from support.operation_models import Model
from support.rereading import reread
from support.runtimes import consumers_of, needs
from support.runtimes.matrix import DIRECTIONS, matrix, retyped

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.ops.windows import up_scaled
from nnef_grad.targets import TARGETS

LOWERED = [target for target in TARGETS if target != "nnef"]
UNBORDERED = ["constant", "constant", "constant"]
REPEATING = ["replicate", "reflect", "reflect-even"]

Draw = Callable[[random.Random], str]
Arrays = Mapping[str, np.ndarray[Any, Any]]


# ---- Random settings ----


def attributes(**values: Any) -> str:
    """As they are written; an empty list is what is written for nothing."""
    said = {name: value for name, value in values.items() if value != []}
    return "".join(f", {name} = {_written(value)}" for name, value in said.items())


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def integers(draw: random.Random, count: int, low: int, high: int) -> list[int]:
    return [draw.randint(low, high) for _ in range(count)]


def sometimes(draw: random.Random, chance: float, items: list[Any]) -> list[Any]:
    return items if draw.random() < chance else []


def sides(draw: random.Random, count: int, low: int, high: int) -> list[Any]:
    return [(draw.randint(low, high), draw.randint(low, high)) for _ in range(count)]


def output_extents(
    draw: random.Random, down: list[int], size: list[int], windows: dict[str, Any]
) -> list[int]:
    """One of the shapes that are down-scaled to that of the input."""
    stride, dilation = (
        windows[name] or [1] * len(down) for name in ("stride", "dilation")
    )
    columns = (
        tuple(down),
        tuple(size),
        tuple(windows["padding"]),
        tuple(stride),
        tuple(dilation),
    )
    remainders = [draw.randint(0, s - 1) for s in stride]
    sign = 1 if windows["padding"] else -1
    return [
        extent + sign * r
        for extent, r in zip(up_scaled(*columns), remainders, strict=True)
    ]


def convolution(draw: random.Random) -> str:
    """Of any rank, grouped or not, with any bias; in one direction or the other."""
    space = draw.choice([1, 1, 2, 2, 2, 2, 3])
    groups, channels, filters = draw.choice(
        [(1, 1, 2), (1, 2, 1), (1, 3, 2), (2, 2, 2), (3, 1, 2), (0, 2, 4), (0, 3, 3)]
    )
    up, down = (
        (filters, filters) if groups == 0 else (channels * groups, filters * groups)
    )
    if groups == 0:
        up, channels = channels, 1
    reverse = draw.random() < 0.5
    extents, size = (
        integers(draw, space, 1 if reverse else 2, 5),
        integers(draw, space, 1, 3),
    )
    windows = {
        "padding": sometimes(draw, 0.7, sides(draw, space, 0, 3)),
        "stride": sometimes(draw, 0.6, integers(draw, space, 1, 3)),
        "dilation": sometimes(draw, 0.3, integers(draw, space, 1, 2)),
    }
    batch, (before, after) = draw.randint(1, 2), (down, up) if reverse else (up, down)
    said = (
        [batch, after, *output_extents(draw, extents, size, windows)] if reverse else []
    )
    windows |= {"output_shape": sometimes(draw, 0.5, said)} if reverse else {}
    shape = draw.choice(
        [None, None, [1, after], [1], [1, 1], [], [1, after] + [1] * space]
    )
    bias = draw.choice(["", ", 0.5"]) if shape is None else ", b"
    settings = attributes(
        **windows, border=draw.choice(UNBORDERED + REPEATING), groups=groups
    )
    return (
        f"x = external(shape = {[batch, before, *extents]});\nw = variable(shape = {[down, channels, *size]}, label = 'w');\n"
        + (f"b = variable(shape = {shape}, label = 'b');\n" if bias == ", b" else "")
        + f"y = {'deconv' if reverse else 'conv'}(x, w{bias}{settings});"
    )


def any_windows(draw: random.Random) -> tuple[list[int], dict[str, Any]]:
    """Over one to five axes, more often along the spatial ones; some lie side by side."""
    rank, wild = draw.choice([1, 2, 3, 3, 4, 4, 4, 5]), draw.random() < 0.3
    still = [
        not wild and (axis < 2 < rank or draw.random() < 0.2) for axis in range(rank)
    ]
    size = [1 if is_still else draw.randint(1, 3) for is_still in still]
    if draw.random() < 0.25:
        extents = [f * draw.randint(1, 2) for f in size]
        return extents, {
            "size": size,
            "padding": [(0, 0)] * rank,
            "stride": size,
            "dilation": [],
        }
    stride = [1 if is_still else draw.randint(1, 3) for is_still in still]
    padding = [(0, 0) if is_still else sides(draw, 1, 0, 2)[0] for is_still in still]
    return integers(draw, rank, 1, 5), {
        "size": size,
        "padding": sometimes(draw, 0.7, padding),
        "stride": sometimes(draw, 0.6, stride),
        "dilation": sometimes(draw, 0.3, integers(draw, rank, 1, 2)),
    }


def pool(draw: random.Random) -> str:
    extents, windows = any_windows(draw)
    operation = draw.choice(["box", "box", "avg_pool", "rms_pool"])
    normalize = {"normalize": draw.random() < 0.5} if operation == "box" else {}
    border = draw.choice(["constant", "ignore", "ignore", *REPEATING])
    settings = attributes(**windows, **normalize, border=border)
    return f"x = external(shape = {extents});\ny = {operation}(x{settings});"


def reverse_box(draw: random.Random) -> str:
    extents, windows = any_windows(draw)
    said = output_extents(draw, extents, windows["size"], windows)
    border = draw.choice([*UNBORDERED, "ignore", "replicate"])
    settings = attributes(
        **windows,
        output_shape=sometimes(draw, 0.5, said),
        border=border,
        normalize=draw.random() < 0.3,
    )
    return f"x = external(shape = {extents});\ny = debox(x{settings});"


def maximum(draw: random.Random) -> str:
    extents, windows = any_windows(draw)
    border = draw.choice(["constant", "ignore", "ignore", *REPEATING])
    result, operation = draw.choice(
        [("y", "max_pool"), ("y, i", "max_pool_with_index"), ("y", "argmax_pool")]
    )
    return f"x = external(shape = {extents});\n{result} = {operation}(x{attributes(**windows, border=border)});"


def taken_and_put(draw: random.Random) -> str:
    """What lies where another tensor is largest, and a tensor of that."""
    extents, windows = any_windows(draw)
    border = draw.choice(["constant", "ignore", "replicate"])
    settings, back = (
        attributes(**windows, border=border),
        attributes(**windows, output_shape=extents),
    )
    return (
        f"x = external(shape = {extents});\nu = external(shape = {extents});\ni = argmax_pool(u{settings});\n"
        f"s = sample(x, i{settings});\ny = desample(s, i{back});"
    )


def index_from_outside(draw: random.Random) -> str:
    extents, windows = any_windows(draw)
    windows["size"] = [
        max(f, 2) if axis == len(extents) - 1 else f
        for axis, f in enumerate(windows["size"])
    ]
    said = output_extents(draw, extents, windows["size"], windows)
    return (
        f"x = external(shape = {extents});\ni = external<integer>(shape = {extents});\n"
        f"s = desample(x, i{attributes(**windows, output_shape=said)});\ny = sample(s, i{attributes(**windows)});"
    )


def sampling(draw: random.Random) -> str:
    space = draw.choice([1, 2, 2, 3])
    factor, extents = integers(draw, space, 1, 3), integers(draw, space, 1, 3)
    operation = draw.choice(
        [
            "nearest_downsample",
            "area_downsample",
            "nearest_upsample",
            "multilinear_upsample",
            "multilinear_upsample",
        ]
    )
    if "down" in operation:
        extents = [f * extent for f, extent in zip(factor, extents, strict=True)]
    method = draw.choice(["symmetric", "asymmetric", "aligned"])
    settings = (
        {"method": method, "border": draw.choice(["constant", *REPEATING])}
        if "linear" in operation
        else {}
    )
    shape = [draw.randint(1, 2), draw.randint(1, 2), *extents]
    return f"x = external(shape = {shape});\ny = {operation}(x{attributes(factor=factor, **settings)});"


FAMILIES: dict[str, Draw] = {
    "convolutions": convolution,
    "pools": pool,
    "boxes in reverse": reverse_box,
    "maxima": maximum,
    "elements": taken_and_put,
    "indices": index_from_outside,
    "sampling": sampling,
}


@cache
def valid(family: str, seed: int) -> str:
    """A graph of a family; most settings that are drawn do not fit each other."""
    draw = random.Random(f"{family} {seed}")
    while True:
        body = FAMILIES[family](draw)
        inputs = [name for name in ("x", "u", "i") if f"{name} = external" in body]
        text = document(body, ", ".join(inputs), "y, i" if "\ny, i =" in body else "y")
        try:
            nnef_grad.loads(text)
        except nnef_grad.NnefGradError:
            continue
        return text


# ---- The same numbers ----


def evaluated(graph: nnef_grad.Graph, inputs: Arrays, variables: Arrays) -> Arrays:
    """The outputs. Integers are fed as numbers where they have become scalars."""
    return nnef_grad.evaluate(graph, retyped(inputs, graph), variables)


def check_lowered(
    graph: nnef_grad.Graph,
    seed: int,
    *,
    ties: bool = False,
    targets: Iterable[str] = LOWERED,
) -> None:
    """Lowered for targets, a graph computes the same, and holds nothing that a runtime
    of the target lacks.
    """
    values = random_values(graph, seed)
    inputs = {n: np.round(a) if ties else a for n, a in values.inputs.items()}
    expected = evaluated(graph, inputs, values.variables)
    for target, lowered in in_targets(graph, targets):
        again = reread(lowered, values.variables)
        found = evaluated(again, inputs, {**values.variables, **lowered.data})
        for name, array in expected.items():
            # The data of constants are in single precision.
            tolerance = 1e-6 if lowered.data else 1e-12
            scale = np.abs(array[np.isfinite(array)]).max(initial=1.0)
            np.testing.assert_allclose(
                found[name],
                array,
                0.0,
                tolerance * scale,
                err_msg=f"{name} for {target}",
            )
        assert lacking(lowered.graph, target) == []


def in_targets(
    graph: nnef_grad.Graph, targets: Iterable[str]
) -> list[tuple[str, nnef_grad.Lowered]]:
    """A graph for those of the targets that it can be expressed for."""
    found = []
    for target in targets:
        with suppress(nnef_grad.UnsupportedError):
            found.append((target, nnef_grad.lower(graph, target)))
    return found


def orders(text: str) -> Iterator[nnef_grad.Graph]:
    """A graph, its backward graph, and the backward graph of that."""
    graph = nnef_grad.loads(text)
    yield graph
    if any(tensor.dtype == "scalar" for tensor in graph.outputs):
        graph = nnef_grad.differentiate(graph).graph
        yield graph
        yield nnef_grad.differentiate(graph).graph


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("family", FAMILIES)
def test_random_settings(family: str, seed: int) -> None:
    ties = family in ("maxima", "elements")
    for graph in orders(valid(family, seed)):
        check_lowered(graph, seed, ties=ties)


def test_few_settings_have_no_other_form() -> None:
    """They mean nothing, or hardly anything."""
    graphs = [valid(family, seed) for family in FAMILIES for seed in range(50)]
    refusals = [message for text in graphs if (message := refusal(text))]
    reasons = (
        "with windows that have no element inside",
        "with windows along more than 3 axes",
        "with windows that all lie outside",
    )
    assert all(message.endswith(reasons) for message in refusals)
    assert len(refusals) < 0.1 * len(graphs)


def refusal(text: str) -> str | None:
    """Why a graph cannot be lowered for all runtimes; None if it can."""
    try:
        nnef_grad.lower(nnef_grad.loads(text), "portable")
    except nnef_grad.UnsupportedError as error:
        return error.message
    return None


def model(operation: str, **shapes: list[int]) -> str:
    """A graph of one operation on x; what else it reads are variables."""
    declared = [
        f"{name} = variable(shape = {shape}, label = '{name}');"
        for name, shape in shapes.items()
        if name != "x"
    ]
    body = [f"x = external(shape = {shapes['x']});", *declared, f"y = {operation};"]
    return document("\n".join(body))


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        # More elements than are taken at once, and than there are along an axis.
        ([1, 2, 13, 12], "size = [1, 1, 9, 9], border = 'ignore'"),
        (
            [1, 2, 13, 12],
            "size = [1, 1, 13, 5], stride = [1, 1, 2, 3], padding = [(0, 0), (0, 0), (3, -2), (1, 1)]",
        ),
        ([1, 70], "size = [1, 66], border = 'replicate'"),
        (
            [2, 2, 8, 5, 6],
            "size = [1, 1, 5, 5, 5], stride = [1, 1, 2, 1, 1], border = 'ignore'",
        ),
        # All there is.
        (
            [1, 2, 16, 16],
            "size = [1, 1, 16, 16], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]",
        ),
        # Side by side along three axes, and along batch and channels.
        (
            [2, 2, 4, 4, 4],
            "size = [1, 1, 2, 2, 2], stride = [1, 1, 2, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]",
        ),
        ([4, 6], "size = [2, 3], stride = [2, 3], padding = [(0, 0), (0, 0)]"),
    ],
)
def test_maxima_of_large_windows(shape: list[int], settings: str) -> None:
    for graph in orders(model(f"max_pool(x, {settings})", x=shape)):
        check_lowered(graph, 1, ties=True)


def test_convolutions_of_images_in_real_sizes() -> None:
    for settings in (
        "stride = [4, 4], padding = [(0, 0), (0, 0)]",
        "stride = [2, 2], padding = [(5, 5), (5, 5)]",
        "padding = [(0, 0), (0, 0)]",
    ):
        for graph in orders(
            model(f"conv(x, w, {settings})", x=[1, 2, 23, 23], w=[3, 2, 11, 11])
        ):
            check_lowered(graph, 1)


@pytest.mark.parametrize(
    ("name", "image"), [("alexnet", 224), ("vgg", 224), ("resnet", 224)]
)
def test_backward_graphs_of_networks_stay_small(name: str, image: int) -> None:
    text = network(name, 1, image)
    graph = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    # Targets may spend operations on a faster form.
    counts = {"khronos": 4, "tract": 11, "onnx": 8, "portable": 7}
    for target, most in counts.items():
        lowered = nnef_grad.lower(graph, target).graph
        assert len(lowered.operations) < most * len(graph.operations)


@pytest.mark.thorough
def test_the_backward_graph_of_a_network_computes_the_same() -> None:
    text = small_network("resnet")
    graph = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    check_lowered(graph, 1, targets=["portable"])


# ---- Maxima ----

BLOCKS = "size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]"


def same_when_lowered(
    graph: nnef_grad.Graph, inputs: Mapping[str, Any], expected: Any
) -> None:
    """Compares the gradient that a graph computes when it is lowered for each target."""
    for target in LOWERED:
        lowered = nnef_grad.lower(graph, target)
        gradient = nnef_grad.evaluate(reread(lowered), inputs, lowered.data)["grad_x"]
        np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("settings", [BLOCKS, "size = [1, 1, 3, 3], border = 'ignore'"])
def test_the_first_of_several_maxima_is_taken(settings: str) -> None:
    graph = nnef_grad.differentiate(
        nnef_grad.loads(model(f"max_pool(x, {settings})", x=[1, 1, 4, 4]))
    ).graph
    (_, seed) = graph.inputs
    inputs = {"x": np.zeros((1, 1, 4, 4)), "grad_y": np.ones(seed.shape)}
    expected = nnef_grad.evaluate(graph, inputs)["grad_x"]
    same_when_lowered(graph, inputs, expected)


def test_infinity_is_a_number_in_blocks() -> None:
    graph = nnef_grad.differentiate(
        nnef_grad.loads(model(f"max_pool(x, {BLOCKS})", x=[1, 1, 2, 4]))
    ).graph
    x = np.array([[[[-np.inf, np.inf, 1.0, 0.0], [0.0, 0.0, -np.inf, 0.0]]]])
    inputs = {"x": x, "grad_y": np.array([[[[2.0, np.inf]]]])}
    expected = [[[[0.0, 2.0, np.inf, 0.0], [0.0] * 4]]]
    same_when_lowered(graph, inputs, expected)


def test_infinity_is_a_number_next_to_a_border_that_is_ignored() -> None:
    """It is less than what fills the border."""
    settings = "size = [1, 1, 3, 3], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (1, 1), (1, 1)], border = 'ignore'"
    graph = nnef_grad.differentiate(
        nnef_grad.loads(model(f"max_pool(x, {settings})", x=[1, 1, 5, 5]))
    ).graph
    x = np.full((1, 1, 5, 5), -np.inf)
    x[..., 3:] = np.arange(5.0)[:, None]
    inputs = {"x": x, "grad_y": np.arange(1.0, 10.0).reshape(1, 1, 3, 3)}
    expected = nnef_grad.evaluate(graph, inputs)["grad_x"]
    same_when_lowered(graph, inputs, expected)


def test_an_index_of_other_windows_is_looked_at() -> None:
    """It is as good as any other: the maxima are not those of the windows at hand."""
    text = document(
        "x = external(shape = [1, 1, 4, 4]);\ni = argmax_pool(x, size = [1, 1, 2, 2]);\n"
        "y = desample(x, i, size = [1, 1, 3, 3]);"
    )
    check_lowered(nnef_grad.loads(text), 1)
    operations = nnef_grad.lower(nnef_grad.loads(text), "onnx").graph.operations
    assert "tract_core_scatter_elements" in {op.name for op in operations}


# ---- What is left ----


@pytest.mark.parametrize(
    ("operation", "shapes", "reason"),
    [
        (
            "max_pool(x, size = [1, 1, 2], padding = [(0, 0), (0, 0), (2, 0)], border = 'ignore')",
            {"x": [1, 1, 4]},
            "'max_pool' with windows that have no element inside",
        ),
        (
            "avg_pool(x, size = [1, 1, 2], padding = [(0, 0), (0, 0), (3, 0)], border = 'ignore', dilation = [1, 1, 2])",
            {"x": [1, 1, 2]},
            "'avg_pool' with windows that have no element inside",
        ),
        (
            "argmax_pool(x, size = [2, 2, 2, 2])",
            {"x": [2, 2, 2, 2]},
            "'argmax_pool' with windows along more than 3 axes",
        ),
        (
            "argmax_pool(x, size = [301])",
            {"x": [400]},
            "'argmax_pool' with windows of more than 300 elements along an axis",
        ),
        (
            "conv(x, w)",
            {"x": [1, 1, 2, 2, 2, 2], "w": [1, 1, 1, 1, 1, 1]},
            "'conv' with more than 3 spatial axes",
        ),
        (
            "deconv(x, w)",
            {"x": [1, 1, 2, 2, 2, 2], "w": [1, 1, 1, 1, 1, 1]},
            "'deconv' with more than 3 spatial axes",
        ),
        (
            "conv(x, w)",
            {"x": [2, 4], "w": [3, 4]},
            "'conv' without spatial axes",
        ),
        (
            "deconv(x, w, padding = [(2, 0)], stride = [4], output_shape = [1, 1, 2])",
            {"x": [1, 1, 1], "w": [1, 1, 1]},
            "'deconv' with windows that all lie outside",
        ),
        (
            "box(x, size = [1, 1, 2], padding = [(0, 0), (0, 0), (-1, 0)])",
            {"x": [1, 1, 4]},
            "'box' with negative padding",
        ),
        (
            "tile(x, repeats = [2, 3, 1, 1, 2, 2])",
            {"x": [2, 1, 2, 2, 3, 2]},
            "'tile' along more than 5 axes",
        ),
        (
            "transpose(x, axes = [5, 4, 3, 2, 1, 0])",
            {"x": [2, 3, 2, 2, 3, 2]},
            "'transpose'",
        ),
        (
            "slice(x, axes = [5], begin = [0], end = [2])",
            {"x": [2, 1, 2, 2, 3, 4]},
            "'slice' along more than 5 axes",
        ),
    ],
)
def test_what_has_no_other_form(
    operation: str, shapes: dict[str, list[int]], reason: str
) -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match=f"cannot run {reason}"):
        nnef_grad.lower(nnef_grad.loads(model(operation, **shapes)), "portable")


# ---- What is written ----


def written(text: str, target: str, *, reverse: bool = False) -> str:
    """The statements of a lowered graph, without those that introduce its data."""
    graph = nnef_grad.loads(text)
    graph = nnef_grad.differentiate(graph, wrt="inputs").graph if reverse else graph
    lines = nnef_grad.dumps(nnef_grad.lower(graph, target).graph).split("\n{\n")[1]
    introducing = ("external(", "variable(", "constant(", "#", "}")
    kept = (line.strip() for line in lines.splitlines())
    return "\n".join(
        k for k in kept if k and not any(word in k for word in introducing)
    )


def test_a_deconvolution_is_a_convolution_with_the_filter_turned_around() -> None:
    text = model(
        "conv(x, w, stride = [2, 2], padding = [(1, 1), (1, 1)])",
        x=[2, 4, 8, 8],
        w=[6, 4, 3, 3],
    )
    assert written(text, "khronos", reverse=True) == (
        "grad_x = deconv(grad_y, w, padding = [(1, 1), (1, 1)], stride = [2, 2], output_shape = [2, 4, 8, 8]);"
    )
    assert (
        written(text, "tract", reverse=True)
        == """\
grad_x_elements = reshape(grad_y, shape = [12, 4, 1, 4, 1]);
grad_x_padded = pad(grad_x_elements, padding = [(0, 0), (0, 0), (0, 1), (0, 0), (0, 1)]);
grad_x_spread = reshape(grad_x_padded, shape = [2, 6, 8, 8]);
grad_x_layer = slice(w, axes = [2], begin = [2], end = [3]);
grad_x_layer_1 = slice(w, axes = [2], begin = [1], end = [2]);
grad_x_layer_2 = slice(w, axes = [2], begin = [0], end = [1]);
grad_x_in_order = concat([grad_x_layer, grad_x_layer_1, grad_x_layer_2], axis = 2);
grad_x_layer_3 = slice(grad_x_in_order, axes = [3], begin = [2], end = [3]);
grad_x_layer_4 = slice(grad_x_in_order, axes = [3], begin = [1], end = [2]);
grad_x_layer_5 = slice(grad_x_in_order, axes = [3], begin = [0], end = [1]);
grad_x_in_order_1 = concat([grad_x_layer_3, grad_x_layer_4, grad_x_layer_5], axis = 3);
grad_x_exchanged = transpose(grad_x_in_order_1, axes = [1, 0, 2, 3]);
grad_x = conv(grad_x_spread, grad_x_exchanged, padding = [(1, 1), (1, 1)]);"""
    )


def test_one_window_is_a_product_of_matrices() -> None:
    text = model(
        "conv(x, w, padding = [(0, 0), (0, 0)])", x=[2, 4, 6, 6], w=[10, 4, 6, 6]
    )
    assert (
        written(text, "tract", reverse=True)
        == """\
grad_x_points = reshape(grad_y, shape = [2, 10]);
grad_x_rows = reshape(w, shape = [10, 144]);
grad_x_product = matmul(grad_x_points, grad_x_rows);
grad_x = reshape(grad_x_product, shape = [2, 4, 6, 6]);"""
    )


def test_depthwise_deconvolutions_stay() -> None:
    text = model(
        "conv(x, w, stride = [2, 2], padding = [(1, 0), (1, 0)], groups = 0)",
        x=[2, 4, 8, 8],
        w=[4, 1, 3, 3],
    )
    for target in ("khronos", "onnx"):
        assert written(text, target, reverse=True).startswith("grad_x = deconv(")


def test_maxima_of_overlapping_windows() -> None:
    """The axis along which windows move comes first: what is side by side stays so."""
    text = model(
        "max_pool(x, size = [1, 1, 1, 3], stride = [1, 1, 1, 2], border = 'ignore')",
        x=[2, 4, 8, 8],
    )
    assert (
        written(text, "tract", reverse=True)
        == """\
grad_x_moved = transpose(grad_y, axes = [3, 0, 1, 2]);
grad_x_lines = reshape(grad_x_moved, shape = [4, 64]);
grad_x_moved_1 = transpose(x, axes = [3, 0, 1, 2]);
grad_x_lines_1 = reshape(grad_x_moved_1, shape = [8, 64]);
grad_x_padded = pad(grad_x_lines_1, padding = [(0, 2), (0, 0)], value = -3.4028234663852886e+38);
grad_x_phases = reshape(grad_x_padded, shape = [5, 2, 64]);
grad_x_slice = slice(grad_x_phases, axes = [1], begin = [0], end = [1]);
grad_x_phase = reshape(grad_x_slice, shape = [5, 64]);
grad_x_slice_1 = slice(grad_x_phase, axes = [0], begin = [0], end = [4]);
grad_x_slice_2 = slice(grad_x_phases, axes = [1], begin = [1], end = [2]);
grad_x_phase_1 = reshape(grad_x_slice_2, shape = [5, 64]);
grad_x_slice_3 = slice(grad_x_phase_1, axes = [0], begin = [0], end = [4]);
grad_x_slice_4 = slice(grad_x_phase, axes = [0], begin = [1], end = [5]);
grad_x_largest = max_pool(x, size = [1, 1, 1, 3], border = 'ignore', padding = [(0, 0), (0, 0), (0, 0), (0, 1)], stride = [1, 1, 1, 2]);
grad_x_moved_2 = transpose(grad_x_largest, axes = [3, 0, 1, 2]);
grad_x_lines_2 = reshape(grad_x_moved_2, shape = [4, 64]);
grad_x_hit = eq(grad_x_slice_1, grad_x_lines_2);
grad_x_hit_1 = eq(grad_x_slice_3, grad_x_lines_2);
grad_x_hit_2 = eq(grad_x_slice_4, grad_x_lines_2);
grad_x_kept_filled = tract_core_broadcast(0.0, shape = [4, 64]);
grad_x_kept = select(grad_x_hit, grad_x_lines, grad_x_kept_filled);
grad_x_left = select(grad_x_hit, grad_x_kept_filled, grad_x_lines);
grad_x_kept_1 = select(grad_x_hit_1, grad_x_left, grad_x_kept_filled);
grad_x_left_1 = select(grad_x_hit_1, grad_x_kept_filled, grad_x_left);
grad_x_kept_2 = select(grad_x_hit_2, grad_x_left_1, grad_x_kept_filled);
grad_x_padded_1 = pad(grad_x_kept, padding = [(0, 1), (0, 0)]);
grad_x_padded_2 = pad(grad_x_kept_1, padding = [(0, 1), (0, 0)]);
grad_x_padded_3 = pad(grad_x_kept_2, padding = [(1, 0), (0, 0)]);
grad_x_sum = add(grad_x_padded_1, grad_x_padded_3);
grad_x_apart = reshape(grad_x_sum, shape = [5, 1, 64]);
grad_x_apart_1 = reshape(grad_x_padded_2, shape = [5, 1, 64]);
grad_x_between = concat([grad_x_apart, grad_x_apart_1], axis = 1);
grad_x_reshape = reshape(grad_x_between, shape = [10, 64]);
grad_x_slice_5 = slice(grad_x_reshape, axes = [0], begin = [0], end = [8]);
grad_x_apart_2 = reshape(grad_x_slice_5, shape = [8, 2, 4, 8]);
grad_x = transpose(grad_x_apart_2, axes = [1, 2, 3, 0]);"""
    )


def test_maxima_along_one_axis_after_the_other() -> None:
    """The maxima along the last axis are looked at along the one before it: six places in
    place of nine.
    """
    settings = "size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore'"
    text = model(f"max_pool(x, {settings})", x=[2, 4, 8, 8])
    lines = written(text, "tract", reverse=True).splitlines()
    hits = [line for line in lines if " = eq(" in line]
    pools = [line for line in lines if " = max_pool(" in line]
    assert len(hits) == 6
    assert "size = [1, 1, 1, 3]" in pools[0]
    assert "size = [1, 1, 3, 3]" in pools[1]


def test_maxima_of_large_windows_side_by_side() -> None:
    settings = "size = [1, 1, 6, 6], stride = [1, 1, 6, 6], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]"
    text = model(f"max_pool(x, {settings})", x=[2, 4, 12, 12])
    assert (
        written(text, "tract-standard", reverse=True)
        == """\
index_y_blocks = reshape(x, shape = [8, 2, 6, 2, 6]);
grad_x_largest = max_reduce(index_y_blocks, axes = [2, 4]);
grad_x_hits = eq(index_y_blocks, grad_x_largest);
grad_x_priority = select(grad_x_hits, grad_x_countdown, 0.0);
grad_x_highest = max_reduce(grad_x_priority, axes = [2, 4]);
grad_x_first = eq(grad_x_priority, grad_x_highest);
grad_x_each = reshape(grad_y, shape = [8, 2, 1, 2, 1]);
grad_x_kept = select(grad_x_first, grad_x_each, 0.0);
grad_x = reshape(grad_x_kept, shape = [2, 4, 12, 12]);"""
    )


def test_the_index_of_a_maximum_is_kept_where_a_runtime_has_it() -> None:
    settings = "size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore'"
    text = model(f"max_pool(x, {settings})", x=[2, 4, 8, 8])
    padding = "padding = [(0, 0), (0, 0), (0, 1), (0, 1)]"
    lowered = written(text, "onnx", reverse=True)
    assert [line.partition("(")[0] for line in lowered.splitlines()] == [
        "index_y = argmax_pool",
        "grad_x = desample",
    ]
    assert padding in lowered


def test_an_index_that_is_returned_is_the_standards() -> None:
    settings = (
        "size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore', padding = []"
    )
    text = model(f"argmax_pool(x, {settings})", x=[2, 4, 8, 8])
    assert "argmax_pool" not in written(text, "onnx")


def test_means_side_by_side_are_handed_back_by_repetition() -> None:
    """The operator has a kernel, and tiles of short runs take ten times as long."""
    text = model(f"avg_pool(x, {BLOCKS})", x=[2, 4, 8, 8])
    assert (
        written(text, "onnx", reverse=True)
        == """\
share_y = div(grad_y, 4.0);
grad_x = nearest_upsample(share_y, factor = [2, 2]);"""
    )


def test_sums_over_channels() -> None:
    text = model("box(x, size = [1, 3, 1, 1])", x=[2, 4, 8, 8])
    assert (
        written(text, "onnx")
        == """\
y_turned = transpose(x, axes = [0, 2, 3, 1]);
y_planes = reshape(y_turned, shape = [128, 1, 4]);
y_pooled_mean = avg_pool(y_planes, size = [1, 1, 3], padding = [(0, 0), (0, 0), (1, 1)]);
y_pooled = mul(y_pooled_mean, 3.0);
y_turned_1 = reshape(y_pooled, shape = [2, 8, 8, 4]);
y = transpose(y_turned_1, axes = [0, 3, 1, 2]);"""
    )


def test_a_border_of_zeros_counts_for_a_maximum() -> None:
    text = model("max_pool(x, size = [1, 1, 3, 3])", x=[2, 4, 8, 8])
    assert written(text, "khronos") == "y = max_pool(x, size = [1, 1, 3, 3]);"
    assert (
        written(text, "portable")
        == """\
y_padded_zeros_single = unsqueeze(0.0, axes = [0, 1, 2, 3]);
y_padded_zeros = tile(y_padded_zeros_single, repeats = [2, 4, 1, 8]);
y_padded_joined = concat([y_padded_zeros, x, y_padded_zeros], axis = 2);
y_padded_zeros_1 = tile(y_padded_zeros_single, repeats = [2, 4, 10, 1]);
y_padded = concat([y_padded_zeros_1, y_padded_joined, y_padded_zeros_1], axis = 3);
y = max_pool(y_padded, size = [1, 1, 3, 3], border = 'ignore', padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);"""
    )


def test_zeros_around_a_tensor_are_joined_to_it_before_a_pool() -> None:
    text = document(
        "x = external(shape = [2, 4, 8, 8]);\np = pad(x, padding = [(0, 0), (0, 0), (0, 1), (0, 0)]);\n"
        "y = max_pool(p, size = [1, 1, 3, 3], border = 'ignore');"
    )
    assert written(text, "tract").startswith("p = pad(x, ")
    assert (
        written(text, "onnx")
        == """\
p = concat([x, p_zeros], axis = 2);
y = max_pool(p, size = [1, 1, 3, 3], border = 'ignore');"""
    )


def test_a_bias_that_is_a_number_is_added_after() -> None:
    text = model("conv(x, w, 0.5, dilation = [2, 2])", x=[2, 4, 8, 8], w=[6, 4, 3, 3])
    assert written(text, "tract") == "y = conv(x, w, 0.5, dilation = [2, 2]);"
    assert (
        written(text, "onnx")
        == """\
y_unbiased = conv(x, w, padding = [(2, 2), (2, 2)], dilation = [2, 2]);
y = add(y_unbiased, 0.5);"""
    )


def test_what_a_stride_skips_is_left_out_first() -> None:
    text = model("conv(x, w, stride = [2, 2])", x=[2, 4, 8, 8], w=[6, 4, 1, 1])
    assert written(text, "onnx") == "y = conv(x, w, stride = [2, 2]);"
    assert (
        written(text, "tract")
        == """\
y_kept = box(x, size = [1, 1, 1, 1], padding = [(0, 0), (0, 0), (0, 0), (0, 0)], stride = [1, 1, 2, 2]);
y = conv(y_kept, w, padding = [(0, 0), (0, 0)]);"""
    )


def test_zeros_are_joined_where_windows_lie_outside() -> None:
    text = model(
        "conv(x, w, 0.5, padding = [(1, 2), (1, 1)])", x=[2, 4, 8, 8], w=[6, 4, 1, 3]
    )
    assert written(text, "khronos").startswith("y = conv(x, w, 0.5, padding = [(1, 2)")
    assert (
        written(text, "tract")
        == """\
y_zeros_single = unsqueeze(0.0, axes = [0, 1, 2, 3]);
y_zeros = tile(y_zeros_single, repeats = [2, 4, 1, 8]);
y_zeros_1 = tile(y_zeros_single, repeats = [2, 4, 2, 8]);
y_joined = concat([y_zeros, x, y_zeros_1], axis = 2);
y_zeros_2 = tile(y_zeros_single, repeats = [2, 4, 11, 1]);
y_joined_1 = concat([y_zeros_2, y_joined, y_zeros_2], axis = 3);
y_unbiased = conv(y_joined_1, w, padding = [(0, 0), (0, 0)]);
y = add(y_unbiased, 0.5);"""
    )


# ---- The runtimes ----

# Its maxima next to the border are zeros, which optimisers of ONNX used to take away.
MAXIMA_OVER_ZEROS = document(
    "x = external(shape = [1, 2, 4, 3, 4]);\nw = variable(shape = [1, 1, 2, 1, 4], label = 'w');\nt = sub(x, 4.0);\n"
    "p = max_pool(t, size = [1, 1, 3, 3, 1], stride = [1, 1, 2, 1, 1], padding = [], border = 'constant');\n"
    "m, v = moments(p, axes = [1, 4]);\ny = matmul(m, w);\nz = matmul(v, w);",
    outputs="y, z",
)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("target", LOWERED)
def test_maxima_over_zeros_in_the_runtimes(target: str, direction: str) -> None:
    needs(*consumers_of(target))
    found = matrix(
        [Model("maxima", 1, MAXIMA_OVER_ZEROS)],
        DIRECTIONS[direction],
        lower=partial(nnef_grad.lower, target=target),
        consumers=consumers_of(target),
    )
    assert {v.word for row in found.values() for v in row.values()} == {"ok"}, found


@pytest.mark.parametrize(
    "seeds",
    [range(100, 102), pytest.param(range(102, 106), marks=pytest.mark.thorough)],
    ids=str,
)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("target", LOWERED)
def test_random_settings_in_the_runtimes(
    target: str, direction: str, seeds: range
) -> None:
    needs(*consumers_of(target))
    chosen = [
        Model(family, seed, valid(family, seed))
        for family in FAMILIES
        for seed in seeds
    ]
    found = matrix(
        [model for model in chosen if _has(model, direction)],
        DIRECTIONS[direction],
        lower=partial(nnef_grad.lower, target=target),
        consumers=consumers_of(target),
    )
    wrong = [
        f"{model} in {consumer}: {verdict}"
        for model, row in found.items()
        for consumer, verdict in row.items()
        if verdict.word not in ("ok", "not lowered")
    ]
    assert wrong == []


def _has(model: Model, direction: str) -> bool:
    graph = nnef_grad.loads(model.text)
    is_scalar = any(tensor.dtype == "scalar" for tensor in graph.outputs)
    return direction == "forward" or is_scalar
