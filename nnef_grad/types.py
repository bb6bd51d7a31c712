"""The types of the language, as declarations spell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

DTYPES = ("scalar", "integer", "logical", "string")
GENERIC = "?"


@dataclass(frozen=True, slots=True)
class Primitive:
    """A value known when the graph is compiled; `?` is bound by the invocation."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of a data type; of any, where `dtype` is None."""

    dtype: str | None

    def __str__(self) -> str:
        return f"tensor<{self.dtype or ''}>"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Any number of items of one type."""

    item: Type

    def __str__(self) -> str:
        return f"{self.item}[]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Items of given types, in order."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Type = Union[Primitive, TensorType, ArrayType, TupleType]


def holds_tensors(type_: Type) -> bool:
    """Whether a parameter of this type is an operand; otherwise it is an attribute."""
    if isinstance(type_, ArrayType):
        return holds_tensors(type_.item)
    if isinstance(type_, TupleType):
        return any(map(holds_tensors, type_.items))
    return isinstance(type_, TensorType)


def is_generic(type_: Type) -> bool:
    """Whether the type mentions the generic data type `?`."""
    if isinstance(type_, ArrayType):
        return is_generic(type_.item)
    if isinstance(type_, TupleType):
        return any(map(is_generic, type_.items))
    return (type_.dtype if isinstance(type_, TensorType) else type_.name) == GENERIC
