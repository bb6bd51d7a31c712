"""The samples that train: digits in every runtime, step for step as in torch, and the last
layer of a network.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import nnef_grad
from nnef_grad.training import run

SAMPLES = Path(__file__).parents[1] / "samples"
RIGHT = re.compile(r"(\S+) % of 360 other digits right, in (\w+)")
# The packages of each runtime, and the runtime that runs what it has trained.
RUNTIMES = [
    pytest.param("onnxruntime", "numpy", ("onnx", "onnxruntime")),
    pytest.param("tract", "onnxruntime", ("tract", "onnx", "onnxruntime")),
    pytest.param(
        "khronos",
        "onnxruntime",
        ("onnx", "onnxruntime"),
        marks=pytest.mark.thorough,
    ),
]


def sample(name: str) -> dict[str, Any]:
    """What a sample defines."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return runpy.run_path(str(SAMPLES / f"{name}.py"))


@pytest.mark.parametrize(("runtime", "other", "packages"), RUNTIMES)
def test_digits_are_learned(
    runtime: str,
    other: str,
    packages: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for package in packages:
        pytest.importorskip(package)
    sample("train_digits")["main"](runtime, tmp_path / "trained")
    [(percent, by)] = RIGHT.findall(capsys.readouterr().out)
    assert by == other
    assert float(percent) >= 97.0
    # An ordinary model: nothing of the optimizer is in it.
    stored = nnef_grad.load_data(tmp_path / "trained")
    graph = nnef_grad.load(tmp_path / "trained")
    assert sorted(stored) == sorted(labels_of(graph))


@pytest.mark.parametrize(("runtime", "other", "packages"), RUNTIMES)
def test_digits_are_learned_step_for_step_as_in_torch(
    runtime: str, other: str, packages: tuple[str, ...]
) -> None:
    for package in packages:
        pytest.importorskip(package)
    digits = sample("train_digits")
    images, labels = digits["digits"]()
    batches = digits["epochs"](images, labels)[:20]
    step = digits["digits_step"]()
    found = list(run(step, batches, runtime=runtime, learning_rate=0.01))
    wanted = list(losses_by_torch(step.data, batches))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    # The losses show what was learned, rather than how it began.
    assert wanted[-1] < wanted[0] / 2


def test_what_is_frozen_is_not_computed(capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    tune = sample("fine_tune")
    tune["main"]()
    shown = capsys.readouterr().out
    [(percent, by)] = RIGHT.findall(shown)
    assert by == "torch"
    assert float(percent) >= 97.0
    model = nnef_grad.interop.from_torch(
        tune["resnet"]().eval(), [torch.zeros(2, 1, 8, 8)]
    )
    step = tune["compiled"](model, ["classifier.*"])
    computed = [op for op in step.graph.operations if op.name in ("conv", "deconv")]
    assert len(computed) == sum(op.name == "conv" for op in model.graph.operations)
    assert not any("block" in name for name in step.state)


def labels_of(graph: nnef_grad.Graph) -> Iterator[str]:
    return (
        str(op.attributes["label"]) for op in graph.operations if op.name == "variable"
    )


def losses_by_torch(data: Any, batches: Any) -> Iterator[float]:
    """The losses of the net of the digits."""
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        *(nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)),
    )
    values = {
        "0.weight": data["conv1/filter"],
        "3.weight": data["conv2/filter"],
        "7.weight": data["classifier/weight"],
        "7.bias": data["classifier/bias"][0],
    }
    # Batch normalization begins in torch as in the sample.
    net.load_state_dict({k: torch.tensor(v) for k, v in values.items()}, strict=False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for images, labels in batches:
        loss = cross_entropy(net(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
