"""Emits operations: infers shapes and data types, and gives provisional names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Any

from nnef_grad.build.arguments import Call, bind, settings_key
from nnef_grad.build.bindings import bind_alike
from nnef_grad.build.firsts import Firsts
from nnef_grad.build.shape_inference import ShapeInference
from nnef_grad.errors import InvalidGraphError, suggestion
from nnef_grad.graph.ir import (
    Operand,
    Operation,
    Result,
    Shape,
    Tensor,
    tensors,
)
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.traits import UNIQUE
from nnef_grad.source import Span

Simplifier = Callable[["Emitter", Call], "Operand | None"]
# How many rewrites may be tried within each other: one that passes an operation on to what
# made its operand would follow a chain to its beginning, again for each part of it.
DEPTH = 4
# In place of the name of an operation.
LITERAL = "a literal"


class Tracker:
    """Observes the operations that are emitted, and may replace their operands.

    Attributes:
        producers: the operation that made each tensor, by its name. The emitter keeps it.
    """

    def __init__(self) -> None:
        self.producers: dict[str, Operation] = {}

    def take(self, operation: Operation) -> None:
        """Observes an operation that was appended as it is."""

    def prepare(
        self, emit: Emitter, name: str, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands to use in place of those given, before an operation is emitted."""
        return operands

    def follow(self, operation: Operation) -> None:
        """Observes the operation that was emitted, new or an equal one from before."""


class Emitter:
    """A growing list of operations.

    A new tensor has a provisional name, `%` and a number, which no text can hold. The
    name that it should get is kept in `hints`; `assign_names` gives the final names when
    it is known which operations stay.

    Attributes:
        opset: the operations that can be emitted.
        operations: those emitted so far.
        hints: for each provisional name, the name that the tensor should get.
        pinned: for some provisional names, the name that the tensor must get.
        origin: the forward operation that the next operations are the derivative of.
        span: the place in the source of the next operations that are emitted by a call.
        naming: turns the name of a value inside a rule or fragment into a hint.
        simplified: for each tensor that was found in place of the result of an
            operation, that operation, by the name of the tensor.
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
        self.pinned: dict[str, str] = {}
        self.origin: Operation | None = None
        self.span: Span | None = None
        self.naming: Callable[[str], str] = str
        self.simplified: dict[str, Call] = {}
        self._simplify = simplify
        self._depth = 0
        self._tracker = tracker or Tracker()
        self._numbers = count()
        self._inference = ShapeInference(opset)
        self._producers = self._tracker.producers
        self._firsts = Firsts()
        for operation in operations:
            self.append(operation)

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Emits an operation with one result and returns the result; see `Emit`. Nothing
        is emitted where the result is there already.
        """
        fragment = self._known(name)
        call, settings = bind_alike(fragment, operands, attributes, dtype)
        for tensor in tensors(call.operands):
            if not self.knows(tensor):
                message = f"tensor '{tensor.name}' is not of this graph"
                raise InvalidGraphError(message)
        hints = (self.naming(hint or name),)
        (result,) = self._emit_checked(call, settings, hints, (), self.span)
        if isinstance(result, Tensor):
            return result
        return self("constant", shape=(), value=(result,))

    def _known(self, name: str) -> Fragment:
        """The declaration of an operation that has one result."""
        if name not in self.opset.declarations:
            near = suggestion(name, list(self.opset.declarations))
            raise InvalidGraphError(f"there is no operation '{name}'{near}")
        fragment = self.opset.declarations[name]
        if (count := len(fragment.results)) != 1:
            message = f"'{name}' has {count} results, and emit returns one"
            raise InvalidGraphError(message)
        return fragment

    def emit_op(
        self,
        call: Call,
        *,
        hints: tuple[str, ...] = (),
        names: tuple[Any, ...] = (),
        span: Span | None = None,
    ) -> tuple[Operand, ...]:
        """Emits an operation and returns its results, or the operand that equals the
        result of an operation that is simplified away.

        Args:
            call: the operation, with a value for each parameter.
            hints: for each result the name that it should get.
            names: for each result the name that it has, if the names are final; a tuple
                of names for an array of tensors.
            span: the place in the source.

        Raises:
            InvalidGraphError: the arguments do not fit each other.
        """
        settings = "" if call.definition.name in UNIQUE else settings_key(call)
        return self._emit_checked(call, settings, hints, names, span)

    def _emit_checked(
        self,
        call: Call,
        settings: str,
        hints: tuple[str, ...],
        names: tuple[Any, ...],
        span: Span | None,
    ) -> tuple[Operand, ...]:
        """Emits an operation, given its `settings_key`: see `emit_op`."""
        operands = self._tracker.prepare(self, call.definition.name, call.operands)
        if operands is not call.operands:
            call = call._replace(operands=operands)
        # Rewrites may take it that operands and attributes fit each other.
        shapes = self._inference.infer(call, settings, span)
        return self._emit(call, settings, shapes, hints, names, span)

    def emit_known(
        self,
        call: Call,
        settings: str,
        shapes: Sequence[Any],
        hint: str,
        span: Span | None,
    ) -> tuple[Operand, ...]:
        """Emits an operation whose shapes are known: see `emit_op`.

        Args:
            call: the operation; it has one result.
            settings: the `settings_key` of the operation.
            shapes: the shape of the result.
            hint: the name that the result should get.
            span: the place in the source.
        """
        operands = self._tracker.prepare(self, call.definition.name, call.operands)
        if operands is not call.operands:
            changed = call._replace(operands=operands)
            return self.emit_op(changed, hints=(hint,), span=span)
        return self._emit(call, settings, shapes, (hint,), (), span)

    def _emit(
        self,
        call: Call,
        settings: str,
        shapes: Sequence[Any],
        hints: tuple[str, ...],
        names: tuple[Any, ...],
        span: Span | None,
    ) -> tuple[Operand, ...]:
        """Emits an operation, unless there is a simpler form or an equal one."""
        if self._simplify is None or names or call.definition.name in UNIQUE:
            operation = self._new(call, shapes, hints, names, span)
        else:
            before = len(self.operations)
            simpler = self._simplify(self, call)
            if simpler is not None:
                if isinstance(simpler, Tensor):
                    self.simplified[simpler.name] = call
                if len(self.operations) > before and hints:
                    self.set_hint(simpler, hints[0])
                return (simpler,)
            found = self._firsts.find(call, settings)
            operation = found or self._new(call, shapes, hints, names, span)
            if found is None:
                self._firsts.add(operation)
        self._tracker.follow(operation)
        return operation.results

    def attempt(self, rewrite: Callable[..., Any], call: Call) -> Operand | None:
        """The operand that a rewrite finds in place of the result of an operation, if it
        does.
        """
        if self._depth == DEPTH:
            return None
        self._depth += 1
        try:
            found: Operand | None = rewrite(self, *call.operands, **call.attributes)
            return found
        finally:
            self._depth -= 1

    def _new(
        self,
        call: Call,
        shapes: Sequence[Any],
        hints: tuple[str, ...],
        names: tuple[Any, ...],
        span: Span | None,
    ) -> Operation:
        """A new operation, with new tensors for its results."""
        definition, operands, _, dtype = call
        settings: Any = call.attributes
        names = names or (None,) * len(shapes)
        hints = hints or tuple([result.name for result in definition.results])
        results: list[Result] = []
        columns = zip(definition.results, shapes, names, hints, strict=True)
        for declared, shape, name, hint in columns:
            if isinstance(name, tuple) and len(name) != len(shape):
                counts = f"{len(shape)} results here, and {len(name)} names are given"
                raise InvalidGraphError(f"'{definition.name}' has {counts}", span)
            results.append(self._result(declared.type, shape, dtype, name, hint))
        made = tuple(results)
        operation = Operation(
            definition, operands, settings, made, dtype, span, self.origin
        )
        self._add(operation)
        return operation

    def emit_again(
        self,
        operation: Operation,
        operands: Iterable[Any],
        *,
        hints: tuple[str, ...] = (),
        **attributes: Any,
    ) -> tuple[Operand, ...]:
        """Emits an operation with other operands, of which trailing defaults may be left
        out, and with other attributes where they are given.
        """
        definition = operation.definition
        named = zip((p.name for p in definition.operands), operands, strict=False)
        values = {**operation.settings, **attributes, **dict(named)}
        dtype = None if definition.deduces_dtype else operation.dtype
        return self.emit_op(bind(definition, values, dtype), hints=hints)

    def append(self, operation: Operation, *, is_shared: bool = True) -> None:
        """Adds an operation as it is. Equal ones that are emitted later are the same, if
        it is shared.
        """
        self._add(operation)
        if is_shared and self._simplify is not None and operation.name not in UNIQUE:
            self._firsts.add(operation)
        self._tracker.take(operation)

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)
        for tensor in operation.outputs:
            self._producers[tensor.name] = operation

    def note_producer(self, operation: Operation) -> None:
        """Keeps an operation as the producer of its results: also one in whose place
        others were emitted.
        """
        for tensor in operation.outputs:
            self._producers[tensor.name] = operation

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is the result of an operation of this emitter."""
        made = self._producers.get(tensor.name)
        return made is not None and tensor in made.outputs

    def producer(self, operand: Operand) -> Operation | None:
        """The operation that a tensor is a result of; None for a literal."""
        if isinstance(operand, Tensor):
            return self._producers.get(operand.name)
        return None

    def makers(self, operands: Iterable[Operand]) -> list[str]:
        """For each operand the name of the operation that made it; LITERAL for a literal."""
        made_by = self._producers
        return [
            made_by[o.name].name if type(o) is Tensor and o.name in made_by else LITERAL
            for o in operands
        ]

    def made_by(self, operand: Operand, names: Collection[str]) -> Operation | None:
        """The operation that made an operand, if it has one of some names."""
        made = self.producer(operand)
        return made if made is not None and made.name in names else None

    def tensor(self, dtype: str, shape: Shape, hint: str) -> Tensor:
        """A new tensor with a provisional name."""
        name = f"%{next(self._numbers)}"
        self.hints[name] = hint
        return Tensor(name, dtype, shape)

    def set_hint(self, value: Operand, hint: str) -> None:
        """Changes the name that a tensor should get; a final name stays."""
        if isinstance(value, Tensor) and value.name in self.hints:
            self.hints[value.name] = hint

    def pin_name(self, value: Operand, name: str) -> Tensor:
        """The tensor that will have the name: the value itself, if it has it or its name
        is still open, or else a copy.
        """
        if isinstance(value, Tensor):
            if value.name in self.hints and value.name not in self.pinned:
                self.pinned[value.name] = name
            if name in (value.name, self.pinned.get(value.name)):
                return value
        return self.emit_named(name, "copy", x=value)

    def emit_named(self, name: str, operation: str, **values: Any) -> Tensor:
        """Emits an operation whose result has a final name."""
        call = bind(self.opset.declarations[operation], values, None)
        (result,) = self.emit_op(call, names=(name,))
        assert isinstance(result, Tensor)
        return result

    def _result(
        self, type_: Type, shape: Any, dtype: str | None, name: Any, hint: str
    ) -> Any:
        """A new tensor, or a tuple of them, for a result of a type."""
        if isinstance(type_, TensorType):
            actual = dtype if type_.dtype == GENERIC else type_.dtype
            assert actual is not None
            if name is not None:
                return Tensor(name, actual, tuple(shape))
            return self.tensor(actual, tuple(shape), hint)
        assert isinstance(type_, ArrayType)
        numbers = range(1, len(shape) + 1)
        columns = zip(numbers, shape, name or [None for _ in numbers], strict=True)
        return tuple(
            self._result(type_.item, extents, dtype, own, f"{hint}_{number}")
            for number, extents, own in columns
        )
