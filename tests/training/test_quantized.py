"""Steps of models with quantization info: what is trained is what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import reference
from support.training_steps import (
    MLP,
    Evaluated,
    Peer,
    assert_near,
    batches,
    mean_squared,
    random_data,
)

import nnef_grad

QUANTIZATION = """
"x": linear_quantize(min = -1.5, max = 1.5, bits = 4);
"weight1": zero_point_linear_quantize(zero_point = [0, 0, 1, 0, -2, 0], scale = [0.1, 0.2, 0.1, 0.1, 0.1, 0.2], bits = 4, signed = true, symmetric = false);
"hidden": min_max_linear_quantize(min = -1.0, max = 1.0, bits = 5, signed = true, symmetric = true);
"weight2": logarithmic_quantize(max = 1.0, bits = 3);
"y": linear_quantize(min = [[-2.0, -2.5, -3.0]], max = 3.0, bits = 8);
"""
# The same, written as operations.
WRITTEN = """version 1.0;

graph mlp( x ) -> ( y )
{
    x = external(shape = [4, 5]);
    weight1 = variable(shape = [6, 5], label = 'layer1/weight');
    bias1 = variable(shape = [1, 6], label = 'layer1/bias');
    weight2 = variable(shape = [3, 6], label = 'layer2/weight');
    bias2 = variable(shape = [1, 3], label = 'layer2/bias');
    x4 = linear_quantize(x, -1.5, 1.5, bits = 4);
    zero = constant<integer>(shape = [6], value = [0, 0, 1, 0, -2, 0]);
    scale = constant(shape = [6], value = [0.1, 0.2, 0.1, 0.1, 0.1, 0.2]);
    w1 = zero_point_linear_quantize(weight1, zero, scale, bits = 4, signed = true, symmetric = false);
    exact = tanh(linear(x4, w1, bias1));
    hidden = min_max_linear_quantize(exact, -1.0, 1.0, bits = 5, signed = true, symmetric = true);
    w2 = logarithmic_quantize(weight2, 1.0, bits = 3);
    logits = linear(hidden, w2, bias2);
    low = constant(shape = [1, 3], value = [-2.0, -2.5, -3.0]);
    y = linear_quantize(logits, low, 3.0, bits = 8);
}
"""


def model(folder: Path, quantization: str = QUANTIZATION) -> nnef_grad.Graph:
    """The network with quantization info beside it."""
    (folder / "graph.nnef").write_text(MLP)
    (folder / "graph.quant").write_text(quantization)
    return nnef_grad.load(folder)


def trained(graph: nnef_grad.Graph, **options: Any) -> nnef_grad.Step:
    return nnef_grad.training_step(
        graph,
        loss="mean_squared_error",
        optimizer="momentum",
        learning_rate=0.05,
        data=random_data(graph),
        **options,
    )


@pytest.mark.parametrize("state", ["variables", "inputs"])
def test_the_step_computes_with_quantized_tensors(tmp_path: Path, state: Any) -> None:
    graph = model(tmp_path)
    data = random_data(graph)
    step = trained(graph, quantize=True, state=state)
    assert step.inputs[:2] == ("x", "target_y")
    peer, evaluated = Peer(WRITTEN, data, mean_squared), Evaluated(step)
    optimizer = torch.optim.SGD(peer.parameters.values(), lr=0.05, momentum=0.9)
    for feeds in batches(20):
        optimizer.zero_grad()
        loss = peer.loss(feeds)
        loss.backward()
        optimizer.step()
        reports = evaluated(feeds)
        assert float(reports["loss"]) == pytest.approx(loss.item(), rel=1e-12)
    assert_near(evaluated.values, peer.parameters)
    for label, parameter in peer.parameters.items():
        assert (parameter.detach().numpy() != data[label]).any()


def test_the_text_is_a_document(tmp_path: Path) -> None:
    step = trained(model(tmp_path), quantize=True)
    text = nnef_grad.dumps(step.graph)
    feeds = {k: torch.tensor(v) for k, v in batches(1)[0].items()}
    data = {k: torch.tensor(v, dtype=torch.float64) for k, v in step.data.items()}
    expected = Evaluated(step)(batches(1)[0])["loss"]
    assert float(reference.evaluate(text, feeds, data)["loss"]) == pytest.approx(
        float(expected), rel=1e-12
    )
    assert len(nnef_grad.loads(text).operations) == len(step.graph.operations)


def test_without_the_option_tensors_are_exact(tmp_path: Path) -> None:
    steps = [trained(model(tmp_path)), trained(nnef_grad.loads(MLP))]
    texts = [nnef_grad.dumps(step.graph) for step in steps]
    assert texts[0] == texts[1]


def test_the_trained_model_keeps_its_quantization(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    graph = model(source)
    step = trained(graph, quantize=True)
    training = nnef_grad.training.run(step, batches(3), runtime="numpy")
    assert len(list(training)) == 3
    training.save(out)
    again = nnef_grad.load(out)
    assert again.quantization.keys() == graph.quantization.keys()
    data = nnef_grad.load_data(out)
    assert (np.asarray(data["layer1/weight"]) == training.data["layer1/weight"]).all()


def test_a_model_without_quantization_info_is_refused() -> None:
    with pytest.raises(nnef_grad.UsageError, match=r"graph\.quant"):
        trained(nnef_grad.loads(MLP), quantize=True)


def test_normalization_by_the_batch_of_quantized_tensors(tmp_path: Path) -> None:
    text = MLP.replace(
        "hidden = tanh(linear(x, weight1, bias1));",
        "mean = variable(shape = [1, 6], label = 'mean');\n"
        "    variance = variable(shape = [1, 6], label = 'variance');\n"
        "    sums = linear(x, weight1, bias1);\n"
        "    hidden = batch_normalization(sums, mean, variance, 0.0, 1.0, epsilon = 0.1);",
    )
    (tmp_path / "graph.nnef").write_text(text)
    (tmp_path / "graph.quant").write_text(
        '"sums": linear_quantize(min = -2.0, max = 2.0, bits = 8);'
    )
    graph = nnef_grad.load(tmp_path)
    step = trained(graph, quantize=True, batch_statistics=0.1)
    evaluated = Evaluated(step)
    feeds = batches(1)[0]
    before = {k: v.copy() for k, v in evaluated.values.items()}
    evaluated(feeds)
    sums = feeds["x"] @ before["layer1/weight"].T + before["layer1/bias"]
    codes = np.floor((np.clip(sums, -2.0, 2.0) + 2.0) / 4.0 * 255.0 + 0.5)
    mean = (codes / 255.0 * 4.0 - 2.0).mean(0, keepdims=True)
    expected = 0.9 * before["mean"] + 0.1 * mean
    assert np.abs(evaluated.values["mean"] - expected).max() < 1e-12
