"""Repairs what real exporters write and the standard forbids, and says so.

    y = sum_reduce(x, [0]);             an attribute without its keyword
    y = sum_reduce(x, axes = 0);        one value where an array is wanted
    y = add(x, 2);                      an integer where a scalar is wanted
    y = pad(x, padding = [[1, 1]]);     an array where a tuple is wanted
    y = conv(x, w, b);                  a bias of shape [C], where b has rank 1
    y = prelu(x, a);                    slopes of shape [1, 1, C] in place of [1, C]
    y = transpose(x);                   all axes in reverse order

The first four are repaired in the syntax, before it is checked; the others need shapes, and
are repaired where the operation is made. What comes out is strictly standard.

What the standard allows, but means something else than the exporter's source, are statements
of fragments that Khronos' converter of ONNX writes, the same in every document: MISTAKES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from nnef_grad.base.errors import InvalidGraphError, Problem, bounded_nesting
from nnef_grad.base.source import NOWHERE, Source, Span
from nnef_grad.emit.arguments import Call
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Tensor, shape_of
from nnef_grad.language import syntax, types
from nnef_grad.language.library import Library, with_fragments
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.types import SCALAR, ArrayType, TensorType, TupleType, Type
from nnef_grad.ops.traits import BIASED

Body = tuple[syntax.Assignment, ...]


class Mistake(NamedTuple):
    """A statement of an exporter's fragment, and the one that was meant."""

    fragment: str
    written: str
    meant: str
    why: str

    def statement(self, text: str) -> syntax.Assignment:
        """The statement that a text is."""
        head = f"fragment {self.fragment}( x: tensor<scalar> ) -> ( y: tensor<scalar> )"
        (fragment,) = parse_fragments(Source("", f"{head} {{ {text}; }}"))
        (statement,) = fragment.body or ()
        return statement


MISTAKES = (
    Mistake(
        "lstm_step",
        "[i, f, g, o] = split(z, axis = 1, ratios = [1, 1, 1, 1])",
        "[i, o, f, g] = split(z, axis = 1, ratios = [1, 1, 1, 1])",
        "an LSTM of ONNX has its gates in another order",
    ),
    Mistake(
        "space_to_depth",
        "y = reshape(t, axis_start = 1, axis_count = 1, shape = [-1])",
        "y = reshape(t, axis_start = 1, axis_count = 3, shape = [-1])",
        "SpaceToDepth of ONNX returns as many axes as it gets",
    ),
)


def corrected(
    document: syntax.Document, told: list[Problem], *, is_asked: bool
) -> syntax.Document:
    """The document with what was meant in place of MISTAKES, and a warning each: that it is
    read so, if it is asked for, otherwise that it should be.
    """

    def fragment(own: syntax.Fragment) -> syntax.Fragment:
        mistakes = [m for m in MISTAKES if m.fragment == own.name]
        return (
            own if own.body is None else replace(own, body=(*body(own.body, mistakes),))
        )

    def body(statements: Body, mistakes: list[Mistake]) -> Iterator[syntax.Assignment]:
        for statement in statements:
            found = [m for m in mistakes if m.statement(m.written) == statement]
            for mistake in found:
                read = f"read as {mistake.meant}", statement.span
                asked = (
                    f"{mistake.why}: write {mistake.meant}",
                    statement.span,
                    "lenient",
                )
                told.append(Problem(*(read if is_asked else asked)))
            yield found[0].statement(found[0].meant) if found else statement

    return replace(document, fragments=tuple(map(fragment, document.fragments)))


def repair(document: syntax.Document) -> tuple[syntax.Document, list[Problem]]:
    """The document with the arguments of its invocations repaired, and what its fragments
    mean corrected, and a warning each.
    """
    repair = _Repair(with_fragments(document.fragments))
    document = corrected(document, repair.problems, is_asked=True)
    graph = replace(document.graph, body=repair.body(document.graph.body))
    fragments = tuple(
        f if f.body is None else replace(f, body=repair.body(f.body))
        for f in document.fragments
    )
    return replace(document, graph=graph, fragments=fragments), repair.problems


class _Repair:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.problems: list[Problem] = []

    def body(self, statements: Body) -> Body:
        repaired = []
        for statement in statements:
            with bounded_nesting(statement.span):
                repaired.append(replace(statement, value=self._visit(statement.value)))
        return tuple(repaired)

    def _visit(self, expression: syntax.Expression) -> Any:
        if not isinstance(expression, syntax.Invocation):
            return expression
        fragment = self.library.get(expression.name)
        if fragment is None:
            return expression
        types_ = {p.name: p.type for p in fragment.parameters}
        dtype = expression.dtype or fragment.generic or types.GENERIC
        arguments: list[syntax.Argument] = []
        for position, argument in enumerate(expression.arguments):
            named = self._named(fragment, position, argument)
            if isinstance(named, syntax.Keyword):
                value = self._value(types_.get(named.name), named.value, dtype)
                arguments.append(replace(named, value=value))
            else:
                (type_,) = [*types_.values()][position : position + 1] or (None,)
                arguments.append(self._value(type_, named, dtype))
        if expression.name == "transpose" and len(arguments) == 1:
            arguments.append(syntax.Keyword("axes", _REVERSED, span=expression.span))
        return replace(expression, arguments=tuple(arguments))

    def _value(self, type_: Type | None, value: syntax.Expression, dtype: str) -> Any:
        """The value for a parameter of a type, if there is one."""
        value = self._visit(value)
        if type_ is None:
            return value
        return self._fitted(types.bind_generic(type_, dtype), value)

    def _named(
        self, fragment: syntax.Fragment, position: int, argument: syntax.Argument
    ) -> syntax.Argument:
        """An attribute gets its keyword."""
        tensors, parameters = len(fragment.operands), fragment.parameters
        is_misplaced = tensors <= position < len(parameters)
        if isinstance(argument, syntax.Keyword) or not is_misplaced:
            return argument
        name = parameters[position].name
        self._report(f"read as {name} = {argument.span.text}", argument.span)
        return syntax.Keyword(name, argument, span=argument.span)

    def _fitted(self, type_: Type, value: syntax.Expression) -> syntax.Expression:
        """One value becomes an array, an integer becomes a scalar, in arrays too."""
        if isinstance(type_, ArrayType) and isinstance(value, syntax.Literal):
            self._report(f"read as [{value.span.text}]", value.span)
            return syntax.Array((self._fitted(type_.item, value),), span=value.span)
        if isinstance(type_, ArrayType) and isinstance(value, syntax.Array):
            items = tuple(self._fitted(type_.item, item) for item in value.items)
            return replace(value, items=items)
        if isinstance(type_, TupleType) and isinstance(value, syntax.Array):
            parts = tuple(value.items)
            self._report(
                f"read as ({', '.join(p.span.text for p in parts)})", value.span
            )
            return syntax.Tuple(parts, span=value.span)
        is_integer = isinstance(value, syntax.Literal) and type(value.value) is int
        if is_integer and type_ in (SCALAR, TensorType("scalar")):
            assert isinstance(value, syntax.Literal)
            self._report(f"read as {float(value.value)}", value.span)
            return replace(value, value=float(value.value))
        return value

    def _report(self, message: str, span: Span) -> None:
        self.problems.append(Problem(message, span))


# What no document says of axes.
_REVERSED = syntax.Array((syntax.Literal(-1, span=NOWHERE),), span=NOWHERE)


def repair_call(
    emitter: Emitter, call: Call, span: Span, repairs: list[Problem]
) -> Call:
    """A call with its last operand, a bias or slopes, along the channels; or with the axes
    that it does not say.
    """
    if call.definition.name == "transpose" and call.attributes["axes"] == (-1,):
        axes = tuple(reversed(range(len(shape_of(call.operands[0])))))
        repairs.append(Problem(f"read as axes = {list(axes)}", span))
        return call._replace(attributes={"axes": axes})
    *others, row = call.operands or (None,)
    if not isinstance(row, Tensor):
        return call
    if call.definition.name in BIASED and row.rank == 1 and row.shape != (1,):
        name, what, word = "unsqueeze", "bias", "is"
    elif are_misplaced_slopes(call):
        name, what, word = "squeeze", "slopes", "are"
    else:
        return call
    new = emitter(name, row, axes=[0], hint=f"{emitter.called(row)}_row")
    shapes = f"{list(row.shape)} {word} read as {list(new.shape)}"
    repairs.append(Problem(f"the {what} of shape {shapes}", span))
    return call._replace(operands=(*others, new))


def are_misplaced_slopes(call: Call) -> bool:
    """Whether it has slopes [1, 1, C] for C channels, as Khronos' converter of TFLite writes."""
    if call.definition.name != "prelu":
        return False
    x, slopes = map(shape_of, call.operands)
    return len(x) > 2 and slopes != (1, 1, 1) and slopes == (1, 1, x[1])


def refuse_misplaced(call: Call, span: Span) -> None:
    """Raises an error at slopes that do not fit, and would along the channels."""
    x, slopes = (
        (*map(shape_of, call.operands),) if are_misplaced_slopes(call) else ((), ())
    )
    if slopes and x[2] not in (1, slopes[2]):
        must = f"the slopes must have the shape [1, {x[1]}], but have the shape"
        raise InvalidGraphError(f"{must} {list(slopes)}", span, remedy="lenient")
