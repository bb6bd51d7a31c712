"""A graph in the making.

Every tensor is evaluated twice as it is made: on the feed, and on a feed that differs by
a little noise. What an operation decides (the larger of two, a rounded number, an index)
must be the same in both worlds: so a graph is never near a kink, while ties that the
graph itself makes, as in `max(x, x)`, stay. And a tensor must not move by too much, or
its gradients would be too steep to be compared, or by nothing, as a gradient of zero
tells little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import oracle
from .domains import CONDITIONS, DECISIONS, DOMAINS, FLAT, SMOOTH
from .graphs import SOURCES, Shape, Statement

NOISE = 1e-4
LARGEST = 100.0
STEEPEST = 1000.0
FLATTEST = 0.01
VOLUME = 160
RANK = 5
EXTENTS = (1, 1, 2, 2, 2, 3, 3, 4, 5)
RANKS = (0, 1, 2, 2, 3, 3, 4, 4, 5)
LITERALS = (0.5, 2.0, -1.5, 1.0, -0.25, 0.0, 3.0, -1.0, 0.125)
DTYPES = {"scalar": torch.float64, "integer": torch.int64, "logical": torch.bool}

T = TypeVar("T")
Pair = tuple[Tensor, Tensor]


class Rejected(Exception):
    """An operation that does not fit the tensors at hand."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; `moves` is whether it depends on the feed smoothly."""

    name: str
    dtype: str
    shape: Shape
    moves: bool

    @property
    def rank(self) -> int:
        return len(self.shape)


class Draw:
    """Draws what a graph is made of; everything depends on the seed alone."""

    NAMES: tuple[str, ...] = ("t{}",)
    LABELS: tuple[str, ...] = ("", "net/", "a/b_")
    LITERALS: tuple[float, ...] = LITERALS

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.torch = torch.Generator().manual_seed(self.random.getrandbits(60))
        self.statements: list[Statement] = []
        self.values: dict[str, Value] = {}
        self.worlds: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
        self.odd_borders = self.chance(0.15)
        self.wide_padding = self.chance(0.3)
        # No target has pools with negative padding: such graphs are few.
        self.crops = self.chance(0.15)
        self.mostly_windows = self.chance(0.25)

    # ---- Choices ----

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return self.random.choice(items)

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def some(self, items: Sequence[T], least: int = 0) -> list[T]:
        """A few of some items, in any order."""
        count = self.between(min(least, len(items)), len(items))
        return self.random.sample(list(items), count)

    def kept(self, **attributes: Any) -> dict[str, Any]:
        """Some of the attributes: the others are left to their defaults."""
        return {key: v for key, v in attributes.items() if self.chance(0.6)}

    def number(self, low: float, high: float) -> float:
        """A literal of a few digits."""
        return round(self.random.uniform(low, high), 2)

    def literal(self) -> float:
        return self.pick(self.LITERALS)

    def shape(self, least: int = 0, most: int = RANK, volume: int = 60) -> Shape:
        """A shape of a rank in some range."""
        rank = self.pick([rank for rank in RANKS if least <= rank <= most])
        shape = tuple(self.pick(EXTENTS) for _ in range(rank))
        while math.prod(shape) > volume:
            shape = tuple(max(1, extent - 1) for extent in shape)
        return shape

    # ---- Operands ----

    def existing(
        self,
        where: Callable[[Value], bool] = lambda value: True,
        dtype: str = "scalar",
    ) -> Value | None:
        """A tensor of the graph: rather one that nothing uses yet, and that moves."""
        found = [v for v in self.values.values() if v.dtype == dtype and where(v)]
        if not found:
            return None
        used = {name for statement in self.statements for name in statement.inputs}
        weights = [
            (1 if value.name in used else 5) * (5 if value.moves else 1)
            for value in found
        ]
        return self.random.choices(found, weights)[0]

    def tensor(
        self,
        least: int = 0,
        most: int = RANK,
        where: Callable[[Shape], bool] = lambda shape: True,
        dtype: str = "scalar",
    ) -> Value:
        """A tensor of a rank in some range, seldom a fresh one."""
        if self.chance(0.95):
            found = self.existing(
                lambda v: least <= v.rank <= most and where(v.shape), dtype
            )
            if found:
                return found
        shape = self.shape(least, most)
        if not where(shape):
            raise Rejected
        return self.fresh(shape, dtype)

    def any_type(self, least: int = 0, most: int = RANK) -> Value:
        """A tensor of a data type that is not a scalar now and then."""
        dtype = self.random.choices(list(DTYPES), [12, 1, 1])[0]
        return self.tensor(least, most, dtype=dtype)

    def fitting(self, shape: Shape, dtype: str = "scalar") -> Value:
        """A tensor of a given shape."""
        found = self.existing(lambda v: v.shape == shape, dtype)
        return found if found and self.chance(0.6) else self.fresh(shape, dtype)

    def partner(self, *shapes: Shape, dtype: str = "scalar") -> Any:
        """What can be broadcast together with some shapes; a literal now and then."""
        if self.chance(0.12) and dtype == "scalar":
            return self.literal()
        found = self.existing(lambda v: meet(v.shape, *shapes) is not None, dtype)
        if found and self.chance(0.6):
            return found
        return self.fresh(self.beside(*shapes), dtype)

    def beside(self, *shapes: Shape) -> Shape:
        """A shape that can be broadcast together with others: it lacks dimensions or
        has further ones, it has an extent of 1 where they do not, or the other way.
        """
        whole = meet(*shapes) or ()
        odd = [1 if self.chance(0.35) else extent for extent in whole]
        odd = [n if n > 1 or not self.chance(0.4) else self.pick(EXTENTS) for n in odd]
        kept = odd[: self.between(0, len(odd))] if self.chance(0.4) else odd
        more = [self.pick(EXTENTS)] if len(odd) < RANK and self.chance(0.1) else []
        shape = tuple(kept if len(kept) < len(odd) else kept + more)
        return shape if meet(shape, *shapes) is not None else whole

    def within(self, domain: str, operand: Any) -> Any:
        """The operand, brought into a domain by a smooth function where it lies
        outside.
        """
        holds, literals, guards = DOMAINS[domain]
        if isinstance(operand, float):
            fits = bool(holds(torch.tensor(operand)))
            return operand if fits else self.pick(literals)
        if all(bool(holds(world[operand.name]).all()) for world in self.worlds):
            return operand
        return self.pick(guards)(self, operand)

    # ---- Statements ----

    def fresh(
        self,
        shape: Shape,
        dtype: str = "scalar",
        values: Tensor | None = None,
        source: str | None = None,
    ) -> Value:
        """A tensor from outside, of random values if none are given."""
        written = math.prod(shape) <= 12 and self.chance(0.08)
        usual = "constant" if written else self.pick(("external", "variable"))
        source = source or usual
        other = self._variable(shape, dtype) if values is None else None
        if source == "variable" and other and self.chance(0.1):
            return self._shared(other)
        if values is None:
            values = self._random(shape, dtype)
        if source == "constant" and dtype == "scalar":
            values = values.mul(100).round().div(100)
        moves = dtype == "scalar" and source != "constant"
        generic = dtype if dtype != "scalar" or self.chance(0.1) else None
        attributes = self._attributes(source, values)
        return self._enter(source, attributes, generic, self._worlds(values, moves))

    def _attributes(self, source: str, values: Tensor) -> dict[str, Any]:
        found: dict[str, Any] = {"shape": list(values.shape)}
        if source == "variable":
            found["label"] = f"{self.pick(self.LABELS)}v{len(self.values)}"
        if source == "constant":
            found["value"] = values.flatten().tolist()
        return found

    def _variable(self, shape: Shape, dtype: str) -> Statement | None:
        """Some variable of a shape and a data type."""
        found = [
            s
            for s in self.statements
            if s.operation == "variable"
            and self.values[s.outputs[0]].shape == shape
            and self.values[s.outputs[0]].dtype == dtype
        ]
        return self.pick(found) if found else None

    def _shared(self, other: Statement) -> Value:
        """A variable of another's label, and so with its data."""
        here, there = (world[other.outputs[0]] for world in self.worlds)
        return self._enter("variable", other.attributes, other.dtype, (here, there))

    def _enter(
        self, source: str, attributes: Mapping[str, Any], dtype: str | None, pair: Pair
    ) -> Value:
        names = tuple(self._names(1))
        return self._add(Statement(source, (), attributes, names, dtype), [pair])[0]

    def _random(self, shape: Shape, dtype: str) -> Tensor:
        if dtype == "scalar":
            return torch.randn(shape, generator=self.torch, dtype=torch.float64)
        bound = 2 if dtype == "logical" else self.between(1, 4)
        drawn = torch.randint(bound, shape, generator=self.torch)
        return drawn.to(DTYPES[dtype])

    def _worlds(self, values: Tensor, moves: bool) -> Pair:
        if not moves:
            return values, values
        noise = torch.randn(values.shape, generator=self.torch, dtype=values.dtype)
        return values, values + NOISE * noise

    def emit(
        self,
        operation: str,
        *operands: Any,
        dtype: Any = None,
        **attributes: Any,
    ) -> Any:
        """Adds an operation; returns its result, or a list of several.

        Raises:
            Rejected: its gradient could not be compared.
        """
        worlds = [_resolved(operands, world) for world in self.worlds]
        results = [self._results(operation, w, attributes, dtype) for w in worlds]
        self._check_operands(operation, worlds, attributes)
        pairs = _smoothed(
            operation, worlds, attributes, list(zip(*results, strict=True))
        )
        for pair in pairs:
            self._check_result(operation, *pair)
        named = tuple(_named(operand) for operand in operands)
        names = self._names(len(pairs))
        grouped = oracle.grouped(operation, names)
        statement = Statement(operation, named, attributes, grouped, dtype)
        values = self._add(statement, pairs)
        return values if len(values) > 1 or isinstance(grouped[0], tuple) else values[0]

    def _results(
        self, operation: str, operands: Any, attributes: Any, dtype: str | None
    ) -> list[Tensor]:
        try:
            with torch.no_grad():
                return oracle.apply(operation, operands, attributes, dtype)
        except ValueError as error:
            raise Rejected from error

    def _check_operands(self, operation: str, worlds: Any, attributes: Any) -> None:
        condition, decide = CONDITIONS.get(operation), DECISIONS.get(operation)
        if condition and not all(bool(condition(*w, **attributes)) for w in worlds):
            raise Rejected
        if decide:
            here, there = (decide(*world, **attributes) for world in worlds)
            if not all(map(torch.equal, here, there)):
                raise Rejected

    def _check_result(self, operation: str, here: Tensor, there: Tensor) -> None:
        if here.dim() > RANK or not 0 < here.numel() <= VOLUME:
            raise Rejected
        if not here.is_floating_point():
            if not torch.equal(here, there):
                raise Rejected
            return
        size, change = float(here.abs().max()), float((there - here).abs().max())
        if not (size <= LARGEST and change <= STEEPEST * NOISE):
            raise Rejected
        if change < FLATTEST * NOISE and operation not in FLAT and self.chance(0.9):
            raise Rejected

    def _add(self, statement: Statement, pairs: Sequence[Pair]) -> list[Value]:
        self.statements.append(statement)
        added = []
        for name, pair in zip(statement.outputs, pairs, strict=True):
            for world, tensor in zip(self.worlds, pair, strict=True):
                world[name] = tensor
            added.append(_value_of(name, *pair))
            self.values[name] = added[-1]
        return added

    # ---- Names ----

    def _names(self, count: int) -> list[str]:
        """New names, among them some that a compiler may want for its own."""
        names: list[str] = []
        while len(names) < count:
            name = self._pattern().format(len(self.values) + len(names) + 1)
            if self.values and self.chance(0.05):
                name = self._wanted()
            if name not in names and name not in self.values:
                names.append(name)
        return names

    def _pattern(self) -> str:
        return self.NAMES[0] if len(self.NAMES) == 1 else self.pick(self.NAMES)

    def _wanted(self) -> str:
        one, other = (self.pick(list(self.values)) for _ in range(2))
        patterns = (
            "grad_{}",
            "grad_{}_from_{}",
            "mask_{}",
            "share_{}",
            "{}_1",
            "zeros",
        )
        return self.pick(patterns).format(one, other)

    # ---- All or nothing ----

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is added inside is taken back where it ends in a rejection."""
        statements, values = len(self.statements), len(self.values)
        try:
            yield
        except Rejected:
            del self.statements[statements:]
            for name in list(self.values)[values:]:
                for table in (self.values, *self.worlds):
                    del table[name]

    @property
    def count(self) -> int:
        """How many operations there are, tensors that only enter left out."""
        return sum(s.operation not in SOURCES for s in self.statements)


class AnyDraw(Draw):
    """Draws whatever is valid, where no gradients are to be compared: numbers may be of
    any size, and lie outside of the domain of what is computed of them.
    """

    NAMES = ("t{}", "x_{}", "Y{}", "_{}", "layer{}_")
    LABELS = ("", "net/", "a/b_", "layer.1/", "a-b/", "b.")
    LITERALS = (*LITERALS, 0.25, 0.1, -0.5, 1e-3, 1e10)

    def within(self, domain: str, operand: Any) -> Any:
        return operand

    def emit(
        self, operation: str, *operands: Any, dtype: Any = None, **attributes: Any
    ) -> Any:
        """Numbers among the attributes are often others: no shape depends on them."""
        drawn = {key: self._other(value) for key, value in attributes.items()}
        if operation == "batch_normalization":
            # The Khronos parser takes no negative one.
            drawn["epsilon"] = abs(drawn["epsilon"])
        if operation == "unsqueeze":
            # In another order they mean something else to the Khronos parser.
            drawn["axes"] = sorted(drawn["axes"])
        return super().emit(operation, *operands, dtype=dtype, **drawn)

    def _other(self, value: Any) -> Any:
        return self.literal() if type(value) is float and self.chance(0.3) else value

    def _check_operands(self, operation: str, worlds: Any, attributes: Any) -> None:
        """All will do."""

    def _check_result(self, operation: str, here: Tensor, there: Tensor) -> None:
        if here.dim() > RANK or not 0 < here.numel() <= VOLUME:
            raise Rejected


def meet(*shapes: Shape) -> Shape | None:
    """The shape that some are broadcast to together, aligned from the left; None where
    they do not fit, or it were too large.
    """
    rank = max(map(len, shapes), default=0)
    columns = list(
        zip(*(shape + (1,) * (rank - len(shape)) for shape in shapes), strict=True)
    )
    if any(len({1, *extents}) > 2 for extents in columns):
        return None
    shape = tuple(max(extents) for extents in columns)
    return shape if math.prod(shape) <= VOLUME else None


def _value_of(name: str, here: Tensor, there: Tensor) -> Value:
    dtype = next(d for d, t in DTYPES.items() if t == here.dtype)
    moves = here.is_floating_point() and not torch.equal(here, there)
    return Value(name, dtype, tuple(here.shape), moves)


def _smoothed(
    operation: str, worlds: Any, attributes: Any, pairs: list[Pair]
) -> list[Pair]:
    """What is rounded moves as its derivative says."""
    if operation not in SMOOTH:
        return pairs
    here, there = (SMOOTH[operation](*world, **attributes) for world in worlds)
    return [(value, value + there - here) for value, _ in pairs]


def _resolved(operands: Any, world: dict[str, Tensor]) -> list[Any]:
    return [
        _resolved(operand, world)
        if isinstance(operand, (list, tuple))
        else world[operand.name]
        if isinstance(operand, Value)
        else operand
        for operand in operands
    ]


def _named(operand: Any) -> Any:
    if isinstance(operand, (list, tuple)):
        return tuple(map(_named, operand))
    return operand.name if isinstance(operand, Value) else operand
