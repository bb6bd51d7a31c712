"""The view of an ATen operation that the functions in operations/ get.

A function is called with the call and the arguments of the operation in the order of its
schema, with the defaults of the schema. It may take fewer than there are: what it does not
take must have its default. One that takes any number (`*_`) looks at `Call.given`, which
has them by name. It returns the value of the result, or a tuple of them. One without a
description does what PyTorch describes under the names that it is entered with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from math import isinf
from typing import Any, NoReturn

import numpy as np
import torch

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.step import Step, entering
from nnef_grad.frontends.torch.places import sources
from nnef_grad.frontends.torch.program_values import ProgramValues, dtype_name
from nnef_grad.frontends.values import dtype_of, is_known
from nnef_grad.graph.ir import Tensor

# What reads operations: `add` all overloads of it, or `add.Tensor` one; and those that call
# graphs.
OPERATIONS: dict[str, Callable[..., Any]] = {}
HIGHER: dict[str, Callable[..., Any]] = {}
aten, higher = entering(OPERATIONS), entering(HIGHER)

# Where and how a tensor lies in memory, and what computes it: no graph says so.
_OF_MEMORY = frozenset(
    {
        "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "other",
        "cudnn_enable", "cudnn_enabled",
    }
)  # fmt: skip


def function_of(target: Any) -> Callable[..., Any] | None:
    """The function that reads an operation, if there is one."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    packet = target.overloadpacket.__name__
    space = target.namespace
    prefix = "" if space == "aten" else f"{space}."
    exact = OPERATIONS.get(f"{prefix}{packet}.{target._overloadname}")
    return exact or OPERATIONS.get(f"{prefix}{packet}")


class Call(Step):
    """A call of an operation of ATen: see `Step`.

    Attributes:
        reading: the program that is read.
        node: the node of the graph of torch.
        fake: what torch knows of each result: data type and shape.
        given: the arguments by their names in the schema, defaults too.
    """

    reading: ProgramValues

    def __init__(self, reading: ProgramValues, node: Any, hint: str, span: Any) -> None:
        super().__init__(reading, str(node.target), hint, span, None)
        self.node = node
        self.fake = node.meta.get("val")
        self.given: dict[str, Any] = {}

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """The results of the operation, by the function that reads it."""
        schema = self.node.target._schema.arguments
        defaults = {p.name: p.default_value for p in schema}
        self.given = {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
        taken = signature(function).parameters.values()
        takes_all = any(p.kind is Parameter.VAR_POSITIONAL for p in taken)
        are_places = [p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in taken]
        count = len(defaults) if takes_all else sum(are_places) - 1
        for name in [*defaults][count:]:
            value, default = self.given[name], defaults[name]
            is_set = value is not default and not _equals(value, default)
            if is_set and name not in _OF_MEMORY and name not in _CHECKED:
                self.refuse(f"{name} = {value} is not supported")
        return function(self, *[self.given[name] for name in [*defaults][:count]])

    @property
    def packet(self) -> str:
        """The name of the operation without its overload."""
        return str(self.node.target.overloadpacket.__name__)

    def refuse(self, message: str) -> NoReturn:
        """Raises an error at the line of the module."""
        raise UnsupportedError(f"{self.name}: {message}", self.span)

    # ---- Types ----

    @property
    def result_dtype(self) -> str:
        """The data type that the (first) result has in PyTorch, as NNEF calls it."""
        fake = self.fake[0] if isinstance(self.fake, (list, tuple)) else self.fake
        return dtype_name(fake.dtype)

    @property
    def result_shape(self) -> tuple[Any, ...]:
        """The shape that the result has in PyTorch."""
        return tuple(map(self.reading.symbols.extent, self.fake.shape))

    @property
    def result_shapes(self) -> list[tuple[Any, ...]]:
        """The shapes that several results have in PyTorch."""
        extent = self.reading.symbols.extent
        return [tuple(map(extent, fake.shape)) for fake in self.fake]

    def typed(self, x: Any, dtype: str) -> Any:
        """A value as one of a data type of NNEF."""
        if dtype_of(x) == dtype:
            return x
        return self.reading.converted(x, dtype, self.hint, self.span)

    def whole(self, x: Any, dtype: str | None = None) -> Any:
        """Whole scalars as integers, if that is the data type of the result, or another
        one that is given.
        """
        is_scalar = isinstance(x, Tensor) and x.dtype == "scalar"
        if not is_scalar or (dtype or self.result_dtype) != "integer":
            return x
        return self.reading.cast(x, "integer", self.hint, self.span)

    def scalars(self, *values: Any) -> list[Any]:
        """Values as scalars."""
        return [self.typed(x, "scalar") for x in values]

    # ---- Shapes ----

    def ratio(self, x: Any, y: Any) -> Any:
        """The quotient of two extents, as a number or a tensor."""
        if isinstance(x, int) and isinstance(y, int):
            return x / y
        place = (f"{self.hint}_extent", self.span)
        parts = [self.reading.materialize(n, "scalar", *place) for n in (x, y)]
        return self("div", *parts, hint="ratio")

    def known(self, value: Any, what: str) -> Any:
        """A value that must not depend on what the module is fed."""
        self.require(is_known(value), f"{what} must not depend on the inputs")
        return value

    def alone(self, *made: Any) -> list[Any]:
        """The first results, if there is no need of others, nor of those that are None."""
        results = [*made, *[None] * (len(self.fake) - len(made))]
        needed = (part.args[1] for part in self.node.users if part.users)
        is_alone = all(results[place] is not None for place in needed)
        self.require(is_alone, "only the first result can be used")
        return results

    def has_infinity(self, nodes: Sequence[Any]) -> bool:
        """Whether infinity is written where the values of nodes are computed."""
        numbers = (x for node in sources(nodes) for x in node.args)
        return any(isinstance(x, float) and isinf(x) for x in numbers)

    def stopped(self, x: Any) -> Any:
        """A value that no gradient flows through."""
        return self.reading.stopped(x)


# Settings that are looked at elsewhere: see `ProgramReading`.
_CHECKED = frozenset({"dtype"})


def _equals(value: Any, default: Any) -> bool:
    if isinstance(value, (Tensor, np.ndarray)) or isinstance(default, np.ndarray):
        return False
    return bool(value == default)
