"""The shapes of results, by the shape function of the operation."""

from __future__ import annotations

from math import prod
from typing import Any

from nnef_grad.build.arguments import Call
from nnef_grad.build.rule_results import check_shapes
from nnef_grad.errors import InvalidGraphError, brief
from nnef_grad.graph.ir import Operand, shape_of
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import MAX_INTEGER
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import ShapeError
from nnef_grad.source import Span


def infer_shapes(opset: OpSet, call: Call, span: Span | None) -> list[Any]:
    """The shape of each result of an operation; a list of shapes for a result that is
    an array of tensors.

    Raises:
        InvalidGraphError: the arguments do not fit each other, a result is too large, or
            nothing says what its shape is.
    """
    fragment = call.definition
    function = opset.shapes.get(fragment.name)
    if function is None:
        message = (
            f"the shape of what '{fragment.name}' returns is not known:"
            f" give a rule '{fragment.name}_shape' that returns a tensor of that shape"
        )
        raise InvalidGraphError(message, span)
    try:
        shapes = function(*map(_shapes, call.operands), **call.attributes)
    except ShapeError as error:
        message = brief(f"{fragment.name}: {error}")
        raise InvalidGraphError(message, span, remedy=error.remedy) from None
    found = check_shapes(fragment, shapes, span)
    _check_extents(fragment, found, span)
    return found


def _check_extents(fragment: Fragment, shapes: list[Any], span: Span | None) -> None:
    """No text could hold an extent beyond 32 bits, no memory a volume beyond 64."""
    for shape in shapes:
        if isinstance(shape, list):
            _check_extents(fragment, shape, span)
        elif shape and (max(shape) > MAX_INTEGER or prod(shape) >= 2**63):
            message = f"{fragment.name}: the shape {list(shape)} is too large"
            raise InvalidGraphError(brief(message), span)


def _shapes(operand: Operand) -> Any:
    return (
        tuple(map(_shapes, operand))
        if isinstance(operand, tuple)
        else shape_of(operand)
    )
