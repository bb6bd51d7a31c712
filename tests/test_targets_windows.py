"""Window operations lowered for the targets: random settings, ties, what is written, and
what the runtimes make of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import pytest
from checks import document
from operation_models import Model
from test_networks import network
from witnesses import CONSUMERS, missing
from witnesses.matrix import DIRECTIONS, backward, example, forward, verdicts

import nnef_grad
from nnef_grad.ops.windows import up_scaled
from nnef_grad.targets import TARGETS
from nnef_grad.targets.runtimes import RUNTIMES
from nnef_grad.values import random_values

LOWERED = [target for target in TARGETS if target != "nnef"]
RUNS_IN = {name: [t for t in LOWERED if name in TARGETS[t]] for name in RUNTIMES}
# The data of constants are in single precision.
EXACT, SINGLE = 1e-12, 1e-6
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
    return [extent + sign * r for extent, r in zip(up_scaled(*columns), remainders)]


def convolution(draw: random.Random) -> str:
    """Of any rank, grouped or not, with any bias; in one direction or the other."""
    space = draw.choice([0, 1, 1, 2, 2, 2, 2, 3])
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
        "padding": sometimes(draw, 0.7, sides(draw, space, -1, 3)),
        "stride": sometimes(draw, 0.6, integers(draw, space, 1, 3)),
        "dilation": sometimes(draw, 0.3, integers(draw, space, 1, 2)),
    }
    batch, (before, behind) = draw.randint(1, 2), (down, up) if reverse else (up, down)
    said = (
        [batch, behind, *output_extents(draw, extents, size, windows)]
        if reverse
        else []
    )
    windows |= {"output_shape": sometimes(draw, 0.5, said)} if reverse else {}
    shape = draw.choice(
        [None, None, [1, behind], [1], [1, 1], [], [1, behind] + [1] * space]
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
    padding = [(0, 0) if is_still else sides(draw, 1, -1, 2)[0] for is_still in still]
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
        extents = [f * extent for f, extent in zip(factor, extents)]
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
    types = {tensor.name: tensor.dtype for tensor in graph.inputs}
    fed = {
        name: array.astype(np.float64) if types[name] == "scalar" else array
        for name, array in inputs.items()
    }
    return nnef_grad.evaluate(graph, fed, variables)


def check_lowered(graph: nnef_grad.Graph, seed: int, *, ties: bool = False) -> None:
    """Lowered for each target, a graph computes the same, and holds nothing that a
    runtime of the target lacks.
    """
    values = random_values(graph, seed)
    inputs = {n: np.round(a) if ties else a for n, a in values.inputs.items()}
    expected = evaluated(graph, inputs, values.variables)
    for target in LOWERED:
        lowered = nnef_grad.lower(graph, target)
        found = evaluated(lowered.graph, inputs, {**values.variables, **lowered.data})
        tolerance = SINGLE if lowered.data else EXACT
        for name, array in expected.items():
            error = np.abs(found[name] - array).max() / max(np.abs(array).max(), 1.0)
            assert error <= tolerance, f"{name} for {target}:\n{nnef_grad.dumps(graph)}"
        lacking = [
            op.name
            for op in lowered.graph.operations
            if any(RUNTIMES[name].lacks(op) for name in TARGETS[target])
        ]
        assert lacking == []


def orders(text: str) -> Iterator[nnef_grad.Graph]:
    """A graph, its backward graph, and the backward graph of that."""
    graph = nnef_grad.loads(text)
    yield graph
    if any(tensor.dtype == "scalar" for tensor in graph.outputs):
        graph = nnef_grad.differentiate(graph).graph
        yield graph
        yield nnef_grad.differentiate(graph).graph


# What has no other form, and no meaning either, or hardly any.
LEFT = "windows that have no element inside|windows along more than 3 axes"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("family", FAMILIES)
def test_random_settings(family: str, seed: int) -> None:
    ties = family in ("maxima", "elements")
    for graph in orders(valid(family, seed)):
        try:
            check_lowered(graph, seed, ties=ties)
        except nnef_grad.UnsupportedError as error:
            assert any(reason in str(error) for reason in LEFT.split("|"))


def test_few_settings_are_left() -> None:
    graphs = [valid(family, seed) for family in FAMILIES for seed in range(100)]
    left = 0
    for text in graphs:
        try:
            nnef_grad.lower(nnef_grad.loads(text), "portable")
        except nnef_grad.UnsupportedError:
            left += 1
    assert left < 0.07 * len(graphs)
