"""The printer: graphs to text. No other module writes NNEF.

Operands are positional, attributes have their keyword, and defaults are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import (
    STOP,
    WORDLESS,
    Graph,
    Operand,
    Operation,
    Quantization,
    Result,
    Tensor,
)
from nnef_grad.graph.loops import is_loop, loop_of, loops_in, with_named_bodies
from nnef_grad.graph.symbols import symbols
from nnef_grad.language.identifiers import are_plain, escaped, is_plain, spelled
from nnef_grad.language.library import STDLIB
from nnef_grad.language.syntax import (
    INDENT,
    WIDTH,
    Fragment,
    Parameter,
    Value,
    literal_value,
)
from nnef_grad.language.types import GENERIC, ArrayType, TupleType, Type

# The names of tensors.
Names = Mapping[Tensor, str]
_NONE: Names = {}
# The names of operations and of parameters, which are few.
_word = lru_cache(1024)(spelled)


def print_graph(graph: Graph, extensions: Sequence[str] = ()) -> str:
    """The text of a flat document, which names the extensions of a dialect. Derivatives are
    under a comment with the forward operation; the body of a loop is a fragment.
    """
    return "\n".join(_document(with_named_bodies(graph), extensions)) + "\n"


def statements(graph: Graph) -> list[str]:
    """The lines of the text that are not empty, without comments."""
    bare = replace(graph, notes=(), facts=())
    lines = [line.strip() for line in print_graph(bare).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def has_standard_text(graph: Graph) -> bool:
    """Whether the standard has words for it: none for symbols, loops, orders, registries,
    names of any text, and ends of other data types.
    """
    own = (op.name in WORDLESS or op.definition.registry for op in graph.operations)
    ends = (*graph.input_names, *graph.output_names)
    is_typed = not graph.datum_types.keys().isdisjoint(ends)
    odd = symbols(graph) or is_typed or any(own)
    return has_plain_names(graph) and not odd and not graph.dialect


def has_plain_names(graph: Graph) -> bool:
    """Whether the standard can spell the names of a graph."""
    # Names that no tensor has any more are among those of the first table, which is there.
    are = are_plain(graph.names.values()) or are_plain(graph.tensors)
    return is_plain(graph.name) and are


def _document(graph: Graph, extensions: Sequence[str]) -> Iterator[str]:
    yield "version 1.0;"
    bodies = {loop.body.name: loop.body for loop in loops_in(graph)}
    fragments = {f.name: f for g in (graph, *bodies.values()) for f in g.fragments}
    declared = [f for f in fragments.values() if f.registry is None]
    if declared or bodies:
        yield "extension KHR_enable_fragment_definitions;"
    yield from (f"extension {extension};" for extension in extensions)
    yield ""
    for fragment in declared:
        yield f"{print_declaration(fragment)};"
        yield ""
    for body in bodies.values():
        yield from _definition("fragment", body, is_body=True)
        yield ""
    yield from _definition("graph", graph)


def _definition(word: str, graph: Graph, *, is_body: bool = False) -> Iterator[str]:
    """A graph, or the body of a loop, whose inputs have no operations there."""
    yield from (f"# {' '.join(note.splitlines())}".rstrip() for note in graph.notes)
    yield from (f"# {line}" for line in _facts(graph) if not is_body)
    names = graph.names
    if not are_plain(names.values()):
        names = {tensor: spelled(name) for tensor, name in names.items()}
    inputs, outputs = (
        [f"{names[t]}: tensor<{t.dtype}>" if is_body else names[t] for t in ends]
        for ends in (graph.inputs, graph.outputs)
    )
    yield from _signature(f"{word} {spelled(graph.name)}", inputs, outputs)
    yield "{"
    operations = graph.operations
    if is_body:
        operations = tuple([op for op in operations if op.name != "external"])
    yield from _statements(operations, names, is_body=is_body)
    yield "}"


def _statements(
    operations: Sequence[Operation], names: Names, *, is_body: bool
) -> Iterator[str]:
    """The assignments in lines, derivatives under what they are the derivative of."""
    printed: dict[Operation, str] = {}
    origin: Operation | None = None
    for operation in operations:
        if operation.origin is not origin:
            origin = operation.origin
            yield ""
            if origin is not None:
                yield _comment(printed.get(origin) or _heading(origin, names))
        if is_loop(operation):
            yield from _loop(operation, names, is_body=is_body)
        else:
            printed[operation] = text = _assignment(operation, names)
            yield f"{INDENT}{text};"


def _facts(graph: Graph) -> list[str]:
    title = "The sizes that the network takes:"
    return [title, *(f"  {fact}" for fact in graph.facts)] if graph.facts else []


def _signature(
    head: str, inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[str]:
    """The signature, wrapped if it is long: real networks have many gradients."""
    line = f"{head}( {', '.join(inputs)} ) -> ( {', '.join(outputs)} )"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{head}("
    yield from _wrap(inputs, INDENT, " )")
    yield "-> ("
    yield from _wrap(outputs, INDENT, " )")


def _wrap(items: Sequence[str], indent: str, end: str) -> list[str]:
    """The items in lines, between commas; no item is broken."""
    lines = [indent]
    for item in items:
        word = f"{item}, " if item is not items[-1] else f"{item}{end}"
        if lines[-1] != indent and len(lines[-1] + word.rstrip()) > WIDTH:
            lines.append(indent)
        lines[-1] += word
    return [line.rstrip() for line in lines]


def print_declaration(fragment: Fragment) -> str:
    """The declaration of an operation, without its body."""
    words = {None: "", GENERIC: "<?>"}
    generic = words.get(fragment.generic, f"<? = {fragment.generic}>")
    parameters = ", ".join(map(_parameter, fragment.parameters))
    results = ", ".join(f"{spelled(r.name)}: {r.type}" for r in fragment.results)
    return (
        f"fragment {spelled(fragment.name)}{generic}( {parameters} ) -> ( {results} )"
    )


def _parameter(parameter: Parameter) -> str:
    declared = f"{spelled(parameter.name)}: {parameter.type}"
    if parameter.default is None:
        return declared
    default = print_value(parameter.type, literal_value(parameter.default))
    return f"{declared} = {default}"


def print_operation(operation: Operation, names: Names) -> str:
    """An assignment, without the semicolon."""
    if is_loop(operation):
        lines = _loop(operation, names, is_body=False)
        return " ".join([line.strip() for line in lines]).removesuffix(";")
    return _assignment(operation, names)


def _assignment(operation: Operation, names: Names) -> str:
    arguments = _operands(operation, names)
    if operation.attributes:
        arguments += _attributes(operation, names)
    results = ", ".join([_result(result, names) for result in operation.results])
    word = "copy" if operation.name == STOP else operation.name
    return f"{results} = {_word(word)}{_dtype(operation)}({', '.join(arguments)})"


# ---- Loops ----


def _loop(operation: Operation, names: Names, *, is_body: bool) -> Iterator[str]:
    """A loop in lines. One within a loop keeps no states between steps."""
    *others, last = [names[tensor] for tensor in operation.outputs]
    yield from _wrap([*others, f"{last} = {_call_of_loop(operation)},"], INDENT, "")
    *arguments, end = (
        _wrap([f"{name} = [{', '.join(items[:1])}", *items[1:]], 2 * INDENT, "]")
        for name, items in _lists(operation, names).items()
    )
    if is_body:
        arguments.append(end)
        end = [f"{2 * INDENT}reset_every_turn = true"]
    for lines in arguments:
        yield from (*lines[:-1], f"{lines[-1]},")
    yield from (*end[:-1], f"{end[-1]});")


def _call_of_loop(operation: Operation) -> str:
    body = print_string(loop_of(operation).body.name)
    return f"{operation.name}(body = {body}"


def _lists(operation: Operation, names: Names) -> dict[str, list[str]]:
    """The other arguments of a loop: what enters its body, and what becomes of it."""
    loop = loop_of(operation)
    own = {t: print_string(name) for t, name in loop.body.names.items()}
    pairs = zip(loop.body.inputs, operation.inputs, strict=True)
    bound = {t: f"{own[t]}, {names[operand]}" for t, operand in pairs}
    scanned = zip(loop.parts, loop.scanned, strict=True)
    states = zip(loop.state_inputs, loop.next_values, strict=True)
    parts = zip(loop.made[loop.states :], loop.collected, strict=True)
    return {
        "scan": [
            f"({bound[t]}, {along.axis}, {along.direction})" for t, along in scanned
        ],
        "full": [f"({bound[t]})" for t in loop.full],
        "state": [f"({bound[t]}, {own[new]})" for t, new in states],
        "output": [
            *(f"({own[t]}, 'last', 0, 1)" for t in loop.next_values),
            *(f"({own[t]}, 'full', {w.axis}, {w.direction})" for t, (_, w) in parts),
        ],
    }


def _heading(operation: Operation, names: Names) -> str:
    """The operation that others are the derivative of."""
    if is_loop(operation):
        first = names[operation.outputs[0]]
        return f"{first}, ... = {_call_of_loop(operation)}, ...)"
    return print_operation(operation, names)


def _comment(text: str) -> str:
    """A line of comment; a name may have line ends."""
    return f"{INDENT}# {text if text.isprintable() else ' '.join(text.splitlines())}"


# ---- Operands and attributes ----


def _result(result: Result, names: Names) -> str:
    if isinstance(result, tuple):
        return f"[{', '.join([names[tensor] for tensor in result])}]"
    return names[result]


def _dtype(operation: Operation) -> str:
    """The data type, if it is neither the declared default nor deduced."""
    definition, dtype = operation.definition, operation.dtype
    is_known = definition.deduces_dtype or definition.generic in (None, dtype)
    return "" if is_known else f"<{dtype}>"


def _operands(operation: Operation, names: Names) -> list[str]:
    operands = operation.operands
    if operation.inputs == operands:
        # Most operations have tensors alone.
        return [names[tensor] for tensor in operation.inputs]
    pairs = list(zip(operation.definition.operands, operands, strict=True))
    while pairs and _is_default(operation, pairs[-1][0].name, pairs[-1][1]):
        pairs.pop()
    return [print_value(p.type, operand, names) for p, operand in pairs]


def _attributes(operation: Operation, names: Names) -> list[str]:
    settings = operation.settings
    return [
        f"{_word(p.name)} = {print_value(p.type, settings[p.name], names)}"
        for p in operation.definition.attributes
        if not _is_default(operation, p.name, settings[p.name])
    ]


def _is_default(operation: Operation, name: str, value: Operand | Value) -> bool:
    """Whether a value is the default. `repr` distinguishes 1, 1.0, True, 0.0 and -0.0."""
    defaults = operation.definition.defaults
    if name not in defaults:
        return False
    default = defaults[name]
    return default is value or repr(default) == repr(value)


def print_value(type_: Type, value: Operand | Value, names: Names = _NONE) -> str:
    """A tensor's name, or a literal; the type distinguishes arrays from tuples."""
    if literal := _LITERALS.get(type(value)):
        return literal(value)
    if isinstance(value, Tensor):
        return names[value]
    assert isinstance(value, (tuple, list))
    if isinstance(type_, TupleType):
        pairs = zip(type_.items, value, strict=True)
        return f"({', '.join([print_value(*pair, names) for pair in pairs])})"
    # A constant tensor is nested arrays, in quantization info and in tract's dialect.
    item_type = type_.item if isinstance(type_, ArrayType) else type_
    return f"[{', '.join([print_value(item_type, item, names) for item in value])}]"


def print_string(value: str) -> str:
    """A string literal, with escapes only where the other quotes do not help."""
    if "'" in value and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f"'{escaped(value)}'"


_LITERALS: Mapping[type, Callable[[Any], str]] = {
    int: repr,
    float: repr,
    bool: lambda value: "true" if value else "false",
    str: print_string,
    Extent: str,
}


# ---- Quantization info ----
#
#     "conv1": linear_quantize(min = 0.0, max = 1.0, bits = 8);
#
# An entry names a tensor of the graph and the operation that quantizes its values. It is
# a hint for the runtime, and does not change the meaning of the graph.


def print_quantization(entries: Mapping[str, Quantization]) -> str:
    """A file of quantization info. Entries of a document's fragments are comments."""
    return "".join(f"{_entry(entry)}\n" for entry in entries.values())


def _entry(entry: Quantization) -> str:
    operation = entry.operation
    arguments = ", ".join(
        f"{p.name} = {print_value(p.type, entry.attributes[p.name])}"
        for p in operation.parameters[1:]
    )
    tensor = entry.tensor
    key = f'"{tensor}"' if is_plain(tensor) else spelled(tensor)
    line = f"{key}: {operation.name}({arguments});"
    return line if operation.name in STDLIB else f"# {line}"
