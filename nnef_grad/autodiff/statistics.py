"""The static costs of a graph: operations, multiply-adds, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.split import Split
from nnef_grad.base.public import public
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.graph.printer import print_operation
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.ops.costs import (
    byte_size,
    byte_text,
    bytes_moved,
    count_text,
    memory_alive,
    memory_held,
    multiply_adds,
    views_of,
)
from nnef_grad.ops.traits import FED


@dataclass(frozen=True)
class OperationCost:
    """The cost of an operation.

    Attributes:
        operation: its name.
        result: the name of its first result.
        shape: the shape of that.
        multiply_adds: how many it takes; see `nnef_grad.ops.costs`.
        bytes_moved: how many bytes it reads and writes.
        bytes_alive: how many bytes are alive while it runs, besides those of the inputs
            and variables.
    """

    operation: str
    result: str
    shape: Shape
    multiply_adds: int
    bytes_moved: int
    bytes_alive: int


@dataclass(frozen=True)
class Statistics:
    """The costs of a graph, computed from its shapes. Numbers take 4 bytes, truth
    values 1.

    Attributes:
        name: the name of the graph.
        operations: how many operations it has, as written.
        parameters: how many elements its variables have.
        multiply_adds: the products and sums of its convolutions, matrix products,
            windows and reductions; see `nnef_grad.ops.costs`.
        input_bytes: the bytes of its inputs.
        variable_bytes: the bytes of its variables.
        activation_bytes: the bytes of all tensors that it computes.
        peak_bytes: the most of them that are alive at a time, if each is dropped after
            its last use and the outputs are kept; see `nnef_grad.ops.costs`.
        by_operation: the operations that compute something, in order.
        uncounted: the user's own operations, which are not counted.
    """

    name: str
    operations: int
    parameters: int
    multiply_adds: int
    input_bytes: int
    variable_bytes: int
    activation_bytes: int
    peak_bytes: int
    by_operation: tuple[OperationCost, ...]
    uncounted: tuple[str, ...] = ()

    def as_data(self, *, by_operation: bool = True) -> dict[str, Any]:
        """The statistics as plain data, for programs."""
        data = asdict(self if by_operation else replace(self, by_operation=()))
        if not by_operation:
            del data["by_operation"]
        return data

    def __str__(self) -> str:
        """A table with a line for each number."""
        return side_by_side([self])


@public
def statistics(graph: Graph | Backward) -> Statistics:
    """The costs of a graph or a backward graph, computed from its shapes.

    Raises:
        InvalidGraphError: an extent has no number.
    """
    flat = graph.graph if isinstance(graph, Backward) else graph
    refuse_symbols(flat, "statistics cannot count")
    views = views_of(flat)
    computed = [t for op in flat.operations if op.name not in FED for t in op.outputs]
    alive = memory_alive(flat, byte_size, kept=flat.outputs)
    costs = []
    for op, bytes_alive in zip(flat.operations, alive, strict=True):
        if op.name not in FED:
            result, numbers = op.outputs[0], (multiply_adds(op), bytes_moved(op))
            name, shape = flat.names[result], result.shape
            costs.append(OperationCost(op.name, name, shape, *numbers, bytes_alive))
    return Statistics(
        flat.name,
        len(flat.operations),
        sum(prod(as_numbers(variable.shape)) for variable in flat.variables),
        sum(cost.multiply_adds for cost in costs),
        sum(map(byte_size, flat.inputs)),
        sum(map(byte_size, flat.variables)),
        sum(byte_size(tensor) for tensor in computed if tensor not in views),
        max((cost.bytes_alive for cost in costs), default=0),
        tuple(costs),
        tuple(f.name for f in flat.fragments if f.registry is None),
    )


@dataclass(frozen=True)
class SplitCosts:
    """The joint costs of two halves, computed from their shapes.

    Attributes:
        saved_bytes: the bytes that the first half passes to the second, including
            outputs.
        peak_bytes: the most bytes that are alive at a time in either half, besides
            inputs and variables; the second half drops a saved tensor after its last
            use.
        multiply_adds_added: those that the second half repeats.
    """

    saved_bytes: int
    peak_bytes: int
    multiply_adds_added: int

    def __str__(self) -> str:
        """A line."""
        saved, peak = map(byte_text, (self.saved_bytes, self.peak_bytes))
        added = f"multiply-adds added: {count_text(self.multiply_adds_added)}"
        return f"between the halves: {saved}, peak of both: {peak}, {added}"


@public
def split_costs(halves: Split) -> SplitCosts:
    """The joint costs of two halves.

    Raises:
        InvalidGraphError: an extent has no number.
    """
    first, second = halves.forward, halves.backward
    for half in (first, second):
        refuse_symbols(half, "statistics cannot count")
    saved = second.inputs[: len(halves.saved)]
    held = memory_held(second, byte_size, saved)
    alive = memory_alive(second, byte_size, kept=second.outputs)
    peaks = [
        *memory_alive(first, byte_size, kept=first.outputs),
        *(a + b for a, b in zip(alive, held, strict=True)),
    ]
    # The same statement about the same names computes the same.
    once = {print_operation(op, first.names) for op in first.operations}
    texts = ((op, print_operation(op, second.names)) for op in second.operations)
    added = sum(multiply_adds(op) for op, text in texts if text in once)
    return SplitCosts(sum(map(byte_size, saved)), max(peaks), added)


# ---- Tables ----


_LINES: dict[str, Callable[[Statistics], str]] = {
    "": lambda s: s.name,
    "operations": lambda s: str(s.operations),
    "parameters": lambda s: count_text(s.parameters),
    "multiply-adds": lambda s: count_text(s.multiply_adds),
    "inputs": lambda s: byte_text(s.input_bytes),
    "variables": lambda s: byte_text(s.variable_bytes),
    "activations": lambda s: byte_text(s.activation_bytes),
    "peak of activations": lambda s: byte_text(s.peak_bytes),
}
_COLUMNS: dict[str, Callable[[OperationCost], str]] = {
    "operation": lambda c: c.operation,
    "result": lambda c: c.result,
    "shape": lambda c: str(list(c.shape)),
    "multiply-adds": lambda c: count_text(c.multiply_adds),
    "moved": lambda c: byte_text(c.bytes_moved),
    "alive": lambda c: byte_text(c.bytes_alive),
}


def side_by_side(graphs: Sequence[Statistics]) -> str:
    """A table with a line for each number and a column for each graph."""
    lines = [[label, *map(text, graphs)] for label, text in _LINES.items()]
    unknown = ((g.name, ", ".join(g.uncounted)) for g in graphs if g.uncounted)
    notes = (f"{name}: the costs of {own} are not known" for name, own in unknown)
    return "\n".join([*_aligned(lines, words=1), *notes])


def operation_table(graph: Statistics) -> str:
    """A table with a line for each operation."""
    rows = [[text(cost) for text in _COLUMNS.values()] for cost in graph.by_operation]
    return "\n".join(_aligned([list(_COLUMNS), *rows], words=3))


def _aligned(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """The rows with columns of one width: words to the left, then numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f"{'<' if i < words else '>'}{w}" for i, w in enumerate(widths)]
    return ["  ".join(map(format, row, formats)) for row in rows]
