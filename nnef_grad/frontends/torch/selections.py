"""What masks take that depend on data, x[mask]: rows, of which nobody knows how many.

All rows are kept, in their order. What is computed of those that are not taken is of no use, and
does no harm while rows keep apart: until they are put back by the same mask, y[mask] = row, or
summed where it is true. That they do is found out as for the examples of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from nnef_grad.autodiff.examples import find_examples
from nnef_grad.base.errors import NnefGradError, Problem
from nnef_grad.base.source import Span
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.torch.internals import Operator, pytree, schema
from nnef_grad.frontends.torch.nodes import span_of
from nnef_grad.frontends.torch.symbols import is_number_of_data, is_of_data
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import external
from nnef_grad.graph.names import substitute

# The parameters of operations that are shapes.
_SHAPES = ("size", "shape")
OF_DATA = "the shape would depend on input values: use where, or a product"


@dataclass
class Selection:
    """What a mask takes.

    Attributes:
        mask: the mask.
        row: the mask, in a row.
        shape: the shape of the mask.
        span: where it takes something first.
        taken: copies of what it takes of, with the axis of the rows, and the originals.
        ends: what is put back or summed, with the axis of the rows.
    """

    mask: Tensor
    row: Tensor
    shape: tuple[Any, ...]
    span: Span
    taken: dict[Tensor, tuple[int, Any]] = field(default_factory=dict)
    ends: dict[Tensor, int] = field(default_factory=dict)

    def is_of(self, mask: Any) -> bool:
        """Whether it is that of a mask."""
        return self.mask is mask


class Selections:
    """The selections of a program, by the symbols that torch has for their sizes."""

    def __init__(self) -> None:
        self._of: dict[Any, Selection] = {}
        # What rows become where they are put back or summed.
        self._results: set[Tensor] = set()
        # What torch says has a row for each that is taken.
        self._rows: list[tuple[Any, Span]] = []

    def of(self, size: Any) -> Selection | None:
        """The selection whose size it is, in torch."""
        return self._of.get(size.node.expr) if is_number_of_data(size) else None

    def add(self, size: Any, selection: Selection) -> Selection:
        """The selection of a size; an earlier one, if the mask was used before."""
        return self._of.setdefault(size.node.expr, selection)

    def end(self, selection: Selection, rows: Any, axis: int, result: Any) -> None:
        """Notes where rows end, and what they become there."""
        if isinstance(rows, Tensor):
            selection.ends[rows] = axis
        self._results.add(result)

    def note(self, fake: Any, value: Any, span: Span) -> None:
        """Notes a value, if torch says that it has a row for each that is taken."""
        if not self._of:
            return
        if isinstance(fake, (list, tuple)) and isinstance(value, (list, tuple)):
            for pair in zip(fake, value, strict=False):
                self.note(*pair, span)
        elif isinstance(fake, torch.Tensor) and any(map(self._is_of_rows, fake.shape)):
            self._rows.append((value, span))

    # ---- When the program has been read ----

    def problems(
        self, nodes: Sequence[Any], emit: Emitter, outputs: Sequence[Any]
    ) -> Iterator[Problem]:
        """Where rows meet, or are counted."""
        if not self._of:
            return
        yield from self._counted(nodes)
        reached: set[Tensor] = set()
        for selection in self._of.values():
            found = self._reached(selection, emit.operations)
            # What another emitter has emitted is not seen here.
            is_seen = all(map(emit.knows, (*selection.taken, *selection.ends)))
            if (
                not is_seen
                or not reached.isdisjoint(found)
                or not found.isdisjoint(outputs)
            ):
                yield Problem(OF_DATA, selection.span)
                continue
            reached |= found
            try:
                _refuse_meeting(selection, found, emit)
            except NnefGradError as error:
                why = error.message.replace("the examples of the batch", "rows")
                message = f"{OF_DATA}; what it takes is computed row by row: {why}"
                yield Problem(message, error.span or selection.span)
        # As many as are taken, but not made of them, such as ones to count them.
        for value, span in self._rows:
            if not isinstance(value, Tensor) or value not in reached:
                yield Problem(OF_DATA, span)

    def remove_copies(self, emit: Emitter) -> None:
        """Puts originals in place of copies."""
        taken = (s.taken.items() for s in self._of.values())
        originals = {copy: x for items in taken for copy, (_, x) in items}
        kept = (op for op in emit.operations if originals.keys().isdisjoint(op.outputs))
        emit.operations[:] = [substitute(op, originals) for op in kept]
        for copy in originals:
            del emit.names[copy]

    def _reached(
        self, selection: Selection, operations: Sequence[Operation]
    ) -> set[Tensor]:
        """The rows, and what is made of them, until they end."""
        reached = {*selection.taken}
        for operation in operations:
            if not reached.isdisjoint(operation.inputs):
                reached.update(operation.outputs)
                reached -= self._results
        return reached

    def _counted(self, nodes: Sequence[Any]) -> Iterator[Problem]:
        """Where how many rows there are is a number, and no extent."""
        for node in nodes:
            if isinstance(node.target, Operator):
                names = [p.name for p in schema(node.target).arguments]
                given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
                others = [x for name, x in given.items() if name not in _SHAPES]
                leaves = pytree.tree_leaves(others)
                numbers = (getattr(x, "meta", {}).get("val") for x in leaves)
                if any(map(self._is_of_rows, numbers)):
                    yield Problem(OF_DATA, span_of(node))

    def _is_of_rows(self, number: Any) -> bool:
        """Whether a number of torch follows from how many rows there are."""
        if not isinstance(number, (torch.SymInt, torch.SymFloat)):
            return False
        symbols = {x for x in number.node.expr.free_symbols if is_of_data(x)}
        return not symbols.isdisjoint(self._of)


def _refuse_meeting(selection: Selection, reached: set[Tensor], emit: Emitter) -> None:
    """Refuses rows that meet before they end."""
    made = [op for op in emit.operations if not reached.isdisjoint(op.inputs)]
    made = [op for op in made if not reached.isdisjoint(op.outputs)]
    own = {tensor for op in made for tensor in op.outputs}
    read = dict.fromkeys(tensor for op in made for tensor in op.inputs)
    inputs = [*dict.fromkeys((*selection.taken, *(x for x in read if x not in own)))]
    operations = (*map(external, inputs), *made)
    names = {x: emit.called(x) for op in operations for x in op.outputs}
    ends = tuple(x for x in selection.ends if x in own)
    graph = Graph("rows", tuple(inputs), ends, operations, names)
    axes: Mapping[Tensor, int | None] = {
        **dict.fromkeys(inputs),
        **{x: axis for x, (axis, _) in selection.taken.items()},
        **selection.ends,
    }
    find_examples(graph, axes, ends, (), (), emit.opset)
