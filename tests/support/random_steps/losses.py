"""Losses with random settings, and what torch computes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


class Loss(NamedTuple):
    """A loss with its settings.

    Attributes:
        recipe: what ours is called.
        peer: what torch computes.
        target: draws a target for an output.
        activation: what the output has to be the result of, if anything.
    """

    recipe: str
    peer: Callable[[Tensor, Tensor], Tensor]
    target: Callable[[torch.Generator, Tensor], Tensor]
    activation: str | None = None


def _numbers(generator: torch.Generator, output: Tensor) -> Tensor:
    return torch.randn(output.shape, generator=generator, dtype=torch.float64)


def _signs(generator: torch.Generator, output: Tensor) -> Tensor:
    return _numbers(generator, output).sign()


def _chances(generator: torch.Generator, output: Tensor) -> Tensor:
    return 0.05 + 0.9 * torch.rand(
        output.shape, generator=generator, dtype=torch.float64
    )


def _shares(generator: torch.Generator, output: Tensor, axis: int) -> Tensor:
    found = _chances(generator, output)
    return found / found.sum(axis, keepdim=True)


def _labels(generator: torch.Generator, output: Tensor, axis: int) -> Tensor:
    shape = output.select(axis, 0).shape
    return torch.randint(output.shape[axis], shape, generator=generator)


_REDUCTIONS: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "mean": lambda losses, _: losses.mean(),
    "sum": lambda losses, _: losses.sum(),
    "batchmean": lambda losses, batch: losses.sum() / batch,
}


def _reduced(
    draw: Random, name: str, settings: Mapping[str, Any], each: Callable[..., Tensor]
) -> tuple[str, Callable[[Tensor, Tensor], Tensor]]:
    """A recipe with a reduction and a weight, and the same in torch."""
    reduction = draw.choice([*_REDUCTIONS])
    weight = draw.choice([1.0, 0.5, 3.0])
    text = written(name, {**settings, "reduction": reduction, "weight": weight})

    def peer(output: Tensor, target: Tensor) -> Tensor:
        return weight * _REDUCTIONS[reduction](each(output, target), len(output))

    return text, peer


def written(name: str, settings: Mapping[str, Any]) -> str:
    """A recipe as it is written."""
    values = {
        key: str(value).lower() if isinstance(value, bool) else repr(value)
        for key, value in settings.items()
    }
    return f"{name}({', '.join(f'{k} = {v}' for k, v in values.items())})"


def _elements(
    function: Callable[..., Tensor], **settings: Any
) -> Callable[..., Tensor]:
    return lambda x, y: function(x, y, reduction="none", **settings)


def draw_loss(draw: Random, output: Tensor) -> Loss:
    """A loss that an output can have."""
    delta, margin = draw.choice([0.25, 1.0, 2.0]), draw.choice([0.5, 1.0])
    smoothing = draw.choice([0.0, 0.1, 0.5])
    squares, absolute = _elements(F.mse_loss), _elements(F.l1_loss)
    logits = _elements(F.binary_cross_entropy_with_logits)
    found: list[Any] = [
        ("mean_squared_error", {}, squares, _numbers),
        ("mean_absolute_error", {}, absolute, _numbers),
        ("huber", {"delta": delta}, _elements(F.huber_loss, delta=delta), _numbers),
        (
            "hinge",
            {"margin": margin},
            lambda x, y: (margin - x * y).clamp(min=0.0),
            _signs,
        ),
        ("sigmoid_cross_entropy", {}, logits, _chances),
        (
            "binary_cross_entropy",
            {},
            _elements(F.binary_cross_entropy),
            _chances,
            "sigmoid",
        ),
        ("kullback_leibler", {}, _elements(F.kl_div), _chances),
    ]
    if output.dim() > 1:
        axis = draw.randrange(output.dim())
        along = draw.choice([axis, axis - output.dim()])
        entropy = _elements(F.cross_entropy, label_smoothing=smoothing)

        def cross(x: Tensor, y: Tensor) -> Tensor:
            # torch has a batch before the classes.
            shares = y.movedim(axis, 0) if y.dim() == x.dim() else y
            return entropy(x.movedim(axis, 0)[None], shares[None])[0]

        found += [
            (
                "softmax_cross_entropy",
                {"axis": along, "label_smoothing": smoothing},
                cross,
                partial(_shares, axis=axis),
            ),
            (
                "categorical_cross_entropy",
                {"axis": 1},
                lambda x, y: -(y * x.log()).sum(1),
                partial(_shares, axis=1),
                "softmax",
            ),
            (
                "cosine_similarity",
                {"axis": along},
                lambda x, y: 1.0 - F.cosine_similarity(x, y, dim=axis),
                _numbers,
            ),
            ("labels", {"axis": along}, cross, partial(_labels, axis=axis)),
        ]
    name, settings, each, target, *activation = draw.choice(found)
    if name == "labels":
        settings = {**settings, "label_smoothing": smoothing}
        recipe = written("softmax_cross_entropy_with_labels", settings)
        return Loss(recipe, lambda x, y: each(x, y).mean(), target)
    if not output.dim():
        plain = written(name, settings)
        return Loss(plain, lambda x, y: each(x, y).mean(), target, *activation)
    return Loss(*_reduced(draw, name, settings, each), target, *activation)
