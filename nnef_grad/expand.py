"""A document to its flat graph: every rule checked, every expression evaluated, every
fragment of the document inlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from nnef_grad import names, syntax
from nnef_grad.binding import Bound
from nnef_grad.elaborate import Elaborator, NoValueError, Scope, hint_of, unpack
from nnef_grad.emit import Emitter
from nnef_grad.errors import InvalidGraphError, NnefGradError, Problem, UsageError
from nnef_grad.ir import Graph, Shape, Tensor
from nnef_grad.lenient import repaired, repaired_bias
from nnef_grad.library import Library, custom, with_fragments
from nnef_grad.rules import Rules
from nnef_grad.source import Span
from nnef_grad.storage.paths import data_steps
from nnef_grad.typecheck import check_fragments, check_graph

FRAGMENTS_EXTENSION = "KHR_enable_fragment_definitions"
OPERATORS_EXTENSION = "KHR_enable_operator_expressions"
EXTENSIONS = (FRAGMENTS_EXTENSION, OPERATORS_EXTENSION)

_VERSION = re.compile(r"[0-9]+\.[0-9]*")

ShapeOf = Callable[[str, Shape], Shape]


def expand(
    document: syntax.Document,
    shapes: ShapeOf = lambda name, shape: shape,
    compounds: Collection[str] = (),
    rules: Rules | None = None,
    lenient: bool = False,
) -> Graph:
    """The flat graph of a document, with the shape of every tensor.

    Args:
        document: what was parsed.
        shapes: gives the shape of an external from its name and its declared shape.
        compounds: the standard operations whose bodies are put in their place.
        rules: they know the shapes of operations that the document declares.
        lenient: whether what exporters are known to get wrong is repaired; what was done
            is told by the warnings of the graph.

    Raises:
        InvalidGraphError: the document breaks a rule of the language, or of an
            operation; the error reports all problems that do not follow from others.
    """
    rules = rules if rules is not None else Rules()
    warnings: list[Problem] = []
    if lenient:
        document, warnings = repaired(document)
    library = with_fragments(document.fragments)
    problems = [
        *_check_header(document),
        *_check_definitions(document, rules.declarations),
        *check_fragments(document.fragments, library),
        *check_graph(document.graph, library),
    ]
    if problems:
        raise InvalidGraphError.collect(sorted(problems, key=_place))
    declared = frozenset(f.name for f in document.fragments)
    rules.refuse_unknown(declared)
    own = {f.name for f in document.fragments if f.body is not None}
    emitter = Emitter(library, shapes=rules.shapes)
    elaborator = Elaborator(
        emitter,
        lambda fragment: fragment.name in own or fragment.name in compounds,
        _Revision(emitter, shapes, warnings if lenient else None),
    )
    scope = _GraphBody(document.graph, elaborator).expand()
    graph = Graph(
        document.graph.name,
        tuple(scope[p.name] for p in document.graph.parameters),
        tuple(scope[r.name] for r in document.graph.results),
        tuple(emitter.operations),
        custom(emitter.operations),
        declared=declared,
        warnings=tuple(sorted(warnings, key=_place)),
    )
    if not emitter.hints:
        return graph
    return names.settle(graph, emitter.hints, emitter.pinned, reserved=scope)


def _place(problem: Problem) -> int:
    return problem.span.start if problem.span is not None else 0


# ---- The document as a whole ----


def _check_header(document: syntax.Document) -> list[Problem]:
    problems: list[Problem] = []
    version = document.version
    if not _VERSION.fullmatch(version.name):
        message = f"'{version.name}' is not a version number: write 1.0"
        problems.append(Problem(message, version.span))
    elif float(version.name) > 1.0:
        message = (
            f"version {version.name} is not supported: this is a reader of NNEF 1.0"
        )
        problems.append(Problem(message, version.span))
    enabled = {e.name for e in document.extensions}
    for extension in document.extensions:
        if extension.name not in EXTENSIONS:
            message = f"extension '{extension.name}' is not supported"
            problems.append(Problem(message, extension.span))
    if document.fragments and FRAGMENTS_EXTENSION not in enabled:
        message = (
            f"a fragment definition needs the line: extension {FRAGMENTS_EXTENSION};"
        )
        problems.append(Problem(message, document.fragments[0].span))
    if document.operators is not None and OPERATORS_EXTENSION not in enabled:
        message = (
            f"an operator expression needs the line: extension {OPERATORS_EXTENSION};"
        )
        problems.append(Problem(message, document.operators))
    return problems


def _check_definitions(document: syntax.Document, ruled: Library) -> list[Problem]:
    """Fragments and the graph have names of their own; the rules mean the same ones."""
    problems: list[Problem] = []
    known = set(with_fragments(()))
    definitions = [(f.name, f.span) for f in document.fragments]
    for name, span in [*definitions, (document.graph.name, document.graph.span)]:
        if name in known:
            problems.append(Problem(f"operation '{name}' is already defined", span))
        known.add(name)
    for fragment in document.fragments:
        if ruled.get(fragment.name, fragment) != fragment:
            message = f"the rules declare '{fragment.name}' in another way"
            problems.append(Problem(message, fragment.span))
    return problems


# ---- Arguments that mean more than their types say ----


class _Revision:
    """Has a look at the arguments of each operation before it is made."""

    def __init__(
        self, emitter: Emitter, shapes: ShapeOf, repairs: list[Problem] | None
    ) -> None:
        self.emitter = emitter
        self.shapes = shapes
        self.repairs = repairs

    def __call__(
        self, fragment: syntax.Fragment, bound: Bound, hint: str, span: Span
    ) -> Bound:
        if fragment.name == "external":
            shape: Any = bound.attributes["shape"]
            return bound._replace(attributes={"shape": tuple(self.shapes(hint, shape))})
        if fragment.name == "variable":
            _check_label(str(bound.attributes["label"]), span)
        if self.repairs is not None:
            bound, repairs = repaired_bias(self.emitter, fragment, bound, span)
            self.repairs += repairs
        return bound


def _check_label(label: str, span: Span) -> None:
    """A label names a file in the folder of the model, and no other."""
    try:
        data_steps(label)
    except UsageError as error:
        raise InvalidGraphError(error.message, span) from None


# ---- The graph ----


class _GraphBody:
    """The statements of the graph, whose tensors keep their names.

    A statement that fails leaves its names without a value, and what reads them is passed
    over: one run finds all problems that do not follow from others.
    """

    def __init__(self, graph: syntax.GraphDefinition, elaborator: Elaborator) -> None:
        self.graph = graph
        self.elaborator = elaborator
        self.scope: Scope = {}
        self.labels: dict[str, Tensor] = {}
        self.problems: list[Problem] = []

    def expand(self) -> Scope:
        for statement in self.graph.body:
            try:
                self._assign(statement)
            except NoValueError:
                continue
            except NnefGradError as error:
                self.problems += error.problems
        if self.problems:
            raise InvalidGraphError.collect(self.problems)
        return self.scope

    def _assign(self, statement: syntax.Assignment) -> None:
        target, value = statement.target, statement.value
        found = self.elaborator.evaluate(value, self.scope, hint_of(target), target)
        for identifier, tensor in unpack(target, found):
            self.scope[identifier.name] = self._named(identifier, tensor)
        if isinstance(value, syntax.Invocation) and value.name == "variable":
            self._share(value, self.scope[hint_of(target)])

    def _share(self, value: syntax.Invocation, tensor: Tensor) -> None:
        """Variables of one label share their data, so they must have one shape."""
        producer = self.elaborator.emitter.producer(tensor)
        assert producer is not None
        label = str(producer.attributes["label"])
        first = self.labels.setdefault(label.lower(), tensor)
        if first.shape != tensor.shape:
            message = (
                f"label '{label}' is that of '{first.name}',"
                f" whose shape is {list(first.shape)}"
            )
            raise InvalidGraphError(message, value.span)

    def _named(self, identifier: syntax.Identifier, value: Any) -> Tensor:
        """The tensor that the document calls by this name."""
        if isinstance(value, Tensor) and value.name == identifier.name:
            return value
        return self.elaborator.emitter.named(value, identifier.name)
