"""Inputs and results keep the data types that a file of tract gives them: who feeds that file
feeds what is made of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tract

import nnef_grad
from nnef_grad import training
from nnef_grad.base.choices import Target

FEEDS = {"i32": np.int32, "i8": np.int8, "u8": np.uint8, "u16": np.uint16}
TEXT = """\
version 1.0;
extension tract_registry tract_core;

graph net( i, x ) -> ( y )
{{
    i = tract_core_external(shape = [3], datum_type = '{0}');
    x = tract_core_external(shape = [5, 2], datum_type = '{1}');
    w = variable<scalar>(shape = [5, 2], label = 'w');
    y = tract_core_gather(mul(x, w), i, axis = 0);
}}
"""


@pytest.mark.parametrize("integers", FEEDS)
@pytest.mark.parametrize("scalars", ["f32", "f16"])
def test_tract_takes_the_same_feeds(
    integers: str, scalars: str, tmp_path: Path
) -> None:
    graph = nnef_grad.loads(TEXT.format(integers, scalars))
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    lowered = nnef_grad.lower(backward.graph, "tract")
    w, x = np.random.default_rng(2).normal(size=(2, 5, 2)).astype(np.float32)
    data = {"w": w, **lowered.data}
    nnef_grad.save(lowered.graph, tmp_path / "backward", data=data)
    x = x.astype(np.float16 if scalars == "f16" else np.float32)
    dy, i = (
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.array([1, 4, 1], FEEDS[integers]),
    )
    model = tract.nnef().load(str(tmp_path / "backward")).into_runnable()
    grad_x, grad_w, y = (r.to_numpy() for r in model.run([i, x, dy]))
    wanted = np.zeros((5, 2))
    np.add.at(wanted, i, dy)
    np.testing.assert_allclose(grad_x, wanted * w, rtol=1e-6)
    np.testing.assert_allclose(grad_w, wanted * x, rtol=1e-6)
    assert y.dtype == x.dtype
    close = 1e-3 if scalars == "f16" else 1e-6
    np.testing.assert_allclose(y, (x * w)[i], rtol=close)


def test_a_document_is_written_with_them_again() -> None:
    graph = nnef_grad.loads(TEXT.format("i32", "f16"))
    text = nnef_grad.dumps(graph)
    assert "i = tract_core_external(shape = [3], datum_type = 'i32');" in text
    assert "y = tract_core_cast(y_f32, to = 'f16');" in text
    again = nnef_grad.loads(text)
    assert (
        again.datum_types == graph.datum_types == {"i": "i32", "x": "f16", "y": "f16"}
    )
    assert graph != nnef_grad.loads(TEXT.format("i64", "f16"))


def test_a_training_step_has_them() -> None:
    graph = nnef_grad.loads(TEXT.format("i32", "f32"))
    step = training.training_step(
        graph, loss="mean_squared_error", optimizer="sgd", target="tract"
    )
    text = nnef_grad.dumps(step.graph)
    assert "i = tract_core_external(shape = [3], datum_type = 'i32');" in text


@pytest.mark.parametrize("target", ["nnef", "portable", "tract-standard"])
def test_the_standard_has_none(target: Target) -> None:
    graph = nnef_grad.loads(TEXT.format("i32", "f16"))
    lowered = nnef_grad.lower(nnef_grad.differentiate(graph).graph, target)
    assert "tract_core" not in nnef_grad.dumps(lowered.graph)


def test_functions_are_fed_as_before() -> None:
    graph = nnef_grad.loads(TEXT.format("i32", "f16"))
    w, x = np.random.default_rng(3).normal(size=(2, 5, 2))
    function = nnef_grad.function(graph, data={"w": w}, runtime="tract")
    results = function(np.array([0, 2, 4]), x, seed=1)
    np.testing.assert_allclose(results.outputs["y"], (x * w)[[0, 2, 4]], rtol=1e-5)
