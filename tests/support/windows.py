"""Graphs of one window operation, and settings of windows at random."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import nnef_grad
from support.checks import document

Shape = Sequence[int]


def model(operation: str, **shapes: Shape) -> str:
    """A graph of one operation on x: `i` is an input of integers, and what else it
    reads are variables.
    """
    external = {"x": "external", "i": "external<integer>"}
    declared = [
        f"    {name} = {external[name]}(shape = {list(shape)});"
        if name in external
        else f"    {name} = variable(shape = {list(shape)}, label = '{name}');"
        for name, shape in shapes.items()
    ]
    return document(
        "\n".join([*declared, f"    y = {operation};"]),
        inputs="x, i" if "i" in shapes else "x",
    )


def volume(attributes: str) -> int:
    """How many elements a window has; an index is below it."""
    size = attributes.split("size = [")[1].split("]")[0]
    return math.prod(map(int, size.split(",")))


def backward_of(operation: str, **shapes: Shape) -> str:
    return nnef_grad.dumps(
        nnef_grad.differentiate(nnef_grad.loads(model(operation, **shapes)))
    )


def written(text: str) -> list[str]:
    """The statements of a graph but for its inputs."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [
        line
        for line in lines
        if "external(" not in line
        and "variable(" not in line
        and not line.startswith("#")
    ]


class Settings:
    """Draws windows that fit; what is drawn depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def often(self, chance: float) -> bool:
        return self.random.random() < chance

    def windows(
        self, size: Sequence[int], largest_stride: int = 3
    ) -> dict[str, list[Any]]:
        """The attributes of windows along each axis, with extents of both sides that
        fit them.
        """
        automatic = self.often(0.3)
        columns = [self.axis(extent, automatic, largest_stride) for extent in size]
        return {
            key: [column[key] for column in columns]
            for key in ("up", "down", "padding", "stride", "dilation")
        }

    def axis(self, size: int, automatic: bool, largest_stride: int) -> dict[str, Any]:
        stride, dilation = (
            self.between(1, largest_stride),
            self.random.choice([1, 1, 2]) if size > 1 else 1,
        )
        reach, down = (size - 1) * dilation + 1, self.between(1, 4)
        remainder = self.between(0, stride - 1)
        padding, up = None, down * stride - remainder
        if not automatic:
            padding = self.between(-1, reach), self.between(-1, reach)
            up = (down - 1) * stride + reach + remainder - sum(padding)
        column = {
            "up": up,
            "down": down,
            "padding": padding,
            "stride": stride,
            "dilation": dilation,
        }
        return column if up > 0 else self.axis(size, automatic, largest_stride)

    def attributes(self, windows: dict[str, list[Any]]) -> str:
        """The attributes as text; those that are all ones are left out now and then."""
        names = [
            name
            for name in ("stride", "dilation")
            if set(windows[name]) != {1} or self.often(0.5)
        ]
        padding = [] if windows["padding"][0] is None else ["padding"]
        return "".join(f", {name} = {windows[name]}" for name in [*padding, *names])
