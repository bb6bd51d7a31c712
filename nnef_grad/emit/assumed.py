"""What is equal where a condition is known. Where no element of a mask is true, what is put where
it is true changes nothing, and what is summed there is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nnef_grad.emit.arguments import Call
from nnef_grad.emit.emitter import operation_key
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, map_tensors
from nnef_grad.graph.loops import is_loop
from nnef_grad.ops.traits import RESHAPING, UNIQUE

Makers = Mapping[Tensor, Operation]
Simplest = Callable[..., Any]


class Uniform(NamedTuple):
    """A tensor whose elements are all the same: the text of one, and its shape."""

    text: str
    shape: Shape


_FALSE, _TRUE, _ZERO = "False", "True", "0.0"


def are_equal_where(
    condition: Tensor,
    value: bool,
    operations: Sequence[Operation],
    pairs: Iterable[tuple[Any, Any]],
) -> bool:
    """Whether the two values of each pair, and so their gradients, are equal where a condition
    has a value; as far as it is seen.

    Args:
        operations: those that make the values, in order.
    """
    makers = {tensor: op for op in operations for tensor in op.outputs}
    known: dict[Tensor, bool] = {}
    _learn(condition, value, makers, known)
    numbering = _Numbering(known)
    for operation in operations:
        numbering.enter(operation)
    return all(numbering.of(x) == numbering.of(y) for x, y in pairs)


class _Numbering:
    """The representative of each tensor: the first one that is equal, or a uniform value."""

    def __init__(self, known: Mapping[Tensor, bool]) -> None:
        self._alike: dict[Tensor, Any] = {
            x: Uniform(repr(value), x.shape) for x, value in known.items()
        }
        self._firsts: dict[object, Operation] = {}
        # What tensors are other shapes of.
        self._bases: dict[Tensor, Tensor] = {}

    def of(self, x: Tensor) -> Any:
        """The representative of a tensor."""
        return self._alike.get(x, x)

    def enter(self, op: Operation) -> None:
        """Enters the results of an operation."""
        is_known = not self._alike.keys().isdisjoint(op.outputs)
        if is_known or op.name in UNIQUE or is_loop(op):
            return
        operands = map_tensors(self.of, op.operands)
        if op.name in RESHAPING and isinstance(operands[0], Tensor):
            simpler, key = self._reshaped(op.outputs[0], operands[0])
        else:
            simplest: Simplest = _SIMPLER.get(op.name, _as_it_is)
            simpler = simplest(op.outputs[0].shape, *operands)
            key = operation_key(Call(op.definition, operands, op.settings, op.dtype))
        if simpler is not None:
            self._alike[op.outputs[0]] = simpler
            return
        first = self._firsts.setdefault(key, op)
        self._alike.update(zip(op.outputs, first.outputs, strict=True))

    def _reshaped(self, result: Tensor, x: Tensor) -> tuple[Any, object]:
        """The tensor before a reshape, if it has the shape; a key for others."""
        base = self._bases[result] = self._bases.get(x, x)
        return _fitting(result.shape, base), (base, result.shape)


# ---- What is known of conditions ----

# What has all elements of its operand, and no others.
_OF_OPERAND = RESHAPING | {"transpose", "tile", "copy"}
# Where all elements of a result are this, all of the operands are.
_TELLING = {
    ("or", False), ("and", True), ("any_reduce", False), ("all_reduce", True),
}  # fmt: skip
# Where this is so of a number that is not negative, it is zero.
_IS_ZERO = {
    ("gt", False, 0.0), ("ne", False, 0.0), ("ge", False, 1.0),
    ("eq", True, 0.0), ("le", True, 0.0), ("lt", True, 1.0),
}  # fmt: skip


def _learn(x: Operand, value: bool, makers: Makers, known: dict[Tensor, bool]) -> None:
    """Keeps what all elements of a condition are, and of what it is made of."""
    if not isinstance(x, Tensor) or x in known:
        return
    known[x] = value
    maker = makers[x]
    if maker.name == "not":
        _learn(maker.operands[0], not value, makers, known)
    elif maker.name in _OF_OPERAND or (maker.name, value) in _TELLING:
        for operand in maker.operands:
            _learn(operand, value, makers, known)
    elif (maker.name, value, *maker.operands[1:]) in _IS_ZERO:
        _learn(_counted(maker.operands[0], makers), False, makers, known)


def _counted(x: Any, makers: Makers) -> Any:
    """The mask of which a number is 1 for each element that is true, or their sum; or None."""
    while isinstance(x, Tensor):
        maker = makers[x]
        if maker.name == "select":
            mask, *numbers = maker.operands
            return mask if numbers == [1.0, 0.0] else None
        is_sum = maker.name == "sum_reduce" and not maker.settings["normalize"]
        x = maker.operands[0] if is_sum or maker.name in _OF_OPERAND else None
    return None


# ---- What operations become ----


def _as_it_is(shape: Shape, *operands: Any) -> Any:
    return None


def _same(shape: Shape, x: Any, *_: Any) -> Any:
    """The only value that elements have, also of this shape."""
    return Uniform(x.text, shape) if isinstance(x, Uniform) else None


def _chosen(shape: Shape, condition: Any, x: Any, y: Any) -> Any:
    text = _text(condition)
    if text not in (_TRUE, _FALSE):
        return None
    return _fitting(shape, x if text == _TRUE else y)


def _text(x: Any) -> str:
    """That of a literal, or of the only value that elements have."""
    return x.text if isinstance(x, Uniform) else repr(x)


def _fitting(shape: Shape, x: Any) -> Any:
    """A value as one of a shape, if that is no other one."""
    if isinstance(x, Uniform):
        return Uniform(x.text, shape)
    if isinstance(x, Tensor):
        return x if x.shape == shape else None
    return Uniform(repr(x), shape)


def _summed(shape: Shape, x: Any) -> Any:
    return Uniform(_ZERO, shape) if _text(x) == _ZERO else None


def _added(shape: Shape, x: Any, y: Any) -> Any:
    for one, other in ((x, y), (y, x)):
        if _text(one) == _ZERO:
            return _fitting(shape, other)
    return None


def _negated(shape: Shape, x: Any) -> Any:
    if not isinstance(x, Uniform):
        return None
    return Uniform(_TRUE if x.text == _FALSE else _FALSE, shape)


def _decided_by(text: str) -> Simplest:
    """What is this if an operand is, and the other operand if one is the opposite."""

    def made(shape: Shape, x: Any, y: Any) -> Any:
        texts = [_text(operand) for operand in (x, y)]
        if text in texts:
            return Uniform(text, shape)
        for own, other in zip(texts, (y, x), strict=True):
            if own in (_TRUE, _FALSE):
                return _fitting(shape, other)
        return None

    return made


_SIMPLER: Mapping[str, Simplest] = {
    **dict.fromkeys((*RESHAPING, "transpose", "tile", "slice"), _same),
    "copy": _fitting,
    "select": _chosen,
    "sum_reduce": _summed,
    "add": _added,
    "not": _negated,
    "and": _decided_by(_FALSE),
    "or": _decided_by(_TRUE),
}
