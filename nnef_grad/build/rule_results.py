"""Checks of what rules return, in number and kind, before anything relies on it.

Nothing here knows where a rule comes from: a rule of the user's in Python can return
anything, one in NNEF an array of another length than its operand's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from operator import index
from typing import Any

from nnef_grad.errors import InvalidGraphError, brief
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import ArrayType, Type
from nnef_grad.source import Span


class _MisfitError(ValueError):
    """A rule returns something that it must not; the message says what."""


def kind(value: object) -> str:
    """A description of a value, in a few words."""
    if value is None:
        return "None"
    is_tensor = isinstance(value, Tensor)
    return "a tensor" if is_tensor else f"a value of type {type(value).__name__}"


def counted(number: int, word: str) -> str:
    """A number of things, in words."""
    return f"{number} {word}{'s' if number != 1 else ''}"


def _each(names: Sequence[str]) -> str:
    return f", for {' and '.join(names)}" if names else ""


# ---- Gradients ----


def check_gradients(
    operation: Operation, returned: Any, is_known: Callable[[Tensor], bool]
) -> list[tuple[Tensor, Tensor | float]]:
    """The tensors among the operands of an operation, in arrays too, for which a rule
    returns a gradient, with the gradient: a tensor or a number.

    Raises:
        InvalidGraphError: the rule returns something else, or a tensor that is not known.
    """
    names = [p.name for p in operation.definition.operands]
    try:
        _require_gradients(returned, names)
        triples = zip(names, operation.operands, returned, strict=True)
        return [pair for triple in triples for pair in _gradients(*triple, is_known)]
    except _MisfitError as error:
        message = f"the rule '{operation.name}_vjp' returns {error}"
        raise InvalidGraphError(message, operation.span) from None


def _require_gradients(returned: Any, names: Sequence[str]) -> None:
    wanted = counted(len(names), "gradient")
    if not isinstance(returned, (list, tuple)):
        raise _MisfitError(
            f"{kind(returned)}, and a list of {wanted} is wanted{_each(names)}"
        )
    if len(returned) != len(names):
        found = counted(len(returned), "gradient")
        verb = "is" if len(names) == 1 else "are"
        raise _MisfitError(f"{found}, and {len(names)} {verb} wanted{_each(names)}")


def _gradients(
    name: str, operand: Operand, returned: Any, is_known: Callable[[Tensor], bool]
) -> Iterator[tuple[Tensor, Tensor | float]]:
    if returned is None:
        return
    if isinstance(operand, tuple):
        items = _items(name, operand, returned)
        for i, pair in enumerate(zip(operand, items, strict=True)):
            yield from _gradients(f"{name}[{i}]", *pair, is_known)
        return
    gradient = _gradient(name, returned, is_known)
    if isinstance(operand, Tensor):
        yield operand, gradient


def _items(name: str, operand: tuple[Operand, ...], returned: Any) -> Sequence[Any]:
    whole = f"the {counted(len(operand), 'tensor')} of {name}"
    if not isinstance(returned, (list, tuple)):
        message = f"{kind(returned)} for {whole}: a list of gradients is wanted"
        raise _MisfitError(message)
    if len(returned) != len(operand):
        raise _MisfitError(f"{counted(len(returned), 'gradient')} for {whole}")
    return returned


def _gradient(
    name: str, returned: Any, is_known: Callable[[Tensor], bool]
) -> Tensor | float:
    if isinstance(returned, Tensor):
        if not is_known(returned):
            message = f"tensor '{returned.name}' for {name}, which is not of this graph"
            raise _MisfitError(message)
        if returned.dtype != "scalar":
            message = f"a tensor of type {returned.dtype} for {name}"
            raise _MisfitError(f"{message}: a gradient is of type scalar")
        return returned
    if isinstance(returned, bool) or not isinstance(returned, (int, float)):
        message = f"{kind(returned)} for {name}"
        raise _MisfitError(f"{message}: a tensor, a number or None is wanted")
    if not isfinite(returned):
        raise _MisfitError(f"{returned} for {name}: a gradient is finite")
    return float(returned)


def is_reducible(gradient: Shape, operand: Shape, results: Sequence[Shape]) -> bool:
    """Whether the gradient of an operand has the operand's shape but for axes of extent 1,
    and axes that the operand does not have, along which it was broadcast to a result.
    """
    extended = operand + (1,) * (len(gradient) - len(operand))
    return len(gradient) == len(extended) and any(
        all(
            whole == part or (part == 1 and result[axis : axis + 1] == (whole,))
            for axis, (whole, part) in enumerate(zip(gradient, extended, strict=True))
        )
        for result in results
    )


# ---- Shapes ----


def check_shapes(fragment: Fragment, returned: Any, span: Span | None) -> list[Any]:
    """The shapes that a shape function returns, one for each result of an operation; a
    list of shapes for a result that is an array of tensors.

    Raises:
        InvalidGraphError: the function returns something else.
    """
    names = [result.name for result in fragment.results]
    try:
        found = [returned] if len(names) == 1 else _require_shapes(returned, names)
        pairs = zip(fragment.results, found, strict=True)
        return [_shape(result.name, result.type, shape) for result, shape in pairs]
    except _MisfitError as error:
        message = f"the rule '{fragment.name}_shape' returns {error}"
        raise InvalidGraphError(brief(message), span) from None


def _require_shapes(returned: Any, names: Sequence[str]) -> Sequence[Any]:
    if not isinstance(returned, (list, tuple)) or len(returned) != len(names):
        wanted = counted(len(names), "shape")
        raise _MisfitError(
            f"{returned!r}, and a list of {wanted} is wanted{_each(names)}"
        )
    return returned


def _shape(name: str, type_: Type, returned: Any) -> Any:
    is_array = isinstance(type_, ArrayType)
    if not isinstance(returned, (list, tuple)):
        wanted = "a list of shapes" if is_array else "a shape"
        raise _MisfitError(f"{returned!r} for {name}: {wanted} is wanted")
    if isinstance(type_, ArrayType):
        return [_shape(name, type_.item, item) for item in returned]
    return _extents(name, returned)


def _extents(name: str, returned: Sequence[Any]) -> Shape:
    try:
        shape = tuple(map(_extent, returned))
    except TypeError:
        raise _MisfitError(f"{returned!r} for {name}: a shape is wanted") from None
    if any(extent < 0 for extent in shape):
        raise _MisfitError(f"{returned!r} for {name}: an extent is not negative")
    return shape


def _extent(value: Any) -> int:
    """An integer, which may be one of numpy's; True is not one."""
    if isinstance(value, bool):
        raise TypeError
    return index(value)
