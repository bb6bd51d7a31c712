"""Numbers in blocks of four bits, as torch-to-nnef writes them for tract (Q4_0)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.runtimes import find_runtime

GRAPH = """version 1.0;

extension tract_registry tract_core;

graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [4, 64], datum_type = 'f32');
    w = variable(label = 'w', shape = [96, 64]);
    b = variable<scalar>(label = 'b', shape = [96]);
    c = unsqueeze(b, axes = [0]);
    h = linear(x, w, c);
    y = relu(h);
}
"""


def in_blocks(numbers: Any) -> tuple[bytes, Any]:
    """The file of numbers, and what it stands for: item k and k + 16 share a byte."""
    blocks = numbers.reshape(-1, 32)
    scales = (np.abs(blocks).max(1, keepdims=True) / 7).astype(np.float16)
    codes = np.clip(np.round(blocks / scales), -8, 7).astype(int)
    bytes_ = ((codes[:, 16:] + 8) << 4 | (codes[:, :16] + 8)).astype(np.uint8)
    content = np.concatenate([scales.view(np.uint8), bytes_], 1).tobytes()
    extents = [*numbers.shape, *[0] * (8 - numbers.ndim)]
    fields = [len(content), numbers.ndim, *extents, 2**32 - 1, 0x54523040]
    header = struct.pack("<4s12I", b"\x4e\xef\x01\x00", *fields).ljust(128, b"\0")
    stands_for = (scales.astype(np.float32) * codes).reshape(numbers.shape)
    return header + content, stands_for.astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, Any, Any]:
    random = np.random.default_rng(0)
    folder = tmp_path / "model"
    b = random.standard_normal(96).astype(np.float32)
    plain = nnef_grad.loads(GRAPH)
    w = random.standard_normal((96, 64)).astype(np.float32)
    nnef_grad.save(plain, folder, data={"w": w, "b": b})
    (folder / "graph.nnef").write_text(GRAPH)
    content, numbers = in_blocks(w)
    (folder / "w.dat").write_bytes(content)
    return folder, numbers, b


def test_its_numbers(model: tuple[Path, Any, Any]) -> None:
    folder, numbers, _ = model
    np.testing.assert_array_equal(nnef_grad.load_data(folder)["w"], numbers)


def test_they_are_what_tract_takes_them_for(model: tuple[Path, Any, Any]) -> None:
    tract = pytest.importorskip("tract")
    folder, numbers, b = model
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    (y,) = tract.nnef().load(str(folder)).into_runnable().run([x])
    expected = np.maximum(x @ numbers.T + b, 0)
    np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["nnef", "tract", "onnx"])
def test_gradients_are_those_of_these_numbers(
    model: tuple[Path, Any, Any], target: str, tmp_path: Path
) -> None:
    """What is written has them in single precision, which every operation reads."""
    folder, numbers, b = model
    out = tmp_path / "bwd"
    words = [str(folder), "--target", target, "--check", "-o", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    random = np.random.default_rng(2)
    x = torch.tensor(random.standard_normal((4, 64)), dtype=torch.float32)
    seed = random.standard_normal((4, 96)).astype(np.float32)
    leaves = [t.requires_grad_() for t in (x, torch.tensor(numbers))]
    y = torch.relu(leaves[0] @ leaves[1].T + torch.tensor(b))
    wanted = torch.autograd.grad(y, leaves, torch.tensor(seed))
    stored = nnef_grad.load_data(out)
    graph = nnef_grad.load(out)
    given = {"x": x.detach().numpy(), "grad_y": seed}
    found = nnef_grad.evaluate(graph, given, stored)
    np.testing.assert_array_equal(stored["w"], numbers)
    assert stored.header("w").items.name == "float"
    for name, gradient in zip(("grad_x", "grad_w"), wanted, strict=True):
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=1e-5)
    if target == "tract":
        pytest.importorskip("tract")
        run = find_runtime("tract").compile(
            nnef_grad.differentiate(nnef_grad.load(folder)).graph, dict(stored)
        )
        np.testing.assert_allclose(
            run([given["x"], seed])[0], wanted[0], rtol=1e-3, atol=1e-3
        )


def test_adapters_are_trained_beside_them(model: tuple[Path, Any, Any]) -> None:
    folder, numbers, _ = model
    step = nnef_grad.training_step(
        nnef_grad.load(folder),
        loss="mean_squared_error",
        optimizer="sgd",
        learning_rate=0.1,
        data=nnef_grad.load_data(folder),
        adapters={"w": 2},
    )
    np.testing.assert_array_equal(step.data["w"], numbers)
    batch = {"x": np.ones((4, 64)), "target_y": np.zeros((4, 96))}
    first, second = nnef_grad.training.run(step, [batch, batch], runtime="numpy")
    assert second < first


def test_nothing_is_merged_into_them(
    model: tuple[Path, Any, Any], tmp_path: Path
) -> None:
    folder, numbers, b = model
    nnef_grad.save(
        nnef_grad.loads(GRAPH), tmp_path / "new", data={"w": 2 * numbers, "b": b}
    )
    with pytest.raises(nnef_grad.UsageError, match="stored as codes"):
        nnef_grad.training.merge(folder, [tmp_path / "new"], tmp_path / "tuned")
