"""Builds the flat graph of a document: evaluates every expression, and replaces the
fragments of the document by their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from nnef_grad.base.errors import (
    InvalidGraphError,
    NnefGradError,
    Problem,
    brief,
    nested_too_deeply,
)
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import Call
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator, NoValueError, hint_of, unpack
from nnef_grad.emit.lenient import corrected, refuse_misplaced, repair, repair_call
from nnef_grad.graph.ir import STOP, Graph, Operation, Shape, Tensor
from nnef_grad.graph.stops import says_stop, stop_definition
from nnef_grad.language import syntax
from nnef_grad.language.check_document import check_document
from nnef_grad.language.labels import label_key, label_steps
from nnef_grad.ops.registry import OpSet

ShapeOf = Callable[[str, Shape], Shape]


def build_graph(
    document: syntax.Document,
    opset: OpSet | None = None,
    *,
    shapes: ShapeOf = lambda name, shape: shape,
    compounds: Collection[str] = (),
    lenient: bool = False,
) -> Graph:
    """The flat graph of a document, with the shape of every tensor. An error reports all
    problems that do not follow from others. The opset has the operations that need no
    declaration, and the shape functions of those that are declared; `shapes` gives the shape
    of an external from its name and its declared shape. The `compounds` are replaced by
    their bodies, and known mistakes of exporters are repaired if it is lenient.
    """
    opset = opset or OpSet()
    warnings: list[Problem] = []
    if lenient:
        document, warnings = repair(document)
    else:
        corrected(document, warnings, is_asked=False)
    problems = check_document(document, opset.declarations)
    if problems:
        raise InvalidGraphError.collect(problems)
    inlined = {f.name for f in document.fragments if f.body is not None} | {*compounds}
    emitter = Emitter(opset.extended(document.fragments))
    body = _GraphBody(emitter, inlined, shapes, warnings if lenient else None)
    scope = body.expand(document.graph.body)
    return Graph(
        document.graph.name,
        tuple(scope[p.name] for p in document.graph.parameters),
        tuple(scope[r.name] for r in document.graph.results),
        tuple(emitter.operations),
        emitter.assigned_names(emitter.operations, reserved=scope),
        declared=frozenset(f.name for f in document.fragments),
        warnings=tuple(sorted(warnings, key=Problem.position)),
    )


class _GraphBody(Evaluator):
    """The statements of the graph, whose tensors keep their names. Those that read the names
    of one that fails are skipped: a run finds all problems that do not follow from others.
    Most invoke an operation like an earlier one, with nothing but tensors of the same data
    types and shapes: what is bound and inferred for the first of them is so for all.
    """

    def __init__(
        self,
        emitter: Emitter,
        inlined: Collection[str],
        shapes: ShapeOf,
        repairs: list[Problem] | None,
    ) -> None:
        super().__init__(emitter, inlined)
        self.shapes, self.repairs = shapes, repairs
        # What the first result of the statement that is evaluated is called.
        self.target = ""
        self.scope: dict[str, Any] = {}
        self.labels: dict[str, Tensor] = {}
        self.problems: list[Problem] = []
        self._first: dict[object, Operation] = {}

    def adjust(self, call: Call, hint: str, span: Span) -> Call:
        """Sets the shape of an external, takes a copy for what its name says, and repairs a
        bias.
        """
        if call.definition.name == "copy" and says_stop(hint) and hint == self.target:
            call = call._replace(definition=stop_definition())
        if call.definition.name == "external":
            shape = tuple(self.shapes(hint, call.attributes["shape"]))
            return call._replace(attributes={"shape": shape})
        if call.definition.name == "variable":
            try:
                label_steps(str(call.attributes["label"]))
            except ValueError as error:
                raise InvalidGraphError(brief(str(error)), span) from None
        if self.repairs is not None:
            return repair_call(self.emitter, call, span, self.repairs)
        refuse_misplaced(call, span)
        return call

    def expand(self, body: Iterable[syntax.Assignment]) -> dict[str, Any]:
        """The values of all names, after the statements of the graph."""
        for statement in body:
            try:
                self._assign(statement)
            except NoValueError:
                continue
            except RecursionError:
                self.problems += nested_too_deeply(statement.span).problems
            except NnefGradError as error:
                self.problems += error.problems
        if self.problems:
            raise InvalidGraphError.collect(self.problems)
        return self.scope

    def _assign(self, statement: syntax.Assignment) -> None:
        """Evaluates a statement, or repeats the first one of its kind."""
        operands, value = self._operands(statement), statement.value
        if not operands or not isinstance(value, syntax.Invocation):
            self._define(statement)
            return
        name, emitter = hint_of(statement.target), self.emitter
        word = STOP if value.name == "copy" and says_stop(name) else value.name
        kind = word, value.dtype, *[(x.dtype, x.shape) for x in operands]
        if first := self._first.get(kind):
            (like,) = first.outputs
            tensor = self.scope[name] = Tensor(like.dtype, like.shape)
            emitter.names[tensor] = name
            whole = (*operands, *first.operands[len(operands) :])
            emitter.append(first.rewired(whole, (tensor,), value.span))
            return
        self._define(statement)
        last = emitter.operations[-1]
        # Not if a fragment was expanded, or an operand repaired.
        if last.name == word and last.operands[: len(operands)] == operands:
            self._first[kind] = last

    def _operands(self, statement: syntax.Assignment) -> tuple[Tensor, ...]:
        """The operands of an operation of tensors alone, with one name; else none."""
        value = statement.value
        has_name = type(statement.target) is syntax.Identifier
        if not has_name or type(value) is not syntax.Invocation:
            return ()
        names = [a.name for a in value.arguments if type(a) is syntax.Identifier]
        operands = tuple([self.scope[name] for name in names if name in self.scope])
        return operands if len(operands) == len(value.arguments) else ()

    def _define(self, statement: syntax.Assignment) -> None:
        target, value = statement.target, statement.value
        self.target = hint_of(target)
        results = self.evaluate(value, self.scope, self.target)
        made_by = value if isinstance(value, syntax.Invocation) else None
        is_inlined = made_by is not None and made_by.name in self.inlined
        for name, tensor in unpack(target, results, None if is_inlined else made_by):
            self.scope[name] = self.emitter.pin_name(tensor, name)
        if made_by is not None and made_by.name == "variable":
            self._share(made_by, self.scope[self.target])

    def _share(self, value: syntax.Invocation, tensor: Tensor) -> None:
        """Variables of one label share their data, so they must have one shape."""
        producer = self.emitter.producer(tensor)
        assert producer is not None
        label = str(producer.attributes["label"])
        first = self.labels.setdefault(label_key(label), tensor)
        if first.shape != tensor.shape:
            message = (
                f"label '{label}' is that of '{self.emitter.names[first]}',"
                f" whose shape is {list(first.shape)}"
            )
            raise InvalidGraphError(message, value.span)
