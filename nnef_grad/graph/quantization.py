"""Quantization info of a graph, by the names of tensors.

    "conv1": linear_quantize(min = 0.0, max = 1.0, bits = 8);

An entry names a tensor of the graph and the operation that quantizes its values. It is
a hint for the runtime, and does not change the meaning of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnef_grad.graph.ir import Graph, Quantization
from nnef_grad.graph.printer import print_value
from nnef_grad.language.library import standard
from nnef_grad.language.syntax import Value
from nnef_grad.language.types import TensorType, Type

# The operations whose codes are numbers of even steps.
LINEAR = frozenset(f"{name}linear_quantize" for name in ("", "min_max_", "zero_point_"))


def carry_quantization(
    entries: Mapping[str, Quantization], graph: Graph
) -> dict[str, Quantization]:
    """The entries for tensors of a graph: forward tensors keep their names."""
    names = graph.tensors if entries else ()
    return {name: entries[name] for name in names if name in entries}


def print_quantization(entries: Mapping[str, Quantization]) -> str:
    """The text of a file of quantization info, one entry per line. Beside a flat graph are no
    fragments of the document: an entry whose operation is one of them becomes a comment.
    """
    return "".join(f"{_line(entry)}\n" for entry in entries.values())


def _line(entry: Quantization) -> str:
    operation = entry.operation
    arguments = ", ".join(
        f"{p.name} = {_print(p.type, entry.attributes[p.name])}"
        for p in operation.parameters[1:]
    )
    line = f'"{entry.tensor}": {operation.name}({arguments});'
    return line if operation.name in standard() else f"# {line}"


def _print(type_: Type, value: Value) -> str:
    """A literal; a constant tensor is written as nested arrays, in these files only."""
    if isinstance(type_, TensorType) and isinstance(value, tuple):
        return f"[{', '.join(_print(type_, item) for item in value)}]"
    return print_value(type_, value)
