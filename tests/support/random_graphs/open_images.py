"""Random graphs of images [batch, channels, height, width], or of rows [batch, channels,
length], whose extents are symbols but for the channels.

A graph is drawn at several numbers of its symbols at once. Some of its operations take not
all of them: the sum of an image and of one that was made smaller and larger again, say.
Extents of tensors in between are written as tract's dialect has them, `tract_core_shape_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from .graphs import Statement
from .open_graphs import (
    LARGEST,
    Draw,
    Expression,
    Numbers,
    OpenGraph,
    RejectedError,
    Shape,
    Symbol,
    Tensors,
    binary,
    choice,
    fill,
    inverse,
    normalization,
    quotient,
    reduction,
    run,
    softmax,
    unary,
    values,
)

MOST_ELEMENTS = 4000
MOST_CHANNELS = 5
# What torch, and the oracle itself, raise for shapes that do not fit.
REFUSALS = (RuntimeError, ValueError, IndexError)

# The numbers that a graph is drawn at, by its symbols; the smallest one is drawn too.
SPACES: Mapping[str, tuple[Numbers, ...]] = {
    "HW": ({"B": 3, "H": 8, "W": 6}, {"B": 2, "H": 7, "W": 9}, {"B": 1, "H": 5, "W": 4}),
    "T": ({"B": 3, "T": 8}, {"B": 2, "T": 7}, {"B": 1, "T": 5}),
}  # fmt: skip
SMALLEST = 3
# How many further numbers are tried after a graph was drawn, and how many are kept.
PROBES, KEPT = 8, 2


# ---- Computed numbers ----


def extent(x: str, axis: int) -> Expression:
    """The extent of a tensor along an axis."""
    return Expression(
        f"tract_core_shape_of({x})[{axis}]", lambda _, tensors: tensors[x].shape[axis]
    )


def computed(text: str, *parts: Any) -> Expression:
    """An expression of extents and numbers, which stand in the place of {0}, {1} and so on.
    A quotient is rounded down.
    """

    def at(numbers: Numbers, tensors: Mapping[str, Tensor]) -> int:
        found = [
            p.at(numbers, tensors) if isinstance(p, Expression) else p for p in parts
        ]
        return int(eval(text.replace("/", "//").format(*found)))  # fmt: skip

    return Expression(text.format(*parts), at)


# ---- A graph in the making ----


@dataclass
class Images(Draw):
    """What there is so far, at each of several numbers. Its shapes have, for an extent, its
    numbers at these, or one where all are the same.

    Attributes:
        runs: the tensors at the numbers that are taken.
        refused: the numbers that are not.
        is_strict: whether all numbers have to be taken.
    """

    rank: int = 4
    runs: list[tuple[Numbers, Tensors]] = field(default_factory=list)
    refused: list[Numbers] = field(default_factory=list)
    is_strict: bool = True

    def emit(self, operation: str, *operands: Any, **attributes: Any) -> str:
        return self.emit_as((), operation, *operands, **attributes)

    def emit_as(
        self, result: Shape, operation: str, *operands: Any, **attributes: Any
    ) -> str:
        """An operation, whose shape torch finds."""
        name = f"{self.prefix}{len(self.statements)}"
        statement = Statement(operation, operands, attributes, (name,))
        taken, refused = [], []
        for numbers, tensors in self.runs:
            own = dict(tensors)
            try:
                run([statement], own, numbers)
            except REFUSALS:
                refused.append(numbers)
                continue
            _check(own[name])
            taken.append((numbers, own))
        if len(taken) < 2 or (refused and self.is_strict):
            raise RejectedError
        self.runs = taken
        self.refused += refused
        self.statements.append(statement)
        self.shapes[name] = self._shape(name)
        return name

    def _shape(self, name: str) -> Shape:
        shapes = [tensors[name].shape for _, tensors in self.runs]
        return tuple(
            axis[0] if len({*axis}) == 1 else axis for axis in zip(*shapes, strict=True)
        )

    def pick(self, where: Callable[[Shape], bool] = lambda shape: True) -> str:
        names = [
            name
            for name, shape in self.shapes.items()
            if len(shape) == self.rank
            and isinstance(shape[1], int)
            and where(shape)
            and name not in self.variables
        ]
        if not names:
            raise RejectedError
        return names[-1 - min(int(self.random.expovariate(0.5)), len(names) - 1)]

    def variable(self, *shape: int) -> str:
        name = super().variable(*shape)
        for _, tensors in self.runs:
            tensors[name] = self.tensors[name]
        return name

    def channels(self, x: str) -> int:
        return int(self.shapes[x][1])

    @property
    def space(self) -> range:
        """The axes along which windows slide."""
        return range(2, self.rank)


def _check(tensor: Tensor) -> None:
    if not 0 < tensor.numel() <= MOST_ELEMENTS:
        raise RejectedError
    if not bool((tensor.double().abs() < LARGEST).all()):
        raise RejectedError


# ---- Windows ----


def sliding(draw: Images, *, is_automatic: bool) -> tuple[list[int], dict[str, Any]]:
    """The size of windows along the axes of space, and how they slide."""
    pick, space = draw.random.choice, draw.space
    size = [pick((1, 2, 2, 3, 3, 4)) for _ in space]
    attributes: dict[str, Any] = {
        "stride": [pick((1, 1, 2, 2, 3)) for _ in space],
        "dilation": [pick((1, 1, 1, 2)) for _ in space],
        "padding": [(pick((0, 0, 1, 2)), pick((0, 0, 1, 2))) for _ in space],
    }
    if is_automatic and draw.chance(0.2):
        del attributes["padding"]
    for name in ("stride", "dilation"):
        if set(attributes[name]) == {1}:
            del attributes[name]
    return size, attributes


def over_all(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same with an item for batch and channels."""
    still = {"stride": [1, 1], "dilation": [1, 1], "padding": [(0, 0), (0, 0)]}
    return {name: still[name] + items for name, items in attributes.items()}


def convolution(draw: Images) -> None:
    x = draw.pick()
    size, attributes = sliding(draw, is_automatic=True)
    channels = draw.channels(x)
    groups = draw.random.choice([1, 1, channels])
    features = groups * draw.random.randint(1, max(MOST_CHANNELS // groups // 2, 1))
    weight = draw.variable(features, channels // groups, *size)
    if draw.chance(0.15):
        attributes["border"] = draw.random.choice(["replicate", "reflect"])
    operands = [x, weight, draw.variable(1, features)][: draw.random.randint(2, 3)]
    draw.emit("conv", *operands, **attributes, groups=groups)


def deconvolution(draw: Images) -> None:
    x = draw.pick()
    size, attributes = sliding(draw, is_automatic=False)
    channels = draw.channels(x)
    groups = draw.random.choice([1, 1, channels])
    features = groups * draw.random.randint(1, 2)
    weight = draw.variable(features, channels // groups, *size)
    draw.emit("deconv", x, weight, **attributes, groups=groups)


def pool(draw: Images) -> None:
    size, attributes = sliding(draw, is_automatic=True)
    operation = draw.random.choice(["max_pool", "avg_pool", "box"])
    border = draw.random.choice(["ignore", "constant"])
    whole = over_all(attributes)
    if operation == "box" and draw.chance(0.5):
        whole["normalize"] = True
    draw.emit(operation, draw.pick(), size=[1, 1, *size], border=border, **whole)


# ---- Borders and parts ----


def padding(draw: Images) -> None:
    x = draw.pick()
    amounts: list[Any] = [(0, 0)] * draw.rank
    for axis in draw.space:
        amounts[axis] = tuple(draw.random.choice((0, 0, 1, 2, 3, -1)) for _ in range(2))
    if draw.chance(0.5):
        axis, by = draw.random.choice(draw.space), draw.random.choice((2, 3, 4))
        sides: list[Any] = [
            0,
            computed("({0} + {1}) / {2} * {2} - {0}", extent(x, axis), by - 1, by),
        ]
        if draw.chance(0.3):
            sides = [
                computed("({0}) / 2", sides[1]),
                computed("{0} - ({0}) / 2", sides[1]),
            ]
        amounts[axis] = tuple(sides[:: draw.random.choice((1, -1))])  # fmt: skip
    border = draw.random.choice(["constant", "constant", "replicate", "reflect"])
    draw.emit("pad", x, padding=amounts, border=border)


def ends(draw: Images, x: str, axis: int) -> tuple[Any, Any, int]:
    """The begin, the end and the stride of a slice."""
    n, number = extent(x, axis), draw.random.randint(1, 3)
    return draw.random.choice(
        [
            (number, 0, 1),
            (0, -number, 1),
            (0, number, 1),
            (-number, 0, 1),
            (1, -1, 1),
            (0, n, number),
            (1, n, number),
            (-1, computed("-{0} - 1", n), -1),
            (-1, computed("-{0} - 1", n), -2),
            (0, computed("{0} / 2", n), 1),
            (computed("{0} / 2", n), n, 1),
            (computed("{0} / 4", n), computed("{0} - {0} / 4", n), 1),
            (0, computed("({0} + 1) / 2", n), 1),
            (computed("{0} - {0} / 3", n), n, 1),
        ]
    )


def part(draw: Images) -> None:
    x = draw.pick()
    axes = sorted(draw.random.sample([0, *draw.space], draw.random.randint(1, 2)))
    found = zip(*(ends(draw, x, axis) for axis in axes), strict=True)
    begin, end, stride = map(list, found)
    attributes = {} if set(stride) == {1} else {"stride": stride}
    draw.emit("slice", x, axes=axes, begin=begin, end=end, **attributes)


def swap(draw: Images) -> None:
    axes = [*range(draw.rank)]
    axes[2:] = axes[:1:-1]
    draw.emit("transpose", draw.pick(), axes=axes)


def repetition(draw: Images) -> None:
    x, of = draw.pick(), draw.pick()
    axis = draw.random.choice([0, *draw.space])
    repeats: list[Any] = [1] * draw.rank
    is_one = draw.shapes[x][axis] == 1
    repeats[axis] = extent(of, axis) if is_one else 2
    draw.emit("tile", x, repeats=repeats)


# ---- Resampling ----


def upsample(draw: Images, x: str | None = None) -> str:
    x = draw.pick() if x is None else x
    factor = [draw.random.choice((2, 2, 2, 1, 3)) for _ in draw.space]
    if draw.chance(0.5):
        return draw.emit("nearest_upsample", x, factor=factor)
    method = draw.random.choice(["symmetric", "asymmetric", "aligned"])
    border = draw.random.choice(["replicate", "constant"])
    return draw.emit(
        "multilinear_upsample", x, factor=factor, method=method, border=border
    )


def downsample(draw: Images) -> None:
    operation = draw.random.choice(["nearest_downsample", "area_downsample"])
    factor = [draw.random.choice((1, 2, 2, 3)) for _ in draw.space]
    draw.emit(operation, draw.pick(), factor=factor)


def down_and_up(draw: Images) -> None:
    """Smaller by 2, larger by 2, and together with what it was made of: cropped to it or not,
    or padded before.
    """
    x, n = draw.pick(), len(draw.space)
    original = x
    if draw.chance(0.3):
        amounts: list[Any] = [(0, 0)] * draw.rank
        for axis in draw.space:
            amounts[axis] = (0, computed("({0} + 1) / 2 * 2 - {0}", extent(x, axis)))
        x = draw.emit("pad", x, padding=amounts, border="replicate")
    size = draw.random.choice((2, 3))
    whole = over_all({"stride": [2] * n, "padding": [(0, size - 1)] * n})
    if draw.chance(0.5):
        whole["padding"] = [(0, 0)] * draw.rank
    pooled = draw.random.choice(["max_pool", "avg_pool"])
    small = draw.emit(pooled, x, size=[1, 1, *[size] * n], border="ignore", **whole)
    factor = [2] * n
    if draw.chance(0.4):
        weight = draw.variable(draw.channels(x), draw.channels(x), *[2] * n)
        none = [(0, 0)] * n
        large = draw.emit(
            "deconv", small, weight, stride=factor, padding=none, groups=1
        )
    else:
        large = draw.emit("nearest_upsample", small, factor=factor)
    if draw.chance(0.5):
        axes = [*draw.space]
        end = [extent(original, axis) for axis in axes]
        large = draw.emit("slice", large, axes=axes, begin=[0] * n, end=end)
    _join(draw, draw.random.choice((original, x)), large)


def _join(draw: Images, x: str, y: str) -> None:
    if draw.chance(0.5):
        draw.emit("add", x, y)
    else:
        draw.emit("concat", (x, y), axis=1)


def concatenation(draw: Images) -> None:
    axis = draw.random.choice([0, 1, *draw.space])
    name = draw.emit("concat", (draw.pick(), draw.pick()), axis=axis)
    if draw.channels(name) > MOST_CHANNELS:
        draw.emit("slice", name, axes=[1], begin=[0], end=[MOST_CHANNELS])


# ---- Reshapes ----


def flat(draw: Images, x: str) -> str:
    """The positions of space as one axis."""
    positions = computed(" * ".join(f"{{{i}}}" for i in range(draw.rank - 2)), *(extent(x, axis) for axis in draw.space))  # fmt: skip
    shape = draw.random.choice(
        [
            [0, 0, -1],
            [extent(x, 0), draw.channels(x), positions],
            [extent(x, 0), draw.channels(x), -1],
            [-1, draw.channels(x), positions],
        ]
    )
    return draw.emit("reshape", x, shape=shape)


def back(draw: Images, y: str, x: str) -> str:
    """A flat tensor in the space of another one."""
    shape: list[Any] = [extent(x, 0), draw.channels(y)]
    shape += [extent(x, axis) for axis in draw.space]
    shape[draw.random.choice([0, 1, *draw.space])] = -1
    return draw.emit("reshape", y, shape=shape)


def along_positions(draw: Images) -> None:
    x = draw.pick()
    y = flat(draw, x)
    operation = draw.random.choice(["softmax", "tanh", "sub", "slice"])
    if operation == "sub":
        y = draw.emit("sub", y, draw.emit("mean_reduce", y, axes=[2]))
    elif operation == "softmax":
        y = draw.emit("softmax", y, axes=[2])
    elif operation == "tanh":
        y = draw.emit("tanh", y)
    else:
        y = draw.emit("slice", y, axes=[2], begin=[-1], end=[computed("-{0} - 1", extent(y, 2))], stride=[-1])  # fmt: skip
    back(draw, y, x)


def product_over_positions(draw: Images) -> None:
    x = draw.pick()
    y = flat(draw, x)
    scores = draw.emit("matmul", y, y, transposeB=True)
    shares = draw.emit("softmax", scores, axes=[2])
    back(draw, draw.emit("matmul", shares, y), x)


def attention(draw: Images) -> None:
    x = draw.pick()
    y = flat(draw, x)
    scores = draw.emit("matmul", y, y, transposeA=True)
    shares = draw.emit("softmax", scores, axes=[1])
    back(draw, draw.emit("matmul", y, shares), x)


def dense(draw: Images) -> None:
    """A matrix for all positions of all images."""
    x = draw.pick()
    axes = [0, *draw.space, 1]
    last = draw.emit("transpose", x, axes=axes)
    draw.shapes.pop(last)
    rows = draw.emit("reshape", last, shape=[-1, draw.channels(x)])
    features = draw.random.randint(1, 3)
    y = draw.emit("matmul", rows, draw.variable(draw.channels(x), features))
    shape = [extent(x, 0), *(extent(x, axis) for axis in draw.space), features]
    y = draw.emit("reshape", y, shape=shape)
    draw.shapes.pop(y)
    draw.emit("transpose", y, axes=[0, draw.rank - 1, *range(1, draw.rank - 1)])


def batch_of_rows(draw: Images) -> None:
    """Batch and height together as a batch, and apart again."""
    x = draw.pick()
    if draw.rank == 3:
        raise RejectedError
    c, (b, h, w) = draw.channels(x), (extent(x, axis) for axis in (0, 2, 3))
    y = draw.emit("transpose", x, axes=[0, 2, 1, 3])
    draw.shapes.pop(y)
    y = draw.emit("reshape", y, shape=draw.random.choice([[-1, c, w], [computed("{0} * {1}", b, h), c, -1]]))  # fmt: skip
    weight = draw.variable(c, c, 3)
    y = draw.emit("conv", y, weight, padding=[(1, 1)])
    y = draw.emit("reshape", y, shape=draw.random.choice([[b, h, c, w], [-1, h, c, w]]))
    draw.shapes.pop(y)
    draw.emit("transpose", y, axes=[0, 2, 1, 3])


def blocks(draw: Images) -> None:
    """Pairs of neighbours become another axis, of which the mean is taken."""
    x = draw.pick()
    axis = draw.random.choice([0, *draw.space])
    half = computed("{0} / 2", extent(x, axis))
    shape = [*[0] * axis, draw.random.choice([-1, half]), 2]
    pairs = draw.emit("reshape", x, shape=shape[axis:], axis_start=axis, axis_count=1)
    mean = draw.emit("mean_reduce", pairs, axes=[axis + 1])
    draw.emit("squeeze", mean, axes=[axis + 1])


# ---- Whole images ----


def global_pool(draw: Images) -> None:
    operation = draw.random.choice(["mean_reduce", "max_reduce", "sum_reduce"])
    x = draw.emit(operation, draw.pick(), axes=[*draw.space])
    weight = draw.variable(draw.channels(x), draw.channels(x), *[1] * len(draw.space))
    draw.emit("conv", x, weight)


def standardization(draw: Images) -> None:
    """Over all of an image, or over the batch."""
    x = draw.pick()
    axes = draw.random.choice([[*draw.space], [1, *draw.space], [0, *draw.space]])
    mean = draw.emit("mean_reduce", x, axes=axes)
    centered = draw.emit("sub", x, mean)
    variance = draw.emit("mean_reduce", draw.emit("sqr", centered), axes=axes)
    scale = draw.emit("rsqrt", draw.emit("add", variance, 0.1))
    draw.emit("mul", draw.emit("mul", centered, scale), draw.variable(1, draw.channels(x), *[1] * len(draw.space)))  # fmt: skip


MOVES: Mapping[Callable[[Any], Any], float] = {
    unary: 3,
    inverse: 0.5,
    binary: 3,
    quotient: 0.5,
    choice: 0.5,
    reduction: 1,
    softmax: 0.7,
    normalization: 0.7,
    convolution: 4,
    deconvolution: 2,
    pool: 4,
    padding: 3,
    part: 4,
    swap: 0.5,
    repetition: 0.7,
    upsample: 1.5,
    downsample: 0.5,
    down_and_up: 2,
    concatenation: 2,
    along_positions: 1,
    product_over_positions: 0.7,
    attention: 0.3,
    dense: 0.7,
    batch_of_rows: 0.7,
    blocks: 1,
    global_pool: 0.7,
    standardization: 0.7,
}


# ---- A whole graph ----


def make_graph(seed: int, number: int) -> OpenGraph:
    """The graph that a seed and a number stand for."""
    name = f"images {seed}:{number}"
    random = Random(name)
    space = random.choice(["HW", "HW", "T"])
    smallest = {n: random.randint(1, SMALLEST) for n in ("B", *space)}
    extents = [Symbol(n) for n in space]
    inputs: dict[str, Shape] = {"x": (Symbol("B"), random.randint(1, 3), *extents)}
    if random.random() < 0.3:
        others = [random.choice([1, n]) for n in (Symbol("B"), *extents)]
        inputs["y"] = (others[0], random.randint(1, 3), *others[1:])
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    runs = [
        (numbers, values(inputs, numbers, generator))
        for numbers in (*SPACES[space], smallest)
    ]
    draw = Images(random, "t", {}, {}, {}, rank=2 + len(space), runs=runs)
    draw.is_strict = random.random() < 0.4
    draw.shapes.update({n: draw._shape(n) for n in inputs})
    fill(draw, MOVES, random.randint(2, 10))
    graph = OpenGraph(
        name, tuple(draw.statements), inputs, dict(draw.variables), _outputs(draw)
    )
    sizes = [numbers for numbers, _ in draw.runs]
    return _probed(replace(graph, sizes=tuple(sizes), refused=tuple(draw.refused)), random)  # fmt: skip


def _outputs(draw: Images) -> tuple[str, ...]:
    """All tensors that nothing uses: what is not computed is not refused either."""
    used = {name for statement in draw.statements for name in statement.inputs}
    statements = [s for s in draw.statements if isinstance(s, Statement)]
    made = [name for statement in statements for name in statement.outputs]
    _, tensors = draw.runs[0]
    kept = [n for n in made if n not in used and tensors[n].dtype == torch.float64]
    return tuple(kept) or (draw.emit("copy", "x"),)


def _probed(graph: OpenGraph, random: Random) -> OpenGraph:
    """The graph with further small numbers, which it takes or does not."""
    names = [*graph.sizes[0]]
    tried = [{n: random.randint(1, 6) for n in names} for _ in range(PROBES)]
    tried.sort(key=lambda numbers: sum(numbers.values()))
    sizes, refused = [*graph.sizes], [*graph.refused]
    for numbers in tried:
        known = len(sizes) - len(graph.sizes), len(refused) - len(graph.refused)
        if numbers in (*sizes, *refused) or known == (KEPT, KEPT):
            continue
        answer = is_taken(graph, numbers)
        if answer is not None and known[not answer] < KEPT:
            (sizes if answer else refused).append(numbers)
    return replace(graph, sizes=tuple(sizes), refused=tuple(refused))


def is_taken(graph: OpenGraph, numbers: Numbers) -> bool | None:
    """Whether torch takes the numbers; None where there is an empty tensor."""
    generator = torch.Generator().manual_seed(0)
    tensors = values({**graph.inputs, **graph.variables}, numbers, generator)
    for statement in graph.statements:
        try:
            run([statement], tensors, numbers)
        except REFUSALS:
            return False
        assert isinstance(statement, Statement)
        results = [tensors[name] for name in statement.outputs]
        # Nor what is not a number: the mean of a window that has no element.
        if not all(x.numel() and bool(x.double().isfinite().all()) for x in results):
            return None
    return True
