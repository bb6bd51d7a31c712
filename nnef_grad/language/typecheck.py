"""The type checker: every name is defined, every type fits.

Types follow from declarations alone, so that a document is checked as a whole: even
fragments that are never called, and branches that are not taken. All problems are
reported in one run; a faulty expression has an unknown type, which causes no more
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import Any, Union

from nnef_grad.errors import InvalidGraphError, Problem, Remedy, suggestion
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.matching import match
from nnef_grad.language.operators import builtin_type, operator_type
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
    is_assignable,
    is_generic,
    join,
    substitute,
)
from nnef_grad.source import Span


class ErrorType:
    """The type of an expression whose problem was reported."""


ERROR_TYPE = ErrorType()
Inferred = Union[Type, ErrorType]
Types = dict[str, Inferred]

_PRIMITIVES = {bool: LOGICAL, int: INTEGER, float: SCALAR, str: STRING}
_NOT_IN_FRAGMENTS = ("external", "variable", "update")


class ExpressionChecker:
    """Infers the types of expressions, and collects their problems.

    Attributes:
        library: the known operations.
        problems: the problems so far.
        in_fragment: whether the expressions are in a fragment.
        is_generic: whether that fragment is generic.
        variables: the variables of the graph.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.problems: list[Problem] = []
        self.in_fragment = False
        self.is_generic = False
        self.variables: set[str] = set()

    def report(
        self, message: str, span: Span, remedy: Remedy | None = None
    ) -> ErrorType:
        """Adds a problem, and returns the unknown type of the faulty expression."""
        self.problems.append(Problem(message, span, remedy))
        return ERROR_TYPE

    # Expressions

    def type_of(self, expression: syntax.Expression, types: Types) -> Inferred:
        """The type of an expression; problems are reported."""
        found: Inferred = _VISIT[type(expression)](self, expression, types)
        return found

    def _visit(self, expression: syntax.Expression, types: Types) -> Any:
        if isinstance(expression, syntax.Invocation):
            return self._nested_invocation(expression, types)
        return _VISIT[type(expression)](self, expression, types)

    def _nested_invocation(self, invocation: syntax.Invocation, types: Types) -> Any:
        """The type of an invocation inside an expression, whose results have no names."""
        found = self._invocation(invocation, types)
        if invocation.name == "external":
            message = "external cannot be used in an expression: its result is an input"
            return self.report(message, invocation.span)
        if isinstance(found, TupleType) or self.is_open(invocation, found):
            message = (
                f"'{invocation.name}' does not return one tensor: name its results"
            )
            return self.report(message, invocation.span)
        return found

    def is_open(self, invocation: syntax.Invocation, found: Inferred) -> bool:
        """Whether it returns an array whose length only a primitive operation knows."""
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

    def _array(self, expression: syntax.Array, types: Types) -> Any:
        item: Inferred | None = None
        for part in expression.items:
            found = self._visit(part, types)
            item = found if item is None else _join(item, found)
            if item is None:
                message = (
                    f"the items of an array must be of one type, but this is {found}"
                )
                return self.report(message, part.span)
        if isinstance(item, ErrorType):
            return ERROR_TYPE
        return EMPTY_ARRAY if item is None else ArrayType(item)

    def _tuple(self, expression: syntax.Tuple, types: Types) -> Any:
        items: list[Type] = []
        unknown = False
        for part in expression.items:
            found = self._visit(part, types)
            unknown = unknown or isinstance(found, ErrorType)
            items.append(found)
        return ERROR_TYPE if unknown else TupleType(tuple(items))

    def _operator(self, expression: syntax.Operator, types: Types) -> Any:
        operands: list[Any] = []
        for part in expression.operands:
            operands.append(self._visit(part, types))
        if any(isinstance(operand, ErrorType) for operand in operands):
            return ERROR_TYPE
        found = operator_type(expression.symbol, operands)
        if found is not None:
            return found
        kinds = " and ".join(map(str, operands))
        message = f"'{expression.symbol}' does not apply to {kinds}"
        return self.report(message, expression.span)

    def _conditional(self, expression: syntax.Conditional, types: Types) -> Any:
        condition = self._visit(expression.condition, types)
        value = self._visit(expression.value, types)
        otherwise = self._visit(expression.otherwise, types)
        self._want(condition, LOGICAL, expression.condition)
        found = _join(value, otherwise)
        if found is not None:
            return found
        message = f"the branches have different types, {value} and {otherwise}"
        return self.report(message, expression.span)

    def _comprehension(self, expression: syntax.Comprehension, types: Types) -> Any:
        inner = dict(types)
        for loop in expression.loops:
            iterable = self._visit(loop.iterable, types)
            inner[loop.name] = self._item_type(iterable, loop.iterable)
        if expression.condition is not None:
            condition = self._visit(expression.condition, inner)
            self._want(condition, LOGICAL, expression.condition)
        item = self._visit(expression.value, inner)
        return ERROR_TYPE if isinstance(item, ErrorType) else ArrayType(item)

    def _item_type(self, iterable: Inferred, expression: syntax.Expression) -> Inferred:
        if isinstance(iterable, ArrayType):
            return item_type(iterable)
        if isinstance(iterable, ErrorType):
            return ERROR_TYPE
        return self.report(f"this must be an array, but is {iterable}", expression.span)

    def _subscript(self, expression: syntax.Subscript, types: Types) -> Any:
        value = self._visit(expression.value, types)
        index = self._visit(expression.index, types)
        self._want(index, INTEGER, expression.index)
        if isinstance(value, TupleType):
            return self._tuple_item(expression, value)
        if isinstance(value, ArrayType):
            return item_type(value)
        if isinstance(value, ErrorType) or value == STRING:
            return value
        return self.report(f"{value} has no items", expression.value.span)

    def _tuple_item(self, expression: syntax.Subscript, value: TupleType) -> Inferred:
        index = expression.index
        if not isinstance(index, syntax.Literal) or type(index.value) is not int:
            message = "the index of a tuple must be a literal"
            return self.report(message, index.span)
        if not 0 <= index.value < len(value.items):
            count = len(value.items)
            message = (
                f"index {index.value} is out of range: the tuple has {count} items"
            )
            return self.report(message, index.span)
        return value.items[index.value]

    def _range(self, expression: syntax.Range, types: Types) -> Any:
        value = self._visit(expression.value, types)
        for end in (expression.begin, expression.end):
            if end is not None:
                self._want(self._visit(end, types), INTEGER, end)
        if isinstance(value, (ArrayType, ErrorType)) or value == STRING:
            return value
        return self.report(f"{value} has no range of items", expression.value.span)

    def _builtin(self, expression: syntax.Builtin, types: Types) -> Any:
        if expression.name == "shape_of":
            message = "shape_of is deprecated: shapes are not known to the language"
            return self.report(message, expression.span)
        argument = self._visit(expression.argument, types)
        if isinstance(argument, ErrorType):
            return ERROR_TYPE
        found = builtin_type(expression.name, argument)
        if found is not None:
            return found
        message = f"{expression.name} does not apply to {argument}"
        return self.report(message, expression.argument.span)

    def _want(
        self, found: Inferred, wanted: Primitive, expression: syntax.Expression
    ) -> None:
        if not isinstance(found, ErrorType) and found != wanted:
            self.report(f"this must be {wanted}, but is {found}", expression.span)

    # Invocations

    def _invocation(self, invocation: syntax.Invocation, types: Types) -> Any:
        if invocation.name not in self.library:
            near = suggestion(invocation.name, list(self.library))
            message = f"there is no operation '{invocation.name}'{near}"
            self.report(message, invocation.span)
            self._visit_arguments(invocation, types)
            return ERROR_TYPE
        fragment = self.library[invocation.name]
        if self.in_fragment and invocation.name in _NOT_IN_FRAGMENTS:
            message = (
                f"'{invocation.name}' cannot be used in a fragment, only in the graph"
            )
            self.report(message, invocation.span)
        try:
            given = match(fragment, invocation)
        except InvalidGraphError as error:
            self.problems += error.problems
            self._visit_arguments(invocation, types)
            return ERROR_TYPE
        generics = self._generics(fragment, invocation)
        known = len(self.problems)
        for parameter in fragment.parameters:
            if parameter.name in given:
                expression = given[parameter.name].value
                found = self._visit(expression, types)
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
        """Checks that defaults of generic type have the type that the arguments set."""
        for parameter in fragment.parameters:
            default = parameter.default
            if (
                default is None
                or parameter.name in given
                or not is_generic(parameter.type)
            ):
                continue
            if not accepts(self.type_of(default, {}), parameter.type, generics):
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
            self.report("only a variable can be updated", updated.span)

    def _visit_arguments(self, invocation: syntax.Invocation, types: Types) -> Any:
        for argument in invocation.arguments:
            self._visit(argument.value, types)

    def _generics(
        self, fragment: syntax.Fragment, invocation: syntax.Invocation
    ) -> Generics:
        dtype = invocation.dtype
        if dtype is not None and fragment.generic is None:
            self.report(f"'{fragment.name}' takes no data type", invocation.span)
            return Generics()
        if dtype == GENERIC and not self.is_generic:
            message = "the type '?' has a meaning in a generic fragment only"
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

    def _fit(
        self,
        parameter: syntax.Parameter,
        expression: syntax.Expression,
        found: Inferred,
        types: Types,
        generics: Generics,
        fragment: syntax.Fragment,
    ) -> None:
        if accepts(found, parameter.type, generics):
            return
        dtype = generics.dtype
        expected = substitute(parameter.type, dtype) if dtype else parameter.type
        culprit, wanted = self._culprit(expression, expected, types, generics)
        advice = _advice(culprit, wanted)
        message = f"argument '{parameter.name}' of '{fragment.name}' wants {expected}, got {found}"
        self.report(
            f"{message}{advice}", culprit.span, remedy="lenient" if advice else None
        )

    def _culprit(
        self,
        expression: syntax.Expression,
        wanted: Type,
        types: Types,
        generics: Generics,
    ) -> tuple[syntax.Expression, Type]:
        """The innermost written item that does not fit, and the type it should have."""
        while True:
            for item, type_ in _written_items(expression, wanted):
                quiet = ExpressionChecker(self.library)
                quiet.in_fragment = self.in_fragment
                quiet.is_generic = self.is_generic
                if not accepts(quiet.type_of(item, types), type_, generics):
                    expression, wanted = item, type_
                    break
            else:
                return expression, wanted


_VISIT: dict[type, Callable[..., Any]] = {
    syntax.Literal: ExpressionChecker._literal,
    syntax.Identifier: ExpressionChecker._identifier,
    syntax.Array: ExpressionChecker._array,
    syntax.Tuple: ExpressionChecker._tuple,
    syntax.Operator: ExpressionChecker._operator,
    syntax.Conditional: ExpressionChecker._conditional,
    syntax.Comprehension: ExpressionChecker._comprehension,
    syntax.Subscript: ExpressionChecker._subscript,
    syntax.Range: ExpressionChecker._range,
    syntax.Builtin: ExpressionChecker._builtin,
    syntax.Invocation: ExpressionChecker._invocation,
}


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
        # A tuple of another length is reported as a whole if no common item is at
        # fault.
        return list(zip(expression.items, wanted.items, strict=False))
    return []


def _advice(expression: syntax.Expression, wanted: Type) -> str:
    """A correction for a literal that exporters are known to get wrong."""
    if not isinstance(expression, syntax.Literal):
        return ""
    if isinstance(wanted, ArrayType):
        return f": write [{expression.span.text}]"
    is_scalar = wanted in (SCALAR, TensorType("scalar"))
    if is_scalar and type(expression.value) is int:
        return f": write {float(expression.value)}"
    return ""


def item_type(array: ArrayType) -> Inferred:
    """The type of the items of an array; unknown for an empty one."""
    return ERROR_TYPE if array == EMPTY_ARRAY else array.item


def accepts(found: Inferred, wanted: Type, generics: Generics) -> bool:
    """Whether an inferred type fits a declared one; an unknown type always does."""
    return isinstance(found, ErrorType) or is_assignable(found, wanted, generics)


def _join(left: Inferred, right: Inferred) -> Inferred | None:
    if isinstance(left, ErrorType) or isinstance(right, ErrorType):
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
