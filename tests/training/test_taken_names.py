"""Names and labels that the compiler makes, where a user has written them: the training is
that of the same model with other names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad.language.labels import is_constant
from nnef_grad.training import run, training_step

MODEL = """\
version 1.0;

graph net( {x} ) -> ( {y} )
{{
    {x} = external(shape = [4, 3]);
    {w} = variable(shape = [5, 3], label = '{label}');
    {b} = variable(shape = [1, 5], label = 'second');
    {h} = tanh(linear({x}, {w}, {b}));
    {c} = constant(shape = [1, 5], value = [1.0, 2.0, 3.0, 4.0, 5.0]);
    {y} = mul({h}, {c});
}}
"""
PLAIN = {
    "x": "x", "y": "y", "w": "w", "b": "b", "h": "h", "c": "c", "label": "first",
}  # fmt: skip
PLACES = [*PLAIN]

# What has constants, state, tables and inputs of its own.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"optimizer": "adam(amsgrad=true)", "clip_norm": 1.0, "accumulate": 2},
    {"optimizer": "rmsprop(momentum=0.5, centered=true)", "loss_scale": True},
    {"optimizer": "adamw", "l2": 0.01, "clip_value": 0.1},
    {"optimizer": "momentum", "accumulate": 3},
)
TARGETS = ("nnef", "tract", "onnx", "khronos")


def model(**named: str) -> str:
    return MODEL.format(**{**PLAIN, **named})


def step_of(text: str, target: str, settings: dict[str, Any]) -> Any:
    graph = nnef_grad.loads(text)
    shapes = {label: graph.tensors[n].shape for n, label in graph.labels.items()}
    random = np.random.default_rng(0)
    data = {
        label: random.standard_normal(shape).astype(np.float32)
        for label, shape in shapes.items()
    }
    return training_step(
        graph, loss="huber", learning_rate=0.1, data=data, target=target, **settings
    )


def losses(text: str, target: str, settings: dict[str, Any]) -> list[float]:
    random = np.random.default_rng(1)
    batches = [
        [random.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (4, 5))]
        for _ in range(4)
    ]
    return [
        float(x) for x in run(step_of(text, target, settings), batches, runtime="numpy")
    ]


@cache
def plain(target: str, number: int) -> list[float]:
    return losses(model(), target, SETTINGS[number])


def words() -> Iterator[str]:
    """What the compiler calls tensors, variables and their data, in all those steps."""
    for target in TARGETS:
        for settings in SETTINGS:
            step = step_of(model(), target, settings)
            for one in filter(None, (step, step.apply)):
                yield from one.graph.tensors
                yield from one.data
                yield from one.labels.values()


WORDS = sorted({*words()} - {*PLAIN.values(), "second"})


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_word_of_the_compiler_in_each_place(place: str, word: str) -> None:
    name = word if place == "label" else re.sub(r"\W", "_", word)
    number = WORDS.index(word) % len(SETTINGS)
    target = TARGETS[len(name) % len(TARGETS)]
    text = model(**{place: name})
    if place in ("x", "y", "w", "b") and is_refused(text, target, SETTINGS[number]):
        # Inputs and results of a step have names that users write.
        return
    if is_constant(name):
        step = step_of(text, target, SETTINGS[number])
        assert step.warnings == (f"'{name}' is a constant, and stays as it is",)
        return
    found = losses(text, target, SETTINGS[number])
    np.testing.assert_allclose(found, plain(target, number), rtol=1e-5)


def is_refused(text: str, target: str, settings: dict[str, Any]) -> bool:
    try:
        step_of(text, target, settings)
    except nnef_grad.UsageError:
        return True
    return False


def test_the_words_are_those_of_steps() -> None:
    assert {"loss_scale", "loss", "first/first_moment"} <= {*WORDS}
    assert any(word.startswith("nnef-grad/constants") for word in WORDS)
