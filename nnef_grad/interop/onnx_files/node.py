"""The view of an ONNX operation that the functions in operations/ get.

A function is called with the node and its operands, None for one that is left out. It
reads the attributes from the node, with the defaults of ONNX, and emits its replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from nnef_tools import model as tools

from nnef_grad.interop.khronos import Array

Function = TypeVar("Function", bound=Callable[..., None])
T = TypeVar("T")

CONVERSIONS: dict[str, Callable[..., None]] = {}


def conversion(*kinds: str) -> Callable[[Function], Function]:
    """Registers the function that converts the ONNX operations with these names."""

    def enter(function: Function) -> Function:
        CONVERSIONS.update(dict.fromkeys(kinds, function))
        return function

    return enter


class Tensor(Protocol):
    """A tensor of nnef_tools."""

    name: str
    shape: tuple[int, ...]
    rank: int
    dtype: type
    producer: Any


def constant(tensor: Any) -> Array | None:
    """The value of a tensor that is known before the model is run."""
    producer = tensor.producer
    if producer is None:
        return None if tensor.data is None else np.asarray(tensor.data)
    is_constant = producer.type == "Constant"
    return np.asarray(producer.attribs["value"]) if is_constant else None


def positive(axes: Iterable[int], rank: int) -> list[int]:
    """Axes as non-negative numbers: in ONNX, negative ones count from the end."""
    return [axis + rank if axis < 0 else axis for axis in axes]


def moved_last(axis: int, rank: int) -> list[int]:
    """The axes of a rank, with one of them at the end."""
    return [*range(axis), *range(axis + 1, rank), axis]


def widened(shape: Sequence[int], axes: Iterable[int]) -> list[int]:
    """A shape with additional axes of extent 1."""
    extents = list(shape)
    for axis in axes:
        extents.insert(axis, 1)
    return extents


class Node:
    """An operation of nnef_tools for ONNX, and methods to emit its replacement.

    Attributes:
        kind: the name of the operation.
        version: the version of its operator set.
        results: its results; those that are left out have no name.
        result: the first result.
        refusals: the reasons why it cannot be converted.
    """

    def __init__(self, operation: Any, version: int) -> None:
        self.operation = operation
        self.kind: str = operation.type
        self.version = version
        self.results: list[Tensor] = list(operation.outputs)
        self.result = self.results[0]
        self.refusals: list[str] = []

    def convert(self) -> None:
        """Emits the replacement of the operation, or records why that is not possible."""
        operands = map(self.operand, range(len(self.operation.inputs)))
        try:
            CONVERSIONS[self.kind](self, *operands)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Invalid or refused settings.
            self.refusals = self.refusals or [f"{type(error).__name__}: {error}"]

    # ---- The operation ----

    def get(self, name: str, default: T) -> T:
        """An attribute, with its default in ONNX."""
        return cast("T", self.operation.attribs.get(name, default))

    def operand(self, place: int) -> Tensor | None:
        """An operand, or None if it is left out."""
        found = self.operation.inputs[place : place + 1]
        return next((tensor for tensor in found if tensor.name), None)

    def items(self, name: str, place: int, default: Any = None) -> list[Any]:
        """The items of an attribute that became an operand in later versions."""
        operand = self.operand(place)
        value = self.get(name, default) if operand is None else constant(operand)
        if value is None:
            self.require(False, f"{name} must be known before the model is run")
            raise LookupError(name)
        return list(np.ravel(value).tolist())

    def uses(self, place: int) -> bool:
        """Whether the graph reads or returns a result."""
        found: list[Any] = [t for t in self.results[place : place + 1] if t.name]
        return any(t.consumers or t in t.graph.outputs for t in found)

    def require(self, condition: bool, message: str) -> None:
        """Records why the operation cannot be converted, unless a condition holds."""
        if not condition:
            self.refusals.append(message)

    # ---- Its replacement ----

    def emit(
        self,
        name: str,
        *operands: Tensor | None,
        results: Sequence[Tensor] | None = None,
        squeezed: Sequence[int] = (),
        **attributes: Any,
    ) -> None:
        """Emits an NNEF operation; operands and attributes that are None are left out.
        Its results are a tuple, or a list for an array of tensors; if not given, it is
        the first result of the node, to which it may add axes that are then squeezed.
        """
        made = (self.result,) if results is None else results
        if squeezed:
            shape = widened(self.result.shape, squeezed)
            made = (self.tensor(shape, self.result.dtype),)
        if name == "cast":
            attributes["dtype"] = made[0].dtype
        given = [t for t in operands if t is not None]
        tools.Operation(
            self.operation.graph,
            type=name,
            # An array of tensors is a list.
            inputs=given if name == "concat" else tuple(given),
            outputs=made,
            attribs={k: v for k, v in attributes.items() if v is not None},
        )
        if squeezed:
            self.emit("squeeze", *made, axes=squeezed)

    def tensor(self, shape: Iterable[int], dtype: type, data: Any = None) -> Tensor:
        """A new tensor; a number if it has data and no axes."""
        graph = self.operation.graph
        made = tools.Tensor(graph, shape=tuple(shape), dtype=dtype, data=data)
        return cast("Tensor", made)

    def literal(self, value: Any, dtype: type = np.float32) -> Tensor:
        """A tensor of a known value; a number if it has no axes."""
        array: Array = np.asarray(value, dtype)
        if array.ndim == 0:
            return self.tensor((), dtype, array)
        made, shape = self.tensor(array.shape, dtype), list(array.shape)
        self.emit("constant", results=(made,), value=array, shape=shape, dtype=dtype)
        return made

    def unsqueeze(self, x: Tensor, axes: Iterable[int]) -> Tensor:
        """A tensor with additional axes of extent 1."""
        added = list(axes)
        if not added:
            return x
        made = self.tensor(widened(x.shape, added), x.dtype)
        self.emit("unsqueeze", x, results=(made,), axes=added)
        return made

    def step(
        self,
        name: str,
        *operands: Tensor | None,
        to: Iterable[int],
        dtype: type | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Emits an NNEF operation, and returns its result, of a given shape. Its type is
        that of the first operand unless given.
        """
        kind = dtype or next(t.dtype for t in operands if t is not None)
        made = self.tensor(to, kind)
        self.emit(name, *operands, results=(made,), **attributes)
        return made

    def reshaped(self, x: Tensor, shape: Iterable[int]) -> Tensor:
        """A tensor in another shape."""
        made = list(shape)
        return (
            x if made == list(x.shape) else self.step("reshape", x, to=made, shape=made)
        )

    def transposed(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """A tensor with its axes in another order."""
        if list(axes) == sorted(axes):
            return x
        made = [x.shape[axis] for axis in axes]
        return self.step("transpose", x, to=made, axes=list(axes))

    def positions(self, extent: int, axis: int, rank: int) -> Tensor:
        """The numbers of the positions along an axis; all other axes have extent 1."""
        shape = [extent if place == axis else 1 for place in range(rank)]
        return self.literal(np.arange(extent).reshape(shape), np.int64)

    def scalars(self, x: Tensor) -> Tensor:
        """A tensor of scalars."""
        if np.dtype(x.dtype).kind == "f":
            return x
        return self.step("cast", x, to=x.shape, dtype=np.float32)

    def of_rank(self, x: Tensor, rank: int) -> Tensor:
        """A tensor with leading axes added, as ONNX broadcasts; a number needs none."""
        return self.unsqueeze(x, range(rank - x.rank)) if x.rank else x

    def row(self, x: Any) -> Tensor:
        """A vector of channels with a leading batch axis. Data that only this operation
        reads are reshaped in place.
        """
        if constant(x) is None or len(x.consumers) != 1:
            return self.unsqueeze(x, [0])
        if x.rank == 1:
            x.shape = (1, *x.shape)
            if x.producer is None:
                x.data = x.data.reshape(x.shape)
            else:
                attributes = x.producer.attribs
                attributes["value"] = attributes["value"].reshape(x.shape)
        return cast("Tensor", x)
