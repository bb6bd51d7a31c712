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


def not_as_wanted(what: str, wanted: str, names: Sequence[str]) -> MisfitError:
    """The refusal of what is not a gradient or a shape for each name."""
    each = f", for {' and '.join(names)}" if names else ""
    return MisfitError(f"{what}, and {wanted} wanted{each}")


def check_gradients(
    operation: Operation, returned: Any, is_known: Callable[[Tensor], bool]
) -> list[tuple[Tensor, Tensor | float]]:
    """The tensors among the operands of an operation, in arrays too, for which a rule
    returns a gradient, with the gradient: a known tensor or a number.
    """
    names = [p.name for p in operation.definition.operands]
    try:
        if not isinstance(returned, (list, tuple)):
            wanted = f"a list of {counted(len(names), 'gradient')} is"
            raise not_as_wanted(kind(returned), wanted, names)
        if len(returned) != len(names):
            wanted = f"{len(names)} {'is' if len(names) == 1 else 'are'}"
            raise not_as_wanted(counted(len(returned), "gradient"), wanted, names)
        triples = zip(names, operation.operands, returned, strict=True)
        return [pair for triple in triples for pair in _gradients(*triple, is_known)]
    except MisfitError as error:
        message = f"the rule '{operation.name}_vjp' returns {error}"
        raise InvalidGraphError(message, operation.span) from None


def _gradients(
    name: str, operand: Operand, returned: Any, is_known: Callable[[Tensor], bool]
) -> Iterator[tuple[Tensor, Tensor | float]]:
    if returned is None:
        return
    if isinstance(operand, tuple):
        whole = f"the {counted(len(operand), 'tensor')} of {name}"
        if not isinstance(returned, (list, tuple)):
            message = f"{kind(returned)} for {whole}: a list of gradients is wanted"
            raise MisfitError(message)
        if len(returned) != len(operand):
            raise MisfitError(f"{counted(len(returned), 'gradient')} for {whole}")
        for i, pair in enumerate(zip(operand, returned, strict=True)):
            yield from _gradients(f"{name}[{i}]", *pair, is_known)
        return
    gradient = _gradient(name, returned, is_known)
    if isinstance(operand, Tensor):
        yield operand, gradient


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
