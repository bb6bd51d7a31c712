"""Draws the pictures of docs/gallery.md, from a training of `samples/train_digits.py`:

    pip install . scikit-learn
    python docs/pictures/gallery.py

The interpreter of the package computes them in double precision, with numbers that are
random in the same way each time: a test holds that the files are what this draws.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from draw import FOLDER, Colors, Shapes, box, by_file, svg, text

import nnef_grad
from nnef_grad.training import run

SAMPLE = runpy.run_path(str(FOLDER.parents[1] / "samples" / "train_digits.py"))
LENGTH = 100  # steps of the training
EARLY = 10  # the step after which the loss is looked at along a line

Array = Any


# ---- What is computed ----


class Trained(NamedTuple):
    """A training: the losses by their steps, the step itself with a batch, and the values
    of the variables early in the training and at its end.
    """

    losses: dict[int, float]
    step: nnef_grad.Step
    batch: dict[str, Array]
    early: dict[str, Array]
    late: dict[str, Array]


@cache
def trained() -> Trained:
    """The training, in some seconds."""
    images, labels = SAMPLE["digits"]()
    held_out = SAMPLE["HELD_OUT"]
    batches = SAMPLE["epochs"](images[held_out:], labels[held_out:])[:LENGTH]
    step = SAMPLE["digits_step"]()
    training = run(step, batches, runtime="numpy", dtype=np.float64, learning_rate=3e-3)
    losses, early = {}, {}
    for loss in training:
        losses[training.steps] = loss
        if training.steps == EARLY:
            early = training.data
    batch = dict(zip(("image", "target_logits"), batches[EARLY], strict=True))
    return Trained(losses, step, batch, early, training.data)


@cache
def saliencies() -> tuple[Array, Array]:
    """A digit of each class that the training has not seen, and the saliency of its
    pixels, both from 0 to 1.
    """
    images, labels = SAMPLE["digits"]()
    chosen = [int(np.argmax(labels == digit)) for digit in range(10)]
    graph = nnef_grad.loads(SAMPLE["GRAPH"], batch=len(chosen))
    saliency = nnef_grad.saliency(graph)
    given = {"image": images[chosen]}
    found = nnef_grad.evaluate(saliency, given, trained().late)["saliency_image"]
    largest = found.max(axis=(1, 2, 3), keepdims=True)
    return images[chosen, 0], (found / largest)[:, 0]


class Line(NamedTuple):
    """The loss along a line through the weights, against the gradient: what it is, and
    what the gradient and the Hessian at its beginning say of it.
    """

    distances: Array
    losses: Array
    slope: float
    curvature: float


@cache
def line() -> Line:
    """The line from the weights early in the training."""
    _, step, batch, values, _ = trained()
    objective = step.objective
    wrt = [
        name for name in objective.labels if f"grad_{name}" in step.shown.graph.tensors
    ]
    gradient = nnef_grad.differentiate(
        objective, wrt=wrt, outputs=["loss"], seed="ones"
    )
    found = nnef_grad.evaluate(gradient, batch, values)
    norm = np.sqrt(sum((g**2).sum() for g in found.values()))
    direction = {x: -found[dx] / norm for x, dx in gradient.gradients.items()}

    product = nnef_grad.hvp(objective, wrt=wrt, outputs=["loss"])
    vectors = {product.seeds[x]: v for x, v in direction.items()}
    second = nnef_grad.evaluate(product, batch | vectors, values)
    curvature = sum(
        (v * second[product.gradients[x]]).sum() for x, v in direction.items()
    )

    def loss_at(distance: float) -> float:
        moved = {objective.labels[x]: distance * v for x, v in direction.items()}
        there = values | {label: values[label] + v for label, v in moved.items()}
        return float(nnef_grad.evaluate(objective, batch, there)["loss"])

    distances = np.linspace(-0.5, 2.0, 26) * norm / curvature
    losses = np.array([loss_at(distance) for distance in distances])
    return Line(distances, losses, -float(norm), float(curvature))


# ---- How it is drawn ----

LEFT, TOP, WIDTH, HEIGHT = 52, 14, 320, 190
Ticks = Mapping[float, str]
Scale = Callable[[float], float]


def scale(ticks: Ticks, start: float, end: float) -> Scale:
    """Where a number is: the first tick is at the start, the last one at the end."""
    first, last = min(ticks), max(ticks)
    return lambda number: start + (end - start) * (number - first) / (last - first)


class Axes:
    """The axes of a chart, for numbers that have ticks around them."""

    def __init__(self, x: Ticks, y: Ticks) -> None:
        self.ticks = x, y
        self.x = scale(x, LEFT, LEFT + WIDTH)
        self.y = scale(y, TOP + HEIGHT, TOP)

    def drawn(self, colors: Colors, name: str) -> Shapes:
        """Lines at the ticks, with their texts; below them the name of the axis."""
        x, y = self.ticks
        for number, words in y.items():
            yield stroke(
                [(LEFT, self.y(number)), (LEFT + WIDTH, self.y(number))],
                colors.faint,
                0.4,
            )
            yield text(
                LEFT - 7, self.y(number) + 4, words, colors.text, size=12, anchor="end"
            )
        for number, words in x.items():
            yield text(self.x(number), TOP + HEIGHT + 18, words, colors.text, size=12)
        yield text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, name, colors.faint, size=12)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str,
        width: float,
        dashes: str = "none",
    ) -> str:
        """A line through points."""
        return stroke([(self.x(x), self.y(y)) for x, y in points], color, width, dashes)


def stroke(
    points: Sequence[tuple[float, float]],
    color: str,
    width: float,
    dashes: str = "none",
) -> str:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{way}" fill="none" stroke="{color}"'
        f' stroke-width="{width:g}" stroke-dasharray="{dashes}"/>'
    )


def legend(colors: Sequence[str], names: Sequence[str], ink: str, x: float) -> Shapes:
    """Names, each beside a line of its colour."""
    for index, (color, name) in enumerate(zip(colors, names, strict=True)):
        y = TOP + 14 + 18 * index
        yield stroke([(x, y), (x + 18, y)], color, 2.5)
        yield text(x + 24, y + 4, name, ink, size=12, anchor="start")


def training_curve(colors: Colors) -> str:
    """The loss of each step, and the mean of the ten around it, on a logarithmic scale."""
    losses = np.array([*trained().losses.values()])
    y = {np.log10(number): f"{number:g}" for number in (0.05, 0.1, 0.2, 0.5, 1, 2, 5)}
    axes = Axes({step: str(step) for step in range(0, LENGTH + 1, 20)}, y)
    means = np.convolve(losses, np.full(10, 0.1), "valid")
    around = [(index + 5.5, mean) for index, mean in enumerate(np.log10(means))]
    shapes = [
        *axes.drawn(colors, "step"),
        axes.line([*enumerate(np.log10(losses), start=1)], colors.forward, 1.2),
        axes.line(around, colors.backward, 2.5),
        *legend(
            (colors.forward, colors.backward),
            ("loss of a batch", "mean of ten"),
            colors.text,
            230,
        ),
    ]
    return svg(LEFT + WIDTH + 16, 256, "The loss of a training over its steps", shapes)


CELL, COLUMNS = 8, 5
LEVELS = 16


def pixels(image: Array, x: float, y: float, color: str) -> Shapes:
    """An image in shades of a color, those of a shade as one path."""
    shades = np.round(image * LEVELS)
    for shade in range(1, LEVELS + 1):
        places = [(x + CELL * j, y + CELL * i) for i, j in np.argwhere(shades == shade)]
        way = "".join(
            f"M{left:g},{top:g}h{CELL}v{CELL}h-{CELL}z" for left, top in places
        )
        if way:
            yield f'<path d="{way}" fill="{color}" fill-opacity="{shade / LEVELS:g}"/>'


def digit_saliency(colors: Colors) -> str:
    """Digits, and below each the saliency of its pixels."""
    side = 8 * CELL
    shapes: list[str] = []
    for index, (image, saliency) in enumerate(zip(*saliencies(), strict=True)):
        x = 8 + index % COLUMNS * (side + 10)
        y = 8 + index // COLUMNS * (2 * side + 28)
        for row, (pixel, color) in enumerate(
            ((image, colors.text), (saliency, colors.backward))
        ):
            top = y + row * (side + 7)
            shapes += pixels(pixel, x, top, color)
            shapes += [box(x - 2, top - 2, side + 4, side + 4, "none", colors.faint)]
    width, height = COLUMNS * (side + 10) + 6, 2 * (2 * side + 28) - 6
    return svg(
        width,
        height,
        "Ten digits, and the pixels that decide what they are taken for",
        shapes,
    )


def line_of_descent(colors: Colors) -> str:
    """The loss along a line, with its tangent and the parabola of a Hessian-vector product."""
    distances, losses, slope, curvature = line()
    first = float(losses[np.argmin(np.abs(distances))])
    y = {n: f"{n:g}" for n in (0.8, 1, 1.2, 1.4, 1.6)}
    x = {n: f"{n:g}" for n in (-0.2, 0, 0.2, 0.4, 0.6, 0.8)}
    axes = Axes(x, y)
    tangent = [(t, first + slope * t) for t in distances]
    parabola = [(t, first + slope * t + curvature * t**2 / 2) for t in distances]
    shapes = [
        *axes.drawn(colors, "distance against the gradient"),
        axes.line([p for p in tangent if p[1] >= min(y)], colors.faint, 1.5, "5 4"),
        axes.line(parabola, colors.backward, 2.5),
        *(
            f'<circle cx="{axes.x(a):.1f}" cy="{axes.y(b):.1f}" r="3" fill="{colors.forward}"/>'
            for a, b in zip(distances, losses, strict=True)
        ),
        *legend(
            (colors.forward, colors.faint, colors.backward),
            ("the loss", "by the gradient", "by the Hessian too"),
            colors.text,
            230,
        ),
    ]
    return svg(
        LEFT + WIDTH + 16,
        256,
        "The loss along a line, and what its derivatives say of it",
        shapes,
    )


PICTURES: dict[str, Callable[[Colors], str]] = {
    "gallery-curve": training_curve,
    "gallery-saliency": digit_saliency,
    "gallery-line": line_of_descent,
}


def drawn() -> dict[Path, str]:
    """Every picture, by its file."""
    return by_file(PICTURES)


if __name__ == "__main__":
    for path, picture in drawn().items():
        path.write_text(picture, "utf-8")
