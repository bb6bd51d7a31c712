"""Selections by masks that depend on data, x[mask]: rows, of which nobody knows how many.

All rows are kept, in their order. What is computed of those that are not taken is of no use, and
does no harm while rows keep apart: until they are put back by the same mask, y[mask] = row, or
summed where it is true. That they do is found out as for the examples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch

from nnef_grad.autodiff.examples import find_examples
from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.base.errors import NnefGradError, Problem, UnsupportedError
from nnef_grad.base.source import Span
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.torch.internals import Operator, pytree, schema
from nnef_grad.frontends.torch.nodes import span_of
from nnef_grad.frontends.torch.symbols import is_number_of_data, is_of_data
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import external
from nnef_grad.graph.rewriting import substitute
from nnef_grad.ops.examples import Place
from nnef_grad.ops.traits import BROADCASTING

# The parameters of operations that are shapes.
_SHAPES = ("size", "shape")
OF_DATA = "the shape would depend on input values: use where, or a product"


@dataclass
class Selection:
    """The selection by a mask.

    Attributes:
        mask: the mask.
        row: the mask, in a row.
        shape: the shape of the mask.
        span: where it takes something first.
        taken: copies of what it takes of, with the axis of the rows, and the originals.
        alike: what has as many rows, all the same, with their axis.
        ends: what is put back or summed, with the axis of the rows.
        results: what rows become there, and the rows: all else that it is made of counts.
        places: where the rows are in what is computed of them.
    """

    mask: Tensor
    row: Tensor
    shape: tuple[Any, ...]
    span: Span
    taken: dict[Tensor, tuple[int, Any]] = field(default_factory=dict)
    alike: dict[Tensor, int] = field(default_factory=dict)
    ends: dict[Tensor, int] = field(default_factory=dict)
    results: dict[Tensor, Any] = field(default_factory=dict)
    places: Mapping[Tensor, Place] = field(default_factory=dict)

    def is_of(self, mask: Any) -> bool:
        """Whether it is that of a mask."""
        return self.mask is mask

    def end(self, rows: Any, axis: int, operand: Any, result: Any) -> None:
        """Notes where rows end: as an operand of what they become."""
        if isinstance(rows, Tensor):
            self.ends[rows] = axis
            self.results[result] = operand

    def with_zeros(self, x: Tensor, emit: Emitter, fresh: Callable[[str], str]) -> Any:
        """Rows, with zeros for those that the mask has not taken."""
        axis, inner = self.places[x]
        count = prod(self.shape)
        if inner != 1 or x.shape[axis] != count:
            raise UnsupportedError(OF_DATA, self.span)
        wide = [count if at == axis else 1 for at in range(x.rank)]
        _, x = self.taken.get(x, (0, x))
        name = emit.called(x)
        mask = emit.emit_named(
            fresh(f"{name}_mask"), "reshape", input=self.row, shape=wide
        )
        branches: dict[str, Any] = {
            "condition": mask,
            "true_value": x,
            "false_value": 0.0,
        }
        return emit.emit_named(fresh(f"{name}_inside"), "select", **branches)


class Unsized:
    """A value of which only parts are read: how long it is depends on input values.

    Attributes:
        span: where it is made.
    """

    span: Span


@dataclass(frozen=True, eq=False)
class Classes(Unsized):
    """One-hot vectors, of as many classes as input values say."""

    indices: Any
    name: str
    span: Span


@dataclass(frozen=True, eq=False)
class Places(Unsized):
    """Where a mask is true, along one of its axes: an index for each row that it takes; or
    along all, in columns.
    """

    selection: Selection
    axis: int | None

    @property
    def span(self) -> Span:  # type: ignore[override]
        """Where the mask takes something first."""
        return self.selection.span

    @property
    def columns(self) -> list[Places]:
        """The places along each axis."""
        if self.axis is not None:
            return [self]
        return [Places(self.selection, at) for at in range(len(self.selection.shape))]


class Selections:
    """The selections of a program, by the symbols that torch has for their sizes."""

    def __init__(self) -> None:
        self._of: dict[Any, Selection] = {}
        self._has_classes = False
        # The nodes, and values, of which torch says that they have a row for each that is
        # taken.
        self._rows: dict[Any, list[tuple[Any, Any]]] = {}

    def of(self, size: Any) -> Selection | None:
        """The selection whose size it is, in torch."""
        return self._of.get(size.node.expr) if is_number_of_data(size) else None

    def add(self, size: Any, selection: Selection) -> Selection:
        """The selection of a size; an earlier one, if the mask was used before."""
        return self._of.setdefault(size.node.expr, selection)

    def unsized_in(self, values: Any) -> list[Unsized]:
        """What of values, and in lists of them, is only read in part."""
        leaves = pytree.tree_leaves(values) if self._of or self._has_classes else ()
        return [leaf for leaf in leaves if isinstance(leaf, Unsized)]

    def note(self, node: Any, value: Any) -> None:
        """Notes the values of a node that has rows, as torch says, for each that is taken."""
        self._has_classes |= isinstance(value, Classes)
        if not self._of:
            return
        fake = node.meta.get("val")
        fakes, values = (
            x if isinstance(x, (list, tuple)) else [x] for x in (fake, value)
        )
        rows = [
            (fake, x)
            for fake, x in zip(fakes, values, strict=False)
            if self._has_rows(fake) and not isinstance(x, Unsized)
        ]
        if rows:
            self._rows[node] = rows

    # ---- When the program has been read ----

    def problems(
        self, nodes: Sequence[Any], emit: Emitter, outputs: Sequence[Any]
    ) -> Iterator[Problem]:
        """Where rows meet, or are counted."""
        if not self._of:
            return
        yield from self._counted(nodes)
        yield from self._alike(emit)
        reached: set[Tensor] = set()
        for selection in self._of.values():
            found = self._reached(selection, emit.operations)
            if not found:
                continue
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
                selection.places = _places(selection, found, emit)
            except NnefGradError as error:
                why = error.message.replace("the examples of the batch", "rows")
                message = f"{OF_DATA}; what it takes is computed row by row: {why}"
                yield Problem(message, error.span or selection.span)

    def _alike(self, emit: Emitter) -> Iterator[Problem]:
        """Finds what is not made of rows, but has as many: the same ones, such as a number for
        each; refuses others, such as their places, and what is made of all together.
        """
        reached = {
            x
            for selection in self._of.values()
            for x in self._reached(selection, emit.operations)
        }
        used = {x for operation in emit.operations for x in operation.outputs}
        for node, rows in self._rows.items():
            for fake, value in rows:
                is_known = not isinstance(value, Tensor)
                if is_known or (value in used and value not in reached):
                    axis, selection = self._axis_of(fake)
                    if selection is None or not _are_alike(value, axis, emit):
                        yield Problem(OF_DATA, span_of(node))
                    elif not is_known:
                        selection.alike[value] = axis
                        reached |= self._reached(selection, emit.operations)
                    elif not all(map(self._keeps_rows, node.users)):
                        yield Problem(OF_DATA, span_of(node))

    def _axis_of(self, fake: Any) -> tuple[int, Selection | None]:
        """The axis of the rows, and what has taken them; None where it is not alone."""
        axes = [axis for axis, size in enumerate(fake.shape) if self.is_of_rows(size)]
        return axes[0], self.of(fake.shape[axes[0]]) if len(axes) == 1 else None

    def _keeps_rows(self, user: Any) -> bool:
        """Whether an operation makes rows of rows, or puts them where the mask is true."""
        is_put = str(user.target).startswith("aten.index_put.")
        return user in self._rows or is_put or not user.users

    def finish(self, emit: Emitter, fresh: Callable[[str], str]) -> None:
        """Puts originals in place of copies, and zeros where rows that are not taken may
        be infinite: zero times these, as in the gradient of a layer's weights, is no number.
        """
        if not self._of:
            return
        taken = (s.taken.items() for s in self._of.values())
        originals = {copy: x for items in taken for copy, (_, x) in items}
        copies = [*originals]
        ranges, read = Ranges(emit.producers), [*emit.operations]
        emit.operations.clear()
        for operation in read:
            if not originals.keys().isdisjoint(operation.outputs):
                continue
            zeros = self._with_zeros(operation, ranges, emit, fresh)
            made = substitute(operation, originals | zeros)
            before = _before(made, emit)
            if before is not None and made.outputs[0] not in emit.names:
                originals[made.outputs[0]] = before
            else:
                emit.append(made, is_shared=False)
        for copy in copies:
            del emit.names[copy]

    def _with_zeros(
        self,
        operation: Operation,
        ranges: Ranges,
        emit: Emitter,
        fresh: Callable[[str], str],
    ) -> dict[Tensor, Any]:
        """Rows that meet what they share, such as weights."""
        if operation.name in BROADCASTING:
            return {}
        zeros = {
            x: selection.with_zeros(x, emit, fresh)
            for selection in self._of.values()
            if any(x not in selection.places for x in operation.inputs)
            for x in operation.inputs
            if x in selection.places and not ranges.of(x).is_finite
        }
        for rows in zeros.values():
            ranges.assume_finite(rows)
        return zeros

    def _reached(
        self, selection: Selection, operations: Sequence[Operation]
    ) -> set[Tensor]:
        """The rows, and what is made of them, until they end."""
        reached = {*selection.taken, *selection.alike}
        for operation in operations:
            ending = {selection.results.get(y) for y in operation.outputs}
            if not reached.isdisjoint({*operation.inputs} - ending):
                reached.update(operation.outputs)
        return reached

    def _counted(self, nodes: Sequence[Any]) -> Iterator[Problem]:
        """Where how many rows there are is a number, and is not read as one."""
        for node in nodes:
            if is_arithmetic(node):
                continue
            for leaf in pytree.tree_leaves(without_shapes(node)):
                if self.is_of_rows(getattr(leaf, "meta", {}).get("val")):
                    yield Problem(OF_DATA, span_of(leaf))

    def _has_rows(self, fake: Any) -> bool:
        is_tensor = isinstance(fake, torch.Tensor)
        return is_tensor and any(map(self.is_of_rows, fake.shape))

    def is_of_rows(self, number: Any) -> bool:
        """Whether a number of torch follows from how many rows there are."""
        if not isinstance(number, (torch.SymInt, torch.SymFloat)):
            return False
        symbols = {x for x in number.node.expr.free_symbols if is_of_data(x)}
        return not symbols.isdisjoint(self._of)


def _before(operation: Operation, emit: Emitter) -> Tensor | None:
    """A tensor that has been reshaped, and is again as it was."""
    if operation.name != "reshape":
        return None
    maker = emit.made_by(operation.inputs[0], "reshape")
    is_again = maker and maker.inputs[0].shape == operation.outputs[0].shape
    return maker.inputs[0] if maker and is_again else None


def is_arithmetic(node: Any) -> bool:
    """Whether an operation reads how many rows there are as a number."""
    is_function = node.op == "call_function" and not isinstance(node.target, Operator)
    is_plain = str(node.target) in _OF_NUMBERS and not node.kwargs
    return is_function or node.op == "output" or is_plain


_OF_NUMBERS = {
    f"aten.{name}.{kind}"
    for name in ("add", "sub", "mul", "div", "pow", "gt", "ge", "lt", "le", "eq", "ne")
    for kind in ("Tensor", "Scalar", "Tensor_Scalar")
}


def without_shapes(node: Any) -> Any:
    """The operands of an operation, or its results, but for shapes."""
    if not isinstance(node.target, Operator):
        return node.args
    names = [p.name for p in schema(node.target).arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return [x for name, x in given.items() if name not in _SHAPES]


def _places(
    selection: Selection, reached: set[Tensor], emit: Emitter
) -> Mapping[Tensor, Place]:
    """Where rows are; refuses those that meet before they end."""
    made = [op for op in emit.operations if not reached.isdisjoint(op.inputs)]
    made = [op for op in made if not reached.isdisjoint(op.outputs)]
    own = {tensor for op in made for tensor in op.outputs}
    read = dict.fromkeys(tensor for op in made for tensor in op.inputs)
    rows = (*selection.taken, *selection.alike)
    inputs = [*dict.fromkeys((*rows, *(x for x in read if x not in own)))]
    operations = (*map(external, inputs), *made)
    names = {x: emit.called(x) for op in operations for x in op.outputs}
    ends = tuple(x for x in selection.ends if x in own)
    graph = Graph("rows", tuple(inputs), ends, operations, names)
    axes: Mapping[Tensor, int | None] = {
        **dict.fromkeys(inputs),
        **{x: axis for x, (axis, _) in selection.taken.items()},
        **selection.alike,
        **selection.ends,
    }
    return find_examples(graph, axes, ends, (), (), emit.opset).places


def _are_alike(x: Any, axis: int, emit: Emitter) -> bool:
    """Whether the rows of a value are all the same, as far as it is seen."""
    if isinstance(x, Tensor):
        repeated = emit.made_by(x, "tile")
        return repeated is not None and repeated.inputs[0].shape[axis] == 1
    first = np.take(x, [0], axis)
    return bool(np.all(np.equal(x, first) | (np.isnan(x) & np.isnan(first))))
