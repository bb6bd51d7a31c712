"""The static rules of definitions: declarations, statements, the interface of the graph.

Types follow from declarations alone, so that a document is checked as a whole: even
fragments that are never called, and branches that are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nnef_grad.errors import NnefGradError, Problem, bounded_nesting
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.typecheck import (
    ERROR_TYPE,
    ErrorType,
    ExpressionChecker,
    Inferred,
    Types,
    accepts,
    identifiers,
    item_type,
)
from nnef_grad.language.types import (
    GENERIC,
    ArrayType,
    Generics,
    TensorType,
    TupleType,
    Type,
    holds_tensors,
    is_generic,
    leaves,
)


def check_fragments(
    fragments: Iterable[syntax.Fragment], library: Library
) -> list[Problem]:
    """The problems of some fragments; `library` has them and the operations they call."""
    checker = _DefinitionChecker(library)
    for fragment in fragments:
        checker.fragment(fragment)
    return checker.expressions.problems


def check_graph(graph: syntax.GraphDefinition, library: Library) -> list[Problem]:
    """The problems of the graph of a document."""
    checker = _DefinitionChecker(library)
    checker.graph(graph)
    return checker.expressions.problems


class _DefinitionChecker:
    def __init__(self, library: Library) -> None:
        self.expressions = ExpressionChecker(library)

    # Definitions

    def fragment(self, fragment: syntax.Fragment) -> None:
        """The declaration and the body of a fragment."""
        self.expressions.in_fragment = True
        self.expressions.is_generic = fragment.generic is not None
        self._check_declaration(fragment)
        types: Types = {p.name: p.type for p in fragment.parameters}
        if fragment.body is None:
            return
        declared: dict[str, Type] = {r.name: r.type for r in fragment.results}
        for statement in fragment.body:
            with bounded_nesting(statement.span):
                self._assign(statement, types, declared)
        for result in fragment.results:
            if result.name not in types:
                self.expressions.report(
                    f"result '{result.name}' is not assigned", result.span
                )

    def graph(self, graph: syntax.GraphDefinition) -> None:
        """The signature and the statements of the graph."""
        self.expressions.in_fragment = self.expressions.is_generic = False
        seen: set[str] = set()
        for identifier in (*graph.parameters, *graph.results):
            if identifier.name in seen:
                self.expressions.report(
                    f"'{identifier.name}' is declared twice", identifier.span
                )
            seen.add(identifier.name)
        types: Types = {}
        inputs = {p.name for p in graph.parameters}
        for statement in graph.body:
            self._check_external(statement, inputs)
            with bounded_nesting(statement.span):
                self._assign(statement, types, {})
            value = statement.value
            if isinstance(value, syntax.Invocation) and value.name == "variable":
                self.expressions.variables.update(
                    i.name for i in identifiers(statement.target)
                )
        self._check_interface(graph, types)

    def _check_declaration(self, fragment: syntax.Fragment) -> None:
        seen: set[str] = set()
        for part in _parts_of(fragment):
            if part.name in seen:
                self.expressions.report(f"'{part.name}' is declared twice", part.span)
            seen.add(part.name)
            self._check_mixture(part)
        for result in fragment.results:
            if not all(isinstance(leaf, TensorType) for leaf in leaves(result.type)):
                self.expressions.report(
                    f"result '{result.name}' must be a tensor", result.span
                )
            elif TensorType(None) in leaves(result.type):
                message = f"result '{result.name}' must have a data type"
                self.expressions.report(message, result.span)
        self._check_order(fragment)
        self._check_generic(fragment)
        for parameter in fragment.parameters:
            self._check_default(parameter)

    def _check_mixture(self, part: syntax.Parameter | syntax.Result) -> None:
        kinds = {isinstance(leaf, TensorType) for leaf in leaves(part.type)}
        if len(kinds) > 1:
            self.expressions.report(
                f"'{part.name}' mixes tensors and attributes", part.span
            )

    def _check_order(self, fragment: syntax.Fragment) -> None:
        attribute = False
        for parameter in fragment.parameters:
            if attribute and holds_tensors(parameter.type):
                message = f"tensor '{parameter.name}' must come before the attributes"
                self.expressions.report(message, parameter.span)
            attribute = attribute or not holds_tensors(parameter.type)

    def _check_generic(self, fragment: syntax.Fragment) -> None:
        generic = any(is_generic(part.type) for part in _parts_of(fragment))
        if generic and fragment.generic is None:
            message = f"'{fragment.name}' uses the type '?': declare {fragment.name}<?>"
            self.expressions.report(message, fragment.span)
        if not generic and fragment.generic is not None:
            message = f"'{fragment.name}' is generic, but no type in it is '?'"
            self.expressions.report(message, fragment.span)

    def _check_default(self, parameter: syntax.Parameter) -> None:
        if parameter.default is None:
            return
        try:
            syntax.literal_value(parameter.default)
        except NnefGradError as error:
            self.expressions.problems += error.problems
            return
        self._argument(parameter, parameter.default, {}, Generics(), "the default of")

    def _check_external(self, statement: syntax.Assignment, inputs: set[str]) -> None:
        value = statement.value
        external = isinstance(value, syntax.Invocation) and value.name == "external"
        for identifier in identifiers(statement.target):
            name = identifier.name
            if external and name not in inputs:
                message = (
                    f"external '{name}' is not an input of the graph:"
                    " name it in the signature"
                )
                self.expressions.report(message, identifier.span)
            if not external and name in inputs:
                message = (
                    f"'{name}' is an input of the graph:"
                    " it can only be the result of external"
                )
                self.expressions.report(message, identifier.span)

    def _check_interface(self, graph: syntax.GraphDefinition, types: Types) -> None:
        for parameter in graph.parameters:
            if parameter.name not in types:
                message = (
                    f"input '{parameter.name}' of the graph is not defined:"
                    " give it an external operation"
                )
                self.expressions.report(message, parameter.span)
        for result in graph.results:
            if result.name not in types:
                message = f"output '{result.name}' of the graph is not assigned"
                self.expressions.report(message, result.span)

    # Statements

    def _assign(
        self, statement: syntax.Assignment, types: Types, declared: Mapping[str, Type]
    ) -> None:
        found = self.expressions.type_of(statement.value, types)
        for identifier, part in self._unpack(statement.target, found):
            if identifier.name not in declared:
                self._check_array(identifier, part, statement.value)
            if identifier.name in types:
                message = f"'{identifier.name}' is already defined"
                self.expressions.report(message, identifier.span)
            elif self.expressions.in_fragment:
                wanted = declared.get(identifier.name)
                types[identifier.name] = self._result(identifier, part, wanted)
            else:
                types[identifier.name] = self._tensor(identifier, part)

    def _check_array(
        self, identifier: syntax.Identifier, part: Inferred, value: syntax.Expression
    ) -> None:
        """Refuses one name for an array of a length that is not known here."""
        if isinstance(value, syntax.Invocation) and self.expressions.is_open(
            value, part
        ):
            message = (
                f"'{identifier.name}' is one name for the results of '{value.name}':"
                " give each a name, in brackets"
            )
            self.expressions.report(message, identifier.span)

    def _result(
        self, identifier: syntax.Identifier, part: Inferred, wanted: Type | None
    ) -> Inferred:
        """The type of a name in a fragment: that of its value, or the declared one."""
        if wanted is None:
            return part
        if not accepts(part, wanted, Generics(GENERIC)):
            message = f"result '{identifier.name}' is {wanted}, but this is {part}"
            self.expressions.report(message, identifier.span)
        return wanted

    def _tensor(self, identifier: syntax.Identifier, part: Inferred) -> Inferred:
        """The type of a name in the graph, which must be a single tensor."""
        if isinstance(part, (TensorType, ErrorType)):
            return part
        if isinstance(part, TupleType):
            message = f"'{identifier.name}' is one name for {len(part.items)} results"
        else:
            message = f"'{identifier.name}' must be a tensor, but this is {part}"
        return self.expressions.report(message, identifier.span)

    def _unpack(
        self, target: syntax.Expression, found: Inferred
    ) -> list[tuple[syntax.Identifier, Inferred]]:
        """The names of a target with the types of the parts that they are bound to."""
        pairs: list[tuple[syntax.Identifier, Inferred]] = []
        pending: list[tuple[syntax.Expression, Inferred]] = [(target, found)]
        while pending:
            part, type_ = pending.pop()
            if isinstance(part, syntax.Identifier):
                pairs.append((part, type_))
            else:
                pending += reversed(self._parts(part, type_))
        return pairs

    def _parts(
        self, target: syntax.Expression, found: Inferred
    ) -> list[tuple[syntax.Expression, Inferred]]:
        assert isinstance(target, (syntax.Array, syntax.Tuple))
        items = target.items
        if isinstance(target, syntax.Array) and isinstance(found, ArrayType):
            return [(item, item_type(found)) for item in items]
        if isinstance(target, syntax.Tuple) and isinstance(found, TupleType):
            if len(items) == len(found.items):
                return list(zip(items, found.items, strict=True))
            message = f"{len(items)} names for {len(found.items)} results"
            self.expressions.report(message, target.span)
        elif not isinstance(found, ErrorType):
            what = "an array" if isinstance(target, syntax.Array) else "several results"
            is_one = isinstance(found, TensorType)
            actual = "one tensor" if is_one else str(found)
            message = f"the names expect {what}, but this is {actual}"
            self.expressions.report(message, target.span)
        return [(item, ERROR_TYPE) for item in items]

    def _argument(
        self,
        parameter: syntax.Parameter,
        expression: syntax.Expression,
        types: Types,
        generics: Generics,
        what: str,
    ) -> None:
        found = self.expressions.type_of(expression, types)
        if not accepts(found, parameter.type, generics):
            message = (
                f"{what} '{parameter.name}' must be {parameter.type}, but is {found}"
            )
            self.expressions.report(message, expression.span)


def _parts_of(fragment: syntax.Fragment) -> list[syntax.Parameter | syntax.Result]:
    return [*fragment.parameters, *fragment.results]
