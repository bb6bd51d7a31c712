"""The types of operators and built-in functions, and the operations that operators map
to; emit/arithmetic.py computes their values.
"""

from __future__ import annotations

from nnef_grad.language.types import (
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    Generics,
    Primitive,
    TensorType,
    Type,
    is_assignable,
    join,
    leaves,
)

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
    if symbol == "in":
        item, array = operands
        if any(isinstance(leaf, TensorType) for o in operands for leaf in leaves(o)):
            return None
        fits = isinstance(array, ArrayType) and join(item, array.item) is not None
        return LOGICAL if fits else None
    if any(isinstance(operand, TensorType) for operand in operands):
        return _tensor_operator_type(symbol, operands)
    if len(operands) == 1:
        allowed = (LOGICAL,) if symbol == "!" else (SCALAR, INTEGER)
        return operands[0] if operands[0] in allowed else None
    return _binary_type(symbol, *operands)


def _tensor_operator_type(symbol: str, operands: list[Type]) -> Type | None:
    """The type that the operation of the operator declares."""
    logical = symbol in ("&&", "||", "!")
    wanted = TensorType("logical" if logical else "scalar")
    if not all(is_assignable(operand, wanted, Generics()) for operand in operands):
        return None
    return TensorType("logical") if logical or symbol in _COMPARISONS else wanted


def _binary_type(symbol: str, left: Type, right: Type) -> Type | None:
    if symbol == "+" and isinstance(left, ArrayType):
        return join(left, right) if isinstance(right, ArrayType) else None
    if symbol == "*" and right == INTEGER and _is_countable(left):
        return left
    if left != right or not isinstance(left, Primitive):
        return None
    if symbol in ("&&", "||"):
        return LOGICAL if left == LOGICAL else None
    if symbol in ("==", "!="):
        return LOGICAL
    if left == STRING:
        return STRING if symbol == "+" else None
    if left not in (SCALAR, INTEGER):
        return None
    return LOGICAL if symbol in _COMPARISONS else left


def builtin_type(name: str, argument: Type) -> Type | None:
    """The type of a built-in function's value; None where it does not apply."""
    if name in ("length_of", "range_of"):
        found = INTEGER if name == "length_of" else ArrayType(INTEGER)
        return found if _is_countable(argument) else None
    return Primitive(name) if isinstance(argument, Primitive) else None


def _is_countable(type_: Type) -> bool:
    return isinstance(type_, ArrayType) or type_ == STRING
