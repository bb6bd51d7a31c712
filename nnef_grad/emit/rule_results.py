"""Checks of what rules return, in number and kind, before anything relies on it.

Nothing here knows where a rule comes from: a rule of the user's in Python can return
anything, one in NNEF an array of another length than its operand's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor


class MisfitError(ValueError):
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


def not_a_list(found: str, word: str, names: Sequence[str]) -> MisfitError:
    """The refusal of what is no list of a gradient or a shape for each name."""
    wanted = counted(len(names), word)
    return MisfitError(f"{found}, and a list of {wanted} is wanted{_each(names)}")


# ---- Gradients ----


def check_gradients(
    operation: Operation, returned: Any, is_known: Callable[[Tensor], bool]
) -> list[tuple[Tensor, Tensor | float]]:
    """The tensors among the operands of an operation, in arrays too, for which a rule
    returns a gradient, with the gradient: a known tensor or a number.
    """
    names = [p.name for p in operation.definition.operands]
    try:
        _require_gradients(returned, names)
        triples = zip(names, operation.operands, returned, strict=True)
        return [pair for triple in triples for pair in _gradients(*triple, is_known)]
    except MisfitError as error:
        message = f"the rule '{operation.name}_vjp' returns {error}"
        raise InvalidGraphError(message, operation.span) from None


def _require_gradients(returned: Any, names: Sequence[str]) -> None:
    if not isinstance(returned, (list, tuple)):
        raise not_a_list(kind(returned), "gradient", names)
    if len(returned) != len(names):
        found = counted(len(returned), "gradient")
        verb = "is" if len(names) == 1 else "are"
        raise MisfitError(f"{found}, and {len(names)} {verb} wanted{_each(names)}")


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
        raise MisfitError(message)
    if len(returned) != len(operand):
        raise MisfitError(f"{counted(len(returned), 'gradient')} for {whole}")
    return returned


def _gradient(
    name: str, returned: Any, is_known: Callable[[Tensor], bool]
) -> Tensor | float:
    if isinstance(returned, Tensor):
        if not is_known(returned):
            what = f"a tensor of shape {list(returned.shape)}"
            raise MisfitError(f"{what} for {name}, which is not of this graph")
        if returned.dtype != "scalar":
            message = f"a tensor of type {returned.dtype} for {name}"
            raise MisfitError(f"{message}: a gradient is of type scalar")
        return returned
    if isinstance(returned, bool) or not isinstance(returned, (int, float)):
        message = f"{kind(returned)} for {name}"
        raise MisfitError(f"{message}: a tensor, a number or None is wanted")
    if not isfinite(returned):
        raise MisfitError(f"{returned} for {name}: a gradient is finite")
    return float(returned)


@lru_cache(maxsize=1024)
def is_reducible(gradient: Shape, operand: Shape, results: tuple[Shape, ...]) -> bool:
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
