"""How operations move the examples of a batch: where they are in the result, from where they
are in the operands.

An operation moves the axis of the examples, or leaves it where it is, or joins it with others.
Where it may compute an element from several examples, they meet. The rules stand with their
operations, in the file of each family; autodiff/examples.py applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import Function, enter


class Place(NamedTuple):
    """The axis of a tensor that counts examples: of its extent, outer * n * inner, the
    middle one is that of the examples.
    """

    axis: int
    inner: int = 1


def divided(whole: Any, by: Any) -> Any:
    """The quotient of two extents; None if there is a rest, or may be."""
    quotient = whole // by
    return quotient if quotient * by == whole else None


class MeetError(Exception):
    """Several examples become one element, or may."""


MEET = "the examples of the batch meet in '{}', which makes '{}': none has derivatives of its own"
MAY_MEET = (
    "'{}', which makes '{}', is not known to keep the examples of the batch apart"
)
HAS_ITEMS = "'{1}' has items for the examples of the batch, and its gradient cannot be taken for each"


@dataclass
class Use:
    """An operation, the number of examples, and where they are in its operands."""

    operation: Operation
    count: Dimension
    at: Mapping[Tensor, Place]
    # Where they are to be in the result, if no operand has them.
    wanted: Place | None = None
    # The same for shared operands that have an item for each example.
    own: dict[Tensor, Place] = field(default_factory=dict)

    @property
    def result(self) -> Shape:
        """The shape of the first result."""
        return self.operation.outputs[0].shape

    @property
    def settings(self) -> Mapping[str, Any]:
        """The attributes of the operation."""
        return self.operation.settings

    def one(self) -> Place:
        """Where the examples are in the operands: at the same place of all."""
        if len(places := {*self.at.values()}) != 1:
            raise MeetError(MEET)
        return next(iter(places))

    def outer(self, x: Tensor) -> Any:
        """How many times the examples follow each other along their axis."""
        axis, inner = self.at[x]
        return divided(x.shape[axis], self.count * inner)

    def aligned(self, *operands: Tensor) -> Place:
        """The place of the examples in the result, the same as in the operands; shared
        ones among those given may have an item for each.
        """
        place = self.aligned_parts(self.wanted or self.one(), operands)
        extents = {x.shape[place.axis] for x in (*self.at, *self.own)}
        if extents - {self.result[place.axis]}:
            raise MeetError(MEET)
        return place

    def aligned_parts(self, place: Place, operands: Iterable[Tensor] = ()) -> Place:
        """The place of the examples in all operands, or in some of them."""
        for x in operands or self.operation.inputs:
            if x not in self.at and x.rank > place.axis and x.shape[place.axis] != 1:
                self.own[x] = place
        return place


# Where the examples are in the result.
PlaceRule = Callable[[Use], Place]
PLACES: dict[str, PlaceRule] = {}
# Where a shared tensor has an item for each example, if its operands are to have one.
REPEATED: dict[str, PlaceRule] = {}


def place_rule(*names: str) -> Callable[[Function], Function]:
    """Enters how the named operations move examples."""
    return partial(enter, PLACES, names)


def repeated_rule(*names: str) -> Callable[[Function], Function]:
    """Enters how the named operations make an item for each example."""
    return partial(enter, REPEATED, names)


# ---- Rules that several families have ----


def apart(place: Place, axes: Iterable[int]) -> Place:
    """The place, unless something happens along its axis."""
    if place.axis in axes:
        raise MeetError(MEET)
    return place


def beside_axes(use: Use) -> Place:
    """Something is computed along `axes`."""
    return apart(use.one(), use.settings["axes"])


def beside_axis(use: Use) -> Place:
    """Operands are joined, or one is split, along `axis`."""
    return use.aligned_parts(apart(use.one(), [use.settings["axis"]]))


def beside_windows(use: Use) -> Place:
    """The windows do not extend along the examples."""
    place, settings = use.aligned(), use.settings
    usual = {"size": 1, "stride": 1, "padding": (0, 0)}
    for name, item in usual.items():
        if (items := settings.get(name)) and items[place.axis] != item:
            raise MeetError(MEET)
    return place
