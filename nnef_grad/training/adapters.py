"""Adapters of low rank beside matrices and filters that stay as they are:

    y = x W + alpha / rank * (x A) B

after Hu et al. 2021 (LoRA). A begins with random numbers, as a layer of torch does, and B
with zeros, so that the model computes at first what it did without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from numbers import Real
from sys import float_info
from typing import Any, NamedTuple, Union
from zlib import crc32

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, inline
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.ops.registry import OpSet
from nnef_grad.training.choice import matching

# The rank, and alpha where that is another number, by labels or names with wildcards.
Adapters = Mapping[str, Union[int, Mapping[str, float]]]

# The ends of the labels of A, of B, and of alpha / rank, which is data of no variable.
DOWN, UP, SCALE = ".lora_A", ".lora_B", ".lora_scale"


class _Weight(NamedTuple):
    """A variable that is to have an adapter."""

    name: str
    label: str
    rank: int
    alpha: float


def with_adapters(
    graph: Graph, adapters: Adapters, opset: OpSet
) -> tuple[Graph, dict[str, Array], dict[str, Array]]:
    """The graph with adapters beside some of its variables; the values that these begin
    with, by label; and their scales, which are the data of no variable.
    See `training_step`; labels are unique in the graph.
    """
    labels, tensors = graph.labels, graph.tensors
    weights = {
        tensors[name]: _Weight(name, labels[name], *_settings(pattern, settings))
        for pattern, settings in adapters.items()
        for name in matching(pattern, labels)
    }
    making = _Making(weights, NameSupply(tensors))
    adapted = inline(graph, making.body, opset)
    for weight, own in weights.items():
        if weight not in making.factors:
            raise UsageError(
                f"nothing reads '{own.label}', so it cannot have an adapter"
            )
    scales = {
        own.label + SCALE: np.array([own.alpha / own.rank], np.float32)
        for own in weights.values()
    }
    return adapted, making.data, scales


def _settings(pattern: str, adapter: Any) -> tuple[int, float]:
    """The rank and alpha, which is the rank if it is not given."""
    settings = dict(adapter) if isinstance(adapter, Mapping) else {"rank": adapter}
    rank = settings.pop("rank", 0)
    alpha = settings.pop("alpha", rank)
    if settings:
        message = f"an adapter has a rank and alpha, and no '{next(iter(settings))}'"
        raise UsageError(message)
    are_numbers = isinstance(rank, Real) and isinstance(alpha, Real)
    if not are_numbers or not rank >= 1 or rank != rank // 1:
        raise UsageError(f"the adapter of '{pattern}' needs a rank of 1 or more")
    if not abs(alpha) <= float_info.max:
        raise UsageError(f"alpha of the adapter of '{pattern}' must be a number")
    return int(rank), float(alpha)


# ---- The factors ----


class _Factors(NamedTuple):
    """The shapes of A and of B, the numbers of inputs and of outputs, and the settings that
    an operation has with B, too: with A it has all.
    """

    down: Shape
    up: Shape
    inputs: int
    outputs: int
    kept: tuple[str, ...] = ()


def _factors(operation: Operation, place: int, rank: int) -> _Factors | None:
    """The factors of the variable that an operation reads at a place; None if adapters are
    not for it.
    """
    variable: Any = operation.operands[place]
    kind, settings = (operation.name, place), operation.settings
    if kind == ("conv", 1) and settings["groups"] == 1:
        count, *window = variable.shape
        up = (count, rank, *[1] * (len(window) - 1))
        return _Factors((rank, *window), up, prod(window), count)
    if kind != ("linear", 1) and operation.name != "matmul":
        return None
    *outer, rows, columns = variable.shape
    of_rows, of_columns = (*outer, rank, columns), (*outer, rows, rank)
    if kind == ("linear", 1):
        return _Factors(of_rows, of_columns, columns, rows)
    # Of the factors both are transposed, or none; of the others what comes first.
    flag = ("transposeA", "transposeB")[place]
    if (place == 1) == settings[flag]:
        return _Factors(of_rows, of_columns, columns, rows, (flag,))
    return _Factors(of_columns, of_rows, rows, columns, (flag,))


class _Making:
    """Makes adapters, while a graph is rebuilt.

    Attributes:
        factors: A and B, by the variable that they are beside.
        data: their values, by label.
    """

    def __init__(self, weights: Mapping[Any, _Weight], supply: NameSupply) -> None:
        self._weights = weights
        self._supply = supply
        self.factors: dict[Tensor, list[Tensor]] = {}
        self.data: dict[str, Array] = {}

    def body(self, operation: Operation) -> Decompose | None:
        """Emits an operation that reads such a variable, and its adapter."""
        places = [i for i, x in enumerate(operation.operands) if x in self._weights]
        return partial(self._emit, places) if places else None

    def _emit(
        self, places: list[int], emit: Emitter, operation: Operation
    ) -> tuple[Any, ...]:
        weight: Any = operation.operands[places[0]]
        own, settings = self._weights[weight], operation.settings
        place, *others = places
        wanted = None if others else _factors(operation, place, own.rank)
        if wanted is None:
            message = f"'{operation.name}' reads '{own.label}': adapters are for the"
            what = "matrices of linear and matmul, and filters of conv of one group"
            raise UsageError(f"{message} {what}", operation.span)
        if weight not in self.factors:
            self.factors[weight] = self._new(emit, own, wanted)
        down, up = self.factors[weight]
        if (down.shape, up.shape) != wanted[:2]:
            message = f"'{own.label}' is used in two ways, but has one adapter"
            raise UsageError(message, operation.span)
        hints = (emit.naming("frozen"),)
        (frozen,) = emit.emit_again(operation, operation.operands, hints=hints)
        # The variable is the first operand, or the second; there is no bias.
        step = 1 if place == 1 else -1
        x, bias = operation.operands[1 - place], [0.0] * len(operation.operands[2:])
        reading = [x, down][::step]
        low = emit(operation.name, *reading, *bias, hint="low", **settings)
        if own.alpha != own.rank:
            low = emit("mul", low, own.alpha / own.rank, hint="scaled")
        writing = [low, up][::step]
        kept = {name: settings[name] for name in wanted.kept}
        change = emit(operation.name, *writing, *bias, hint="change", **kept)
        return (emit("add", frozen, change),)

    def _new(self, emit: Emitter, own: _Weight, wanted: _Factors) -> list[Tensor]:
        """New variables A and B."""
        if own.rank >= min(wanted.inputs, wanted.outputs):
            message = f"the rank {own.rank} of an adapter is not below that of"
            raise UsageError(f"{message} '{own.label}'")
        # As in torch.nn.Linear: within one over the root of the number of inputs.
        random = np.random.default_rng(crc32(own.label.encode()))
        drawn = random.uniform(-1.0, 1.0, wanted.down) / np.sqrt(wanted.inputs)
        zeros = np.zeros(wanted.up, np.float32)
        begin = {DOWN: drawn.astype(np.float32), UP: zeros}
        self.data |= {own.label + end: value for end, value in begin.items()}
        return [
            emit.emit_named(
                self._supply.fresh(own.name + end.replace(".", "_")),
                "variable",
                "scalar",
                shape=value.shape,
                label=own.label + end,
            )
            for end, value in begin.items()
        ]


# ---- Back into the variables ----


def with_adapters_folded(data: Mapping[str, Array]) -> dict[str, Array]:
    """Data by label, with each adapter added to its variable, whose data type stays."""
    whole = {n: x for n, x in data.items() if not n.endswith((DOWN, UP, SCALE))}
    for label in (n.removesuffix(SCALE) for n in data if n.endswith(SCALE)):
        whole[label] = folded(data, label).astype(np.asarray(whole[label]).dtype)
    return whole


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
