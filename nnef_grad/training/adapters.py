"""Adapters of low rank beside matrices and filters that stay as they are:

    y = x W + alpha / rank * (x A) B

after Hu et al. 2021 (LoRA). A begins with random numbers, as a layer of torch does, and B
with zeros, so that the model computes at first what it did without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite, prod
from numbers import Real
from typing import Any, NamedTuple, Union
from zlib import crc32

import numpy as np

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.ops.opset import OpSet
from nnef_grad.training.choice import matching

Array = Any
# The rank, and alpha where that is another number, by labels or names with wildcards.
Adapters = Mapping[str, Union[int, Mapping[str, float]]]

# The ends of the labels of A, of B, and of alpha / rank, which is data of no variable.
DOWN, UP, SCALE = ".lora_A", ".lora_B", ".lora_scale"


class Adapted(NamedTuple):
    """A graph with adapters.

    Attributes:
        graph: the graph.
        data: the values that adapters begin with, by label, and their scales.
        labels: the labels of the variables to train.
    """

    graph: Graph
    data: Mapping[str, Array]
    labels: tuple[str, ...]

    @property
    def scales(self) -> dict[str, Array]:
        """The scales alone, which are the data of no variable."""
        return {n: x for n, x in self.data.items() if n.endswith(SCALE)}


def with_adapters(graph: Graph, adapters: Adapters, opset: OpSet) -> Adapted:
    """The graph with adapters beside some of its variables.

    Args:
        graph: the forward graph, in which labels are unique.
        adapters: as for `training_step`.
        opset: the operations of the graph.

    Raises:
        UsageError: a pattern fits no variable, a rank does not fit one, or something
            reads a variable that adapters are not for.
    """
    weights = {
        graph.tensors[name]: _Weight(
            name, graph.labels[name], *_settings(pattern, given)
        )
        for pattern, given in adapters.items()
        for name in matching(pattern, graph.labels)
    }
    making = _Making(weights, NameSupply(graph.tensors))
    found = inline(graph, making.body, opset)
    for weight, own in weights.items():
        if weight not in making.factors:
            raise UsageError(
                f"nothing reads '{own.label}', so it cannot have an adapter"
            )
    labels = [label for label in making.data if not label.endswith(SCALE)]
    return Adapted(found, making.data, tuple(labels))


class _Weight(NamedTuple):
    """A variable that is to have an adapter."""

    name: str
    label: str
    rank: int
    alpha: float


def _settings(pattern: str, given: Any) -> tuple[int, float]:
    """The rank and alpha, which is the rank if it is not given."""
    settings = dict(given) if isinstance(given, Mapping) else {"rank": given}
    rank = settings.pop("rank", 0)
    alpha = settings.pop("alpha", rank)
    if settings:
        message = f"an adapter has a rank and alpha, and no '{next(iter(settings))}'"
        raise UsageError(message)
    are_numbers = isinstance(rank, Real) and isinstance(alpha, Real)
    if not are_numbers or not rank >= 1 or rank != rank // 1:
        raise UsageError(f"the adapter of '{pattern}' needs a rank of 1 or more")
    if not isfinite(alpha):
        raise UsageError(f"alpha of the adapter of '{pattern}' must be a number")
    return int(rank), float(alpha)


# ---- The factors ----


class _Factors(NamedTuple):
    """The shapes of A and of B, and the numbers of inputs and of outputs."""

    down: Shape
    up: Shape
    inputs: int
    outputs: int


def _of_rows(shape: Shape, rank: int) -> _Factors:
    """Of a matrix with a row for each output."""
    *outer, rows, columns = shape
    return _Factors((*outer, rank, columns), (*outer, rows, rank), columns, rows)


def _of_columns(shape: Shape, rank: int) -> _Factors:
    """Of a matrix with a column for each output."""
    *outer, rows, columns = shape
    return _Factors((*outer, rows, rank), (*outer, rank, columns), rows, columns)


def _of_filters(shape: Shape, rank: int) -> _Factors:
    count, *window = shape
    up = (count, rank, *[1] * (len(window) - 1))
    return _Factors((rank, *window), up, prod(window), count)


class _Form(NamedTuple):
    """How an operation reads a variable.

    Attributes:
        factors: what A and B are, from the shape of the variable and the rank.
        kept: the settings that the operation has with B, too; with A it has all.
    """

    factors: Callable[[Shape, int], _Factors]
    kept: tuple[str, ...] = ()


_FLAGS = ("transposeA", "transposeB")


def _form(operation: Operation, place: int) -> _Form | None:
    """How an operation reads the variable at a place; None if adapters are not for it."""
    settings = operation.settings
    if operation.name == "matmul":
        has_rows = (place == 1) == settings[_FLAGS[place]]
        # Of the factors both are transposed, or none; of the others what comes first.
        return _Form(_of_rows if has_rows else _of_columns, (_FLAGS[place],))
    if (operation.name, place) == ("linear", 1):
        return _Form(_of_rows)
    is_filter = (operation.name, place) == ("conv", 1) and settings["groups"] == 1
    return _Form(_of_filters) if is_filter else None


def _product(
    emit: Emitter, operation: Operation, operands: Sequence[Any], **how: Any
) -> Any:
    """The operation on other operands, without a bias."""
    bias = [0.0] * (len(operation.operands) - len(operands))
    return emit(operation.name, *operands, *bias, **how)


class _Making:
    """Makes adapters, while a graph is rebuilt.

    Attributes:
        factors: A and B, by the variable that they are beside.
        data: their values, and the scales, by label.
    """

    def __init__(self, weights: Mapping[Any, _Weight], supply: NameSupply) -> None:
        self._weights = weights
        self._supply = supply
        self.factors: dict[Tensor, tuple[Tensor, Tensor]] = {}
        self.data: dict[str, Array] = {}

    def body(self, operation: Operation) -> Decompose | None:
        """Emits an operation that reads such a variable, and its adapter."""
        places = [i for i, x in enumerate(operation.operands) if x in self._weights]
        return partial(self._emit, places) if places else None

    def _emit(
        self, places: list[int], emit: Emitter, operation: Operation
    ) -> tuple[Any, ...]:
        weight: Any = operation.operands[places[0]]
        own = self._weights[weight]
        form = _form(operation, places[0]) if len(places) == 1 else None
        if form is None:
            message = f"'{operation.name}' reads '{own.label}': adapters are for the"
            what = "matrices of linear and matmul, and filters of conv of one group"
            raise UsageError(f"{message} {what}", operation.span)
        wanted = form.factors(weight.shape, own.rank)
        if weight not in self.factors:
            self.factors[weight] = self._new(emit, own, wanted)
        down, up = self.factors[weight]
        if (down.shape, up.shape) != wanted[:2]:
            message = f"'{own.label}' is used in two ways, but has one adapter"
            raise UsageError(message, operation.span)
        hints = (emit.naming("frozen"),)
        (frozen,) = emit.emit_again(operation, operation.operands, hints=hints)
        # The variable is the first operand, or the second.
        step = 1 if places[0] == 1 else -1
        x, settings = operation.operands[1 - places[0]], operation.settings
        low = _product(emit, operation, [x, down][::step], hint="low", **settings)
        if own.alpha != own.rank:
            low = emit("mul", low, own.alpha / own.rank, hint="scaled")
        kept = {name: settings[name] for name in form.kept}
        change = _product(emit, operation, [low, up][::step], hint="change", **kept)
        return (emit("add", frozen, change),)

    def _new(
        self, emit: Emitter, own: _Weight, wanted: _Factors
    ) -> tuple[Tensor, Tensor]:
        down, up, inputs, outputs = wanted
        if own.rank >= min(inputs, outputs):
            message = f"the rank {own.rank} of an adapter is not below that of"
            raise UsageError(f"{message} '{own.label}'")
        # As in torch.nn.Linear: within one over the root of the number of inputs.
        random = np.random.default_rng(crc32(own.label.encode()))
        drawn = random.uniform(-1.0, 1.0, down) / np.sqrt(inputs)
        self.data[own.label + DOWN] = drawn.astype(np.float32)
        self.data[own.label + UP] = np.zeros(up, np.float32)
        scale = np.array([own.alpha / own.rank], np.float32)
        self.data[own.label + SCALE] = scale
        return self._variable(emit, own, DOWN, down), self._variable(emit, own, UP, up)

    def _variable(self, emit: Emitter, own: _Weight, end: str, shape: Shape) -> Tensor:
        name = self._supply.fresh(own.name + end.replace(".", "_"))
        label = own.label + end
        return emit.emit_named(name, "variable", "scalar", shape=shape, label=label)


# ---- Back into the variables ----


def with_adapters_folded(data: Mapping[str, Array]) -> dict[str, Array]:
    """Data by label, with each adapter added to its variable, whose data type stays."""
    found = {n: x for n, x in data.items() if not n.endswith((DOWN, UP, SCALE))}
    for label in (n.removesuffix(SCALE) for n in data if n.endswith(SCALE)):
        found[label] = folded(data, label).astype(np.asarray(found[label]).dtype)
    return found


def folded(data: Mapping[str, Array], label: str) -> Array:
    """A variable with its adapter added, in double precision. The shapes of A and of B say
    how the variable is read.
    """
    ends = ("", DOWN, UP, SCALE)
    weight, a, b, scale = (np.asarray(data[label + end], np.float64) for end in ends)
    if weight.ndim > 2 and a.shape[1:] == weight.shape[1:]:
        change = np.tensordot(b.reshape(b.shape[:2]), a, 1)
    elif a.shape[-1] == weight.shape[-1] and b.shape[-1] == a.shape[-2]:
        change = b @ a
    else:
        change = a @ b
    return np.asarray(weight + float(scale.ravel()[0]) * change)
