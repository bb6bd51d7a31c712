"""The type checker: every name is defined, every type fits.

Types follow from declarations alone, so that a document is checked as a whole: even
fragments that are never called, and branches that are not taken. All problems are
reported in one run; a faulty expression has an unknown type, which causes no more
errors.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping
from math import isinf

from nnef_grad.base.errors import (
    MAX_PROBLEMS,
    InvalidGraphError,
    Problem,
    Remedy,
    suggestion,
)
from nnef_grad.base.source import Span
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.matching import match
from nnef_grad.language.types import (
    GENERIC,
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    UNKNOWN,
    ArrayType,
    Generics,
    TensorType,
    TupleType,
    Type,
    builtin_type,
    common_type,
    is_assignable,
    is_generic,
    operator_type,
)

Types = MutableMapping[str, Type]
Visit = Callable[[syntax.Expression], Type]

_PRIMITIVES = {bool: LOGICAL, int: INTEGER, float: SCALAR, str: STRING}
_NOT_IN_FRAGMENTS = ("external", "variable", "update")


class ExpressionChecker:
    """Infers the types of expressions, and collects their problems."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.problems: list[Problem] = []
        # The types of the names that expressions may have.
        self.types: Types = {}
        # The fragment that the expressions are in; None in the graph.
        self.fragment: syntax.Fragment | None = None
        # The variables of the graph.
        self.variables: set[str] = set()
        # The types of the invocations in that fragment or graph which have no problem, by
        # their operations, and the types and parameters of their arguments.
        self.valid: dict[tuple[object, ...], Type] = {}
        # The invocations with a problem, which they report once, by identity.
        self._faulty: dict[int, tuple[syntax.Invocation, Type]] = {}
        # The operations that are known not to be open.
        self._closed: set[str] = set()

    def report(self, message: str, span: Span, remedy: Remedy | None = None) -> Type:
        """Adds a problem, and returns the unknown type of the faulty expression."""
        self.problems.append(Problem(message, span, remedy))
        return UNKNOWN

    def _suggestion(self, name: str, names: Iterable[str]) -> str:
        """A similar known name, for the problems that are shown: the search takes long."""
        is_shown = len(self.problems) < MAX_PROBLEMS
        return suggestion(name, list(names)) if is_shown else ""

    # Expressions

    def type_of(self, expression: syntax.Expression) -> Type:
        """The type of an expression, whose results get names; problems are reported."""
        if isinstance(expression, syntax.Conditional):
            return self._conditional(expression, self._alternative)
        return _VISIT[type(expression)](self, expression)

    def _visit(self, expression: syntax.Expression) -> Type:
        """The type of a part of an expression, whose results have no names."""
        type_ = _VISIT[type(expression)](self, expression)
        if not isinstance(expression, syntax.Invocation):
            return type_
        name = expression.name
        if name == "external":
            message = "external cannot be used in an expression: its result is an input"
        elif isinstance(type_, TupleType) or self.is_open(expression, type_):
            message = f"'{name}' does not return one tensor: name its results"
        else:
            return type_
        return self.report(message, expression.span)

    def _alternative(self, expression: syntax.Expression) -> Type:
        """The type of a branch, whose results get the names that those of the other get."""
        has_names = calls(expression) and getattr(expression, "name", "") != "external"
        return self.type_of(expression) if has_names else self._visit(expression)

    def _want(self, wanted: Type, part: syntax.Expression) -> None:
        """Refuses a part of an expression that is of another type."""
        type_ = self._visit(part)
        if type_ not in (wanted, UNKNOWN):
            self.report(f"this must be {wanted}, but is {type_}", part.span)

    def is_open(self, invocation: syntax.Invocation, type_: Type) -> bool:
        """Whether it returns an array whose length only a primitive operation knows."""
        if not isinstance(type_, ArrayType):
            return False
        pending, seen = [invocation.name], set[str]()
        while pending:
            name = pending.pop()
            fragment = self.library.get(name)
            if fragment is None or name in seen or name in self._closed:
                continue
            if fragment.body is None:
                return True
            seen.add(name)
            results = {r.name for r in fragment.results}
            pending += [
                call.name
                for s in fragment.body
                if results.intersection(i.name for i in identifiers(s.target))
                for call in calls(s.value)
            ]
        self._closed |= seen
        return False

    def _literal(self, expression: syntax.Literal) -> Type:
        value = expression.value
        if type(value) is int and not -(2**31) <= value < 2**31:
            message = f"integer {value} does not fit in 32 bits"
            return self.report(message, expression.span)
        if isinstance(value, float) and isinf(value):
            return self.report("this scalar is too large", expression.span)
        return _PRIMITIVES[type(value)]

    def _identifier(self, expression: syntax.Identifier) -> Type:
        name = expression.name
        if name in self.types:
            return self.types[name]
        advice = self._suggestion(name, self.types)
        if name in ("True", "False"):
            advice = f": write {name.lower()}"
        return self.report(f"'{name}' is not defined{advice}", expression.span)

    def _array(self, expression: syntax.Array) -> Type:
        if isinstance(expression.items, syntax.Numbers):
            item = _type_of_numbers(expression.items.values)
            if item is not None:
                return ArrayType(item)
        joined: Type | None = None
        for part in expression.items:
            item = self._visit(part)
            joined = item if joined is None else common_type(joined, item)
            if joined is None:
                what = "the items of an array must be of one type"
                return self.report(f"{what}, but this is {item}", part.span)
        return ArrayType(UNKNOWN) if joined is None else _array_of(joined)

    def _tuple(self, expression: syntax.Tuple) -> Type:
        items = [self._visit(part) for part in expression.items]
        return UNKNOWN if UNKNOWN in items else TupleType(tuple(items))

    def _operator(self, expression: syntax.Operator) -> Type:
        operands = [self._visit(part) for part in expression.operands]
        if UNKNOWN in operands:
            return UNKNOWN
        type_ = operator_type(expression.symbol, operands)
        if type_ is not None:
            return type_
        kinds = " and ".join(map(str, operands))
        advice = _advice_on_integers(expression, operands)
        message = f"'{expression.symbol}' does not apply to {kinds}{advice}"
        return self.report(message, expression.span)

    def _conditional(
        self, expression: syntax.Conditional, visit: Visit | None = None
    ) -> Type:
        self._want(LOGICAL, expression.condition)
        value, otherwise = map(
            visit or self._visit, (expression.value, expression.otherwise)
        )
        type_ = common_type(value, otherwise)
        if type_ is not None:
            return type_
        message = f"the branches have different types, {value} and {otherwise}"
        return self.report(message, expression.span)

    def _comprehension(self, expression: syntax.Comprehension) -> Type:
        items: Types = {}
        for loop in expression.loops:
            iterable = self._visit(loop.iterable)
            items[loop.name] = UNKNOWN
            if isinstance(iterable, ArrayType):
                items[loop.name] = iterable.item
            elif iterable is not UNKNOWN:
                message = f"this must be an array, but is {iterable}"
                self.report(message, loop.iterable.span)
        outer = self.types
        self.types = ChainMap(items, outer)
        if expression.condition is not None:
            self._want(LOGICAL, expression.condition)
        item = self._visit(expression.value)
        self.types = outer
        return _array_of(item)

    def _subscript(self, expression: syntax.Subscript) -> Type:
        value = self._visit(expression.value)
        self._want(INTEGER, expression.index)
        if isinstance(value, TupleType):
            return self._tuple_item(expression.index, value.items)
        if isinstance(value, ArrayType):
            return value.item
        if value in (STRING, UNKNOWN):
            return value
        return self.report(f"{value} has no items", expression.value.span)

    def _tuple_item(self, index: syntax.Expression, items: tuple[Type, ...]) -> Type:
        if not isinstance(index, syntax.Literal) or type(index.value) is not int:
            return self.report("the index of a tuple must be a literal", index.span)
        if 0 <= index.value < len(items):
            return items[index.value]
        what = f"index {index.value} is out of range"
        return self.report(f"{what}: the tuple has {len(items)} items", index.span)

    def _range(self, expression: syntax.Range) -> Type:
        value = self._visit(expression.value)
        for end in (expression.begin, expression.end):
            if end is not None:
                self._want(INTEGER, end)
        if isinstance(value, ArrayType) or value in (STRING, UNKNOWN):
            return value
        return self.report(f"{value} has no range of items", expression.value.span)

    def _builtin(self, expression: syntax.Builtin) -> Type:
        if expression.name == "shape_of":
            message = "shape_of is deprecated: shapes are not known to the language"
            return self.report(message, expression.span)
        argument = self._visit(expression.argument)
        if argument is UNKNOWN:
            return UNKNOWN
        type_ = builtin_type(expression.name, argument)
        if type_ is not None:
            return type_
        message = f"{expression.name} does not apply to {argument}"
        return self.report(message, expression.argument.span)

    # Invocations

    def _invocation(self, invocation: syntax.Invocation) -> Type:
        name = invocation.name
        if id(invocation) in self._faulty:
            return self._faulty[id(invocation)][1]
        fragment = self.library.get(name)
        if fragment is None:
            near = self._suggestion(name, self.library)
            self.report(f"there is no operation '{name}'{near}", invocation.span)
            return self._visit_arguments(invocation)
        if self.fragment is not None and name in _NOT_IN_FRAGMENTS:
            message = f"'{name}' cannot be used in a fragment, only in the graph"
            self.report(message, invocation.span)
        try:
            names = match(fragment, invocation)
        except InvalidGraphError as error:
            self.problems += error.problems
            return self._visit_arguments(invocation)
        values = dict(zip(names, invocation.values, strict=True))
        if name == "update":
            value = values["variable"]
            variable = value.name if isinstance(value, syntax.Identifier) else None
            if variable not in self.variables:
                self.report("only a variable can be updated", value.span)
        arguments = {
            p: (value, self._argument(fragment, p, value))
            for p, value in values.items()
        }
        call = (name, invocation.dtype, names, *(t for _, t in arguments.values()))
        valid = self.valid.get(call)
        if valid is not None:
            return valid
        count = len(self.problems)
        result = self._call(fragment, invocation, arguments)
        if len(self.problems) == count:
            self.valid[call] = result
        else:
            self._faulty[id(invocation)] = invocation, result
        return result

    def _argument(
        self, fragment: syntax.Fragment, name: str, value: syntax.Expression
    ) -> Type:
        """The type of the argument of a parameter."""
        if isinstance(value, syntax.Identifier):
            if value.name in self.types:
                return self.types[value.name]
            (wanted,) = (p.type for p in fragment.parameters if p.name == name)
            if wanted == STRING:
                advice = f"is not defined: write '{value.name}' in quotes"
                return self.report(f"'{value.name}' {advice}", value.span)
        return self._visit(value)

    def _call(
        self,
        fragment: syntax.Fragment,
        invocation: syntax.Invocation,
        arguments: Mapping[str, tuple[syntax.Expression, Type]],
    ) -> Type:
        """The type of an invocation, from its arguments, with their types, by parameter."""
        name, generics = fragment.name, self._generics(fragment, invocation)
        is_faulty = False
        for p in fragment.parameters:
            if p.name not in arguments:
                continue
            value, type_ = arguments[p.name]
            is_faulty = is_faulty or type_ is UNKNOWN
            if not is_assignable(type_, p.type, generics):
                wanted, is_faulty = generics.bound(p.type), True
                message = (
                    f"argument '{p.name}' of '{name}' must be {wanted}, not {type_}"
                )
                self._report_misfit(message, value, wanted, generics)
        if fragment.generic and generics.dtype is None and is_faulty:
            return UNKNOWN
        self._check_defaults(fragment, arguments, generics, invocation.span)
        if fragment.generic is not None and generics.dtype is None:
            message = f"'{name}' needs a data type: write {name}<scalar>(...)"
            return self.report(message, invocation.span)
        items = tuple(generics.bound(r.type) for r in fragment.results)
        return items[0] if len(items) == 1 else TupleType(items)

    def _visit_arguments(self, invocation: syntax.Invocation) -> Type:
        """Reports the problems of arguments that have no parameters."""
        for value in invocation.values:
            self._visit(value)
        return UNKNOWN

    def _generics(
        self, fragment: syntax.Fragment, invocation: syntax.Invocation
    ) -> Generics:
        dtype = invocation.dtype
        if dtype is not None and fragment.generic is None:
            self.report(f"'{fragment.name}' takes no data type", invocation.span)
            return Generics()
        if dtype == GENERIC and not (self.fragment and self.fragment.generic):
            message = "the type '?' has a meaning in a generic fragment only"
            self.report(message, invocation.span)
        default = fragment.generic if fragment.generic != GENERIC else None
        return Generics(dtype if dtype is not None else default)

    def _report_misfit(
        self, message: str, value: syntax.Expression, wanted: Type, generics: Generics
    ) -> None:
        """Reports an argument that does not fit, at the innermost written item."""
        count = len(self.problems)
        for item, type_ in _written_items(value, wanted):
            item_type = self.type_of(item)
            del self.problems[count:]
            if not is_assignable(item_type, type_, generics):
                self._report_misfit(message, item, type_, generics)
                return
        advice = _advice(value, wanted)
        self.report(message + advice, value.span, "lenient" if advice else None)

    def _check_defaults(
        self,
        fragment: syntax.Fragment,
        arguments: Container[str],
        generics: Generics,
        span: Span,
    ) -> None:
        """Checks that defaults of generic type have the type that the arguments set."""
        for p in fragment.parameters:
            if p.default is None or p.name in arguments or not is_generic(p.type):
                continue
            if not is_assignable(self.type_of(p.default), p.type, generics):
                what = f"the default of '{p.name}' is not {generics.bound(p.type)}"
                self.report(f"{what}: give a value", span)


_VISIT: dict[type, Callable[..., Type]] = {
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


def _type_of_numbers(values: tuple[int | float, ...]) -> Type | None:
    """The type of numbers that are valid and of one type; None for others."""
    kinds = set(map(type, values))
    if kinds == {int} and min(values) >= -(2**31) and max(values) < 2**31:
        return INTEGER
    return SCALAR if kinds == {float} and not any(map(isinf, values)) else None


def _array_of(item: Type) -> Type:
    return UNKNOWN if item is UNKNOWN else ArrayType(item)


def _written_items(
    expression: syntax.Expression, wanted: Type
) -> list[tuple[syntax.Expression, Type]]:
    if isinstance(expression, syntax.Array) and isinstance(wanted, ArrayType):
        return [(item, wanted.item) for item in expression.items]
    if isinstance(expression, syntax.Tuple) and isinstance(wanted, TupleType):
        # A tuple of another length is reported as a whole if no common item is at
        # fault.
        return list(zip(expression.items, wanted.items, strict=False))
    return []


def _advice(expression: syntax.Expression, wanted: Type) -> str:
    """A correction for what exporters are known to get wrong: literals, and arrays for tuples."""
    if isinstance(expression, syntax.Array) and isinstance(wanted, TupleType):
        items = [item.span.text for item in expression.items]
        return f": write ({', '.join(items)})" if len(items) > 1 else ""
    if not isinstance(expression, syntax.Literal):
        return ""
    if isinstance(wanted, ArrayType):
        return f": write [{expression.span.text}]"
    is_scalar = wanted in (SCALAR, TensorType("scalar"))
    if is_scalar and type(expression.value) is int:
        return f": write {float(expression.value)}"
    return ""


def _advice_on_integers(expression: syntax.Operator, operands: list[Type]) -> str:
    """A correction where scalars in the place of integer literals would do."""
    literals, corrected = list[str](), list[Type]()
    for part, type_ in zip(expression.operands, operands, strict=True):
        is_integer = isinstance(part, syntax.Literal) and type_ == INTEGER
        corrected.append(SCALAR if is_integer else type_)
        if isinstance(part, syntax.Literal) and is_integer:
            literals.append(str(float(part.value)))
    if not literals or operator_type(expression.symbol, corrected) is None:
        return ""
    return f": write {' and '.join(literals)}"


def calls(value: syntax.Expression) -> list[syntax.Invocation]:
    """The calls whose results are a value: those of the branches of a conditional."""
    if isinstance(value, syntax.Conditional):
        return [*calls(value.value), *calls(value.otherwise)]
    return [value] if isinstance(value, syntax.Invocation) else []


def identifiers(target: syntax.Expression) -> list[syntax.Identifier]:
    """The names that an assignment defines, in order."""
    names: list[syntax.Identifier] = []
    pending: list[syntax.Expression] = [target]
    while pending:
        part = pending.pop()
        if isinstance(part, syntax.Identifier):
            names.append(part)
        elif isinstance(part, (syntax.Array, syntax.Tuple)):
            pending += [*part.items][::-1]
    return names
