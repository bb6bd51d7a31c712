"""What is no parameter is not trained unless it is named, and a warning says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nnef_grad

Array = Any
GENERATOR = np.random.default_rng(5)
SIZE = 6
# Positions of two axes; rates of a sinusoidal encoding.
PLACES = np.arange(SIZE)[:, None] * 100.0 ** (-np.arange(4) / 4)
WAVES = np.concatenate([np.sin(PLACES), np.cos(PLACES)], axis=1)

DOCUMENT = """version 1.0;
extension KHR_enable_operator_expressions;
graph net( x ) -> ( y )
{{
    x = external(shape = [6, 8]);
    w = variable(label = 'fc.weight', shape = [8, 8]);
    v = variable(label = 'v', shape = {shape});
    h = matmul(x, w);
    y = {result};
}}
"""


def step(shape: Any, result: str, value: Array, **settings: Any) -> Any:
    """A step of a model in which a variable `v` has some value."""
    narrow = np.asarray(value, np.float16 if value.dtype == np.float16 else np.float32)
    graph = nnef_grad.loads(DOCUMENT.format(shape=list(shape), result=result))
    data = {"v": narrow, "fc.weight": GENERATOR.normal(size=(8, 8)).astype(np.float32)}
    return nnef_grad.training_step(
        graph, loss="mean_squared_error", optimizer="sgd", data=data, **settings
    )


MASK = np.where(np.tri(SIZE, 8, dtype=bool), 0.0, -1e9)
NO_PARAMETERS: Mapping[str, tuple[str, Array, str]] = {
    "a_mask": ("softmax(h + v)", MASK, "a mask"),
    "a_mask_of_infinities": (
        "softmax(h + v)",
        np.where(MASK == 0, 0.0, -np.inf),
        "a mask",
    ),
    "a_triangle": ("matmul(v, h)", np.tri(SIZE), "a mask"),
    "waves": ("h + v", WAVES, "sines and cosines"),
    "waves_of_a_batch": ("h + squeeze(v, axes = [0])", WAVES[None], "sines and"),
    "half_precision": ("h + v", WAVES.astype(np.float16), "sines and cosines"),
    "cosines_that_rotate": ("h * v", np.cos(PLACES @ np.ones((4, 8))), "sines and"),
    "a_fill": ("select(h > 0.0, h, v)", np.array(-0.5), "fills what is masked"),
}
PARAMETERS: Mapping[str, tuple[str, Array]] = {
    "random": ("h + v", GENERATOR.normal(size=(SIZE, 8)) / 4),
    "zeros": ("h + v", np.zeros((SIZE, 8))),
    "ones": ("h * v", np.ones((SIZE, 8))),
    "the_identity": ("matmul(v, h)", np.eye(SIZE)),
    "a_line": ("h + v", np.linspace(0, 1, SIZE * 8).reshape(SIZE, 8)),
    "a_slope": ("select(h > 0.0, h, v * h)", np.array(0.25)),
    "waves_with_noise": ("h + v", WAVES + GENERATOR.normal(size=WAVES.shape) / 50),
    "large_and_negative": ("h + v", np.full((SIZE, 8), -2e3)),
}


@pytest.mark.parametrize("name", NO_PARAMETERS)
def test_no_parameter_is_trained(name: str) -> None:
    result, value, what = NO_PARAMETERS[name]
    made = step(np.shape(value), result, value)
    assert made.trained == ("fc.weight",)
    (warning,) = made.warnings
    assert "not trained: 'v', " in warning
    assert what in warning


@pytest.mark.parametrize("name", NO_PARAMETERS)
def test_it_is_where_it_is_named(name: str) -> None:
    result, value, _ = NO_PARAMETERS[name]
    made = step(np.shape(value), result, value, train=["fc*", "v"])
    assert made.trained == ("fc.weight", "v")
    assert made.warnings == ()


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_trained(name: str) -> None:
    result, value = PARAMETERS[name]
    made = step(np.shape(value), result, value)
    assert made.trained == ("fc.weight", "v")
    assert made.warnings == ()


def test_what_is_frozen_needs_no_warning() -> None:
    made = step(WAVES.shape, "h + v", WAVES, freeze="v")
    assert made.trained == ("fc.weight",)
    assert made.warnings == ()
