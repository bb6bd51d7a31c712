"""The static rules of definitions: declarations, statements, the interface of the graph.

Types follow from declarations alone, so that a document is checked as a whole: even
fragments that are never called, and branches that are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nnef_grad.base.errors import NnefGradError, Problem, nested_too_deeply
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.typecheck import ExpressionChecker, Types, identifiers
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


def check_fragments(
    fragments: Iterable[syntax.Fragment], library: Library
) -> list[Problem]:
    """The problems of some fragments; `library` has them and the operations they call."""
    checker = _DefinitionChecker(library)
    for fragment in fragments:
        checker.check_fragment(fragment)
    return checker.problems


def check_graph(graph: syntax.GraphDefinition, library: Library) -> list[Problem]:
    """The problems of the graph of a document."""
    checker = _DefinitionChecker(library)
    checker.check_graph(graph)
    return checker.problems


class _DefinitionChecker(ExpressionChecker):
    # Definitions

    def check_fragment(self, fragment: syntax.Fragment) -> None:
        """Checks the declaration and the body of a fragment."""
        self.fragment = fragment
        self.valid.clear()
        self._check_declaration(fragment)
        if fragment.body is None:
            return
        types: Types = {p.name: p.type for p in fragment.parameters}
        declared = {r.name: r.type for r in fragment.results}
        self._assign_all(fragment.body, types, declared)
        for result in fragment.results:
            if result.name not in types:
                self.report(f"result '{result.name}' is not assigned", result.span)

    def check_graph(self, graph: syntax.GraphDefinition) -> None:
        """Checks the signature and the statements of the graph."""
        self._check_unique((*graph.parameters, *graph.results))
        types: Types = {}
        inputs = {p.name for p in graph.parameters}
        for statement in graph.body:
            operation, names = _operation(statement), identifiers(statement.target)
            self._check_external(operation == "external", names, inputs)
            if operation == "variable":
                self.variables.update(i.name for i in names)
        self._assign_all(graph.body, types, {})
        for parameter in graph.parameters:
            if parameter.name not in types:
                what = f"input '{parameter.name}' of the graph is not defined"
                message = f"{what}: give it an external operation"
                self.report(message, parameter.span)
        for result in graph.results:
            if result.name not in types:
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
                message = f"result '{result.name}' must have a data type"
                self.report(message, result.span)
        self._check_order(fragment)
        generic = any(is_generic(part.type) for part in parts)
        if generic and fragment.generic is None:
            message = f"'{fragment.name}' uses the type '?': declare {fragment.name}<?>"
            self.report(message, fragment.span)
        if not generic and fragment.generic is not None:
            message = f"'{fragment.name}' is generic, but no type in it is '?'"
            self.report(message, fragment.span)
        for parameter in fragment.parameters:
            self._check_default(parameter)

    def _check_order(self, fragment: syntax.Fragment) -> None:
        attribute = False
        for parameter in fragment.parameters:
            if attribute and holds_tensors(parameter.type):
                message = f"tensor '{parameter.name}' must come before the attributes"
                self.report(message, parameter.span)
            attribute = attribute or not holds_tensors(parameter.type)

    def _check_default(self, parameter: syntax.Parameter) -> None:
        if parameter.default is None:
            return
        try:
            syntax.literal_value(parameter.default)
        except NnefGradError as error:
            self.problems += error.problems
            return
        found = self.type_of(parameter.default, {})
        if not is_assignable(found, parameter.type, Generics()):
            what = f"the default of '{parameter.name}' must be {parameter.type}"
            self.report(f"{what}, but is {found}", parameter.default.span)

    def _check_external(
        self,
        is_external: bool,
        targets: Iterable[syntax.Identifier],
        inputs: set[str],
    ) -> None:
        """The inputs of the graph, and no others, are the results of external."""
        for identifier in targets:
            name = identifier.name
            if is_external == (name in inputs):
                continue
            if is_external:
                what = f"external '{name}' is not an input of the graph"
                self.report(f"{what}: name it in the signature", identifier.span)
            else:
                what = f"'{name}' is an input of the graph"
                message = f"{what}: it can only be the result of external"
                self.report(message, identifier.span)

    # Statements

    def _assign_all(
        self,
        body: Iterable[syntax.Assignment],
        types: Types,
        declared: Mapping[str, Type],
    ) -> None:
        for statement in body:
            try:
                self._assign(statement, types, declared)
            except RecursionError:
                raise nested_too_deeply(statement.span) from None

    def _assign(
        self, statement: syntax.Assignment, types: Types, declared: Mapping[str, Type]
    ) -> None:
        found = self.type_of(statement.value, types)
        for identifier, part in self._unpack(statement.target, found):
            name = identifier.name
            if name not in declared:
                part = self._closed(identifier, part, statement.value)
            if name in types:
                self.report(f"'{name}' is already defined", identifier.span)
            elif self.fragment is None:
                types[name] = self._tensor(identifier, part)
            else:
                types[name] = declared.get(name, part)
                if not is_assignable(part, types[name], Generics(GENERIC)):
                    message = f"result '{name}' is {types[name]}, but this is {part}"
                    self.report(message, identifier.span)

    def _closed(
        self, identifier: syntax.Identifier, part: Type, value: syntax.Expression
    ) -> Type:
        """Refuses one name for an array of a length that is not known here."""
        if not isinstance(value, syntax.Invocation) or not self.is_open(value, part):
            return part
        what = f"'{identifier.name}' is one name for the results of '{value.name}'"
        return self.report(f"{what}: give each a name, in brackets", identifier.span)

    def _tensor(self, identifier: syntax.Identifier, part: Type) -> Type:
        """The type of a name in the graph, which must be a single tensor."""
        if isinstance(part, TensorType) or part is UNKNOWN:
            return part
        if isinstance(part, TupleType):
            what = f"'{identifier.name}' is one name for {len(part.items)} results"
            message = f"{what}: give each a name"
        else:
            message = f"'{identifier.name}' must be a tensor, but this is {part}"
        return self.report(message, identifier.span)

    def _unpack(
        self, target: syntax.Expression, found: Type
    ) -> list[tuple[syntax.Identifier, Type]]:
        """The names of a target with the types of the parts that they are bound to."""
        if isinstance(target, syntax.Identifier):
            return [(target, found)]
        pairs: list[tuple[syntax.Identifier, Type]] = []
        pending: list[tuple[syntax.Expression, Type]] = [(target, found)]
        while pending:
            part, type_ = pending.pop()
            if isinstance(part, syntax.Identifier):
                pairs.append((part, type_))
            elif isinstance(part, (syntax.Array, syntax.Tuple)):
                types = self._item_types(part, type_)
                pending += reversed(list(zip(part.items, types, strict=True)))
        return pairs

    def _item_types(
        self, target: syntax.Array | syntax.Tuple, found: Type
    ) -> Iterable[Type]:
        count = len(target.items)
        if isinstance(target, syntax.Array) and isinstance(found, ArrayType):
            return [found.item] * count
        if isinstance(target, syntax.Tuple) and isinstance(found, TupleType):
            if count == len(found.items):
                return found.items
            message = f"{count} names for {len(found.items)} results"
            self.report(message, target.span)
        elif found is not UNKNOWN:
            what = "an array" if isinstance(target, syntax.Array) else "several results"
            actual = "one tensor" if isinstance(found, TensorType) else found
            message = f"the names expect {what}, but this is {actual}"
            cure = ": put them in brackets" if isinstance(found, ArrayType) else ""
            self.report(f"{message}{cure}", target.span)
        return [UNKNOWN] * count


def _operation(statement: syntax.Assignment) -> str | None:
    """The name of the operation that is assigned, if it is one."""
    value = statement.value
    return value.name if isinstance(value, syntax.Invocation) else None
