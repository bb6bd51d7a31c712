"""The view of an ATen operation that the functions in operations/ get.

A function is called with the call and the arguments of the operation in the order of its
schema, with the defaults of the schema. It may take fewer than there are: what it does not
take must have its default. It returns the value of the result, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import torch

from nnef_grad.errors import UnsupportedError
from nnef_grad.frontends.step import Step
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.ir import Shape, Tensor

if TYPE_CHECKING:
    from nnef_grad.frontends.torch.reading import ProgramReading

Function = TypeVar("Function", bound=Callable[..., Any])

OPERATIONS: dict[str, Callable[..., Any]] = {}
HIGHER: dict[str, Callable[..., Any]] = {}

# Where and how a tensor lies in memory, which no graph says.
_OF_MEMORY = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "other"}
)


def aten(*names: str) -> Callable[[Function], Function]:
    """Enters the function that reads the operations with these names: `add` for all
    overloads of it, or `add.Tensor` for one.
    """

    def enter(function: Function) -> Function:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return enter


def higher(name: str) -> Callable[[Function], Function]:
    """Enters the function that reads an operation that calls graphs."""

    def enter(function: Function) -> Function:
        HIGHER[name] = function
        return function

    return enter


def name_of(target: Any) -> str:
    """The name of an operation as in PyTorch, such as aten.add.Tensor."""
    return str(target)


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
    """

    reading: ProgramReading

    def __init__(
        self, reading: ProgramReading, node: Any, hint: str, span: Any
    ) -> None:
        super().__init__(reading, name_of(node.target), hint, span, None)
        self.node = node
        self.fake = node.meta.get("val")

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """The results of the operation, by the function that reads it."""
        arguments = list(self._bound(args, kwargs))
        count = len(signature(function).parameters) - 1
        for name, value, default in arguments[count:]:
            is_set = value is not default and not _equals(value, default)
            if is_set and name not in _OF_MEMORY and name not in _CHECKED:
                self.refuse(f"{name} = {value} is not supported")
        return function(self, *(value for _, value, _ in arguments[:count]))

    def _bound(
        self, args: Sequence[Any], kwargs: Any
    ) -> Iterator[tuple[str, Any, Any]]:
        """Each argument: its name, its value, the default of the schema."""
        given = iter(args)
        for parameter in self.node.target._schema.arguments:
            default = parameter.default_value if parameter.has_default_value() else None
            value = default
            if parameter.kwarg_only or parameter.name in kwargs:
                value = kwargs.get(parameter.name, default)
            else:
                value = next(given, default)
            yield parameter.name, value, default

    def refuse(self, message: str) -> NoReturn:
        """Raises an error at the line of the module."""
        raise UnsupportedError(f"{self.name}: {message}", self.span)

    @property
    def packet(self) -> str:
        """The name of the operation without its overload."""
        return str(self.node.target.overloadpacket.__name__)

    # ---- Types ----

    @property
    def result_dtype(self) -> str:
        """The data type that the (first) result has in PyTorch, as NNEF calls it."""
        return dtype_name(self._first.dtype)

    @property
    def result_shape(self) -> Shape:
        """The shape that the (first) result has in PyTorch."""
        extent: Any = self.reading.symbols.extent
        return tuple(map(extent, self._first.shape))

    @property
    def _first(self) -> torch.Tensor:
        found: Any = self.fake
        first: torch.Tensor = found[0] if isinstance(found, (list, tuple)) else found
        return first

    def typed(self, x: Any, dtype: str) -> Any:
        """A value as one of a data type of NNEF."""
        if dtype_of(x) == dtype:
            return x
        return self.reading.converted(x, dtype, self.hint, self.span)

    def scalars(self, *values: Any) -> list[Any]:
        """Values as scalars."""
        return [self.typed(x, "scalar") for x in values]

    # ---- Shapes: axes from the end are those of the other operand ----

    def aligned(self, *values: Any, rank: int | None = None) -> list[Any]:
        """Values with leading axes of extent 1, so that they have the same number of axes,
        as PyTorch broadcasts them. What has no axes needs none.
        """
        most = max(len(shape_of(x)) for x in values) if rank is None else rank
        return [self.of_rank(x, most) if shape_of(x) else x for x in values]

    def broadcast(self, x: Any, shape: Shape) -> Any:
        """A value, repeated to a shape as PyTorch does."""
        wide = self.of_rank(x, len(shape))
        own = shape_of(wide)
        repeats = [n if m != n else 1 for m, n in zip(own, shape, strict=True)]
        if all(n == 1 for n in repeats if isinstance(n, int)) and own == tuple(shape):
            return wide
        return self("tile", wide, repeats=repeats)

    def axes(self, axes: Any, rank: int) -> list[int]:
        """Axes as a list of numbers that are not negative; all of them if there are none."""
        if axes is None or (isinstance(axes, (list, tuple)) and not axes):
            return list(range(rank))
        given = axes if isinstance(axes, (list, tuple)) else [axes]
        return sorted(self.axis(axis, max(rank, 1)) for axis in given)

    def known(self, value: Any, what: str) -> Any:
        """A value that must not depend on what the module is fed."""
        self.require(is_known(value), f"{what} must not depend on the inputs")
        return value

    def stopped(self, x: Any) -> Any:
        """A value that no gradient flows through."""
        if not isinstance(x, Tensor) or x.dtype != "scalar":
            return x
        return self.reading.stopped(x, self.span)


# Settings that are looked at elsewhere: see `ProgramReading`.
_CHECKED = frozenset({"dtype"})


def _equals(value: Any, default: Any) -> bool:
    if isinstance(value, (Tensor, np.ndarray)) or isinstance(default, np.ndarray):
        return False
    return bool(value == default)


def dtype_name(dtype: torch.dtype) -> str:
    """The data type of NNEF for one of PyTorch."""
    if dtype == torch.bool:
        return "logical"
    if dtype.is_complex:
        raise UnsupportedError("NNEF has no complex numbers: compute with real ones")
    return "scalar" if dtype.is_floating_point else "integer"
