"""Every operation of tract's dialect and every feature of its language: what tract itself
computes for the document, and gradients that agree with central differences.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.dialect_differences import OPERATIONS
from support.dialect_models import Model, backward_in_tract, models, stored_values
from support.runtimes import Stored, compare, needs, run

import nnef_grad
from nnef_grad.frontends.tract.library import REFUSED, TRACT_LIBRARY
from nnef_grad.graph.extents import as_numbers

MODELS = models()
_ids = [model.name for model in MODELS]
every_model = pytest.mark.parametrize("model", MODELS, ids=_ids)


@every_model
def test_the_graph_computes_what_tract_computes(model: Model, tmp_path: Path) -> None:
    needs("tract")
    folder = model.write(tmp_path / "model")
    graph = nnef_grad.load(folder)
    ours = nnef_grad.evaluate(graph, model.inputs(), stored_values(graph, folder))
    (outcome,) = run("tract", [Stored(folder, model.inputs())])
    verdict = compare(outcome, ours)
    assert verdict.word == "ok", verdict.detail


@every_model
def test_gradients_are_central_differences(model: Model, tmp_path: Path) -> None:
    folder = model.write(tmp_path / "model")
    graph = nnef_grad.load(folder)
    backward = nnef_grad.differentiate(graph, wrt="all")
    variables = stored_values(graph, folder)
    checked = nnef_grad.check(graph, backward, variables=variables)
    assert checked.passed, checked.conclusion


@every_model
def test_the_graph_is_strictly_standard(model: Model, tmp_path: Path) -> None:
    graph = nnef_grad.load(model.write(tmp_path / "model"))
    plain = nnef_grad.lower(graph, "nnef").graph
    again = nnef_grad.loads(nnef_grad.dumps(plain), dialect="nnef")
    assert again == plain
    assert kinds(graph).items() <= kinds(again).items()
    for target in ("portable", "tract", "onnx"):
        nnef_grad.lower(nnef_grad.differentiate(graph, wrt="all").graph, target)


def kinds(graph: nnef_grad.Graph) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (t.dtype, as_numbers(t.shape)) for name, t in graph.tensors.items()}


@every_model
def test_gradients_in_tract(model: Model, tmp_path: Path) -> None:
    folder = model.write(tmp_path / "model")
    verdict = backward_in_tract(
        nnef_grad.load(folder), folder, model.inputs(), tmp_path
    )
    assert verdict.word == "ok", verdict.detail


# ---- The lists are whole ----


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("negative", [False, True])
def test_infinities_that_are_asked_for(positive: bool, negative: bool) -> None:
    flags = f"detect_positive = {positive}, detect_negative = {negative}".lower()
    graph = nnef_grad.loads(
        "version 1.0; extension tract_registry tract_core; graph g( x ) -> ( y ) {"
        f" x = external(shape = [3]); y = tract_core_is_inf(x, {flags}); }}"
    )
    found = nnef_grad.evaluate(graph, {"x": [float("-inf"), 1.0, float("inf")]})["y"]
    assert found.tolist() == [negative, False, positive]


def test_every_operation_of_the_library_has_a_model() -> None:
    texts = "\n".join(model.text for model in MODELS)
    aliases = {
        "tract_onnx_is_nan",
        "tract_onnx_isinf",
        "tract_transformers_silu",
        "tract_transformers_gelu_approx",
        # In test_states_that_come_and_go.py.
        "tract_transformers_causal_conv1d_update",
        "tract_transformers_gdn_recurrent",
        "tract_qwen35_causal_conv1d_update",
        "tract_qwen35_gdn_recurrent",
        # In test_mixtures_of_experts.py.
        "tract_moe_ffn",
    }
    missing = {name for name in TRACT_LIBRARY if f"{name}(" not in texts}
    assert missing == aliases


def test_every_difference_of_an_operation_has_a_model() -> None:
    texts = "\n".join(model.text for model in MODELS)
    assert [n for n in OPERATIONS if not re.search(rf"\b{n}[(<]", texts)] == []


def test_no_operation_is_both_read_and_refused() -> None:
    assert not REFUSED.keys() & {*TRACT_LIBRARY}
