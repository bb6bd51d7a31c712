"""The static rules of the language: every name is defined, every type fits.

Types follow from declarations alone, so that a document is judged as a whole: fragments
that nobody calls, branches that are not taken. All problems are found in one run; what a
faulty expression would have been is unknown, and nothing more is said about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isinf
from typing import Any, Union

from nnef_grad.errors import InvalidGraphError, NnefGradError, Problem, suggestion
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.matching import match
from nnef_grad.language.operators import builtin_type, operator_type
from nnef_grad.language.trampoline import Step, run
from nnef_grad.language.types import (
    EMPTY_ARRAY,
    GENERIC,
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    Generics,
    Primitive,
    TensorType,
    TupleType,
    Type,
    holds_tensors,
    is_assignable,
    is_generic,
    join,
    leaves,
    substitute,
)
from nnef_grad.source import Span


class _ErrorType:
    """The type of an expression that is at fault already."""


ERROR_TYPE = _ErrorType()
Inferred = Union[Type, _ErrorType]
Types = dict[str, Inferred]

_PRIMITIVES = {bool: LOGICAL, int: INTEGER, float: SCALAR, str: STRING}
_NOT_IN_FRAGMENTS = ("external", "variable", "update")


def check_fragments(
    fragments: Iterable[syntax.Fragment], library: Library
) -> list[Problem]:
    """What is wrong with some fragments; `library` knows them, and what they call."""
    checker = _Checker(library)
    for fragment in fragments:
        checker.fragment(fragment)
    return checker.problems


def check_graph(graph: syntax.GraphDefinition, library: Library) -> list[Problem]:
    """What is wrong with the graph of a document."""
    checker = _Checker(library)
    checker.graph(graph)
    return checker.problems


class _Checker:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.problems: list[Problem] = []
        self.in_fragment = False
        self.is_generic = False
        self.variables: set[str] = set()

    def report(
        self, message: str, span: Span, is_repairable: bool = False
    ) -> _ErrorType:
        """Notes a problem; the faulty expression has an unknown type."""
        self.problems.append(Problem(message, span, is_repairable))
        return ERROR_TYPE

    # Definitions

    def fragment(self, fragment: syntax.Fragment) -> None:
        """The declaration and the body of a fragment."""
        self.in_fragment = True
        self.is_generic = fragment.generic is not None
        self._check_declaration(fragment)
        types: Types = {p.name: p.type for p in fragment.parameters}
        if fragment.body is None:
            return
        declared: dict[str, Type] = {r.name: r.type for r in fragment.results}
        for statement in fragment.body:
            self._assign(statement, types, declared)
        for result in fragment.results:
            if result.name not in types:
                self.report(f"result '{result.name}' is not assigned", result.span)

    def graph(self, graph: syntax.GraphDefinition) -> None:
        """The signature and the statements of the graph."""
        self.in_fragment = self.is_generic = False
        seen: set[str] = set()
        for identifier in (*graph.parameters, *graph.results):
            if identifier.name in seen:
                self.report(f"'{identifier.name}' is declared twice", identifier.span)
            seen.add(identifier.name)
        types: Types = {}
        inputs = {p.name for p in graph.parameters}
        for statement in graph.body:
            self._check_external(statement, inputs)
            self._assign(statement, types, {})
            value = statement.value
            if isinstance(value, syntax.Invocation) and value.name == "variable":
                self.variables.update(i.name for i in identifiers(statement.target))
        self._check_interface(graph, types)

    def _check_declaration(self, fragment: syntax.Fragment) -> None:
        seen: set[str] = set()
        for part in _parts_of(fragment):
            if part.name in seen:
                self.report(f"'{part.name}' is declared twice", part.span)
            seen.add(part.name)
            self._check_mixture(part)
        for result in fragment.results:
            if not all(isinstance(leaf, TensorType) for leaf in leaves(result.type)):
                self.report(f"result '{result.name}' must be a tensor", result.span)
            elif TensorType(None) in leaves(result.type):
                message = f"result '{result.name}' must have a data type"
                self.report(message, result.span)
        self._check_order(fragment)
        self._check_generic(fragment)
        for parameter in fragment.parameters:
            self._check_default(parameter)

    def _check_mixture(self, part: syntax.Parameter | syntax.Result) -> None:
        kinds = {isinstance(leaf, TensorType) for leaf in leaves(part.type)}
        if len(kinds) > 1:
            self.report(f"'{part.name}' mixes tensors and attributes", part.span)

    def _check_order(self, fragment: syntax.Fragment) -> None:
        attribute = False
        for parameter in fragment.parameters:
            if attribute and holds_tensors(parameter.type):
                message = f"tensor '{parameter.name}' must come before the attributes"
                self.report(message, parameter.span)
            attribute = attribute or not holds_tensors(parameter.type)

    def _check_generic(self, fragment: syntax.Fragment) -> None:
        generic = any(is_generic(part.type) for part in _parts_of(fragment))
        if generic and fragment.generic is None:
            message = f"'{fragment.name}' uses the type '?': declare {fragment.name}<?>"
            self.report(message, fragment.span)
        if not generic and fragment.generic is not None:
            message = f"'{fragment.name}' is generic, and no type in it is '?'"
            self.report(message, fragment.span)

    def _check_default(self, parameter: syntax.Parameter) -> None:
        if parameter.default is None:
            return
        try:
            syntax.literal_value(parameter.default)
        except NnefGradError as error:
            self.problems += error.problems
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
                self.report(message, identifier.span)
            if not external and name in inputs:
                message = (
                    f"'{name}' is an input of the graph:"
                    " it can be the result of external only"
                )
                self.report(message, identifier.span)

    def _check_interface(self, graph: syntax.GraphDefinition, types: Types) -> None:
        for parameter in graph.parameters:
            if parameter.name not in types:
                message = (
                    f"input '{parameter.name}' of the graph is not defined:"
                    " give it an external operation"
                )
                self.report(message, parameter.span)
        for result in graph.results:
            if result.name not in types:
                message = f"output '{result.name}' of the graph is not assigned"
                self.report(message, result.span)

    # Statements

    def _assign(
        self, statement: syntax.Assignment, types: Types, declared: Mapping[str, Type]
    ) -> None:
        found = self.type_of(statement.value, types)
        for identifier, part in self._unpacked(statement.target, found):
            if identifier.name not in declared:
                self._check_array(identifier, part, statement.value)
            if identifier.name in types:
                message = f"'{identifier.name}' is already defined"
                self.report(message, identifier.span)
            elif self.in_fragment:
                wanted = declared.get(identifier.name)
                types[identifier.name] = self._result(identifier, part, wanted)
            else:
                types[identifier.name] = self._tensor(identifier, part)

    def _check_array(
        self, identifier: syntax.Identifier, part: Inferred, value: syntax.Expression
    ) -> None:
        """One name does not stand for an array of a length that is not known here."""
        if isinstance(value, syntax.Invocation) and self._is_open(value, part):
            message = (
                f"'{identifier.name}' is one name for the results of '{value.name}':"
                " give each a name, in brackets"
            )
            self.report(message, identifier.span)

    def _result(
        self, identifier: syntax.Identifier, part: Inferred, wanted: Type | None
    ) -> Inferred:
        """The type of a name in a fragment: that of its value, or the declared one."""
        if wanted is None:
            return part
        if not _is_assignable(part, wanted, Generics(GENERIC)):
            message = f"result '{identifier.name}' is {wanted}, and this is {part}"
            self.report(message, identifier.span)
        return wanted

    def _tensor(self, identifier: syntax.Identifier, part: Inferred) -> Inferred:
        """The type of a name in the graph: each stands for one tensor."""
        if isinstance(part, (TensorType, _ErrorType)):
            return part
        if isinstance(part, TupleType):
            message = f"'{identifier.name}' is one name for {len(part.items)} results"
        else:
            message = f"'{identifier.name}' must be a tensor, and this is {part}"
        return self.report(message, identifier.span)

    def _unpacked(
        self, target: syntax.Expression, found: Inferred
    ) -> list[tuple[syntax.Identifier, Inferred]]:
        """The names of a target with the types of the parts that they stand for."""
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
            return [(item, _item(found)) for item in items]
        if isinstance(target, syntax.Tuple) and isinstance(found, TupleType):
            if len(items) == len(found.items):
                return list(zip(items, found.items, strict=True))
            message = f"{len(items)} names for {len(found.items)} results"
            self.report(message, target.span)
        elif not isinstance(found, _ErrorType):
            what = "an array" if isinstance(target, syntax.Array) else "several results"
            is_one = isinstance(found, TensorType)
            actual = "one tensor" if is_one else str(found)
            message = f"the names want {what}, and this is {actual}"
            self.report(message, target.span)
        return [(item, ERROR_TYPE) for item in items]

    # Expressions

    def type_of(self, expression: syntax.Expression, types: Types) -> Inferred:
        """The type of an expression; what is wrong in it is reported."""
        found: Inferred = run(_VISIT[type(expression)](self, expression, types))
        return found

    def _visit(self, expression: syntax.Expression, types: Types) -> Any:
        if isinstance(expression, syntax.Invocation):
            return self._chained(expression, types)
        return _VISIT[type(expression)](self, expression, types)

    def _chained(self, invocation: syntax.Invocation, types: Types) -> Step:
        """An invocation inside of an expression, whose results have no names."""
        found = yield self._invocation(invocation, types)
        if invocation.name == "external":
            message = "external cannot stand in an expression: its result is an input"
            return self.report(message, invocation.span)
        if isinstance(found, TupleType) or self._is_open(invocation, found):
            message = (
                f"'{invocation.name}' does not return one tensor: name its results"
            )
            return self.report(message, invocation.span)
        return found

    def _is_open(self, invocation: syntax.Invocation, found: Inferred) -> bool:
        """Whether it returns an array whose length a primitive operation alone knows."""
        pending, seen = [invocation.name], set[str]()
        while isinstance(found, ArrayType) and pending:
            fragment = self.library.get(pending.pop())
            if fragment is None or fragment.name in seen:
                continue
            if fragment.body is None:
                return True
            seen.add(fragment.name)
            results = {r.name for r in fragment.results}
            pending += [
                s.value.name
                for s in fragment.body
                if isinstance(s.value, syntax.Invocation)
                and results.intersection(i.name for i in identifiers(s.target))
            ]
        return False

    def _literal(self, expression: syntax.Literal, types: Types) -> Inferred:
        value = expression.value
        if type(value) is int and not -(2**31) <= value < 2**31:
            message = f"integer {value} does not fit in 32 bits"
            return self.report(message, expression.span)
        if isinstance(value, float) and isinf(value):
            return self.report("this scalar is too large", expression.span)
        return _PRIMITIVES[type(value)]

    def _identifier(self, expression: syntax.Identifier, types: Types) -> Inferred:
        if expression.name in types:
            return types[expression.name]
        near = suggestion(expression.name, list(types))
        return self.report(f"'{expression.name}' is not defined{near}", expression.span)

    def _array(self, expression: syntax.Array, types: Types) -> Step:
        item: Inferred | None = None
        for part in expression.items:
            found = yield self._visit(part, types)
            item = found if item is None else _join(item, found)
            if item is None:
                message = (
                    f"the items of an array must be of one type, and this is {found}"
                )
                return self.report(message, part.span)
        if isinstance(item, _ErrorType):
            return ERROR_TYPE
        return EMPTY_ARRAY if item is None else ArrayType(item)

    def _tuple(self, expression: syntax.Tuple, types: Types) -> Step:
        items: list[Type] = []
        unknown = False
        for part in expression.items:
            found = yield self._visit(part, types)
            unknown = unknown or isinstance(found, _ErrorType)
            items.append(found)
        return ERROR_TYPE if unknown else TupleType(tuple(items))

    def _operator(self, expression: syntax.Operator, types: Types) -> Step:
        operands: list[Any] = []
        for part in expression.operands:
            operands.append((yield self._visit(part, types)))
        if any(isinstance(operand, _ErrorType) for operand in operands):
            return ERROR_TYPE
        found = operator_type(expression.symbol, operands)
        if found is not None:
            return found
        kinds = " and ".join(map(str, operands))
        message = f"'{expression.symbol}' does not apply to {kinds}"
        return self.report(message, expression.span)

    def _conditional(self, expression: syntax.Conditional, types: Types) -> Step:
        condition = yield self._visit(expression.condition, types)
        value = yield self._visit(expression.value, types)
        otherwise = yield self._visit(expression.otherwise, types)
        self._want(condition, LOGICAL, expression.condition)
        found = _join(value, otherwise)
        if found is not None:
            return found
        message = f"the branches have different types, {value} and {otherwise}"
        return self.report(message, expression.span)

    def _comprehension(self, expression: syntax.Comprehension, types: Types) -> Step:
        inner = dict(types)
        for loop in expression.loops:
            iterable = yield self._visit(loop.iterable, types)
            inner[loop.name] = self._item_type(iterable, loop.iterable)
        if expression.condition is not None:
            condition = yield self._visit(expression.condition, inner)
            self._want(condition, LOGICAL, expression.condition)
        item = yield self._visit(expression.value, inner)
        return ERROR_TYPE if isinstance(item, _ErrorType) else ArrayType(item)

    def _item_type(self, iterable: Inferred, expression: syntax.Expression) -> Inferred:
        if isinstance(iterable, ArrayType):
            return _item(iterable)
        if isinstance(iterable, _ErrorType):
            return ERROR_TYPE
        return self.report(f"this must be an array, and is {iterable}", expression.span)

    def _subscript(self, expression: syntax.Subscript, types: Types) -> Step:
        value = yield self._visit(expression.value, types)
        index = yield self._visit(expression.index, types)
        self._want(index, INTEGER, expression.index)
        if isinstance(value, TupleType):
            return self._tuple_item(expression, value)
        if isinstance(value, ArrayType):
            return _item(value)
        if isinstance(value, _ErrorType) or value == STRING:
            return value
        return self.report(f"{value} has no items", expression.value.span)

    def _tuple_item(self, expression: syntax.Subscript, value: TupleType) -> Inferred:
        index = expression.index
        if not isinstance(index, syntax.Literal) or type(index.value) is not int:
            message = "the index of a tuple must be a literal"
            return self.report(message, index.span)
        if not 0 <= index.value < len(value.items):
            message = f"index {index.value} is out of range: there are {len(value.items)} items"
            return self.report(message, index.span)
        return value.items[index.value]

    def _range(self, expression: syntax.Range, types: Types) -> Step:
        value = yield self._visit(expression.value, types)
        for end in (expression.begin, expression.end):
            if end is not None:
                self._want((yield self._visit(end, types)), INTEGER, end)
        if isinstance(value, (ArrayType, _ErrorType)) or value == STRING:
            return value
        return self.report(f"{value} has no range of items", expression.value.span)

    def _builtin(self, expression: syntax.Builtin, types: Types) -> Step:
        if expression.name == "shape_of":
            message = "shape_of is deprecated: the shape of a tensor is not known to the language"
            return self.report(message, expression.span)
        argument = yield self._visit(expression.argument, types)
        if isinstance(argument, _ErrorType):
            return ERROR_TYPE
        found = builtin_type(expression.name, argument)
        if found is not None:
            return found
        message = f"{expression.name} does not apply to {argument}"
        return self.report(message, expression.argument.span)

    def _want(
        self, found: Inferred, wanted: Primitive, expression: syntax.Expression
    ) -> None:
        if not isinstance(found, _ErrorType) and found != wanted:
            self.report(f"this must be {wanted}, and is {found}", expression.span)

    # Invocations

    def _invocation(self, invocation: syntax.Invocation, types: Types) -> Step:
        if invocation.name not in self.library:
            near = suggestion(invocation.name, list(self.library))
            message = f"there is no operation '{invocation.name}'{near}"
            self.report(message, invocation.span)
            yield from self._visit_arguments(invocation, types)
            return ERROR_TYPE
        fragment = self.library[invocation.name]
        if self.in_fragment and invocation.name in _NOT_IN_FRAGMENTS:
            message = (
                f"'{invocation.name}' cannot stand in a fragment, only in the graph"
            )
            self.report(message, invocation.span)
        try:
            given = match(fragment, invocation)
        except InvalidGraphError as error:
            self.problems += error.problems
            yield from self._visit_arguments(invocation, types)
            return ERROR_TYPE
        generics = self._generics(fragment, invocation)
        known = len(self.problems)
        for parameter in fragment.parameters:
            if parameter.name in given:
                expression = given[parameter.name].value
                found = yield self._visit(expression, types)
                self._fit(parameter, expression, found, types, generics, fragment)
        if fragment.generic and generics.dtype is None and len(self.problems) > known:
            return ERROR_TYPE
        self._check_defaults(fragment, given, generics, invocation)
        self._check_update(invocation, given)
        return self._result_type(fragment, generics, invocation)

    def _check_defaults(
        self,
        fragment: syntax.Fragment,
        given: Mapping[str, object],
        generics: Generics,
        invocation: syntax.Invocation,
    ) -> None:
        """A default of generic type must be of the type that the arguments settle."""
        for parameter in fragment.parameters:
            default = parameter.default
            if (
                default is None
                or parameter.name in given
                or not is_generic(parameter.type)
            ):
                continue
            if not _is_assignable(self.type_of(default, {}), parameter.type, generics):
                wanted = substitute(parameter.type, generics.dtype or GENERIC)
                message = (
                    f"the default of '{parameter.name}' is not {wanted}: give a value"
                )
                self.report(message, invocation.span)

    def _check_update(
        self, invocation: syntax.Invocation, given: Mapping[str, syntax.Argument]
    ) -> None:
        if invocation.name != "update" or "variable" not in given:
            return
        updated = given["variable"].value
        name = updated.name if isinstance(updated, syntax.Identifier) else None
        if name not in self.variables:
            self.report("what is updated must be a variable", updated.span)

    def _visit_arguments(self, invocation: syntax.Invocation, types: Types) -> Step:
        for argument in invocation.arguments:
            yield self._visit(argument.value, types)

    def _generics(
        self, fragment: syntax.Fragment, invocation: syntax.Invocation
    ) -> Generics:
        dtype = invocation.dtype
        if dtype is not None and fragment.generic is None:
            self.report(f"'{fragment.name}' takes no data type", invocation.span)
            return Generics()
        if dtype == GENERIC and not self.is_generic:
            message = "the type '?' means something in a generic fragment only"
            self.report(message, invocation.span)
        default = fragment.generic if fragment.generic != GENERIC else None
        return Generics(dtype if dtype is not None else default)

    def _result_type(
        self,
        fragment: syntax.Fragment,
        generics: Generics,
        invocation: syntax.Invocation,
    ) -> Inferred:
        if fragment.generic is not None and generics.dtype is None:
            name = fragment.name
            message = f"'{name}' needs a data type: write {name}<scalar>(...)"
            return self.report(message, invocation.span)
        dtype = generics.dtype
        items = [
            substitute(r.type, dtype) if dtype else r.type for r in fragment.results
        ]
        return items[0] if len(items) == 1 else TupleType(tuple(items))

    def _argument(
        self,
        parameter: syntax.Parameter,
        expression: syntax.Expression,
        types: Types,
        generics: Generics,
        what: str,
    ) -> None:
        found = self.type_of(expression, types)
        if not _is_assignable(found, parameter.type, generics):
            message = (
                f"{what} '{parameter.name}' must be {parameter.type}, and is {found}"
            )
            self.report(message, expression.span)

    def _fit(
        self,
        parameter: syntax.Parameter,
        expression: syntax.Expression,
        found: Inferred,
        types: Types,
        generics: Generics,
        fragment: syntax.Fragment,
    ) -> None:
        if _is_assignable(found, parameter.type, generics):
            return
        dtype = generics.dtype
        expected = substitute(parameter.type, dtype) if dtype else parameter.type
        culprit, wanted = self._culprit(expression, expected, types, generics)
        advice = _advice(culprit, wanted)
        message = f"argument '{parameter.name}' of '{fragment.name}' wants {expected}, got {found}"
        self.report(f"{message}{advice}", culprit.span, is_repairable=advice != "")

    def _culprit(
        self,
        expression: syntax.Expression,
        wanted: Type,
        types: Types,
        generics: Generics,
    ) -> tuple[syntax.Expression, Type]:
        """The first item of an array or tuple, as far as written out, that does not fit."""
        while True:
            for item, type_ in _written_items(expression, wanted):
                quiet = _Checker(self.library)
                quiet.in_fragment = self.in_fragment
                quiet.is_generic = self.is_generic
                if not _is_assignable(quiet.type_of(item, types), type_, generics):
                    expression, wanted = item, type_
                    break
            else:
                return expression, wanted


_VISIT: dict[type, Callable[..., Any]] = {
    syntax.Literal: _Checker._literal,
    syntax.Identifier: _Checker._identifier,
    syntax.Array: _Checker._array,
    syntax.Tuple: _Checker._tuple,
    syntax.Operator: _Checker._operator,
    syntax.Conditional: _Checker._conditional,
    syntax.Comprehension: _Checker._comprehension,
    syntax.Subscript: _Checker._subscript,
    syntax.Range: _Checker._range,
    syntax.Builtin: _Checker._builtin,
    syntax.Invocation: _Checker._invocation,
}


def _parts_of(fragment: syntax.Fragment) -> list[syntax.Parameter | syntax.Result]:
    return [*fragment.parameters, *fragment.results]


def _written_items(
    expression: syntax.Expression, wanted: Type
) -> list[tuple[syntax.Expression, Type]]:
    if (
        isinstance(expression, syntax.Array)
        and isinstance(wanted, ArrayType)
        and wanted.item
    ):
        return [(item, wanted.item) for item in expression.items]
    if isinstance(expression, syntax.Tuple) and isinstance(wanted, TupleType):
        # A tuple of another length is told as a whole, its items as far as they go.
        return list(zip(expression.items, wanted.items, strict=False))
    return []


def _advice(expression: syntax.Expression, wanted: Type) -> str:
    """What to write instead of a literal that exporters are known to get wrong."""
    if not isinstance(expression, syntax.Literal):
        return ""
    if isinstance(wanted, ArrayType):
        return f": write [{expression.span.text}]"
    is_scalar = wanted in (SCALAR, TensorType("scalar"))
    if is_scalar and type(expression.value) is int:
        return f": write {float(expression.value)}"
    return ""


def _item(array: ArrayType) -> Inferred:
    return ERROR_TYPE if array == EMPTY_ARRAY else array.item


def _is_assignable(found: Inferred, wanted: Type, generics: Generics) -> bool:
    return isinstance(found, _ErrorType) or is_assignable(found, wanted, generics)


def _join(left: Inferred, right: Inferred) -> Inferred | None:
    if isinstance(left, _ErrorType) or isinstance(right, _ErrorType):
        return ERROR_TYPE
    return join(left, right)


def identifiers(target: syntax.Expression) -> list[syntax.Identifier]:
    """The names that an assignment defines, in order."""
    found: list[syntax.Identifier] = []
    pending = [target]
    while pending:
        part = pending.pop()
        if isinstance(part, syntax.Identifier):
            found.append(part)
        elif isinstance(part, (syntax.Array, syntax.Tuple)):
            pending += reversed(part.items)
    return found
