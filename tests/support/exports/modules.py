"""What a module to export is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Integers(NamedTuple):
    """An input of integers from 1 to a number, without it."""

    below: int
    shape: tuple[int, ...]

    def value(self, random: torch.Generator) -> Tensor:
        return torch.randint(1, self.below, self.shape, generator=random)


class Truths(NamedTuple):
    """An input of truth values."""

    shape: tuple[int, ...]

    def value(self, random: torch.Generator) -> Tensor:
        return torch.rand(self.shape, generator=random) < 0.5


class Scalars(NamedTuple):
    """An input of normally distributed numbers."""

    shape: tuple[int, ...]

    def value(self, random: torch.Generator) -> Tensor:
        return torch.randn(self.shape, generator=random)


Input = Integers | Truths | Scalars


class Exported(NamedTuple):
    """A module with its inputs.

    Attributes:
        name: what the test calls it.
        make: makes the module.
        inputs: its inputs.
        target: the version of tract that it is exported for.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    target: str = "0.23.8"

    def values(self, more: int = 0) -> list[Tensor]:
        """A value for each input, whose first extents are greater by a number."""
        random = torch.Generator().manual_seed(1)
        return [_grown(one, more).value(random) for one in self.inputs]

    def values_of(self, extents: Sequence[int]) -> list[Tensor]:
        """A value for each input, whose first extents are these."""
        random = torch.Generator().manual_seed(1)
        shapes = ((*extents, *one.shape[len(extents) :]) for one in self.inputs)
        pairs = zip(self.inputs, shapes, strict=True)
        return [one._replace(shape=shape).value(random) for one, shape in pairs]


def _grown(one: Input, more: int) -> Input:
    batch, *rest = one.shape
    return one._replace(shape=(batch + more, *rest))


class Function(nn.Module):
    """A module without parameters that computes a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def x(*shape: int) -> Scalars:
    return Scalars(shape)


def integers(below: int, *shape: int) -> Integers:
    return Integers(below, shape)


def truths(*shape: int) -> Truths:
    return Truths(shape)


def layer(name: str, make: Callable[[], nn.Module], *inputs: Input) -> Exported:
    return Exported(name, make, inputs)


def function(name: str, computed: Callable[..., Any], *inputs: Input) -> Exported:
    return Exported(name, lambda: Function(computed), inputs)
