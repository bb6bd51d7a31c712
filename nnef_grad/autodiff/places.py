"""How operations move the examples of a batch: where they are in the result, from where they
are in the operands.

An operation moves the axis of the examples, or leaves it where it is, or joins it with others.
Where it may compute an element from several examples, they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import ARGSORT, Operation, Shape, Tensor
from nnef_grad.ops import traits
from nnef_grad.ops.conv import groups_of


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


_MEET = "the examples of the batch meet in '{}', which makes '{}': none has derivatives of its own"
UNKNOWN = "'{}', which makes '{}', is not known to keep the examples of the batch apart"
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
            raise MeetError(_MEET)
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
            raise MeetError(_MEET)
        return place

    def aligned_parts(self, place: Place, operands: Iterable[Tensor] = ()) -> Place:
        """The place of the examples in all operands, or in some of them."""
        for x in operands or self.operation.inputs:
            if x not in self.at and x.rank > place.axis and x.shape[place.axis] != 1:
                self.own[x] = place
        return place


Rule = Callable[[Use], Place]


def _apart(place: Place, axes: Iterable[int]) -> Place:
    """The place, unless something happens along its axis."""
    if place.axis in axes:
        raise MeetError(_MEET)
    return place


def along_axes(use: Use) -> Place:
    """Something is computed along `axes`."""
    return _apart(use.one(), use.settings["axes"])


def along_axis(use: Use) -> Place:
    """Operands are joined, or one is split, along `axis`."""
    return use.aligned_parts(_apart(use.one(), [use.settings["axis"]]))


def stack(use: Use) -> Place:
    """A new axis."""
    place = use.aligned_parts(use.one())
    return place._replace(axis=place.axis + (use.settings["axis"] <= place.axis))


def unstack(use: Use) -> Place:
    """An axis less."""
    axis, place = use.settings["axis"], _apart(use.one(), [use.settings["axis"]])
    return place._replace(axis=place.axis - (axis < place.axis))


def squeeze(use: Use) -> Place:
    """Some axes less."""
    place = along_axes(use)
    before = sum(axis < place.axis for axis in use.settings["axes"])
    return place._replace(axis=place.axis - before)


def unsqueeze(use: Use) -> Place:
    """Some axes more, counted in the result."""
    place, new = use.one(), use.settings["axes"]
    old = [axis for axis in range(len(use.result)) if axis not in new]
    return place._replace(axis=old[place.axis])


def transpose(use: Use) -> Place:
    """The axes in another order."""
    place, axes = use.one(), [*use.settings["axes"]]
    axes += range(len(axes), len(use.result))
    return place._replace(axis=axes.index(place.axis))


def reshape(use: Use) -> Place:
    """An axis of the result that has the examples where the operand has them, in the order
    of the elements.
    """
    (x,), shape, (place, *_) = use.operation.inputs, use.result, use.at.values()
    before = prod(x.shape[: place.axis]) * use.outer(x)
    after = place.inner * prod(x.shape[place.axis + 1 :])
    for axis, extent in enumerate(shape):
        outer = divided(before, prod(shape[:axis]))
        inner = divided(after, prod(shape[axis + 1 :]))
        if None not in (outer, inner) and outer * use.count * inner == extent:
            return Place(axis, inner)
    raise MeetError(UNKNOWN)


def tile(use: Use) -> Place:
    """All examples are repeated, one after the other."""
    return use.one()


def pad(use: Use) -> Place:
    """Nothing is added to the examples."""
    padded = (
        axis for axis, ends in enumerate(use.settings["padding"]) if ends != (0, 0)
    )
    return _apart(use.one(), padded)


def gather(use: Use) -> Place:
    """The axes of the indices take the place of an axis."""
    x, indices = use.operation.operands
    axis, place = use.settings["axis"], use.one()
    if x in use.at and indices in use.at:
        raise MeetError(UNKNOWN)
    if indices in use.at:
        return place._replace(axis=axis + place.axis)
    _apart(place, [axis])
    further = len(use.result) - x.rank if place.axis > axis else 0  # type: ignore[union-attr]
    return place._replace(axis=place.axis + further)


def matmul(use: Use) -> Place:
    """The examples are batches of matrices, rows of the first or columns of the second."""
    a, b = use.operation.inputs
    rank, settings = a.rank, use.settings
    if any(place.axis < rank - 2 for place in use.at.values()):
        return use.aligned()
    rows = rank - 1 if settings["transposeA"] else rank - 2
    columns = rank - 2 if settings["transposeB"] else rank - 1
    place = use.one()
    if len(use.at) == 2 or a is b or place.axis != (rows if a in use.at else columns):
        raise MeetError(_MEET)
    return place._replace(axis=rank - 2 if a in use.at else rank - 1)


def linear(use: Use) -> Place:
    """The examples are rows."""
    x, w, *bias = use.operation.inputs
    if x not in use.at or w in use.at:
        raise MeetError(UNKNOWN)
    if use.at[x].axis != 0:
        raise MeetError(_MEET)
    return use.aligned(x, *bias)


def conv(use: Use) -> Place:
    """The examples are images; or groups of channels, with filters of their own."""
    x, w, *bias = use.operation.inputs
    if any(b in use.at for b in bias):
        raise MeetError(UNKNOWN)
    if w not in use.at and use.at[x].axis == 0:
        return use.at[x]
    whole = (groups_of(use.operation), x.shape[1], w.shape[0], use.result[1])
    groups, above, filters, below = (divided(n, use.count) for n in whole)
    places = {x: Place(1, above), w: Place(0, filters)}
    is_grouped = {**places, **use.at} == places and not bias
    if not is_grouped or None in (groups, above, filters, below):
        raise MeetError(UNKNOWN)
    use.own.update({t: place for t, place in places.items() if t not in use.at})
    return Place(1, below)


def windows(use: Use) -> Place:
    """The windows do not extend along the examples."""
    place, settings = use.aligned(), use.settings
    usual = {"size": 1, "stride": 1, "padding": (0, 0)}
    for name, item in usual.items():
        if (items := settings.get(name)) and items[place.axis] != item:
            raise MeetError(_MEET)
    return place


def sampling(use: Use) -> Place:
    """Batch and channels stay apart."""
    return _apart(use.one(), range(2, len(use.result)))


RULES: dict[str, Rule] = {
    **dict.fromkeys((*traits.ELEMENTWISE, "batch_normalization"), Use.aligned),
    **dict.fromkeys(traits.ALONG_AXES, along_axes),
    **dict.fromkeys(traits.OVER_ALL_AXES, windows),
    **dict.fromkeys(traits.SAMPLING, sampling),
    **dict.fromkeys(("concat", "split", ARGSORT), along_axis),
    **dict.fromkeys(("conv", "deconv"), conv),
    "stack": stack,
    "unstack": unstack,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "transpose": transpose,
    "reshape": reshape,
    "tile": tile,
    "pad": pad,
    "gather": gather,
    "matmul": matmul,
    "linear": linear,
}


# ---- Shared tensors that have an item for each example ----


def repeated(use: Use) -> Place:
    """One item for all is repeated for each."""
    assert use.wanted is not None
    (x,), (axis, inner) = use.operation.inputs, use.wanted
    is_once = use.result[axis] == use.count * inner
    if not is_once or divided(inner, x.shape[axis]) is None:
        raise MeetError(UNKNOWN)
    return use.wanted


def data(use: Use) -> Place:
    """The model has them so."""
    assert use.wanted is not None
    return use.wanted


REPEATED: dict[str, Rule] = {
    "constant": data,
    **dict.fromkeys(traits.ELEMENTWISE, Use.aligned),
    "tile": repeated,
}
