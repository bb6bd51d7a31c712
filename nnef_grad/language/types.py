"""The types of the language, spelled as in declarations, the casts between them, and the
types of operators and built-in functions; emit/arithmetic.py computes their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

DTYPES = ("scalar", "integer", "logical", "string")
GENERIC = "?"
MAX_INTEGER = 2**31 - 1
# NNEF cannot write what is infinite: the largest number of single precision stands for it.
LARGEST = 3.4028234663852886e38
# More than any tensor file holds (8), and no fewer than runtimes compute with.
MAX_RANK = 32
LONG_TYPE = 20


@dataclass(frozen=True, slots=True)
class Primitive:
    """The type of a value known when the graph is compiled; the invocation binds `?`."""

    dtype: str

    def __str__(self) -> str:
        return self.dtype


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
        item, brackets = self.item, "[]"
        while isinstance(item, ArrayType):
            item, brackets = item.item, brackets + "[]"
        shown = brackets if len(brackets) <= LONG_TYPE else f"{brackets[:LONG_TYPE]}..."
        return f"{item}{shown}"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Items of given types, in order."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Type = Union[Primitive, TensorType, ArrayType, TupleType]

SCALAR = Primitive("scalar")
INTEGER = Primitive("integer")
LOGICAL = Primitive("logical")
STRING = Primitive("string")
# The type of the items of an empty array, and of an expression whose problem was
# reported. It fits anywhere.
UNKNOWN = Primitive("")


def holds_tensors(type_: Type) -> bool:
    """Whether a parameter of this type is an operand; otherwise it is an attribute."""
    return any(isinstance(leaf, TensorType) for leaf in leaves(type_))


def is_generic(type_: Type) -> bool:
    """Whether the type mentions the generic data type `?`."""
    return any(leaf.dtype == GENERIC for leaf in leaves(type_))


def leaves(type_: Type) -> list[Primitive | TensorType]:
    """The primitive and tensor types that a type is composed of."""
    parts: list[Primitive | TensorType] = []
    pending = [type_]
    while pending:
        part = pending.pop()
        if isinstance(part, ArrayType):
            pending.append(part.item)
        elif isinstance(part, TupleType):
            pending += reversed(part.items)
        else:
            parts.append(part)
    return parts


def bind_generic(type_: Type, dtype: str) -> Type:
    """The type with a data type in place of `?`."""
    if isinstance(type_, ArrayType):
        return ArrayType(bind_generic(type_.item, dtype))
    if isinstance(type_, TupleType):
        return TupleType(tuple(bind_generic(item, dtype) for item in type_.items))
    return type(type_)(dtype) if type_.dtype == GENERIC else type_


# ---- Casts ----


class Generics:
    """The binding of `?` in one invocation, by the first argument of a generic type."""

    def __init__(self, dtype: str | None = None) -> None:
        self.dtype = dtype

    def unify(self, actual: str | None, wanted: str | None) -> bool:
        """Whether a value of one data type fits another; binds `?` if it is not bound."""
        if wanted == GENERIC and self.dtype is None:
            self.dtype = actual
        return actual == (self.dtype if wanted == GENERIC else wanted)

    def bound(self, type_: Type) -> Type:
        """The type with the data type in place of `?`, if it is bound."""
        return bind_generic(type_, self.dtype or GENERIC)


def is_assignable(source: Type, target: Type, generics: Generics) -> bool:
    """Whether a value of one type can be used where another is declared: a primitive as a
    tensor, any tensor as an unbound one, the unknown as any, the others by their items.
    """
    while isinstance(source, ArrayType) and isinstance(target, ArrayType):
        source, target = source.item, target.item
    if source is UNKNOWN:
        return True
    if isinstance(source, TupleType) and isinstance(target, TupleType):
        return len(source.items) == len(target.items) and all(
            is_assignable(s, t, generics)
            for s, t in zip(source.items, target.items, strict=True)
        )
    if isinstance(target, TensorType) and isinstance(source, (TensorType, Primitive)):
        return target.dtype is None or generics.unify(source.dtype, target.dtype)
    if isinstance(target, Primitive) and isinstance(source, Primitive):
        return generics.unify(source.dtype, target.dtype)
    return False


def common_type(left: Type, right: Type) -> Type | None:
    """The one of two types that the other can be cast to; None if neither can."""
    if UNKNOWN in (left, right):
        return UNKNOWN
    if is_assignable(left, right, Generics(GENERIC)):
        return right
    return left if is_assignable(right, left, Generics(GENERIC)) else None


# ---- Operators and built-in functions ----

# The operation that an operator maps to when an operand is a tensor, by its symbol and
# the number of operands.
OPERATIONS = {
    ("+", 1): "copy", ("-", 1): "neg", ("!", 1): "not",
    ("+", 2): "add", ("-", 2): "sub", ("*", 2): "mul", ("/", 2): "div", ("^", 2): "pow",
    ("<", 2): "lt", ("<=", 2): "le", (">", 2): "gt", (">=", 2): "ge",
    ("==", 2): "eq", ("!=", 2): "ne", ("&&", 2): "and", ("||", 2): "or",
}  # fmt: skip
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def operator_type(symbol: str, operands: list[Type]) -> Type | None:
    """The type of an operator on operands of given types; None where it does not apply."""
    left, right = operands[0], operands[-1]
    if symbol == "in":
        if any(isinstance(leaf, TensorType) for o in operands for leaf in leaves(o)):
            return None
        fits = (
            isinstance(right, ArrayType) and common_type(left, right.item) is not None
        )
        return LOGICAL if fits else None
    is_logic = symbol in ("&&", "||", "!")
    if any(isinstance(operand, TensorType) for operand in operands):
        # As the operation of the operator declares it.
        wanted = TensorType("logical" if is_logic else "scalar")
        if not all(is_assignable(operand, wanted, Generics()) for operand in operands):
            return None
        return TensorType("logical") if symbol in _COMPARISONS else wanted
    is_binary = len(operands) == 2
    if is_binary and symbol == "+" and isinstance(left, ArrayType):
        return common_type(left, right) if isinstance(right, ArrayType) else None
    if is_binary and symbol == "*" and right == INTEGER and _is_countable(left):
        return left
    if left != right or not isinstance(left, Primitive):
        return None
    if symbol in ("==", "!="):
        return LOGICAL
    if left == STRING:
        return STRING if is_binary and symbol == "+" else None
    if left not in ((LOGICAL,) if is_logic else (SCALAR, INTEGER)):
        return None
    return LOGICAL if symbol in _COMPARISONS else left


def builtin_type(name: str, argument: Type) -> Type | None:
    """The type of a built-in function's value; None where it does not apply."""
    if name in ("length_of", "range_of"):
        result = INTEGER if name == "length_of" else ArrayType(INTEGER)
        return result if _is_countable(argument) else None
    return Primitive(name) if isinstance(argument, Primitive) else None


def _is_countable(type_: Type) -> bool:
    return isinstance(type_, ArrayType) or type_ == STRING
