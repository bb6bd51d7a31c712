"""The shapes of results, by the shape function of the operation; what it returns is checked."""

from __future__ import annotations

from math import prod
from operator import index
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, brief
from nnef_grad.base.process import Memo
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call
from nnef_grad.emit.rule_results import MisfitError, not_as_wanted
from nnef_grad.graph.extents import Extent, OpenExtentError
from nnef_grad.graph.ir import Operand, Tensor
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import MAX_INTEGER, MAX_RANK, ArrayType, Type
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import SHAPES, ShapeError
from nnef_grad.ops.traits import UNIQUE

# How many shapes are kept.
_MOST = 100_000
# Shapes inferred with the functions of the standard.
_standard: Memo[object, tuple[Any, ...]] = Memo(_MOST)


class ShapeInference:
    """The shape functions of an opset: equal shapes are inferred once."""

    def __init__(self, opset: OpSet) -> None:
        self._opset = opset
        self._inferred = _standard if opset.shapes is SHAPES else Memo(_MOST)

    def infer(self, call: Call, settings: str, span: Span | None) -> tuple[Any, ...]:
        """The shape of each result of an operation; a tuple of shapes for a result that
        is an array of tensors. `settings` is the `settings_key` of the operation.
        """
        operands = tuple(map(_shapes, call.operands))
        if call.definition.name in UNIQUE:
            # Each variable has a label of its own.
            return _infer(self._opset, call, operands, span)
        key = call.definition.name, operands, settings
        shapes = self._inferred.get(key)
        if shapes is None:
            shapes = _infer(self._opset, call, operands, span)
            self._inferred.keep(key, shapes)
        return shapes


def _infer(
    opset: OpSet, call: Call, operands: tuple[Any, ...], span: Span | None
) -> tuple[Any, ...]:
    fragment = call.definition
    function = opset.shapes.get(fragment.name)
    if function is None:
        message = (
            f"the shape of what '{fragment.name}' returns is not known:"
            f" give a rule '{fragment.name}_shape' that returns a tensor of that shape"
        )
        raise InvalidGraphError(message, span)
    try:
        return _checked(fragment, function(*operands, **call.attributes))
    except ShapeError as error:
        message = brief(f"{fragment.name}: {error}")
        raise InvalidGraphError(message, span, remedy=error.remedy) from None
    except OpenExtentError as error:
        raise error.of(fragment.name, span) from None
    except MisfitError as error:
        message = brief(f"the rule '{fragment.name}_shape' returns {error}")
        raise InvalidGraphError(message, span) from None


def _shapes(operand: Operand) -> Any:
    if type(operand) is Tensor:
        return operand.shape
    return tuple(map(_shapes, operand)) if isinstance(operand, tuple) else ()


def _checked(fragment: Fragment, returned: Any) -> tuple[Any, ...]:
    names = [result.name for result in fragment.results]
    if len(names) == 1:
        returned = [returned]
    elif not isinstance(returned, (list, tuple)) or len(returned) != len(names):
        wanted = f"a list of {len(names)} shapes is"
        raise not_as_wanted(repr(returned), wanted, names)
    pairs = zip(fragment.results, returned, strict=True)
    return tuple([_shape(result.name, result.type, shape) for result, shape in pairs])


def _shape(name: str, type_: Type, returned: Any) -> Any:
    """A shape, or a tuple of them; an extent may be one of numpy's integers."""
    if not isinstance(returned, (list, tuple)):
        wanted = "a list of shapes" if isinstance(type_, ArrayType) else "a shape"
        raise MisfitError(f"{returned!r} for {name}: {wanted} is wanted")
    if isinstance(type_, ArrayType):
        return tuple([_shape(name, type_.item, item) for item in returned])
    if len(returned) > MAX_RANK:
        message = f"a tensor of rank {len(returned)} is not supported"
        raise ShapeError(f"{message}: the rank is at most {MAX_RANK}")
    try:
        shape = tuple(map(_extent, returned))
    except TypeError:
        raise MisfitError(f"{returned!r} for {name}: a shape is wanted") from None
    numbers = [extent for extent in shape if type(extent) is int]
    if numbers and min(numbers) < 0:
        raise MisfitError(f"{returned!r} for {name}: an extent is not negative")
    # No text could hold an extent beyond 32 bits, no memory a volume beyond 64.
    if numbers and (max(numbers) > MAX_INTEGER or prod(numbers) >= 2**63):
        raise ShapeError(f"the shape {list(shape)} is too large")
    return shape


def _extent(returned: Any) -> Any:
    if type(returned) is bool:
        raise TypeError
    return returned if type(returned) is Extent else index(returned)
