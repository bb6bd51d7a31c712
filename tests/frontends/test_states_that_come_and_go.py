"""Recurrent layers whose states are inputs and results, against tract; gradients against central
differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tract

import nnef_grad

HEAD = "version 1.0;\nextension tract_registry tract_core;\nextension tract_registry tract_transformers;\n\n"
STEPS = {
    "causal_conv1d_update": {
        "input": (2, 3, 5),
        "weight": (3, 4),
        "initial_state": (2, 3, 4),
    },
    "gdn_recurrent": {
        "query": (2, 3, 2, 5),
        "key": (2, 3, 2, 5),
        "value": (2, 3, 4, 5),
        "log_decay": (2, 3, 4),
        "beta": (2, 3, 4),
        "initial_state": (2, 4, 5, 5),
    },
}


def document(step: str, family: str, inputs: Any) -> str:
    names = ", ".join(inputs)
    externals = "".join(
        f"    {name} = external(shape = {list(shape)});\n"
        for name, shape in inputs.items()
    )
    call = f"    (output, state) = tract_{family}_{step}({names});\n"
    return f"{HEAD}graph step({names}) -> (output, state)\n{{\n{externals}{call}}}\n"


def random(step: str) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    shapes = STEPS[step].items()
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes}


@pytest.mark.parametrize("family", ["transformers", "qwen35"])
@pytest.mark.parametrize("step", STEPS)
def test_results_are_those_of_tract(step: str, family: str, tmp_path: Path) -> None:
    text = document(step, family, STEPS[step])
    (tmp_path / "graph.nnef").write_text(text, "utf-8")
    found = nnef_grad.evaluate(nnef_grad.load(tmp_path), fed := random(step))
    reader = tract.nnef().with_tract_transformers()
    theirs = reader.load(str(tmp_path)).into_runnable().run([*fed.values()])
    for own, wanted in zip(found.values(), theirs, strict=True):
        np.testing.assert_allclose(own, wanted.to_numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unroll", [1000, 1])
@pytest.mark.parametrize("step", STEPS)
def test_gradients_are_those_of_differences(step: str, unroll: int) -> None:
    text = document(step, "transformers", STEPS[step])
    graph = nnef_grad.loads(text, unroll=unroll)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert {row.verdict for row in checked.gradients} == {"ok"}


def test_the_number_of_steps_may_be_open() -> None:
    text = document("gdn_recurrent", "transformers", STEPS["gdn_recurrent"])
    opened = text.replace("[2, 3, ", "[2, S, ").replace(
        "\n\n", "\nextension tract_symbol S;\n\n", 1
    )
    whole = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    part = nnef_grad.differentiate(nnef_grad.loads(opened)).graph
    rng = np.random.default_rng(9)
    fed = {n: rng.normal(size=whole.tensors[n].shape) for n in whole.input_names}
    found, wanted = (nnef_grad.evaluate(graph, fed) for graph in (part, whole))
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-6, atol=1e-9)


def test_a_state_of_one_example() -> None:
    """As tract had it before 0.23.6."""
    one = {"input": (1, 1, 3), "weight": (3, 4), "initial_state": (3, 4)}
    graph = nnef_grad.loads(document("causal_conv1d_update", "qwen35", one))
    x, w, state = ({**random("causal_conv1d_update")}[n] for n in one)
    x, state = x[:1, :, :1].reshape(1, 1, 3), state[0]
    window = np.concatenate([state[:, 1:], x[0].T], axis=1)
    total = (window * w).sum(axis=1)
    found = nnef_grad.evaluate(graph, dict(zip(one, (x, w, state), strict=True)))
    np.testing.assert_allclose(found["state"], window)
    wanted = (total / (1 + np.exp(-total))).reshape(1, 1, 3)
    np.testing.assert_allclose(found["output"], wanted, rtol=1e-5)
