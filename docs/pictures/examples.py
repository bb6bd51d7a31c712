"""Draws the pictures of docs/how-to/per-example.md, of the networks that are on the page:

    python docs/pictures/examples.py

As in gallery.py, a test holds that the files are what this draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from draw import FOLDER, Colors, by_file, svg
from gallery import LEFT, WIDTH, Axes, legend, stroke

import nnef_grad

PAGE = (FOLDER.parent / "how-to" / "per-example.md").read_text("utf-8")
Array = Any


def network(name: str) -> nnef_grad.Graph:
    """The network of a file on the page."""
    found = re.search(rf"<!-- file: {name} -->\n```nnef\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return nnef_grad.loads(found[1])


# ---- Control ----

WEIGHTS = {
    "w": np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    "v": np.array([[2.0, -0.4], [0.0, -1.0], [0.0, 1.0]]),
}
STEP, LENGTH = 0.1, 120


@cache
def trajectory() -> tuple[Array, Array]:
    """The states of a pendulum that is left alone, and how the change of each depends on it."""
    graph, states = network("dynamics.nnef"), [np.array([[1.5, 0.0]])]
    still = np.zeros((1, 1))
    for _ in range(LENGTH):
        fed = {"state": states[-1], "action": still}
        change = nnef_grad.evaluate(graph, fed, WEIGHTS)["change"]
        states.append(states[-1] + STEP * change)
    points = np.concatenate(states)
    linear = nnef_grad.jacobian(graph, wrt=["state"], per_example=True)
    fed = {"state": points, "action": np.zeros((len(points), 1))}
    return points, nnef_grad.evaluate(linear, fed, WEIGHTS)["jacobian_state"]


def linear_control(colors: Colors) -> str:
    """States, and what a small circle around some of them is half a second later."""
    points, matrices = trajectory()
    x, y = ({n: f"{n:g}" for n in (-1, -0.5, 0, 0.5, 1, 1.5)} for _ in range(2))
    y = {n: f"{n:g}" for n in (-1.5, -1, -0.5, 0, 0.5, 1)}
    axes = Axes(x, y)
    angle = np.linspace(0, 2 * np.pi, 33)
    circle = 0.09 * np.stack([np.cos(angle), np.sin(angle)], 1)
    ellipses = [
        axes.line(
            [*map(tuple, here + circle @ (np.eye(2) + 0.5 * matrix).T)],
            colors.backward,
            1.5,
        )
        for here, matrix in [*zip(points, matrices, strict=True)][::8]
    ]
    shapes = [
        *axes.drawn(colors, "angle; upwards its speed"),
        axes.line([*map(tuple, points)], colors.forward, 1.5),
        *ellipses,
        *legend(
            (colors.forward, colors.backward),
            ("states", "by the Jacobians"),
            colors.text,
            245,
        ),
    ]
    title = "The way of a pendulum to rest, and what small circles become on it"
    return svg(LEFT + WIDTH + 16, 256, title, shapes)


# ---- Physics ----


def laplacian_of_a_field(colors: Colors) -> str:
    """A field along a line, its force and its Laplacian."""
    graph, at = network("field.nnef"), np.linspace(-2.5, 2.5, 81)
    x = np.stack([at, 0 * at, 0 * at], 1)
    found = {
        "u": nnef_grad.evaluate(graph, {"x": x})["u"],
        "slope": nnef_grad.evaluate(
            nnef_grad.differentiate(graph, seed="ones"), {"x": x}
        )["grad_x"],
        "bent": nnef_grad.evaluate(nnef_grad.laplacian(graph), {"x": x})["laplacian_x"],
    }
    axes = Axes(
        {n: str(n) for n in (-2, -1, 0, 1, 2)}, {n: str(n) for n in (-6, -4, -2, 0, 2)}
    )
    axes.x = lambda number: LEFT + WIDTH * (number + 2.5) / 5
    lines = {
        "the field u": (found["u"][:, 0], colors.forward),
        "the force": (-found["slope"][:, 0], colors.faint),
        "the Laplacian": (found["bent"][:, 0], colors.backward),
    }
    shapes = [
        *axes.drawn(colors, "x"),
        *(
            stroke(
                [(axes.x(a), axes.y(b)) for a, b in zip(at, values, strict=True)],
                color,
                2,
            )
            for values, color in lines.values()
        ),
        *(legend([color for _, color in lines.values()], [*lines], colors.text, 60)),
    ]
    title = "A field along a line, with its force and its Laplacian"
    return svg(LEFT + WIDTH + 16, 256, title, shapes)


# ---- Privacy ----

CENTERS = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])


@cache
def losses(noise: float | None) -> Array:
    """Those of the batches of a training, private if there is noise."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, (100, 16))
    points = CENTERS[labels] + generator.standard_normal((100, 16, 2))
    private: Mapping[str, Any] = (
        {"clip_per_example": 1.0, "noise": noise} if noise else {}
    )
    step = nnef_grad.training_step(
        network("classifier.nnef"),
        loss="softmax_cross_entropy_with_labels",
        optimizer="sgd",
        learning_rate=0.5,
        data={"w": np.zeros((2, 3)), "b": np.zeros((1, 3))},
        **private,
    )
    seed: Mapping[str, Any] = {"noise_seed": 0} if noise else {}
    batches = zip(points, labels, strict=True)
    training = nnef_grad.training.run(step, batches, runtime="numpy", **seed)
    return np.array([*training])


def private_training(colors: Colors) -> str:
    """Means of ten losses of a training, and of two private ones."""
    lines = {
        "not private": (None, colors.faint),
        "noise 0.5": (0.5, colors.forward),
        "noise 8": (8.0, colors.backward),
    }
    axes = Axes(
        {n: str(n) for n in range(0, 101, 20)}, {n: f"{n:g}" for n in (0, 0.5, 1)}
    )
    means = {
        name: np.convolve(losses(noise), np.full(10, 0.1), "valid")
        for name, (noise, _) in lines.items()
    }
    shapes = [
        *axes.drawn(colors, "step"),
        *(
            axes.line(
                [(index + 5.5, mean) for index, mean in enumerate(means[name])],
                color,
                2,
            )
            for name, (_, color) in lines.items()
        ),
        *legend([color for _, color in lines.values()], [*lines], colors.text, 260),
    ]
    title = "The losses of trainings, without noise and with more and more of it"
    return svg(LEFT + WIDTH + 16, 256, title, shapes)


PICTURES: dict[str, Callable[[Colors], str]] = {
    "examples-control": linear_control,
    "examples-physics": laplacian_of_a_field,
    "examples-privacy": private_training,
}


def drawn() -> dict[Path, str]:
    """Every picture, by its file."""
    return by_file(PICTURES)


if __name__ == "__main__":
    for path, picture in drawn().items():
        path.write_text(picture, "utf-8")
