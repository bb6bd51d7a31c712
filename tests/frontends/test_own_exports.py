"""Modules of PyTorch, exported by torch-to-nnef: what they compute and their gradients are
those of torch in double precision, in the interpreter and in the runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.exports.exporting import Export, export, export_open
from support.exports.language import LANGUAGE
from support.exports.layers import LAYERS
from support.exports.networks import NETWORKS
from support.runtimes import Outcome, Stored, compare, needs, run

import nnef_grad

MODULES = {module.name: module for module in (*LAYERS, *NETWORKS, *LANGUAGE)}
TOLERANCE = 1e-5
# A bias before a normalization has no gradient but rounding, in proportion to which it is
# measured.
ROUNDED = {"instance_norm": 1e-3}
every_module = pytest.mark.parametrize("name", MODULES)
Exports = Callable[[str], Export]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Exports a module, once for all tests."""
    made: dict[str, Export] = {}

    def exported(name: str) -> Export:
        if MODULES[name] in LANGUAGE:
            pytest.importorskip("transformers", reason="pip install --group models")
        if name not in made:
            made[name] = export(MODULES[name], tmp_path_factory.mktemp(name))
        return made[name]

    return exported


@every_module
def test_it_computes_what_torch_computes(name: str, exports: Exports) -> None:
    compare_with_torch(exports(name))


# Modules whose inputs have one batch, of a size that the export leaves open.
OPEN = (
    "mlp", "conv2d", "patches", "large_windows", "known_rows", "depthwise", "deconv2d", "max_pool_dilated", "global_average", "up_bilinear",
    "layer_norm", "gelu", "lstm_with_head", "scales", "log_sum_exp", "gather",
    "embedding", "attention", "residual", "inverted_residual", "unet", "vision_transformer",
    "encoder", "gpt", "llama_block", "conformer", "autoencoder", "mixer",
)  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_a_batch_of_another_size(name: str, tmp_path: Path) -> None:
    compare_with_torch(export(MODULES[name], tmp_path, batch="B"))


@pytest.mark.parametrize("name", OPEN)
def test_one_document_for_every_batch(name: str, tmp_path: Path) -> None:
    """In tract, next to the interpreter."""
    needs("tract")
    if MODULES[name] in LANGUAGE:
        pytest.importorskip("transformers", reason="pip install --group models")
    own = export(MODULES[name], tmp_path, batch="B")
    graph = nnef_grad.load(own.folder)
    backward = nnef_grad.differentiate(graph, wrt="all").graph
    lowered = nnef_grad.lower(backward, "tract")
    folder = tmp_path / "backward"
    nnef_grad.save(lowered.graph, folder, data={**own.data, **lowered.data})
    more = len(next(iter(own.inputs.values())))
    for batch in (1, more):
        inputs = {
            name: own.inputs[name][:batch].astype("f4" if t.dtype == "scalar" else "i8")
            for name, t in zip(backward.input_names, backward.inputs, strict=True)
        }
        (outcome,) = run("tract", [Stored(folder, inputs)])
        sized = nnef_grad.load(own.folder, symbols={"B": batch})
        expected = nnef_grad.evaluate(
            nnef_grad.differentiate(sized, wrt="all"), inputs, own.data
        )
        verdict = compare(outcome, expected, TOLERANCE)
        assert verdict.word == "ok", f"batch {batch}: {verdict.detail}"


# Modules of batches and lengths, of any size.
LONG = (
    "bert", "electra", "albert", "llama", "qwen2", "qwen3", "mistral", "gemma",
    "gemma2", "encoder", "encoder_norm_first", "encoder_of_two", "llama_block", "embedding",
    "layer_norm", "mlp_rank_3", "rms_norm", "conformer", "lstm_both_directions",
    "log_sum_exp", "gru_of_two_layers",
)  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_one_document_for_every_batch_and_length(name: str, tmp_path: Path) -> None:
    """In tract, next to torch in double precision."""
    needs("tract")
    if MODULES[name] in LANGUAGE:
        pytest.importorskip("transformers", reason="pip install --group models")
    sizes = (1, 1), (2, 7), (3, 10)
    for own in export_open(MODULES[name], tmp_path, "BS", sizes):
        folder = tmp_path / "backward"
        if not folder.exists():
            lowered = nnef_grad.lower(own.backward, "tract")
            nnef_grad.save(lowered.graph, folder, data={**own.data, **lowered.data})
        inputs = {
            name: own.inputs[name].astype("f4" if t.dtype == "scalar" else "i8")
            for name, t in zip(
                own.backward.input_names, own.backward.inputs, strict=True
            )
        }
        (outcome,) = run("tract", [Stored(folder, inputs)])
        assert own.gradients
        # What torch does not know, such as the angles of places, is the interpreter's.
        expected = {**own.computed, **own.gradients}
        verdict = compare(outcome, expected, TOLERANCE)
        assert verdict.word == "ok", f"{inputs['x0'].shape}: {verdict.detail}"


def compare_with_torch(own: Export) -> None:
    """Compares the results and the gradients of the interpreter with those of torch."""
    forward = {n: a for n, a in own.inputs.items() if n.startswith("x")}
    expected = {**own.results, **own.gradients}
    computed = {**nnef_grad.evaluate(own.graph, forward, own.data), **own.computed}
    known = {name: computed[name] for name in expected}
    outcome = Outcome({n: a.shape for n, a in known.items()}, known)
    verdict = compare(outcome, expected, TOLERANCE)
    assert verdict.word == "ok", verdict.detail


@every_module
@pytest.mark.parametrize(
    ("target", "runtime"),
    [
        ("tract", "tract"),
        ("portable", "tract"),
        ("portable", "onnx"),
        ("portable", "interpreter"),
    ],
)
def test_gradients_in_a_runtime(
    name: str, target: str, runtime: str, exports: Exports, tmp_path: Path
) -> None:
    needs(runtime)
    own = exports(name)
    lowered = nnef_grad.lower(own.backward, target)
    data = {**own.data, **lowered.data}
    nnef_grad.save(lowered.graph, tmp_path / "backward/", data=data)
    inputs = {
        name: own.inputs[name].astype("f4") if t.dtype == "scalar" else own.inputs[name]
        for name, t in zip(lowered.graph.input_names, lowered.graph.inputs, strict=True)
    }
    (outcome,) = run(runtime, [Stored(tmp_path / "backward", inputs)])
    # What torch does not know, such as the first state of a network, is the interpreter's.
    expected = {**own.computed, **own.gradients}
    verdict = compare(outcome, expected, ROUNDED.get(name, TOLERANCE))
    assert verdict.word == "ok", verdict.detail
