"""Random graphs whose batch and number of steps are symbols, with loops over the steps.

Every tensor has the axes batch, steps and features, and each extent may be one. So that
a loop is drawn as the graph around it is, a step of it has these axes too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from . import oracle
from .graphs import Statement, value_text


class Symbol(str):
    """An extent that has no number, printed as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


Shape = tuple[Any, ...]
Numbers = Mapping[str, int]
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Expression:
    """A number that is computed: of symbols, and of the extents of tensors."""

    text: str
    at: Callable[[Numbers, Mapping[str, Tensor]], int]

    def __repr__(self) -> str:
        return self.text


BATCH, STEPS = Symbol("B"), Symbol("T")
# A graph is drawn at these; the others are what it must be right for as well.
DRAWN: Numbers = {"B": 3, "T": 4}
NUMBERS: tuple[Numbers, ...] = (DRAWN, {"B": 1, "T": 1}, {"B": 5, "T": 2})
LARGEST = 20.0
ATTEMPTS = 20


@dataclass(frozen=True)
class Loop:
    """A loop over the steps, which carries a state.

    Attributes:
        name: that of the fragment of a step.
        body: its statements.
        scanned, state: the tensors that are read step by step, and that it begins with.
        full: the tensors of the graph that a step reads, by their own names.
        row, last: of a step, what is collected, and the next state.
        results: the collected rows, and the last state.
        way: 1 for the first step first, and -1 for the last.
    """

    name: str
    body: tuple[Statement, ...]
    scanned: str
    state: str
    full: tuple[str, ...]
    row: str
    last: str
    results: tuple[str, str]
    way: int

    @property
    def inputs(self) -> list[str]:
        return [self.scanned, self.state, *self.full]

    @property
    def text(self) -> str:
        full = ", ".join(f"('{name}', {name})" for name in self.full)
        return (
            f"{', '.join(self.results)} = tract_core_scan(body = '{self.name}',"
            f" scan = [('xs', {self.scanned}, 1, {self.way})], full = [{full}],"
            f" state = [('h', {self.state}, '{self.last}')],"
            f" output = [('{self.row}', 'full', 1, {self.way}), ('{self.last}', 'last', 0, 1)]);"
        )

    @property
    def fragment(self) -> str:
        """The declaration of a step."""
        names = ("xs", "h", *self.full)
        parameters = ", ".join(f"{name}: tensor<scalar>" for name in names)
        results = ", ".join(f"{n}: tensor<scalar>" for n in (self.row, self.last))
        lines = "\n".join(f"    {statement.text}" for statement in self.body)
        return (
            f"fragment {self.name}( {parameters} ) -> ( {results} )\n{{\n{lines}\n}}\n"
        )

    def run(self, tensors: Tensors, numbers: Numbers) -> None:
        """Adds the results to the tensors."""
        rows, state = [], tensors[self.state]
        for xs in tensors[self.scanned].split(1, dim=1)[:: self.way]:
            inner = {"xs": xs, "h": state, **{n: tensors[n] for n in self.full}}
            run(self.body, inner, numbers)
            rows.append(inner[self.row])
            state = inner[self.last]
        collected = torch.cat(rows[:: self.way], dim=1)
        tensors.update(zip(self.results, (collected, state), strict=True))


def run(
    statements: Sequence[Statement | Loop], tensors: Tensors, numbers: Numbers
) -> None:
    """Adds the results of all statements to the tensors, which have those that enter."""
    for statement in statements:
        if isinstance(statement, Loop):
            statement.run(tensors, numbers)
            continue
        operands = [_value(operand, tensors) for operand in statement.operands]
        attributes = {
            k: sized(v, numbers, tensors) for k, v in statement.attributes.items()
        }
        for read in _AS_TRACT_READS.get(statement.operation, ()):
            read(operands, attributes)
        results = oracle.apply(statement.operation, operands, attributes)
        tensors.update(zip(statement.outputs, results, strict=True))


def _turn(operands: list[Any], attributes: dict[str, Any]) -> None:
    """The filter [out, in / groups, ...] becomes [in, out / groups, ...]."""
    _, weight, *_ = operands
    parts = weight.reshape(attributes["groups"], -1, *weight.shape[1:])
    operands[1] = parts.transpose(1, 2).flatten(0, 1)


def _ignore_border(operands: list[Any], attributes: dict[str, Any]) -> None:
    attributes["border"] = "ignore"


def _from_0_to_0(operands: list[Any], attributes: dict[str, Any]) -> None:
    """That is nothing, and not the whole axis."""
    window = (attributes[name] for name in ("axes", "begin", "end"))
    ends = [
        (operands[0].shape[axis],) * 2 if begin == end == 0 else (begin, end)
        for axis, begin, end in zip(*window, strict=True)
    ]
    attributes["begin"], attributes["end"] = map(list, zip(*ends, strict=True))


def _check_factor(operands: list[Any], attributes: dict[str, Any]) -> None:
    """The oracle itself leaves out what remains."""
    pairs = zip(operands[0].shape[2:], attributes["factor"], strict=True)
    if any(extent % factor for extent, factor in pairs):
        raise ValueError("the factor must divide the extents")


# How tract's dialect differs from the standard, and the standard from the oracle.
_AS_TRACT_READS: Mapping[str, Sequence[Callable[[list[Any], dict[str, Any]], None]]] = {
    "deconv": [_turn],
    "slice": [_from_0_to_0],
    "max_pool": [_ignore_border],
    "nearest_downsample": [_check_factor],
    "area_downsample": [_check_factor],
}


def _value(operand: Any, tensors: Tensors) -> Any:
    if isinstance(operand, tuple):
        return [_value(item, tensors) for item in operand]
    return tensors[operand] if isinstance(operand, str) else operand


def sized(value: Any, numbers: Numbers, tensors: Mapping[str, Tensor]) -> Any:
    """A value, or nested lists of them, with the numbers of what is computed in it."""
    if isinstance(value, (list, tuple)):
        return type(value)(sized(item, numbers, tensors) for item in value)
    if isinstance(value, Expression):
        return value.at(numbers, tensors)
    return numbers[value] if isinstance(value, Symbol) else value


@dataclass(frozen=True)
class OpenGraph:
    """A graph; the tensors that enter it are called as its variables are labelled.

    Attributes:
        sizes, refused: numbers of its symbols that it takes, and that it does not.
    """

    name: str
    statements: tuple[Statement | Loop, ...]
    inputs: Mapping[str, Shape]
    variables: Mapping[str, Shape]
    outputs: tuple[str, ...]
    sizes: tuple[Numbers, ...] = NUMBERS
    refused: tuple[Numbers, ...] = ()

    @property
    def text(self) -> str:
        """The document, in tract's dialect: the standard has neither symbols nor loops."""
        loops = [s for s in self.statements if isinstance(s, Loop)]
        lines = [
            *(
                f"{n} = external(shape = {value_text([*s])});"
                for n, s in self.inputs.items()
            ),
            *(
                f"{n} = variable(shape = {value_text([*s])}, label = '{n}');"
                for n, s in self.variables.items()
            ),
            *(statement.text for statement in self.statements),
        ]
        extents = {n for shape in self.inputs.values() for n in shape}
        symbols = sorted(n for n in extents if isinstance(n, Symbol))
        head = f"graph net( {', '.join(self.inputs)} ) -> ( {', '.join(self.outputs)} )"
        body = "\n".join(f"    {line}" for line in lines)
        return "\n".join(
            [
                "version 1.0;\nextension tract_registry tract_core;",
                *(f"extension tract_symbol {symbol};" for symbol in symbols),
                *(f"\n{loop.fragment}" for loop in loops),
                f"\n{head}\n{{\n{body}\n}}\n",
            ]
        )

    def __call__(self, entering: Mapping[str, Tensor], numbers: Numbers) -> Tensors:
        """Its outputs, by torch."""
        tensors = dict(entering)
        run(self.statements, tensors, numbers)
        return {name: tensors[name] for name in self.outputs}


# ---- A graph in the making ----


class RejectedError(Exception):
    """An operation that does not fit the tensors at hand."""


@dataclass
class Draw:
    """What there is so far. In a step of a loop the extent of the steps is one.

    Attributes:
        prefix: what the names of its tensors begin with.
        shapes, tensors: those of what was drawn, at `DRAWN`.
        variables: the variables; those of a graph and of its loops are together.
    """

    random: Random
    prefix: str
    shapes: dict[str, Shape]
    tensors: Tensors
    variables: dict[str, Shape]
    statements: list[Statement | Loop] = field(default_factory=list)

    def emit(self, operation: str, *operands: Any, **attributes: Any) -> str:
        """An operation that keeps the shape of its first operand, or broadcasts."""
        shapes = [
            self.shapes[operand] for operand in operands if operand in self.shapes
        ]
        return self.emit_as(broadcast(*shapes), operation, *operands, **attributes)

    def emit_as(
        self, result: Shape, operation: str, *operands: Any, **attributes: Any
    ) -> str:
        """An operation with a result of a shape."""
        name = f"{self.prefix}{len(self.statements)}"
        statement = Statement(operation, operands, attributes, (name,))
        run([statement], self.tensors, DRAWN)
        self.keep(statement, {name: result})
        return name

    def keep(self, statement: Statement | Loop, shapes: Mapping[str, Shape]) -> None:
        """Adds a statement whose results have numbers that are not too large."""
        for name, shape in shapes.items():
            tensor = self.tensors[name]
            assert list(tensor.shape) == sized([*shape], DRAWN, {}), statement.text
            if not bool((tensor.double().abs() < LARGEST).all()):
                raise RejectedError
        self.statements.append(statement)
        self.shapes.update(shapes)

    def pick(self, where: Callable[[Shape], bool] = lambda shape: True) -> str:
        """A tensor, a late one rather than an early one."""
        names = [
            name
            for name, shape in self.shapes.items()
            if len(shape) == 3 and where(shape) and name not in self.variables
        ]
        if not names:
            raise RejectedError
        return names[-1 - min(int(self.random.expovariate(0.5)), len(names) - 1)]

    def variable(self, *shape: int) -> str:
        """A new variable."""
        name = f"w{len(self.variables)}"
        values = torch.tensor(
            [self.random.gauss(0, 0.5) for _ in range(_volume(shape))],
            dtype=torch.float64,
        )
        self.tensors[name] = values.reshape(shape)
        self.shapes[name] = self.variables[name] = shape
        return name

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability


def broadcast(*shapes: Shape) -> Shape:
    """The shape that an operation element by element has."""
    extents = [set(axis) - {1} for axis in zip(*shapes, strict=True)]
    if any(len(axis) > 1 for axis in extents):
        raise RejectedError
    return tuple(axis.pop() if axis else 1 for axis in extents)


def _volume(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())


# ---- What is drawn ----

UNARY = ["tanh", "sigmoid", "sin", "relu", "abs", "softplus", "neg", "sqr", "elu"]
BINARY = ["add", "sub", "mul", "max", "min"]


def unary(draw: Draw) -> None:
    draw.emit(draw.random.choice(UNARY), draw.pick())


def inverse(draw: Draw) -> None:
    above = draw.emit("add", draw.emit("sqr", draw.pick()), 0.5)
    draw.emit(draw.random.choice(["rcp", "sqrt", "rsqrt", "log"]), above)


def binary(draw: Draw) -> None:
    draw.emit(draw.random.choice(BINARY), draw.pick(), draw.pick())


def quotient(draw: Draw) -> None:
    draw.emit("div", draw.pick(), draw.emit("add", draw.emit("sqr", draw.pick()), 0.5))


def choice(draw: Draw) -> None:
    x, y = draw.pick(), draw.pick()
    shape = broadcast(draw.shapes[x], draw.shapes[y])
    condition = draw.emit_as(shape, "gt", x, y)
    draw.shapes.pop(condition)
    draw.emit_as(shape, "select", condition, y, draw.emit("mul", x, 0.5))


def reduction(draw: Draw) -> None:
    x = draw.pick()
    rank = len(draw.shapes[x])
    axes = sorted(draw.random.sample(range(rank), draw.random.randint(1, rank - 1)))
    operation = draw.random.choice(
        ["sum_reduce", "mean_reduce", "max_reduce", "min_reduce"]
    )
    shape = tuple(1 if i in axes else n for i, n in enumerate(draw.shapes[x]))
    draw.emit_as(shape, operation, x, axes=axes)


def softmax(draw: Draw) -> None:
    x = draw.pick()
    draw.emit("softmax", x, axes=[draw.random.randrange(len(draw.shapes[x]))])


def normalization(draw: Draw) -> None:
    x = draw.pick()
    axes = [draw.random.randrange(len(draw.shapes[x]))]
    shape = tuple(1 if i in axes else n for i, n in enumerate(draw.shapes[x]))
    mean = draw.emit_as(shape, "mean_reduce", x, axes=axes)
    centered = draw.emit("sub", x, mean)
    squares = draw.emit("sqr", centered)
    variance = draw.emit_as(shape, "mean_reduce", squares, axes=axes)
    draw.emit("mul", centered, draw.emit("rsqrt", draw.emit("add", variance, 0.1)))


def dense(draw: Draw, x: str | None = None, features: int | None = None) -> str:
    """A product with a matrix, and a bias."""
    x = draw.pick() if x is None else x
    features = draw.random.randint(1, 4) if features is None else features
    batch, steps, width = draw.shapes[x]
    weight = draw.variable(1, width, features)
    product = draw.emit_as((batch, steps, features), "matmul", x, weight)
    return draw.emit("add", product, draw.variable(1, 1, features))


def product_of_rows(draw: Draw) -> None:
    """A product with a matrix, of all steps of all elements as rows."""
    x = draw.pick(lambda shape: shape[:2] == (BATCH, STEPS))
    width, features = draw.shapes[x][2], draw.random.randint(1, 4)
    # As its number of rows is a product of symbols, nothing else is made of it.
    rows = draw.emit_as((12, width), "reshape", x, shape=[-1, width])
    weight = draw.variable(width, features)
    product = draw.emit_as((12, features), "matmul", rows, weight)
    shape = (BATCH, STEPS, features)
    draw.emit_as(shape, "reshape", product, shape=[*shape])


def attention(draw: Draw) -> None:
    x = draw.pick(lambda shape: shape[1] == STEPS)
    batch, steps, width = draw.shapes[x]
    scores = draw.emit_as((batch, steps, steps), "matmul", x, x, transposeB=True)
    shares = draw.emit("softmax", scores, axes=[2])
    draw.shapes.pop(scores)
    draw.shapes.pop(shares)
    draw.emit_as((batch, steps, width), "matmul", shares, x)


def convolution(draw: Draw) -> None:
    """Over three steps, padded so that their number stays."""
    x = draw.pick(lambda shape: shape[1] == STEPS)
    batch, steps, width = draw.shapes[x]
    features = draw.random.randint(1, 3)
    channels = draw.emit_as((batch, width, steps), "transpose", x, axes=[0, 2, 1])
    weight = draw.variable(features, width, 3)
    operands = (channels, weight, draw.variable(1, features))
    shape = (batch, features, steps)
    convolved = draw.emit_as(shape, "conv", *operands, padding=[(1, 1)])
    draw.shapes.pop(channels)
    draw.shapes.pop(convolved)
    draw.emit_as((batch, steps, features), "transpose", convolved, axes=[0, 2, 1])


def concatenation(draw: Draw) -> None:
    x = draw.pick()
    y = draw.pick(lambda shape: shape[:2] == draw.shapes[x][:2])
    *rest, width = draw.shapes[x]
    shape = (*rest, width + draw.shapes[y][2])
    if shape[2] > 6:
        raise RejectedError
    draw.emit_as(shape, "concat", (x, y), axis=2)


def some_features(draw: Draw) -> None:
    x = draw.pick(lambda shape: shape[2] > 1)
    *rest, width = draw.shapes[x]
    begin = draw.random.randrange(width)
    end = draw.random.randint(begin + 1, width)
    shape = (*rest, end - begin)
    draw.emit_as(shape, "slice", x, axes=[2], begin=[begin], end=[end])


def one_step(draw: Draw) -> None:
    """The first step, or the last."""
    x = draw.pick(lambda shape: shape[1] == STEPS)
    batch, _, width = draw.shapes[x]
    begin, end = draw.random.choice([(0, 1), (-1, STEPS)])
    shape = (batch, 1, width)
    draw.emit_as(shape, "slice", x, axes=[1], begin=[begin], end=[end])


def repetition(draw: Draw) -> None:
    axis, symbol = draw.random.choice([(0, BATCH), (1, STEPS)])
    x = draw.pick(lambda shape: shape[axis] == 1)
    shape: list[Any] = [*draw.shapes[x]]
    repeats: list[Any] = [1, 1, 1]
    shape[axis] = repeats[axis] = symbol
    draw.emit_as(tuple(shape), "tile", x, repeats=repeats)


def loop(draw: Draw) -> None:
    """A recurrent layer, whose step is drawn as the graph is."""
    scanned = draw.pick(lambda shape: shape[:2] == (BATCH, STEPS))
    features, mark = draw.random.randint(1, 3), len(draw.statements)
    mean = draw.emit_as(
        (BATCH, 1, draw.shapes[scanned][2]), "mean_reduce", scanned, axes=[1]
    )
    state = dense(draw, mean, features)
    step = _step(draw, scanned, state, f"l{mark}_")
    row = step.pick(lambda shape: shape[:2] == (BATCH, 1))
    new = step.emit("tanh", dense(step, step.pick(), features))
    # tract has no loop that reads nothing of what it scans.
    scanned_mean = step.emit_as((BATCH, 1, 1), "mean_reduce", "xs", axes=[2])
    last = step.emit("add", new, step.emit("mul", "h", scanned_mean))
    if not row.startswith(step.prefix):
        row = step.emit("copy", row)
    body = tuple(s for s in step.statements if isinstance(s, Statement))
    read = {name for statement in body for name in statement.inputs}
    full = tuple(n for n in draw.shapes if n in read) + tuple(
        n for n in step.variables if n in read and n not in draw.shapes
    )
    draw.shapes.update({n: step.shapes[n] for n in full})
    draw.tensors.update({n: step.tensors[n] for n in full})
    results = (f"{draw.prefix}{mark}_rows", f"{draw.prefix}{mark}_last")
    way = draw.random.choice([1, -1])
    made = Loop(f"step{mark}", body, scanned, state, full, row, last, results, way)
    made.run(draw.tensors, DRAWN)
    shapes = ((BATCH, STEPS, step.shapes[row][2]), (BATCH, 1, features))
    draw.keep(made, dict(zip(results, shapes, strict=True)))


def _step(draw: Draw, scanned: str, state: str, prefix: str) -> Draw:
    """A step in the making. It reads what has no steps of the graph around it, too."""
    outer = {n: s for n, s in draw.shapes.items() if len(s) == 3 and s[1] == 1}
    read = {
        n: s for n, s in outer.items() if n not in draw.variables and draw.chance(0.2)
    }
    first = draw.tensors[scanned][:, :1]
    step = Draw(
        draw.random,
        prefix,
        {
            **read,
            "xs": (BATCH, 1, draw.shapes[scanned][2]),
            "h": draw.shapes[state],
        },
        {**{n: draw.tensors[n] for n in read}, "xs": first, "h": draw.tensors[state]},
        draw.variables,
    )
    fill(step, INSIDE, draw.random.randint(1, 6))
    return step


INSIDE: Mapping[Callable[[Draw], Any], float] = {
    unary: 4,
    inverse: 1,
    binary: 4,
    quotient: 1,
    choice: 1,
    reduction: 2,
    softmax: 1,
    normalization: 1,
    dense: 2,
    concatenation: 1,
    some_features: 1,
}
MOVES: Mapping[Callable[[Draw], Any], float] = {
    **INSIDE,
    product_of_rows: 1,
    attention: 0.5,
    convolution: 1,
    one_step: 1,
    repetition: 1,
    loop: 2,
}


def fill(draw: Any, moves: Mapping[Callable[[Any], Any], float], size: int) -> None:
    """Operations up to a number, if that many fit."""
    for _ in range(ATTEMPTS * size):
        if len(draw.statements) >= size:
            return
        (move,) = draw.random.choices([*moves], [*moves.values()])
        known = {*draw.shapes}
        try:
            move(draw)
        except RejectedError:
            # What a rejected move has made is read by nothing.
            for name in draw.shapes.keys() - known:
                del draw.shapes[name]


def make_graph(seed: int, number: int) -> OpenGraph:
    """The graph that a seed and a number stand for."""
    name = f"open {seed}:{number}"
    random = Random(name)
    inputs: dict[str, Shape] = {"x": (BATCH, STEPS, random.randint(1, 4))}
    if random.random() < 0.4:
        inputs["y"] = (BATCH, random.choice([1, STEPS]), random.randint(1, 4))
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    tensors = values(inputs, DRAWN, generator)
    draw = Draw(random, "t", dict(inputs), tensors, {})
    fill(draw, MOVES, random.randint(3, 16))
    return OpenGraph(
        name, tuple(draw.statements), inputs, dict(draw.variables), _outputs(draw)
    )


def values(
    shapes: Mapping[str, Shape], numbers: Numbers, generator: torch.Generator
) -> Tensors:
    """Random numbers, the same in single precision."""
    return {
        name: torch.randn(sized([*shape], numbers, {}), generator=generator).double()
        for name, shape in shapes.items()
    }


def _outputs(draw: Draw) -> tuple[str, ...]:
    """The last tensor, and most of the others that nothing uses."""
    used = {name for statement in draw.statements for name in statement.inputs}
    made = [n for n, s in draw.shapes.items() if n[0] == "t" and len(s) == 3]
    if not made:
        made = [draw.emit("copy", "x")]
    kept = [n for n in made[:-1] if n not in used and draw.chance(0.7)]
    return (*kept, made[-1])
