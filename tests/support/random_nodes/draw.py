"""Draws of numbers, shapes, axes, and of attributes that a schema declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Schemas say the types of attributes, but not which values are valid.
ATTRIBUTES: dict[str, Sequence[Any]] = {
    "keepdims": (0, 1),
    "noop_with_empty_axes": (0, 1),
    "select_last_index": (0, 1),
    "ceil_mode": (0, 1),
    "count_include_pad": (0, 1),
    "exclusive": (0, 1),
    "reverse": (0, 1),
    "upper": (0, 1),
    "fmod": (0, 1),
    "largest": (0, 1),
    "sorted": (1,),  # the order is otherwise of the runtime's choice
    "transA": (0, 1),
    "transB": (0, 1),
    "alpha": (0.3, 1.0, 1.7),
    "beta": (0.0, 0.4, 1.0),
    "gamma": (0.5, 1.5),
    "lambd": (0.0, 0.5),
    "bias": (0.0, 0.2, 1.0),
    "epsilon": (1e-5, 0.1),
    "detect_negative": (0, 1),
    "detect_positive": (0, 1),
    "direction": ("LEFT", "RIGHT"),
    "approximate": ("none", "tanh"),
    "saturate": (0, 1),
}


class Draw:
    """Random values; everything is a function of the seed."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.version = 0  # of the operators

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """Between these, both of them included."""
        return int(self.random.integers(low, high + 1))

    def integers(self, low: int, high: int, count: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def pick(self, values: Sequence[Any]) -> Any:
        return values[self.integer(0, len(values) - 1)]

    def shape(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.integers(1, 4, self.integer(low, high)))

    def floats(self, *shape: int) -> Array:
        """Normal ones, at times of few values, so that they tie and are halves."""
        values = self.random.standard_normal(shape) * 2
        values = np.round(values * 2) / 2 if self.chance(0.2) else values
        return np.asarray(values, np.float32)

    def positive(self, *shape: int) -> Array:
        return np.asarray(np.abs(self.floats(*shape)) + np.float32(0.25))

    def axis(self, rank: int) -> int:
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int, low: int = 0) -> list[int]:
        """Different ones, in any order, at times counted from the end."""
        count = self.integer(min(low, rank), rank)
        chosen = self.random.permutation(rank)[:count]
        return [int(a) - rank * self.chance(0.4) for a in chosen]

    def spread(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with this one."""
        kept = shape[self.integer(0, len(shape)) :]
        return tuple(1 if self.chance(0.3) else extent for extent in kept)

    def indices(self, extent: int, *shape: int) -> Array:
        return self.random.integers(-extent, extent, shape)

    def attributes(self, schema: Any, rank: int) -> dict[str, Any]:
        """Of those that a schema declares, half, where the table has values."""
        found = {}
        for name in schema.attributes:
            if name in ATTRIBUTES and self.chance(0.5):
                found[name] = self.pick(ATTRIBUTES[name])
            if name == "axis" and rank and self.chance(0.7):
                found[name] = self.axis(rank)
        return found
