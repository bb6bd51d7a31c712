"""A document to its flat graph: every expression evaluated, every fragment of the
document inlined, every rule checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnef_grad import names, syntax
from nnef_grad.binding import Bound, type_name
from nnef_grad.emit import Emitter
from nnef_grad.errors import InvalidGraphError
from nnef_grad.evaluate import Evaluator, Scope, hint_of, identifiers, unpack
from nnef_grad.ir import Graph, Shape, Tensor
from nnef_grad.library import with_fragments

FRAGMENTS_EXTENSION = "KHR_enable_fragment_definitions"
OPERATORS_EXTENSION = "KHR_enable_operator_expressions"


def expand(
    document: syntax.Document, shapes: Callable[[str, Shape], Shape] | None = None
) -> Graph:
    """The flat graph of a document, with the shape of every tensor.

    Args:
        document: what was parsed.
        shapes: gives the shape of an external from its name and its declared shape; as
            declared, if not given.

    Raises:
        InvalidGraphError: the document breaks a rule of the language, or of an
            operation.
    """
    _check_header(document)
    library = with_fragments(_checked_fragments(document))
    emitter = Emitter(library)
    own = {f.name for f in document.fragments if f.body is not None}
    evaluator = Evaluator(emitter, lambda fragment: fragment.name in own)
    body = _GraphBody(document.graph, evaluator, shapes or (lambda name, shape: shape))
    try:
        scope = body.expand()
    except RecursionError:
        raise InvalidGraphError(
            "expressions or fragments are nested too deeply", document.graph.span
        ) from None
    graph = Graph(
        document.graph.name,
        tuple(scope[p.name] for p in document.graph.parameters),
        tuple(scope[r.name] for r in document.graph.results),
        tuple(emitter.operations),
    )
    return (
        names.settle(graph, emitter.hints, emitter.pinned, reserved=scope)
        if emitter.hints
        else graph
    )


def _check_header(document: syntax.Document) -> None:
    version = document.version
    if version.name.count(".") != 1 or not version.name.replace(".", "").isdigit():
        raise InvalidGraphError(
            f"'{version.name}' is not a version number: write 1.0", version.span
        )
    if float(version.name) > 1.0:
        raise InvalidGraphError(
            f"version {version.name} is not supported: this is a reader of NNEF 1.0",
            version.span,
        )
    enabled = {e.name for e in document.extensions}
    for extension in document.extensions:
        if extension.name not in (FRAGMENTS_EXTENSION, OPERATORS_EXTENSION):
            raise InvalidGraphError(
                f"extension '{extension.name}' is not supported", extension.span
            )
    if document.fragments and FRAGMENTS_EXTENSION not in enabled:
        message = (
            f"a fragment definition needs the line: extension {FRAGMENTS_EXTENSION};"
        )
        raise InvalidGraphError(message, document.fragments[0].span)
    if document.operators is not None and OPERATORS_EXTENSION not in enabled:
        message = (
            f"an operator expression needs the line: extension {OPERATORS_EXTENSION};"
        )
        raise InvalidGraphError(message, document.operators)


def _checked_fragments(document: syntax.Document) -> Sequence[syntax.Fragment]:
    known = dict.fromkeys(with_fragments(()))
    for fragment in document.fragments:
        if fragment.name in known:
            raise InvalidGraphError(
                f"operation '{fragment.name}' is already defined", fragment.span
            )
        known[fragment.name] = None
    if document.graph.name in known:
        raise InvalidGraphError(
            f"operation '{document.graph.name}' is already defined", document.graph.span
        )
    return document.fragments


class _GraphBody:
    """The statements of the graph: its tensors keep their names, and its interface is
    held against its body.
    """

    def __init__(
        self,
        graph: syntax.GraphDefinition,
        evaluator: Evaluator,
        shapes: Callable[[str, Shape], Shape],
    ) -> None:
        self.graph = graph
        self.evaluator = evaluator
        self.shapes = shapes
        self.parameters = {p.name for p in graph.parameters}
        self.scope: Scope = {}
        self.labels: dict[str, Tensor] = {}

    def expand(self) -> Scope:
        self._check_signature()
        for statement in self.graph.body:
            self._assign(statement)
        self._check_interface()
        return self.scope

    def _check_signature(self) -> None:
        seen: set[str] = set()
        for identifier in (*self.graph.parameters, *self.graph.results):
            if identifier.name in seen:
                raise InvalidGraphError(
                    f"'{identifier.name}' is declared twice", identifier.span
                )
            seen.add(identifier.name)

    def _check_interface(self) -> None:
        for parameter in self.graph.parameters:
            if parameter.name not in self.scope:
                message = (
                    f"input '{parameter.name}' of the graph is not defined:"
                    " give it an external operation"
                )
                raise InvalidGraphError(message, parameter.span)
        for result in self.graph.results:
            if result.name not in self.scope:
                raise InvalidGraphError(
                    f"output '{result.name}' of the graph is not assigned", result.span
                )

    def _assign(self, statement: syntax.Assignment) -> None:
        for identifier in identifiers(statement.target):
            if identifier.name in self.scope:
                raise InvalidGraphError(
                    f"'{identifier.name}' is already defined", identifier.span
                )
        value = statement.value
        if isinstance(value, syntax.Invocation):
            self._check_external(statement.target, value)
            results = self.evaluator.invoke(
                value,
                self.scope,
                target=statement.target,
                revise=self._override(statement.target, value),
            )
            self._check_label(value, results)
        else:
            results = self.evaluator.evaluate(
                value, self.scope, hint_of(statement.target)
            )
        for identifier, tensor in unpack(statement.target, results):
            self.scope[identifier.name] = self._named(identifier, tensor)

    def _check_external(self, target: syntax.Target, value: syntax.Invocation) -> None:
        for identifier in identifiers(target):
            if value.name == "external" and identifier.name not in self.parameters:
                message = (
                    f"external '{identifier.name}' is not an input of the graph:"
                    " name it in the signature"
                )
                raise InvalidGraphError(message, identifier.span)
            if value.name != "external" and identifier.name in self.parameters:
                message = (
                    f"'{identifier.name}' is an input of the graph:"
                    " it can be the result of external only"
                )
                raise InvalidGraphError(message, identifier.span)

    def _override(
        self, target: syntax.Target, value: syntax.Invocation
    ) -> Callable[[Bound], Bound] | None:
        if value.name != "external" or not isinstance(target, syntax.Identifier):
            return None
        name = target.name

        def revise(bound: Bound) -> Bound:
            shape: Any = bound.attributes["shape"]
            return bound._replace(attributes={"shape": tuple(self.shapes(name, shape))})

        return revise

    def _check_label(self, value: syntax.Invocation, results: Any) -> None:
        """Variables of one label share their data, so they must have one shape."""
        if value.name != "variable":
            return
        label = self.evaluator.emitter.operations[-1].attributes["label"]
        assert isinstance(label, str)
        tensor = self.labels.setdefault(label.lower(), results)
        if tensor.shape != results.shape:
            message = f"label '{label}' is that of '{tensor.name}', whose shape is {list(tensor.shape)}"
            raise InvalidGraphError(message, value.span)

    def _named(self, identifier: syntax.Identifier, value: Any) -> Tensor:
        """The tensor that the document calls by this name."""
        if isinstance(value, Tensor) and value.name == identifier.name:
            return value
        if not isinstance(value, (Tensor, bool, int, float, str)):
            message = (
                f"'{identifier.name}' must be a tensor, and this is {type_name(value)}"
            )
            raise InvalidGraphError(message, identifier.span)
        return self.evaluator.emitter.named(value, identifier.name)
