"""How operations are computed for many values of some operands at once.

What depends on these has a new leading axis, with an item for each value. Shapes align from the
left, so element by element nothing else has to be done than to give the other operands a
leading axis too. Other operations count their axes one further, and some take the new axis into
another one. The rules stand with their operations, in the file of each family;
autodiff/batching.py applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from nnef_grad.base.errors import NoDerivativeError
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.ops.registry import Emit, Function, enter


class Many(Protocol):
    """An operation, and the tensors that have the new axis, by the same without it."""

    @property
    def emit(self) -> Emit:
        """Makes the operations of a rule."""

    @property
    def operation(self) -> Operation:
        """The operation, for one value."""

    @property
    def many(self) -> Mapping[Tensor, Tensor]:
        """The tensors with the new axis, by those without it."""

    @property
    def count(self) -> Dimension:
        """How many values there are: the extent of the new axis."""

    @property
    def whole(self) -> Shape:
        """The shape of the result, with the new axis."""

    def aligned(self, operand: Operand) -> Any:
        """The operand with a leading axis, of extent 1 where it does not depend on the
        input; what has rank 0 is aligned with anything.
        """

    def repeated(self, operand: Operand) -> Any:
        """The operand with the new axis, in full."""

    def again(
        self, *operands: Any, hint: str | None = None, **attributes: Any
    ) -> tuple[Any, ...]:
        """The results of the operation with other operands and attributes."""

    def refusal(self, what: str) -> NoDerivativeError:
        """That the operation has no form for many of these at once."""


# A value for each result, with the new axis; a number where it does not depend on the values.
BatchingRule = Callable[[Many], Sequence[Any]]
BATCHING: dict[str, BatchingRule] = {}


def batching_rule(*names: str) -> Callable[[Function], Function]:
    """Enters the batching rule of the named operations."""
    return partial(enter, BATCHING, names)


# ---- Rules that several families have ----


def elementwise(op: Many) -> Sequence[Any]:
    """All operands get the axis, of extent 1 where nothing depends on the input."""
    return op.again(*map(op.aligned, op.operation.operands))


def with_attributes(**changes: Callable[[Any], Any]) -> BatchingRule:
    """All operands get the axis in full, and attributes are changed."""

    def rule(op: Many) -> Sequence[Any]:
        attributes = {
            n: change(op.operation.settings[n]) for n, change in changes.items()
        }
        return op.again(*map(op.repeated, op.operation.operands), **attributes)

    return rule


def further(axes: Sequence[int]) -> Shape:
    """The same axes after the new one."""
    return tuple(axis + 1 for axis in axes)


along_axes = with_attributes(axes=further)
along_axis = with_attributes(axis=lambda axis: axis + 1)


def over_windows(op: Many) -> Sequence[Any]:
    """The windows do not extend along the new axis."""
    first: dict[str, Any] = {"padding": (0, 0), "output_shape": op.count}
    attributes: dict[str, Any] = {
        name: (first.get(name, 1), *items)
        for name in ("size", "padding", "stride", "dilation", "output_shape")
        if (items := op.operation.settings.get(name))
    }
    return op.again(*map(op.repeated, op.operation.operands), **attributes)
