"""Borders around tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.shapes import section
from nnef_grad.frontends.values import converted, shape_of


@aten("constant_pad_nd")
def constant_pad(call: Call, x: Any, pads: Sequence[Any], value: Any = 0) -> Any:
    """A border of a number."""
    return pad(call, x, pads, "constant", value)


@aten(
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "_pad_circular",
)  # fmt: skip
def repeated_pad(call: Call, x: Any, pads: Sequence[Any]) -> Any:
    """A border of what is inside."""
    names = {"_": "circular", "reflection": "reflect", "replication": "replicate"}
    return pad(call, x, pads, names[call.packet.split("_pad")[0] or "_"])


@aten("pad")
def pad(
    call: Call, x: Any, pads: Sequence[Any], mode: str = "constant", value: Any = None
) -> Any:
    """A border along the last axes, whose sides are given from the last one; a negative
    side is cut off.
    """
    rank = len(shape_of(x))
    sides = [(0, 0)] * rank
    for i in range(len(pads) // 2):
        sides[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    for axis, (before, after) in enumerate(sides):
        end = shape_of(x)[axis] + min(after, 0)
        x = section(call, x, axis, -min(before, 0), end)
    padding = [(max(before, 0), max(after, 0)) for before, after in sides]
    if mode == "circular":
        return _wrapped(call, x, padding)
    number = float(converted(value or 0.0, "scalar"))
    is_needed = any(map(any, padding))
    settings: dict[str, Any] = {"border": mode, "value": number}
    return call("pad", x, padding=padding, **settings) if is_needed else x


def _wrapped(call: Call, x: Any, padding: Sequence[tuple[Any, Any]]) -> Any:
    """With what is at the other end on each side."""
    for axis, (before, after) in enumerate(padding):
        extent = shape_of(x)[axis]
        ends = [(extent - before, extent), (0, extent), (0, after)]
        parts = [section(call, x, axis, *end) for end in ends if end[0] != end[1]]
        x = call("concat", parts, axis=axis) if len(parts) > 1 else x
    return x
