"""The printer: graphs to text. No other module writes NNEF.

Operands are positional, attributes have their keyword, and defaults are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.symbols import symbols
from nnef_grad.language.lexical import INDENT, WIDTH
from nnef_grad.language.syntax import Fragment, Parameter, Value, literal_value
from nnef_grad.language.types import GENERIC, ArrayType, TupleType, Type


def print_graph(graph: Graph) -> str:
    """The text of a flat document.

    The operations of a derivative are grouped under a comment that shows the forward
    operation.
    """
    return "\n".join(_document(graph)) + "\n"


def is_of_dialect(graph: Graph) -> bool:
    """Whether the text of a graph is a document of tract's dialect: it has symbols, or
    operations of tract's registries.
    """
    return bool(symbols(graph)) or any(f.registry for f in graph.fragments)


def _document(graph: Graph) -> Iterator[str]:
    yield "version 1.0;"
    declared = [f for f in graph.fragments if f.registry is None]
    if declared:
        yield "extension KHR_enable_fragment_definitions;"
    for registry in sorted({f.registry for f in graph.fragments if f.registry}):
        yield f"extension tract_registry {registry};"
    for symbol in symbols(graph):
        yield f"extension tract_symbol {symbol};"
    yield ""
    for fragment in declared:
        yield f"{print_declaration(fragment)};"
        yield ""
    yield from (f"# {note}".rstrip() for note in graph.notes)
    yield from _signature(graph)
    yield "{"
    origin: Operation | None = None
    for operation in graph.operations:
        if operation.origin is not origin:
            origin = operation.origin
            yield ""
            if origin is not None:
                yield f"{INDENT}# {print_operation(origin)}"
        yield f"{INDENT}{print_operation(operation)};"
    yield "}"


def _signature(graph: Graph) -> Iterator[str]:
    """The signature of the graph, wrapped if it is long: real networks have many
    gradients.
    """
    inputs, outputs = _names(graph.inputs), _names(graph.outputs)
    line = f"graph {graph.name}( {inputs} ) -> ( {outputs} )"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"graph {graph.name}("
    yield from _wrap(f"{inputs} )")
    yield "-> ("
    yield from _wrap(f"{outputs} )")


def _wrap(words: str) -> list[str]:
    lines = wrap(words, WIDTH - len(INDENT), break_long_words=False)
    return [INDENT + line for line in lines]


def print_declaration(fragment: Fragment) -> str:
    """The declaration of an operation, without its body."""
    generic = {None: "", GENERIC: "<?>"}.get(
        fragment.generic, f"<? = {fragment.generic}>"
    )
    parameters = ", ".join(map(_parameter, fragment.parameters))
    results = ", ".join(f"{r.name}: {r.type}" for r in fragment.results)
    return f"fragment {fragment.name}{generic}( {parameters} ) -> ( {results} )"


def _parameter(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"{parameter.name}: {parameter.type}"
    default = print_value(parameter.type, literal_value(parameter.default))
    return f"{parameter.name}: {parameter.type} = {default}"


def print_operation(operation: Operation) -> str:
    """An assignment, without the semicolon."""
    results = ", ".join(map(_result, operation.results))
    arguments = ", ".join((*_operands(operation), *_attributes(operation)))
    return f"{results} = {operation.name}{_dtype(operation)}({arguments})"


def _names(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(t.name for t in tensors)


def _result(result: Tensor | tuple[Tensor, ...]) -> str:
    return f"[{_names(result)}]" if isinstance(result, tuple) else result.name


def _dtype(operation: Operation) -> str:
    """The explicit data type, if it is neither the default of the declaration nor
    deduced from an operand.
    """
    definition, dtype = operation.definition, operation.dtype
    is_known = definition.deduces_dtype or definition.generic in (None, dtype)
    return "" if is_known else f"<{dtype}>"


def _operands(operation: Operation) -> Iterator[str]:
    definition = operation.definition
    given = list(zip(definition.operands, operation.operands, strict=True))
    while given and _is_default(operation, given[-1][0].name, given[-1][1]):
        given.pop()
    for parameter, operand in given:
        yield print_value(parameter.type, operand)


def _attributes(operation: Operation) -> Iterator[str]:
    for parameter in operation.definition.attributes:
        value = operation.settings[parameter.name]
        if not _is_default(operation, parameter.name, value):
            yield f"{parameter.name} = {print_value(parameter.type, value)}"


def _is_default(operation: Operation, name: str, value: Operand | Value) -> bool:
    """Whether a value is the default. `repr` distinguishes 1, 1.0, True, 0.0 and -0.0."""
    defaults = operation.definition.defaults
    return name in defaults and repr(defaults[name]) == repr(value)


def print_value(type_: Type, value: Operand | Value) -> str:
    """A tensor's name, or a literal; the type distinguishes arrays from tuples."""
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, tuple) and isinstance(type_, ArrayType):
        return f"[{', '.join(print_value(type_.item, item) for item in value)}]"
    if isinstance(value, tuple):
        assert isinstance(type_, TupleType)
        pairs = zip(type_.items, value, strict=True)
        return f"({', '.join(print_value(*pair) for pair in pairs)})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return print_string(value)
    return repr(value)


def print_string(value: str) -> str:
    """A string literal, with escapes only where the other quotes do not help."""
    if "'" in value and '"' not in value and "\\" not in value:
        return f'"{value}"'
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
