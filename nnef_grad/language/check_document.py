"""The static rules of a document: its header, declarations, statements, the interface of
the graph; see typecheck.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from nnef_grad.base.errors import NnefGradError, Problem, Remedy, nested_too_deeply
from nnef_grad.language import syntax
from nnef_grad.language.library import STDLIB, Library, with_fragments
from nnef_grad.language.typecheck import ExpressionChecker, calls, identifiers
from nnef_grad.language.types import (
    GENERIC,
    UNKNOWN,
    ArrayType,
    Generics,
    TensorType,
    TupleType,
    Type,
    holds_tensors,
    is_assignable,
    is_generic,
    leaves,
)

FRAGMENTS_EXTENSION = "KHR_enable_fragment_definitions"
OPERATORS_EXTENSION = "KHR_enable_operator_expressions"
EXTENSIONS = (FRAGMENTS_EXTENSION, OPERATORS_EXTENSION)

_VERSION = re.compile(r"[0-9]+\.[0-9]*")


def check_fragments(
    fragments: Iterable[syntax.Fragment], library: Library
) -> list[Problem]:
    """The problems of some fragments; `library` has them and the operations they call."""
    checker = _DefinitionChecker(library)
    for fragment in fragments:
        checker.check_fragment(fragment)
    return checker.problems


def check_document(document: syntax.Document, library: Library) -> list[Problem]:
    """The problems of a document: it must declare operations as the `library` does."""
    operations = with_fragments(document.fragments)
    checker = _DefinitionChecker(operations)
    checker.check_graph(document.graph)
    problems = [
        *_header_problems(document),
        *_definition_problems(document, library),
        *check_fragments(document.fragments, operations),
        *checker.problems,
    ]
    return sorted(problems, key=Problem.position)


def version_problems(document: syntax.Document) -> Iterator[Problem]:
    """The problems of the version, if it has any."""
    version = document.version
    if not _VERSION.fullmatch(version.name):
        message = f"'{version.name}' is not a version number: write 1.0"
        yield Problem(message, version.span)
    elif float(version.name) > 1.0:
        message = f"version {version.name} is not supported: nnef-grad reads NNEF 1.0"
        yield Problem(message, version.span)


def _remedy(type_: Type) -> Remedy | None:
    """Where numbers in brackets are a tensor: in tract's dialect."""
    is_array = isinstance(type_, ArrayType) and not holds_tensors(type_)
    return "dialect" if is_array else None


def _header_problems(document: syntax.Document) -> Iterator[Problem]:
    yield from version_problems(document)
    enabled = {e.name for e in document.extensions}
    for extension in document.extensions:
        if extension.name not in EXTENSIONS:
            message = f"extension '{extension.name}' is not supported"
            yield Problem(message, extension.span)
    line = "needs the line: extension"
    if document.fragments and FRAGMENTS_EXTENSION not in enabled:
        message = f"a fragment definition {line} {FRAGMENTS_EXTENSION};"
        yield Problem(message, document.fragments[0].span)
    if document.operators is not None and OPERATORS_EXTENSION not in enabled:
        message = f"an operator expression {line} {OPERATORS_EXTENSION};"
        yield Problem(message, document.operators)


def _definition_problems(
    document: syntax.Document, library: Library
) -> Iterator[Problem]:
    """Fragments and the graph must have unique names, and agree with the rules."""
    taken = set(STDLIB)
    parts: tuple[syntax.Named, ...] = (*document.fragments, document.graph)
    for part in parts:
        if part.name in taken:
            yield Problem(f"operation '{part.name}' is already defined", part.span)
        taken.add(part.name)
    for fragment in document.fragments:
        is_ours = fragment.name not in STDLIB
        if is_ours and library.get(fragment.name, fragment) != fragment:
            message = f"the rules declare '{fragment.name}' differently"
            yield Problem(message, fragment.span)


class _DefinitionChecker(ExpressionChecker):
    # Definitions

    def check_fragment(self, fragment: syntax.Fragment) -> None:
        """Checks the declaration and the body of a fragment."""
        self.fragment, self.types = fragment, {}
        self.valid.clear()
        self._check_declaration(fragment)
        if fragment.body is None:
            return
        self.types = {p.name: p.type for p in fragment.parameters}
        self._assign_all(fragment.body, {r.name: r.type for r in fragment.results})
        for result in fragment.results:
            if result.name not in self.types:
                self.report(f"result '{result.name}' is not assigned", result.span)

    def check_graph(self, graph: syntax.GraphDefinition) -> None:
        """Checks the signature and the statements of the graph."""
        self._check_unique((*graph.parameters, *graph.results))
        inputs = {p.name for p in graph.parameters}
        for statement in graph.body:
            value, names = statement.value, identifiers(statement.target)
            operation = value.name if isinstance(value, syntax.Invocation) else None
            self._check_external(operation == "external", names, inputs)
            if operation == "variable":
                self.variables.update(i.name for i in names)
        self._assign_all(graph.body, {})
        for parameter in graph.parameters:
            if parameter.name not in self.types:
                what = f"input '{parameter.name}' of the graph is not defined"
                self.report(f"{what}: give it an external operation", parameter.span)
        for result in graph.results:
            if result.name not in self.types:
                message = f"output '{result.name}' of the graph is not assigned"
                self.report(message, result.span)

    def _check_unique(self, parts: Iterable[syntax.Named]) -> None:
        seen: set[str] = set()
        for part in parts:
            if part.name in seen:
                self.report(f"'{part.name}' is declared twice", part.span)
            seen.add(part.name)

    def _check_declaration(self, fragment: syntax.Fragment) -> None:
        parts: list[syntax.Parameter | syntax.Result] = [*fragment.parameters]
        parts += fragment.results
        self._check_unique(parts)
        for part in parts:
            if len({isinstance(leaf, TensorType) for leaf in leaves(part.type)}) > 1:
                self.report(f"'{part.name}' mixes tensors and attributes", part.span)
        for result in fragment.results:
            if not all(isinstance(leaf, TensorType) for leaf in leaves(result.type)):
                self.report(f"result '{result.name}' must be a tensor", result.span)
            elif TensorType(None) in leaves(result.type):
                self.report(
                    f"result '{result.name}' must have a data type", result.span
                )
        operands = [holds_tensors(parameter.type) for parameter in fragment.parameters]
        for place, parameter in enumerate(fragment.parameters):
            if operands[place] and not all(operands[:place]):
                message = f"tensor '{parameter.name}' must come before the attributes"
                self.report(message, parameter.span)
        name, generic = fragment.name, any(is_generic(part.type) for part in parts)
        if generic and fragment.generic is None:
            message = f"'{name}' uses the type '?': declare {name}<?>"
            self.report(message, fragment.span)
        if not generic and fragment.generic is not None:
            self.report(f"'{name}' is generic, but no type in it is '?'", fragment.span)
        for parameter in fragment.parameters:
            self._check_default(parameter)

    def _check_default(self, parameter: syntax.Parameter) -> None:
        if parameter.default is None:
            return
        try:
            syntax.literal_value(parameter.default)
        except NnefGradError as error:
            self.problems += error.problems
            return
        type_ = self.type_of(parameter.default)
        if not is_assignable(type_, parameter.type, Generics()):
            what = f"the default of '{parameter.name}' must be {parameter.type}"
            self.report(f"{what}, but is {type_}", parameter.default.span)

    def _check_external(
        self, is_external: bool, targets: Iterable[syntax.Identifier], inputs: set[str]
    ) -> None:
        """The inputs of the graph, and no others, are the results of external."""
        for identifier in targets:
            name = identifier.name
            if is_external and name not in inputs:
                what = f"external '{name}' is not an input of the graph"
                self.report(f"{what}: name it in the signature", identifier.span)
            elif name in inputs and not is_external:
                what = f"'{name}' is an input of the graph"
                message = f"{what}: it can only be the result of external"
                self.report(message, identifier.span)

    # Statements

    def _assign_all(
        self, body: Iterable[syntax.Assignment], declared: Mapping[str, Type]
    ) -> None:
        for statement in body:
            try:
                self._assign(statement, declared)
            except RecursionError:
                raise nested_too_deeply(statement.span) from None

    def _assign(
        self, statement: syntax.Assignment, declared: Mapping[str, Type]
    ) -> None:
        value, types = statement.value, self.types
        for identifier, part in self._unpack(statement.target, self.type_of(value)):
            name = identifier.name
            several = [call.name for call in calls(value) if self.is_open(call, part)]
            if several and name not in declared:
                what = f"'{name}' is one name for the results of '{several[0]}'"
                advice = f"{what}: give each a name, in brackets"
                part = self.report(advice, identifier.span)
            if name in types:
                self.report(f"'{name}' is already defined", identifier.span)
            elif self.fragment is None:
                types[name] = self._tensor(identifier, part)
            else:
                types[name] = declared.get(name, part)
                if not is_assignable(part, types[name], Generics(GENERIC)):
                    message = f"result '{name}' is {types[name]}, but this is {part}"
                    self.report(message, identifier.span)

    def _tensor(self, identifier: syntax.Identifier, part: Type) -> Type:
        """The type of a name in the graph, which must be a single tensor."""
        if isinstance(part, TensorType) or part is UNKNOWN:
            return part
        message = f"'{identifier.name}' must be a tensor, but this is {part}"
        if isinstance(part, TupleType):
            what = f"'{identifier.name}' is one name for {len(part.items)} results"
            message = f"{what}: give each a name"
        return self.report(message, identifier.span, _remedy(part))

    def _unpack(
        self, target: syntax.Expression, type_: Type
    ) -> list[tuple[syntax.Identifier, Type]]:
        """The names of a target with the types of the parts that they are bound to."""
        pairs: list[tuple[syntax.Identifier, Type]] = []
        pending: list[tuple[syntax.Expression, Type]] = [(target, type_)]
        while pending:
            part, type_ = pending.pop()
            if isinstance(part, syntax.Identifier):
                pairs.append((part, type_))
            elif isinstance(part, (syntax.Array, syntax.Tuple)):
                types = self._item_types(part, type_)
                pending += reversed(list(zip(part.items, types, strict=True)))
        return pairs

    def _item_types(
        self, target: syntax.Array | syntax.Tuple, type_: Type
    ) -> Iterable[Type]:
        count = len(target.items)
        if isinstance(target, syntax.Array) and isinstance(type_, ArrayType):
            return [type_.item] * count
        if isinstance(target, syntax.Tuple) and isinstance(type_, TupleType):
            if count == len(type_.items):
                return type_.items
            message = f"{count} names for {len(type_.items)} results"
            self.report(message, target.span)
        elif type_ is not UNKNOWN:
            what = "an array" if isinstance(target, syntax.Array) else "several results"
            actual = "one tensor" if isinstance(type_, TensorType) else type_
            message = f"the names expect {what}, but this is {actual}"
            cure = ": put them in brackets" if isinstance(type_, ArrayType) else ""
            self.report(f"{message}{cure}", target.span)
        return [UNKNOWN] * count
