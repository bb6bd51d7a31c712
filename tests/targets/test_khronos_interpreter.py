"""The Khronos PyTorch interpreter runs backward graphs: a runtime that shares nothing
with the reference evaluator.

It computes in float32, and some operations wrongly: it is asked only where it is right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import reference
from support.checks import document
from support.khronos_interpreter import interpreted
from support.networks import small_network

import nnef_grad

SAMPLES = Path(__file__).parents[2] / "samples"
BLOCK = document(
    "x = external(shape = [2, 4, 6, 6]);\nk = variable(shape = [8, 2, 3, 3], label = 'k');\n"
    "b = variable(shape = [1, 8], label = 'b');\ng = variable(shape = [1, 8], label = 'g');\n"
    "c = conv(x, k, b, stride = [2, 2], padding = [(1, 1), (1, 1)], groups = 2);\nr = relu(c);\ns = mul(r, g);\n"
    "m = mean_reduce(s, axes = [2, 3]);\nq = squeeze(m, axes = [2, 3]);\ny = softmax(q);"
)


@pytest.mark.parametrize("name", ["broadcast", "linear", "mlp", "convnet", "block"])
def test_the_khronos_interpreter_computes_the_same_gradients(
    name: str, tmp_path: Path
) -> None:
    text = BLOCK if name == "block" else (SAMPLES / f"{name}.nnef").read_text("utf-8")
    compare(text, tmp_path)


def test_the_khronos_interpreter_runs_a_residual_network_without_pooling(
    tmp_path: Path,
) -> None:
    """It overwrites where pooling windows overlap; the rest of the network it computes
    rightly.
    """
    text = small_network("resnet")
    pool = "max_pool(conv1, size = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (0, 0), (0, 0)], border = 'ignore', stride = [1, 1, 2, 2])"
    assert pool in text
    compare(text.replace(pool, "relu(conv1)"), tmp_path)


def compare(text: str, folder: Path) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    emitted = nnef_grad.dumps(backward)
    generator = torch.Generator().manual_seed(5)
    feeds, variables = reference.random_feeds(emitted, generator)
    variables = {label: scaled(value) for label, value in variables.items()}
    expected = reference.outputs(emitted, feeds, variables)
    for name, actual, wanted in zip(
        backward.gradients,
        interpreted(emitted, feeds, variables, folder),
        expected,
        strict=True,
    ):
        assert tuple(actual.shape) == tuple(wanted.shape), name
        error = float((actual.detach().double() - wanted).abs().max()) / max(
            float(wanted.abs().max()), 1e-6
        )
        assert error < 1e-3, f"{name}: {error}"


def scaled(value: torch.Tensor) -> torch.Tensor:
    """Kernels by their fan-in, everything else positive: variances are among it."""
    if value.dim() >= 2 and value.shape[0] > 1:
        return value * (2.0 / value[0].numel()) ** 0.5
    return value.abs() + 0.5
