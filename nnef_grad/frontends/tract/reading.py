"""A document of tract's dialect to a graph of standard operations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nnef_grad.base.errors import (
    InvalidGraphError,
    NnefGradError,
    Problem,
    brief,
    nested_too_deeply,
    refuse_unknown,
)
from nnef_grad.base.source import Source
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import NoValueError, hint_of, unpack
from nnef_grad.frontends.tract import operations as _operations  # noqa: F401
from nnef_grad.frontends.tract.datum_types import result_types
from nnef_grad.frontends.tract.evaluation import (
    DocumentReading,
    Given,
    symbol_names,
)
from nnef_grad.frontends.tract.library import builtin
from nnef_grad.frontends.tract.operations.inputs import DTYPES, OWN
from nnef_grad.frontends.values import described, dtype_of, is_known
from nnef_grad.graph.atoms import LONGEST_AXIS
from nnef_grad.graph.facts import Facts
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.learning import facts_learned, with_facts
from nnef_grad.graph.modules import path_of_node
from nnef_grad.language import syntax
from nnef_grad.language.check_document import EXTENSIONS, version_problems
from nnef_grad.language.library import STDLIB, Joined
from nnef_grad.language.parser import parse_document
from nnef_grad.language.typecheck import identifiers
from nnef_grad.ops.registry import OpSet

PROPERTIES = "tract_core_properties"
_EXTERNALS = ("external", "tract_core_external")


def read_graph(
    source: Source, opset: OpSet, given: Given
) -> tuple[Graph, syntax.Document]:
    """The graph of a document, and its syntax tree; all problems are reported at once."""
    header = _header(source)
    document = parse_document(source, header.text, extended=True)
    problems = list(version_problems(document))
    if problems:
        raise InvalidGraphError.collect(problems)
    # tract takes a name in the shape of an input for a symbol too.
    called = symbol_names(header.symbols)
    opened = (symbol.name for *_, symbol in _open_extents(document.graph))
    symbols = header.symbols.union(called.get(name, name) for name in opened)
    refuse_unknown(given.symbols, symbols, "the document has no symbol")
    bodiless = [f for f in document.fragments if f.body is None]
    numbers = {**dict.fromkeys(symbols), **_symbols(document, given, called)}

    def read_with(facts: Facts) -> Graph:
        for name in sorted(symbols):
            if numbers.get(name) is None:
                facts.symbol(name, *header.ranges.get(name, ()))
        emitter = Emitter(opset.extended(bodiless))
        reading = DocumentReading(emitter, document, numbers, given)
        reading.warnings += [
            Problem(f"extension '{extension.name}' is ignored", extension.span)
            for extension in document.extensions
            if extension.name not in EXTENSIONS
        ]
        return _GraphBody(document, reading).graph()

    graph = with_facts(read_with)
    notes = (*header.notes, *_properties(document))
    return replace(graph, notes=notes), document


def _properties(document: syntax.Document) -> Iterator[str]:
    for fragment in document.fragments:
        for statement in fragment.body or () if fragment.name == PROPERTIES else ():
            items = getattr(statement.value, "items", ())
            yield from (f"{PROPERTIES}: {_pair(item)}" for item in items)


def _pair(item: syntax.Expression) -> str:
    words = [getattr(part, "value", part.span.text) for part in item.items]  # type: ignore[union-attr]
    return " = ".join("".join(filter(str.isprintable, str(word))) for word in words)


# ---- Extension lines: the grammar of the standard does not have all of them ----

# Where tract says that it wrote the document.
_SIGNED = re.compile(r"^\s*fragment\s+tract_core_properties\b", re.MULTILINE)
# A comment, or a line that is none.
_LINE = re.compile(
    r"#.*|(?:^|(?<=;))[ \t]*extension\s+(tract_\w+)\b([^;]*);", re.MULTILINE
)


# A condition on one symbol.
_RANGE = re.compile(r"(\w+)\s*(>=|<=|>|<)\s*(\d+)")


class _Header(NamedTuple):
    """The symbols of a document, the ranges that are given for them, the other extension
    lines that do not change what it computes, and its text, in which all of them are blank.
    """

    symbols: frozenset[str]
    ranges: Mapping[str, tuple[int, int]]
    notes: tuple[str, ...]
    text: str


def is_tract(text: str) -> bool:
    """Whether a document has an extension line of tract, or says that tract wrote it."""
    is_signed = _SIGNED.search(text) is not None
    return is_signed or any(line[1] for line in _LINE.finditer(text))


def _header(source: Source) -> _Header:
    lines = [
        (line[1], " ".join(line[2].split()))
        for line in _LINE.finditer(source.text)
        if line[1]
    ]
    named = (text for keyword, text in lines if keyword == "tract_symbol")
    symbols = frozenset(" ".join(named).replace(",", " ").split())
    silent = ("tract_symbol", "tract_registry")
    ranges: dict[str, tuple[int, int]] = {}
    for name, comparison, number in (
        c.groups()
        for k, text in lines
        if k == "tract_assert" and (c := _RANGE.fullmatch(text))
    ):
        least, most = ranges.get(name, (1, LONGEST_AXIS - 1))
        limit = int(number) + (comparison == ">") - (comparison == "<")
        is_least = comparison.startswith(">")
        ranges[name] = (
            (max(least, limit), most) if is_least else (least, min(most, limit))
        )
    notes = (f"{keyword} {text}" for keyword, text in lines if keyword not in silent)

    def blank(line: re.Match[str]) -> str:
        return re.sub(r"[^\r\n]", " ", line[0]) if line[1] else line[0]

    return _Header(symbols, ranges, tuple(notes), _LINE.sub(blank, source.text))


# ---- Symbols ----


def _symbols(
    document: syntax.Document, given: Given, called: Mapping[str, str]
) -> dict[str, int]:
    """The numbers of symbols: those that are given, also as extents of inputs."""
    numbers = dict(given.symbols)
    for name, axis, symbol in _open_extents(document.graph):
        extent = given.extents(name, axis)
        if extent is None:
            continue
        own = called.get(symbol.name, symbol.name)
        if numbers.setdefault(own, extent) != extent:
            message = f"'{symbol.name}' is {numbers[own]}, but extent {axis} of"
            raise InvalidGraphError(f"{message} '{name}' is {extent}", symbol.span)
    return numbers


def _open_extents(
    graph: syntax.GraphDefinition,
) -> Iterator[tuple[str, int, syntax.Identifier]]:
    """The names in the shapes of inputs: the input, the axis and the name."""
    for statement in filter(_is_external, graph.body):
        for argument in statement.value.values:  # type: ignore[union-attr]
            items = argument.items if isinstance(argument, syntax.Array) else ()
            for axis, item in enumerate(items):
                if isinstance(item, syntax.Identifier):
                    yield hint_of(statement.target), axis, item


def _is_external(statement: syntax.Assignment) -> bool:
    value = statement.value
    return isinstance(value, syntax.Invocation) and value.name in _EXTERNALS


# ---- The graph ----


class _GraphBody:
    """The statements of a graph. The last tensor that a name is assigned to has the name. A
    statement that fails leaves its names without a value, as in `emit/builder.py`.
    """

    def __init__(self, document: syntax.Document, reading: DocumentReading) -> None:
        self.definition = document.graph
        self.declared = frozenset(f.name for f in document.fragments)
        self.reading = reading
        self.scope: dict[str, Any] = {}
        self.problems: list[Problem] = []
        # The place of the statement that assigns each name last.
        self.last = {
            identifier.name: place
            for place, statement in enumerate(self.definition.body)
            for identifier in identifiers(statement.target)
        }

    def graph(self) -> Graph:
        """The graph, with the names of the document."""
        for place, statement in enumerate(self.definition.body):
            self._run(place, statement)
        self.reading.emitter.module = None
        self._check_interface()
        if self.problems:
            raise InvalidGraphError.collect(self.problems)
        emitter = self.reading.emitter
        outputs = tuple(map(self._output, self.definition.results))
        operations = self._operations(outputs)
        # The name of a known value goes to the constant that it becomes.
        reserved = [n for n, value in self.scope.items() if not is_known(value)]
        inputs = [self.scope[p.name] for p in self.definition.parameters]
        return Graph(
            self.definition.name,
            tuple([x for x in inputs if isinstance(x, Tensor)]),
            outputs,
            operations,
            emitter.assigned_names(operations, [*reserved, *self.declared]),
            declared=self.declared - {*STDLIB},
            warnings=tuple(sorted(self.reading.warnings, key=Problem.position)),
            facts=facts_learned(),
            datum_types={**self.reading.datum_types, **self._of_results(outputs)},
        )

    def _of_results(self, outputs: tuple[Tensor, ...]) -> dict[str, str]:
        """The data types of results that are not those of NNEF."""
        reading = self.reading
        library = Joined(reading.scope_library, builtin())
        found = result_types(reading.document, library, reading.stored_type)
        names = [result.name for result in self.definition.results]
        return {
            name: found[name]
            for name, y in zip(names, outputs, strict=True)
            if found.get(name, "f32") not in OWN and DTYPES[found[name]] == y.dtype
        }

    def _run(self, place: int, statement: syntax.Assignment) -> None:
        names = {i.name for i in identifiers(statement.target)}
        try:
            self._assign(place, statement)
        except NoValueError:
            pass
        except RecursionError:
            self.problems += nested_too_deeply(statement.span).problems
        except NnefGradError as error:
            self.problems += error.problems
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # No types are checked before: an expression of the wrong one is evaluated.
            message = f"this has no value: {type(error).__name__}: {error}"
            self.problems.append(Problem(brief(message), statement.value.span))
        # None are left if nothing has failed.
        self.reading.failed |= names - self.scope.keys()

    def _assign(self, place: int, statement: syntax.Assignment) -> None:
        target = statement.target
        if _is_external(statement):
            self._check_external(statement)
        self.reading.emitter.module = path_of_node(hint_of(target))
        value = self.reading.evaluate(statement.value, self.scope, hint_of(target))
        is_one = isinstance(target, syntax.Identifier)
        if not is_one and not isinstance(value, (list, tuple)):
            what = f"the names expect several results, but this is {described(value)}"
            raise InvalidGraphError(what, target.span)
        for name, part in unpack(target, value):
            if isinstance(part, Tensor) and self.last[name] == place:
                self.reading.emitter.names.setdefault(part, name)
            self.scope[name] = part

    def _check_external(self, statement: syntax.Assignment) -> None:
        inputs = {p.name for p in self.definition.parameters}
        for identifier in identifiers(statement.target):
            name, message = identifier.name, "name it in the signature"
            if name not in inputs:
                what = f"external '{name}' is not an input of the graph: {message}"
                raise InvalidGraphError(what, identifier.span)
            if name in self.scope:
                what = f"'{name}' has a value before it is an external"
                raise InvalidGraphError(what, identifier.span)

    def _check_interface(self) -> None:
        """Inputs and outputs must have values, unless these have failed."""
        advice = "is not defined: give it an external operation"
        for word, ends, what in (
            ("input", self.definition.parameters, advice),
            ("output", self.definition.results, "is not assigned"),
        ):
            for end in ends:
                if end.name not in self.scope and end.name not in self.reading.failed:
                    message = f"{word} '{end.name}' of the graph {what}"
                    self.problems.append(Problem(message, end.span))

    def _output(self, result: syntax.Identifier) -> Tensor:
        """An output, which must have its name: a copy if the tensor has another one."""
        value = self.scope[result.name]
        if not isinstance(value, Tensor) and not is_known(value):
            message = f"output '{result.name}' of the graph is not a tensor"
            raise InvalidGraphError(message, result.span)
        dtype = dtype_of(value)
        value = self.reading.materialize(value, dtype, result.name, result.span)
        tensor = self.reading.emitter.pin_name(value, result.name)
        self.scope[result.name] = tensor
        return tensor

    def _operations(self, outputs: Collection[Tensor]) -> tuple[Operation, ...]:
        """The operations without the variables that were read as numbers only."""
        operations = self.reading.emitter.operations
        used = {tensor for op in operations for tensor in op.inputs}
        gone = self.reading.numbers.difference(used, outputs)
        return tuple([op for op in operations if gone.isdisjoint(op.outputs)])
