"""Modules of PyTorch as users write them, by theme.

A case is a module and what makes its inputs; or a module that must be refused, and words
of the message.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import nn

THEMES = (
    "stops", "leaks", "writes", "aliases", "values", "integers", "drawn", "settings",
    "edges", "corners", "layers", "results", "wrapping", "networks", "language", "symbols",
    "smallest", "neighbors", "routing", "pools", "matrices", "derived", "known",
)  # fmt: skip

Make = Callable[["Draw"], Any]


class Draw:
    """Random inputs, others for each seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> torch.Tensor:
        """Normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def positive(self, *shape: int) -> torch.Tensor:
        """Numbers from 0.5 to 1.5."""
        return torch.rand(shape, generator=self.generator) + 0.5

    def unit(self, *shape: int) -> torch.Tensor:
        """Numbers from 0.05 to 0.95."""
        return torch.rand(shape, generator=self.generator) * 0.9 + 0.05

    def ints(self, high: int, *shape: int, low: int = 0) -> torch.Tensor:
        """Integers."""
        return torch.randint(low, high, shape, generator=self.generator)

    def bools(self, *shape: int) -> torch.Tensor:
        """Truth values."""
        return torch.rand(shape, generator=self.generator) > 0.4


@dataclass(frozen=True)
class Case:
    """A module that a user could have written.

    Attributes:
        module: makes the module.
        inputs: makes its arguments: a list, or a mapping by name.
        refused: a pattern of the message, if it must be refused.
        trains: whether it is in training mode.
        options: for `from_torch`.
        tolerance: how far numbers may be off, relative to the largest.
    """

    module: Callable[[], nn.Module]
    inputs: Make
    refused: str | None = None
    trains: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6


class Applied(nn.Module):  # type: ignore[misc]
    """A module that is a function of its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Weighted(nn.Module):  # type: ignore[misc]
    """A module that is a function of its parameter and its inputs."""

    def __init__(self, function: Callable[..., Any], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(
            torch.randn(shape, generator=torch.Generator().manual_seed(7))
        )

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.weight, *inputs)


Cases = dict[str, Case]


def of(function: Callable[..., Any], inputs: Make, **settings: Any) -> Case:
    """The case of a function."""
    return Case(lambda: Applied(function), inputs, **settings)


def with_weight(
    function: Callable[..., Any], shape: tuple[int, ...], inputs: Make, **settings: Any
) -> Case:
    """The case of a function with a parameter, its first argument."""
    return Case(lambda: Weighted(function, *shape), inputs, **settings)


def all_cases() -> Cases:
    """The cases of all themes, by name."""
    with warnings.catch_warnings():
        # Of what is old in torch, which users have nevertheless.
        warnings.simplefilter("ignore")
        modules = {t: import_module(f"support.torch_modules.{t}") for t in THEMES}
    return {
        f"{theme}-{name}": case
        for theme, module in modules.items()
        for name, case in module.CASES.items()
    }
