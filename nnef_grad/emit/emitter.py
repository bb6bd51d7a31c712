"""Emits operations: infers their shapes and data types, and keeps names and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Union

from nnef_grad.base.errors import InvalidGraphError, suggestion
from nnef_grad.base.frozen import FrozenDict, OpenDict
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call, bind, bind_call, settings_key
from nnef_grad.emit.rule_results import ShapeInference
from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import STOP, Operand, Operation, Shape, Tensor, tensors
from nnef_grad.graph.learning import current_facts
from nnef_grad.graph.loops import external
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.stops import says_stop, stop_definition
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.traits import UNIQUE

Computed = Union[Call, Operation]
Naming = Callable[[str], str]


# ---- Operations that compute the same ----


class ValueTable:
    """Operations, to be found by what they compute, as in value numbering."""

    def __init__(self) -> None:
        # Most begin like none that is looked for, with the same name and first tensor:
        # their keys are never asked for.
        # By their beginnings, those that have no key yet.
        self._begun: dict[object, list[Operation]] = {}
        self._by_key: dict[object, Operation] = {}

    def add(self, operation: Operation) -> None:
        """Adds an operation, which may compute the same as another one."""
        self._begun.setdefault(_beginning(operation), []).append(operation)

    def find(self, call: Computed, settings: str | None = None) -> Operation | None:
        """The first operation that computes what a call does, if there is one."""
        begun = self._begun.get(_beginning(call))
        if begun is None:
            return None
        self._enter(begun)
        return self._by_key.get(operation_key(call, settings))

    def first(self, operation: Operation) -> Operation:
        """The first operation that computes the same as one, which is added."""
        beginning = _beginning(operation)
        begun = self._begun.get(beginning)
        if begun is None:
            self._begun[beginning] = [operation]
            return operation
        self._enter(begun)
        return self._by_key.setdefault(operation_key(operation), operation)

    def _enter(self, begun: list[Operation]) -> None:
        for operation in begun:
            self._by_key.setdefault(operation_key(operation), operation)
        begun.clear()


def operation_key(call: Computed, settings: str | None = None) -> tuple[object, ...]:
    """Equal for what computes the same; `settings` is its `settings_key`, if known."""
    operands = [o if type(o) is Tensor else _identity(o) for o in call.operands]
    settings = settings_key(call) if settings is None else settings
    return call.definition.name, call.dtype, settings, *operands


def _beginning(call: Computed) -> object:
    name, operands = call.definition.name, call.operands
    first = operands[0] if operands else None
    return (name, first) if type(first) is Tensor else name


def _identity(operand: Operand) -> object:
    """A tensor; for a literal, what is equal for the same one alone."""
    if isinstance(operand, tuple):
        return tuple(map(_identity, operand))
    return operand if isinstance(operand, Tensor) else (type(operand), repr(operand))


# ---- The emitter ----

Simplifier = Callable[["Emitter", Call], "Operand | None"]
# How many rewrites may be tried within each other: one that passes an operation on to what
# made its operand would follow a chain to its beginning, again for each part of it.
DEPTH = 4
# In place of the name of an operation.
LITERAL = "a literal"


class Tracker:
    """Observes operations and may replace their operands; it has each tensor's producer."""

    def __init__(self) -> None:
        self.producers: dict[Tensor, Operation] = {}

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
    """A growing list of operations. A new tensor has a hint, what it should be called;
    `assign_names` gives it a name when it is known which operations stay.
    """

    def __init__(
        self,
        opset: OpSet,
        names: Mapping[Tensor, str] | None = None,
        simplify: Simplifier | None = None,
        tracker: Tracker | None = None,
        opaque: Set[Tensor] = frozenset(),
        naming: Naming = str,
    ) -> None:
        self.opset = opset
        self.operations: list[Operation] = []
        # What tensors are called, or, if new ones need not have their names, should be.
        self.names: OpenDict[Tensor, str] = OpenDict(names or {})
        self.hints: dict[Tensor, str] = {}
        # Tensors whose producers no rewrite may look at: what is emitted depends on the
        # tensor itself, as somebody differentiates with respect to it.
        self.opaque = opaque
        # What the next operations are the derivative of, and their place in the source.
        self.origin: Operation | None = None
        self.span: Span | None = None
        # The path of the module that they are read from, if it is known.
        self.module: tuple[str, ...] | None = None
        # Turns the name of a value inside a rule or fragment into a hint.
        self.naming = naming
        # The operations in the places of whose results other tensors were found.
        self.simplified: dict[Tensor, Call] = {}
        self._simplify = simplify
        self._depth = 0
        self._tracker = tracker or Tracker()
        self._inference = ShapeInference(opset)
        self._producers = self._tracker.producers
        self._values = ValueTable()

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Emits an operation unless its result is there already; see `Emit`."""
        if name not in self.opset.declarations:
            near = suggestion(name, list(self.opset.declarations))
            raise InvalidGraphError(f"there is no operation '{name}'{near}")
        fragment = self.opset.declarations[name]
        if (count := len(fragment.results)) != 1:
            message = f"'{name}' has {count} results, and emit returns one"
            raise InvalidGraphError(message)
        call, settings = bind_call(fragment, operands, attributes, dtype)
        for tensor in tensors(call.operands):
            if not self.knows(tensor):
                kind = f"a tensor<{tensor.dtype}> of shape {list(tensor.shape)}"
                message = f"an operand of '{name}', {kind}, is not of this graph"
                raise InvalidGraphError(message)
        hints = (self.naming(hint or name),)
        (result,) = self.emit_op(call, hints=hints, span=self.span, settings=settings)
        if isinstance(result, Tensor):
            return result
        return self("constant", shape=(), value=(result,))

    def calling(self, naming: Naming) -> _Scope:
        """A scope: names for the operations emitted inside of a `with`."""
        return _Scope(self, naming, self.origin, self.span, self.module)

    def deriving(
        self, origin: Operation | None, naming: Naming | None = None
    ) -> _Scope:
        """A scope, inside of which derivatives of an operation are emitted."""
        return _Scope(self, naming or self.naming, origin, self.span, self.module)

    def replacing(self, operation: Operation, naming: Naming) -> _Scope:
        """A scope, inside of which replacements of an operation are emitted."""
        origin, span, module = operation.origin, operation.span, operation.module
        return _Scope(self, naming, origin, span, module)

    def emit_op(
        self,
        call: Call,
        *,
        hints: tuple[str, ...] = (),
        span: Span | None = None,
        settings: str | None = None,
        shapes: Sequence[Any] | None = None,
        is_shared: bool = True,
    ) -> tuple[Operand, ...]:
        """Emits an operation and returns its results, or, unless it is not shared, those of
        an equal one, or the operand that equals the result of one that is simplified away.
        For each result there is a hint; `settings` is the `settings_key`, and `shapes` are
        those of the results, if they are known.
        """
        name = call.definition.name
        operands = self._tracker.prepare(self, name, call.operands)
        if operands is not call.operands:
            call, shapes = call._replace(operands=operands), None
        if settings is None:
            settings = "" if name in UNIQUE else settings_key(call)
        if (facts := current_facts()) is not None and facts.count:
            call = call._replace(attributes=facts.apply_to_settings(call.attributes))
        # Rewrites may take it that operands and attributes fit each other.
        if shapes is None:
            shapes = self._inference.infer(call, settings, span)
        if self._simplify is None or not is_shared or name in UNIQUE:
            operation = self._new(call, shapes, hints, span)
        else:
            before = len(self.operations)
            simpler = self._simplify(self, call)
            if simpler is not None:
                if isinstance(simpler, Tensor):
                    self.simplified[simpler] = call
                if len(self.operations) > before and hints:
                    self.set_hint(simpler, hints[0])
                return (simpler,)
            earlier = self._values.find(call, settings)
            operation = earlier or self._new(call, shapes, hints, span)
            if earlier is None:
                self._values.add(operation)
        self._tracker.follow(operation)
        return operation.results

    def attempt(self, rewrite: Callable[..., Any], call: Call) -> Operand | None:
        """The operand that a rewrite finds in place of the result of an operation."""
        if self._depth == DEPTH:
            return None
        self._depth += 1
        try:
            simpler: Operand | None = rewrite(self, *call.operands, **call.attributes)
            return simpler
        except OpenExtentError:
            # It is as it is for numbers that are not known.
            return None
        finally:
            self._depth -= 1

    def _new(
        self,
        call: Call,
        shapes: Sequence[Any],
        hints: tuple[str, ...],
        span: Span | None,
    ) -> Operation:
        """A new operation, with new tensors for its results."""
        definition, operands, _, dtype = call
        settings: Any = call.attributes
        hints = hints or tuple([result.name for result in definition.results])
        columns = zip(definition.results, shapes, hints, strict=True)
        results = [
            self._result(d.type, shape, dtype, hint) for d, shape, hint in columns
        ]
        operation = Operation(
            definition,
            operands,
            settings,
            tuple(results),
            dtype,
            span,
            self.origin,
            self.module,
        )
        self.operations.append(operation)
        self.note_producer(operation)
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
        """Adds an operation as it is; later ones may be the same, if it is shared."""
        self.operations.append(operation)
        self.note_producer(operation)
        if is_shared and self._simplify is not None and operation.name not in UNIQUE:
            self._values.add(operation)
        self._tracker.take(operation)

    def note_producer(self, operation: Operation) -> None:
        """Keeps the producer of its results, also one in whose place others are emitted."""
        for tensor in operation.outputs:
            self._producers[tensor] = operation

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is the result of an operation of this emitter."""
        return tensor in self._producers

    @property
    def producers(self) -> Mapping[Tensor, Operation]:
        """The operations that tensors are results of."""
        return self._producers

    def producer(self, operand: Operand) -> Operation | None:
        """The operation that a tensor is a result of; None for a literal."""
        return self._producers.get(operand) if isinstance(operand, Tensor) else None

    def makers(self, operands: Iterable[Operand]) -> list[str]:
        """For each operand the name of the operation that made it; LITERAL for a literal."""
        producers = self._producers
        return [
            producers[o].name if type(o) is Tensor and o in producers else LITERAL
            for o in operands
        ]

    def made_by(self, operand: Operand, *names: str) -> Operation | None:
        """The operation of some names that made an operand, if rewrites may see it."""
        maker = self.producer(operand)
        is_one = maker is not None and maker.name in names
        return maker if is_one and operand not in self.opaque else None

    def tensor(self, dtype: str, shape: Shape, hint: str) -> Tensor:
        """A new tensor, and what it should be called."""
        tensor = Tensor(dtype, shape)
        self.hints[tensor] = hint
        return tensor

    def stop(self, x: Operand) -> Operand:
        """The operand, which no gradient flows through: see graph/stops.py."""
        call = bind(stop_definition(), {"x": x}, None)
        (stopped,) = self.emit_op(call, hints=(STOP,))
        return stopped

    def stand_in(self, tensor: Tensor) -> Tensor:
        """A new input that stands for any tensor like another one."""
        like = self.tensor(tensor.dtype, tensor.shape, "")
        self.append(external(like))
        return like

    def called(self, tensor: Tensor) -> str:
        """The name of a tensor, or its hint."""
        return self.names.get(tensor) or self.hints[tensor]

    def is_new(self, tensor: Tensor) -> bool:
        """Whether a tensor was made here, and had no name then."""
        return tensor in self.hints

    def set_hint(self, value: Operand, hint: str) -> None:
        """Changes the hint of a tensor; a name stays."""
        if isinstance(value, Tensor) and value in self.hints:
            self.hints[value] = hint

    def pin_name(self, value: Operand, name: str) -> Tensor:
        """The tensor that has a name: the value itself, if it has it or none yet, or else
        a copy. What lets no gradient through has a name that says so.
        """
        is_free = self.made_by(value, STOP) is None or says_stop(name)
        if isinstance(value, Tensor) and is_free:
            own = self.names.setdefault(value, name)
            if own == name:
                return value
        return self.emit_named(name, "copy", x=value)

    def assigned_names(
        self, operations: Iterable[Operation], reserved: Iterable[str]
    ) -> FrozenDict[Tensor, str]:
        """The names of all tensors, when all is emitted: new ones by hints, none reserved."""
        self._values, supply = ValueTable(), NameSupply(reserved)
        for operation in operations:
            for tensor in operation.outputs:
                if tensor not in self.names:
                    self.names[tensor] = supply.fresh(self.hints[tensor])
        return self.names.frozen()

    def emit_named(
        self, name: str, operation: str, dtype: str | None = None, **values: Any
    ) -> Tensor:
        """Emits an operation whose result has a name."""
        is_stop = operation == "copy" and says_stop(name)
        declared = self.opset.declarations[operation]
        call = bind(stop_definition() if is_stop else declared, values, dtype)
        (result,) = self.emit_op(call, is_shared=False)
        assert isinstance(result, Tensor)
        self.names[result] = name
        del self.hints[result]
        return result

    def emit_to(
        self, tensor: Tensor, name: str, *operands: Any, **attributes: Any
    ) -> None:
        """Emits an operation whose result is a tensor that others use already."""
        call, _ = bind_call(self.opset.declarations[name], operands, attributes, None)
        results: Any = {
            "results": (tensor,), "origin": self.origin, "module": self.module
        }  # fmt: skip
        self.append(Operation(**call._asdict(), **results))

    def _result(self, type_: Type, shape: Any, dtype: str | None, hint: str) -> Any:
        """A new tensor, or a tuple of them, for a result of a type."""
        if isinstance(type_, TensorType):
            actual = dtype if type_.dtype == GENERIC else type_.dtype
            assert actual is not None
            return self.tensor(actual, tuple(shape), hint)
        assert isinstance(type_, ArrayType)
        return tuple(
            self._result(type_.item, extents, dtype, f"{hint}_{number}")
            for number, extents in enumerate(shape, start=1)
        )


class _Scope:
    """The names of operations emitted inside of a `with`, the operation that they are the
    derivative of, and their place in the source.
    """

    __slots__ = ("_emit", "_inside", "_outside")

    def __init__(
        self,
        emit: Emitter,
        naming: Naming,
        origin: Operation | None,
        span: Span | None,
        module: tuple[str, ...] | None,
    ) -> None:
        self._emit, self._inside = emit, (naming, origin, span, module)

    def __enter__(self) -> None:
        emit = self._emit
        self._outside = emit.naming, emit.origin, emit.span, emit.module
        emit.naming, emit.origin, emit.span, emit.module = self._inside

    def __exit__(self, *_: object) -> None:
        emit = self._emit
        emit.naming, emit.origin, emit.span, emit.module = self._outside
