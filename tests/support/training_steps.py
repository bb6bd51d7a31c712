"""Training steps beside torch: both in float64, the one by the evaluator, the other by the
oracle of the tests and torch.optim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from nnef_grad.training import Step
from support import reference

Array = Any
Tensors = Mapping[str, torch.Tensor]
Optimizer = Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]
TOLERANCE = 1e-12
RECIPES = Path(__file__).parent / "recipes.nnef"
MLP = """version 1.0;

graph mlp( x ) -> ( y )
{
    x = external(shape = [4, 5]);
    weight1 = variable(shape = [6, 5], label = 'layer1/weight');
    bias1 = variable(shape = [1, 6], label = 'layer1/bias');
    weight2 = variable(shape = [3, 6], label = 'layer2/weight');
    bias2 = variable(shape = [1, 3], label = 'layer2/bias');
    hidden = tanh(linear(x, weight1, bias1));
    y = linear(hidden, weight2, bias2);
}
"""


def random_data(graph: nnef_grad.Graph, seed: int = 0) -> dict[str, Array]:
    """Values of the variables of a graph, by label: in double precision, with the digits of
    single precision.
    """
    generator = np.random.default_rng(seed)

    def drawn(shape: tuple[int, ...]) -> Array:
        half = 0.5 * generator.standard_normal(shape)
        return half.astype(np.float32).astype(float)

    return {
        str(op.attributes["label"]): drawn(as_numbers(op.outputs[0].shape))
        for op in graph.operations
        if op.name == "variable"
    }


def own(name: str) -> str:
    """A recipe of the tests' own file."""
    return f"{RECIPES}:{name}"


class Evaluated:
    """A step that is run by the evaluator, whatever form its state has.

    Attributes:
        step: the step.
        values: the values that variables and state have now, by label.
        count: how many steps have been made.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.count = 0
        self.values: dict[str, Array] = {}
        for part in (step, step.apply):
            if part is not None:
                self.values |= {k: _double(v) for k, v in part.values.items()}

    def __call__(self, feeds: Mapping[str, Any], **rates: float) -> dict[str, Array]:
        """Makes a step, and returns what it reports.

        Args:
            feeds: the inputs of the model, and the targets.
            rates: the learning rate and the scale of the loss, if they are inputs.
        """
        reports = self._run(self.step, feeds, rates)
        self.count += 1
        if self.step.apply is not None and self.count % self.step.accumulate == 0:
            self._run(self.step.apply, {}, rates)
        return reports

    def _run(
        self, step: Step, feeds: Mapping[str, Any], rates: Mapping[str, float]
    ) -> dict[str, Array]:
        names = step.graph.tensors
        outputs = dict.fromkeys([*step.outputs, *step.state.values()])
        graph = replace(step.graph, outputs=tuple(names[name] for name in outputs))
        fed = {n: self.values[k] for n, k in step.labels.items() if n in step.inputs}
        fed |= {n: np.array(v) for n, v in rates.items() if n in step.inputs}
        found = nnef_grad.evaluate(graph, {**feeds, **fed}, self.values)
        for name, new in step.state.items():
            self.values[step.labels[name]] = found.pop(new)
        return found


def _double(value: Any) -> Array:
    """An array, of double precision if it holds numbers with a fraction."""
    found = np.asarray(value)
    return found.astype(np.float64) if found.dtype.kind == "f" else found


class Peer:
    """A model that torch trains.

    Attributes:
        parameters: the variables, by label.
    """

    def __init__(
        self,
        text: str,
        data: Mapping[str, Array],
        loss: Callable[[Tensors, Tensors], torch.Tensor],
        trained: Sequence[str] | None = None,
    ) -> None:
        self.parameters = {
            label: torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))
            for label, value in data.items()
        }
        for label, parameter in self.parameters.items():
            parameter.requires_grad_(trained is None or label in trained)
        self._text = text
        self._loss = loss

    def loss(self, feeds: Mapping[str, Array]) -> torch.Tensor:
        """The loss of a batch: the inputs of the model, and the targets."""
        fed = {name: torch.as_tensor(value) for name, value in feeds.items()}
        return self._loss(reference.evaluate(self._text, fed, self.parameters), fed)


def mean_squared(tensors: Tensors, fed: Tensors) -> torch.Tensor:
    """The loss of most tests of optimizers."""
    return torch.nn.functional.mse_loss(tensors["y"], fed["target_y"])


def batches(count: int, seed: int = 1) -> list[dict[str, Array]]:
    """Batches for the network above."""
    generator = np.random.default_rng(seed)
    return [
        {
            "x": generator.standard_normal((4, 5)),
            "target_y": generator.standard_normal((4, 3)),
        }
        for _ in range(count)
    ]


def assert_near(
    found: Mapping[str, Array], expected: Tensors, tolerance: float = TOLERANCE
) -> None:
    """Asserts that arrays are those of torch, by name, relative to the largest element."""
    for name, tensor in expected.items():
        wanted = tensor.detach().numpy()
        assert found[name].shape == wanted.shape, name
        scale = max(float(np.abs(wanted).max()), 1.0)
        error = float(np.abs(found[name] - wanted).max()) / scale
        assert error <= tolerance, f"{name}: {error:.2g}"


# ---- A network that runtimes train ----

NETWORK = """version 1.0;

graph network( image ) -> ( logits )
{
    image = external(shape = [8, 1, 6, 6]);
    filter = variable(shape = [3, 1, 3, 3], label = 'conv/filter');
    mean = variable(shape = [1, 3], label = 'norm/mean');
    variance = variable(shape = [1, 3], label = 'norm/variance');
    offset = variable(shape = [1, 3], label = 'norm/offset');
    scale = variable(shape = [1, 3], label = 'norm/scale');
    weight = variable(shape = [5, 27], label = 'linear/weight');
    conv1 = conv(image, filter);
    norm = batch_normalization(conv1, mean, variance, offset, scale, epsilon = 1e-5);
    pool = max_pool(relu(norm), size = [1, 1, 2, 2], stride = [1, 1, 2, 2]);
    flat = reshape(pool, shape = [8, 27]);
    logits = linear(flat, weight);
}
"""
PACKAGES = {
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "openvino"),
    "tract": ("tract",),
    "khronos": ("nnef_tools",),
    "numpy": (),
}


def network(batch: int = 8) -> nnef_grad.Graph:
    """A small network with a normalization."""
    return nnef_grad.loads(NETWORK.replace("[8, ", f"[{batch}, "))


def network_data() -> dict[str, Array]:
    """Values that it begins with, in single precision."""
    data = random_data(network())
    data["norm/variance"] = 1.0 + np.abs(data["norm/variance"])
    data["norm/scale"] = 1.0 + data["norm/scale"]
    return {label: value.astype(np.float32) for label, value in data.items()}


def batches_of_images(count: int) -> list[tuple[Array, Array]]:
    """Images of noise with a bright spot, whose place is the label."""
    generator = np.random.default_rng(3)
    found = []
    for _ in range(count):
        labels = generator.integers(0, 5, (8,))
        images = generator.standard_normal((8, 1, 6, 6))
        images[np.arange(8), 0, labels, labels] += 3.0
        found.append((images.astype(np.float32), labels))
    return found


def needs(runtime: str) -> None:
    """Skips a test where a runtime is not installed."""
    for package in PACKAGES[runtime]:
        pytest.importorskip(package)
