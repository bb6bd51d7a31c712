"""Networks that torch-to-nnef has exported, where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.dialect_models import Array, backward_in_tract, stored_values
from support.runtimes import Stored, compare, needs, run

import nnef_grad

FOLDER = Path(__file__).parents[3] / "shared" / "dialect"
NAMES = (
    "activations", "cnn_bn", "deconv", "depthwise", "einsum", "embedding", "encoder_layer",
    "groupnorm", "layernorm", "lstm", "mlp", "mlp_dynbatch", "reductions", "resblock", "sdpa",
    "softmax",
)  # fmt: skip
# A bias before a normalization has no gradient but rounding, in proportion to which it is
# measured.
TOLERANCES = {"groupnorm": 1e-3}
every_export = pytest.mark.parametrize("name", NAMES)


def folder_of(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not here: the exports are not part of this project")
    return path


def read(name: str) -> nnef_grad.Graph:
    symbols = {"B": 3} if name == "mlp_dynbatch" else None
    return nnef_grad.load(folder_of(name), symbols=symbols)


def inputs_of(graph: nnef_grad.Graph) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        name: random.integers(0, 5, t.shape)
        if t.dtype == "integer"
        else random.standard_normal(t.shape).astype(np.float32)
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }


@every_export
def test_it_computes_what_tract_computes(name: str) -> None:
    needs("tract")
    graph = read(name)
    inputs = inputs_of(graph)
    values = stored_values(graph, folder_of(name))
    ours = nnef_grad.evaluate(graph, inputs, values)
    (outcome,) = run("tract", [Stored(folder_of(name), inputs)])
    verdict = compare(outcome, {name: ours[name] for name in graph.output_names}, 1e-5)
    assert verdict.word == "ok", verdict.detail


@every_export
def test_gradients_are_central_differences(name: str) -> None:
    graph = read(name)
    backward = nnef_grad.differentiate(graph, wrt="all")
    variables = stored_values(graph, folder_of(name))
    checked = nnef_grad.check(graph, backward, variables=variables)
    assert checked.passed, checked.conclusion


@every_export
@pytest.mark.parametrize("target", ["tract", "portable"])
def test_gradients_in_tract(name: str, target: str, tmp_path: Path) -> None:
    graph, folder = read(name), folder_of(name)
    inputs = inputs_of(graph)
    tolerance = TOLERANCES.get(name, 1e-5)
    verdict = backward_in_tract(graph, folder, inputs, tmp_path, target, tolerance)
    assert verdict.word == "ok", verdict.detail
