"""Quantization info of a graph: it belongs to tensors, by name.

    "conv1": linear_quantize(min = 0.0, max = 1.0, bits = 8);

An entry names a tensor of the graph and the operation that its values are meant to have
gone through. It is a hint for who runs the graph: the graph itself is the same without.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnef_grad.graph.ir import Graph, Quantization
from nnef_grad.graph.printer import print_value
from nnef_grad.language.library import standard
from nnef_grad.language.syntax import Value
from nnef_grad.language.types import TensorType, Type


def carry_quantization(
    entries: Mapping[str, Quantization], graph: Graph
) -> dict[str, Quantization]:
    """The entries for tensors that a graph has, in the order of its tensors.

    A tensor of a forward graph has its name in the backward graph too, and the compiler
    gives no other tensor a name of the forward graph: the name tells the tensor.
    """
    return {name: entries[name] for name in graph.tensors if name in entries}


def print_quantization(entries: Mapping[str, Quantization]) -> str:
    """The text of a file of quantization info, an entry a line.

    What is written is a flat graph, without the fragments of the document: an entry
    whose operation is one of them becomes a comment.
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
    """A constant tensor is written as arrays, which only this file has."""
    if isinstance(type_, TensorType) and isinstance(value, tuple):
        return f"[{', '.join(_print(type_, item) for item in value)}]"
    return print_value(type_, value)
