"""The view of an operation that the functions in operations/ and expansions/ get.

A function is called with the view and a value for each parameter of the operation, in
declared order. It returns the value of the result, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import InvalidGraphError, Problem
from nnef_grad.base.source import Span
from nnef_grad.frontends.reading import Reading
from nnef_grad.frontends.values import dtype_of, shape_of
from nnef_grad.graph.extents import Dimension, Extent
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.learning import current_facts
from nnef_grad.graph.quotients import exact_quotient
from nnef_grad.ops.join import BLOCK, positions
from nnef_grad.ops.ranges import EXACT

Function = TypeVar("Function", bound=Callable[..., Any])


def entering(table: dict[str, Any]) -> Callable[..., Callable[[Function], Function]]:
    """A decorator that enters a function into a table, under the names that it gets."""

    def named(*names: str) -> Callable[[Function], Function]:
        def enter(function: Function) -> Function:
            table.update(dict.fromkeys(names, function))
            return function

        return enter

    return named


@dataclass(eq=False)
class View:
    """An invocation, and methods to emit what takes its place.

    Attributes:
        reading: the document that is read.
        name: the name of the operation.
        hint: what its first result should be called.
        span: its place in the document.
        dtype: the data type that it gives, if any.
    """

    reading: Reading
    name: str
    hint: str
    span: Span
    dtype: str | None

    def __post_init__(self) -> None:
        if (facts := current_facts()) is not None:
            facts.operation = self.name

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Emits an operation of the standard, or computes it where its operands are known."""
        word = self.hint if hint is None else f"{self.hint}_{hint}"
        return self.reading.standard(name, operands, attributes, dtype, word, self.span)

    def expand(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The results of a fragment of the library, which is replaced by its body."""
        return self.reading.library(name, operands, attributes, self.hint, self.span)

    def constant(self, array: Array, dtype: str | None = None) -> Any:
        """A known array as a tensor of the graph."""
        return self.reading.materialize(
            array, dtype or dtype_of(array), f"{self.hint}_constant", self.span
        )

    def tensor(self, value: Any) -> Any:
        """A value as an operand: a known one becomes a literal or a constant."""
        return self.reading.materialize(value, dtype_of(value), self.hint, self.span)

    def tensor_of(self, value: Any) -> Tensor:
        """A value as a tensor, also a number."""
        operand = self.tensor(value)
        if isinstance(operand, Tensor):
            return operand
        row = self.constant(np.array([operand]), dtype_of(value))
        squeezed: Tensor = self("squeeze", row, axes=[0])
        return squeezed

    def refuse(self, message: str) -> NoReturn:
        """Raises an error at the operation."""
        raise InvalidGraphError(f"{self.name}: {message}", self.span)

    def require(self, condition: bool, message: str) -> None:
        """Raises an error at the operation, unless a condition holds."""
        if not condition:
            self.refuse(message)

    def require_exact(self, number: Any) -> None:
        """Raises an error for a whole number that single precision does not have."""
        is_exact = isinstance(number, Extent) or number < EXACT
        what = "integers are computed in single precision"
        self.require(is_exact, f"{what}, which has no {number} exactly")

    def warn(self, message: str) -> None:
        """Adds a warning at the operation."""
        self.reading.warnings.append(Problem(message, self.span))

    # ---- Changes of shape, where they are needed ----

    def reshaped(
        self, x: Any, shape: Sequence[Dimension], hint: str | None = None
    ) -> Any:
        """The value with another shape: without axes by a squeeze, which all runtimes know."""
        own = shape_of(x)
        if tuple(shape) == own:
            return x
        if own and shape:
            return self("reshape", x, hint=hint, shape=list(shape))
        name = "unsqueeze" if shape else "squeeze"
        return self(name, x, hint=hint, axes=list(range(len(own) + len(shape))))

    def transposed(self, x: Any, axes: Sequence[int], hint: str | None = None) -> Any:
        """The value with its axes in another order."""
        axes = list(axes)
        same = axes == list(range(len(axes)))
        return x if same else self("transpose", x, hint=hint, axes=axes)

    def of_rank(self, x: Any, rank: int) -> Any:
        """The value with as many axes of extent 1 before its own as are missing."""
        missing = list(range(rank - len(shape_of(x))))
        return self("unsqueeze", x, axes=missing) if missing else x

    def axis(self, axis: int, rank: int) -> int:
        """An axis as a number that is not negative, checked."""
        self.require(
            -rank <= axis < rank, f"there is no axis {axis}, the rank is {rank}"
        )
        return axis % rank

    def positions(self, extent: Dimension, axis: int, rank: int) -> Any:
        """The numbers of all places along an axis, as scalars; counted, if it is open."""
        shape: list[Any] = [extent if a == axis else 1 for a in range(rank)]
        if isinstance(extent, int) and extent <= BLOCK:
            self.reading.spend(extent)
            return self.constant(np.arange(float(extent)).reshape(shape), "scalar")
        return self.reshaped(positions(self.reading.emitter, extent), shape)

    def piece(
        self,
        x: Any,
        axis: int,
        begin: Any,
        end: Any,
        hint: str | None = None,
        stride: int = 1,
    ) -> Any:
        """The elements between two places along an axis."""
        window: dict[str, Any] = {"axes": [axis], "begin": [begin], "end": [end]}
        if stride != 1:
            window["stride"] = [stride]
        return self("slice", x, hint=hint, **window)

    def joined(self, parts: Sequence[Any], axis: int) -> Any:
        """One value after the other along an axis; one alone stays as it is."""
        return parts[0] if len(parts) == 1 else self("concat", list(parts), axis=axis)

    # ---- Axes from the end are those of the other operand ----

    def aligned(self, *values: Any, rank: int | None = None) -> list[Any]:
        """Values with leading axes of extent 1, so that they have the same number of axes,
        as most formats broadcast them. What has no axes needs none.
        """
        most = max(len(shape_of(x)) for x in values) if rank is None else rank
        return [self.of_rank(x, most) if shape_of(x) else x for x in values]

    def broadcast(self, x: Any, shape: Shape) -> Any:
        """A value, repeated to a shape."""
        wide = self.of_rank(x, len(shape))
        own = shape_of(wide)
        if own == tuple(shape):
            return wide
        # An open extent is 1, or as long as the whole one already.
        repeats = [
            1 if m == n else exact_quotient(n, m)
            for m, n in zip(own, shape, strict=True)
        ]
        return self("tile", wide, repeats=repeats)

    def axes(self, axes: Any, rank: int) -> list[int]:
        """Axes as a list of numbers that are not negative; all of them if there are none."""
        if axes is None or (isinstance(axes, (list, tuple)) and not axes):
            return list(range(rank))
        given = axes if isinstance(axes, (list, tuple)) else [axes]
        return sorted(self.axis(axis, max(rank, 1)) for axis in given)
