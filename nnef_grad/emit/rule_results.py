"""The results of rules: shapes, inferred once, and gradients. They are checked, in
number and kind, before anything relies on it.

Nothing here knows where a rule comes from: a rule of the user's in Python can return
anything, one in NNEF an array of another length than its operand's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import inf, isfinite, prod
from operator import index
from typing import Any

from nnef_grad.base.errors import InvalidGraphError, brief
from nnef_grad.base.process import Memo
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call
from nnef_grad.graph.extents import (
    Extent,
    OpenExtentError,
    bounds,
    has_symbols,
    unmarked,
)
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.graph.learning import current_facts, decided_sizes
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import MAX_INTEGER, MAX_RANK, ArrayType, Type
from nnef_grad.ops.registry import SHAPES, OpSet, ShapeError
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
        """The shape of each result of an operation, a tuple of shapes for an array."""
        operands = tuple(map(_shapes, call.operands))
        if call.definition.name in UNIQUE:
            # Each variable has a label of its own.
            return _infer(self._opset, call, operands, span)
        facts = current_facts()
        if facts is not None and has_symbols((operands, *call.attributes.values())):
            # What it says of the network is learned in each reading.
            facts.operation = call.definition.name
            found = _infer(self._opset, call, facts.apply(operands), span)
            known: tuple[Any, ...] = facts.apply(found)
            return known
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
        message = brief(unmarked(f"{fragment.name}: {error}{decided_sizes()}"))
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


# ---- Checks ----


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
    """The tensors among the operands, in arrays too, with the gradients that they get."""
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
    try:
        number = float(returned)
    except OverflowError:
        number = inf
    if not isfinite(number):
        raise MisfitError(f"{number} for {name}: a gradient is finite")
    return number


@lru_cache(maxsize=1024)
def _may_be_1(extent: Any) -> bool:
    least, most = bounds(extent)
    return least <= 1 <= most


def is_reducible(gradient: Shape, operand: Shape, results: tuple[Shape, ...]) -> bool:
    """Whether the gradient of an operand has the operand's shape but for axes of extent 1,
    and axes that the operand does not have, along which it was broadcast to a result.
    """
    extended = operand + (1,) * (len(gradient) - len(operand))
    return len(gradient) == len(extended) and any(
        all(
            whole == part or (_may_be_1(part) and result[axis : axis + 1] == (whole,))
            for axis, (whole, part) in enumerate(zip(gradient, extended, strict=True))
        )
        for result in results
    )
