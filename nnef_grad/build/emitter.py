"""Makes operations: their shapes, their data types, their provisional names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from math import prod
from typing import Any, Protocol

from nnef_grad.build import returned
from nnef_grad.build.arguments import deduced_dtype, refuse_misfits, refuse_wrong_types
from nnef_grad.errors import InvalidGraphError, brief, suggestion
from nnef_grad.graph.ir import (
    Operand,
    Operation,
    Result,
    Shape,
    Tensor,
    shape_of,
    tensors,
)
from nnef_grad.language.syntax import Fragment, Value
from nnef_grad.language.types import GENERIC, MAX_INTEGER, ArrayType, TensorType, Type
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import ShapeError, ShapeFunction
from nnef_grad.source import Span

Simplifier = Callable[
    ["Emitter", str, tuple[Operand, ...], Mapping[str, Value], "str | None"],
    "Operand | None",
]


class Tracker(Protocol):
    """Looks on while operations are emitted, and may change their operands."""

    def take(self, operation: Operation) -> None:
        """Is told an operation that is taken as it is."""

    def prepare(
        self, emit: Emitter, name: str, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands of an operation, before it is emitted."""

    def follow(self, operation: Operation) -> None:
        """Is told an operation that a call comes to, new or there already."""


class Emitter:
    """A growing list of operations.

    A tensor that is made here has a provisional name, `%` and a number, which no text
    can hold. What it should be called is kept in `hints`; `names.assign_names` gives the
    final names when it is known what stays.

    Attributes:
        operations: what was emitted so far.
        hints: for a provisional name, the name to strive for.
        pinned: for a tensor with a provisional name, the name that it must get.
        origin: the forward operation that the next operations are the derivative of.
        naming: turns the name of a value inside a rule or fragment into a hint.
    """

    def __init__(
        self,
        opset: OpSet,
        operations: Iterable[Operation] = (),
        simplify: Simplifier | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        self.opset = opset
        self.operations: list[Operation] = []
        self.hints: dict[str, str] = {}
        self.pinned: dict[Tensor, str] = {}
        self.origin: Operation | None = None
        self.naming: Callable[[str], str] = str
        self._simplify = simplify
        self._tracker = tracker
        self._numbers = count()
        self._producers: dict[Tensor, Operation] = {}
        self._emitted: dict[tuple[object, ...], Operation] = {}
        for operation in operations:
            self.append(operation)

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Emits an operation with one result and returns it, as `Emit` says; what needs
        no operation is returned without one.
        """
        fragment = self._known(name)
        frozen = tuple(map(_freeze, operands))
        fixed = {key: _freeze(value) for key, value in attributes.items()}
        self._refuse_strangers(frozen)
        refuse_wrong_types(fragment, frozen, fixed, dtype)
        (result,) = self.emit_op(
            fragment, frozen, fixed, dtype=dtype, hints=(self.naming(hint or name),)
        )
        return result

    def _known(self, name: str) -> Fragment:
        """The declaration of an operation that has one result."""
        if name not in self.opset.declarations:
            near = suggestion(name, list(self.opset.declarations))
            raise InvalidGraphError(f"there is no operation '{name}'{near}")
        fragment = self.opset.declarations[name]
        if len(fragment.results) != 1:
            count = len(fragment.results)
            raise InvalidGraphError(
                f"'{name}' has {count} results, and emit returns one"
            )
        return fragment

    def _refuse_strangers(self, operands: tuple[Operand, ...]) -> None:
        for tensor in tensors(operands):
            if not self.knows(tensor):
                message = f"tensor '{tensor.name}' is not of this graph"
                raise InvalidGraphError(message)

    def emit_op(
        self,
        fragment: Fragment,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, Any],
        *,
        dtype: str | None = None,
        hints: tuple[Any, ...] = (),
        names: tuple[Any, ...] = (),
        span: Span | None = None,
    ) -> tuple[Operand, ...]:
        """Emits an operation and returns its results.

        Args:
            fragment: its declaration.
            operands: as in `Operation`; trailing defaults may be left out.
            attributes: as in `Operation`; defaults may be left out.
            dtype: what `?` stands for, where the operands do not tell.
            hints: for each result, what to strive for in naming it: a name, or a tuple
                of names for an array of tensors.
            names: the same, where the names are settled.
            span: the place in the source.

        Raises:
            InvalidGraphError: the arguments do not fit each other.
        """
        refuse_misfits(fragment, operands, attributes, span)
        defaults = fragment.defaults
        operands += tuple(defaults[p.name] for p in fragment.operands[len(operands) :])
        attributes = {
            p.name: attributes[p.name] if p.name in attributes else defaults[p.name]
            for p in fragment.attributes
        }
        if self._tracker is not None:
            operands = self._tracker.prepare(self, fragment.name, operands)
        if dtype is None:
            own = (p.name for p in fragment.operands)
            named = dict(zip(own, operands, strict=True))
            dtype = deduced_dtype(fragment, {**attributes, **named})
        if self._simplify is not None and not names:
            before = len(self.operations)
            simpler = self._simplify(self, fragment.name, operands, attributes, dtype)
            if simpler is not None:
                if len(self.operations) > before and hints:
                    self.set_hint(simpler, hints[0])
                return (simpler,)
            key = _key(fragment.name, operands, attributes, dtype)
            if key in self._emitted:
                return self._followed(self._emitted[key])

        results = self._results(
            fragment, operands, attributes, dtype, hints, names, span
        )
        operation = Operation(
            fragment, operands, attributes, results, dtype, span, self.origin
        )
        self._append(operation)
        return self._followed(operation)

    def _followed(self, operation: Operation) -> tuple[Result, ...]:
        if self._tracker is not None:
            self._tracker.follow(operation)
        return operation.results

    def append(self, operation: Operation) -> None:
        """Takes an operation as it is."""
        self._append(operation)
        if self._tracker is not None:
            self._tracker.take(operation)

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)
        for tensor in operation.outputs:
            self._producers[tensor] = operation
        if self._simplify is not None and operation.name not in _UNIQUE:
            key = _key(
                operation.name,
                operation.operands,
                operation.attributes,
                operation.dtype,
            )
            self._emitted.setdefault(key, operation)

    def replaced(self, operation: Operation) -> None:
        """Keeps in mind an operation in whose place others were emitted: `producer` tells
        what a tensor is by it.
        """
        for tensor in operation.outputs:
            self._producers[tensor] = operation

    def knows(self, tensor: Tensor) -> bool:
        """Whether an operation of this emitter made a tensor."""
        return tensor in self._producers

    def producer(self, operand: Operand) -> Operation | None:
        """The operation that made a tensor; None for a literal."""
        return self._producers.get(operand) if isinstance(operand, Tensor) else None

    def tensor(self, dtype: str, shape: Shape, hint: str) -> Tensor:
        """A new tensor with a provisional name."""
        name = f"%{next(self._numbers)}"
        self.hints[name] = hint
        return Tensor(name, dtype, shape)

    def set_hint(self, value: Operand, hint: str) -> None:
        """Changes what a tensor of this emitter should be called; a tensor that has its
        name already keeps it.
        """
        if isinstance(value, Tensor) and value.name in self.hints:
            self.hints[value.name] = hint

    def pass_hint(self, value: Tensor, successor: Tensor, word: str) -> None:
        """Calls a tensor what another one should be called, which gets a word after its
        own name.
        """
        hint = self.hints.get(value.name)
        if hint is not None:
            self.set_hint(successor, hint)
            self.set_hint(value, f"{hint}_{word}")

    def pin_name(self, value: Operand, name: str) -> Tensor:
        """What is called by the name in the end: the tensor itself, if it has no other
        name yet, or else a copy.
        """
        if (
            isinstance(value, Tensor)
            and value.name in self.hints
            and value not in self.pinned
        ):
            self.pinned[value] = name
            return value
        definition = self.opset.declarations["copy"]
        (copied,) = self.emit_op(definition, (value,), {}, names=(name,))
        assert isinstance(copied, Tensor)
        return copied

    def _results(
        self,
        fragment: Fragment,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, Value],
        dtype: str | None,
        hints: tuple[Any, ...],
        names: tuple[Any, ...],
        span: Span | None,
    ) -> tuple[Result, ...]:
        shapes = _result_shapes(self.opset.shapes, fragment, operands, attributes, span)
        results: list[Result] = []
        pairs = zip(fragment.results, shapes, strict=True)
        for index, (result, shape) in enumerate(pairs):
            item = (
                result.type.item if isinstance(result.type, ArrayType) else result.type
            )
            name = names[index] if names else None
            hint = hints[index] if hints else result.name
            if not isinstance(result.type, ArrayType):
                results.append(self._tensor(item, shape, dtype, name, hint))
                continue
            if isinstance(name, tuple) and len(name) != len(shape):
                message = f"'{fragment.name}' has {len(shape)} results here, and {len(name)} names are given"
                raise InvalidGraphError(message, span)
            hinted = (
                hint
                if isinstance(hint, tuple)
                else [f"{hint}_{i + 1}" for i in range(len(shape))]
            )
            results.append(
                tuple(
                    self._tensor(item, s, dtype, name[i] if name else None, hinted[i])
                    for i, s in enumerate(shape)
                )
            )
        return tuple(results)

    def _tensor(
        self, type_: Type, shape: Any, dtype: str | None, name: str | None, hint: str
    ) -> Tensor:
        assert isinstance(type_, TensorType)
        actual = dtype if type_.dtype == GENERIC else type_.dtype
        assert actual is not None
        return (
            Tensor(name, actual, tuple(shape))
            if name is not None
            else self.tensor(actual, tuple(shape), hint)
        )


# Two of these are never the same tensor, however alike they look.
_UNIQUE = {"external", "variable", "update"}


def _result_shapes(
    known: Mapping[str, ShapeFunction],
    fragment: Fragment,
    operands: tuple[Operand, ...],
    attributes: Mapping[str, Value],
    span: Span | None,
) -> list[Any]:
    """A shape for each result; a list of shapes for a result that is an array of
    tensors.
    """
    function = known.get(fragment.name)
    if function is None:
        message = (
            f"the shape of what '{fragment.name}' returns is not known:"
            f" give a rule '{fragment.name}_shape' that returns a tensor of that shape"
        )
        raise InvalidGraphError(message, span)
    try:
        shapes = function(*map(_shapes, operands), **attributes)
    except ShapeError as error:
        message = brief(f"{fragment.name}: {error}")
        raise InvalidGraphError(
            message, span, is_repairable=error.is_repairable
        ) from None
    found = returned.shapes(fragment, shapes, span)
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


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, (list, tuple)) else value


def _key(
    name: str,
    operands: tuple[Operand, ...],
    attributes: Mapping[str, Value],
    dtype: str | None,
) -> tuple[object, ...]:
    """Equal for invocations that compute the same. `repr` tells 1 from 1.0 from true,
    and 0.0 from -0.0.
    """
    literals = repr([o if not isinstance(o, Tensor) else o.name for o in operands])
    return (name, literals, repr(attributes), dtype)
