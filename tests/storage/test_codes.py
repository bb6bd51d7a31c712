"""Numbers that are stored as codes, which quantization info gives a meaning."""

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
from nnef_grad.commandline.step_cli import main as step_main
from nnef_grad.interpreter.random_values import random_values

GRAPH = """version 1.0;

extension tract_registry tract_core;

graph net( x ) -> ( y )
{
    x = tract_core_external(shape = [4, 8], datum_type = 'f32');
    w = variable<scalar>(label = 'w', shape = [16, 8]);
    w_single = tract_core_cast(w, to = 'f32');
    b = variable<scalar>(label = 'b', shape = [1, 16]);
    h = linear(x, w_single, b);
    y = tanh(h);
}
"""
SIGNED = "zero_point_linear_quantize(zero_point = 3, scale = 0.01, bits = 8, signed = true, symmetric = false)"
# What the codes mean, by how they are quantized.
MEANINGS: dict[str, Any] = {
    SIGNED: lambda q: (q - 3) * 0.01,
    SIGNED.replace("signed = true", "signed = false"): lambda q: (q - 3) * 0.01,
    SIGNED.replace("0.01", str([[n / 100 for n in range(1, 9)]])): (
        lambda q: (q - 3) * np.arange(1, 9) / 100
    ),
    "linear_quantize(min = -1.0, max = 2.0, bits = 8)": lambda q: q / 255 * 3 - 1,
    "min_max_linear_quantize(min = -1.0, max = 1.0, bits = 8, signed = true, symmetric = true)": (
        lambda q: (q + 127) / 254 * 2 - 1
    ),
}


def tensor_file(array: Any, code: int) -> bytes:
    extents = [*array.shape, *[0] * (8 - array.ndim)]
    fields = [array.nbytes, array.ndim, *extents, 8 * array.itemsize, code]
    header = struct.pack("<4s12I", b"\x4e\xef\x01\x00", *fields).ljust(128, b"\0")
    content: bytes = array.tobytes()
    return header + content


def stored(folder: Path, how: str) -> Any:
    """Writes the model to a folder; the codes of its matrix."""
    random = np.random.default_rng(0)
    folder.mkdir()
    (folder / "graph.nnef").write_text(GRAPH)
    (folder / "graph.quant").write_text(f'"w": {how};\n')
    is_signed = " signed = true" in how
    codes = random.integers(0, 120, (16, 8)).astype(np.int8 if is_signed else np.uint8)
    (folder / "w.dat").write_bytes(tensor_file(codes, 3 if is_signed else 2))
    b = random.standard_normal((1, 16)).astype(np.float32)
    (folder / "b.dat").write_bytes(tensor_file(b, 0))
    return codes


def made(command: Any, *words: object) -> None:
    result = CliRunner().invoke(command, [*map(str, words)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("how", MEANINGS)
def test_their_numbers(how: str, tmp_path: Path) -> None:
    codes = stored(tmp_path / "model", how).astype(float)
    data = nnef_grad.load_data(tmp_path / "model")
    with pytest.raises(nnef_grad.UsageError, match="quantized codes"):
        data["w"]
    graph = nnef_grad.load(tmp_path / "model")
    np.testing.assert_allclose(data.of(graph)["w"], MEANINGS[how](codes), rtol=1e-6)
    values = random_values(graph, seed=1)
    known = nnef_grad.evaluate(graph, values.inputs, data.of(graph))["y"]
    b, x = data["b"], values.inputs["x"]
    expected = np.tanh(x @ MEANINGS[how](codes).T + b)
    np.testing.assert_allclose(known, expected, rtol=1e-5)


def test_exponents_are_no_numbers(tmp_path: Path) -> None:
    """Nor is a check in need of them: it draws what has no numbers."""
    stored(tmp_path / "model", "logarithmic_quantize(max = 1.0, bits = 8)")
    graph = nnef_grad.load(tmp_path / "model")
    with pytest.raises(nnef_grad.UsageError, match="quantized codes"):
        nnef_grad.load_data(tmp_path / "model").of(graph)["w"]
    made(main, tmp_path / "model", "--check", "-o", tmp_path / "bwd")


def test_info_about_numbers_is_no_part_of_a_step(tmp_path: Path) -> None:
    """Without --quantize, a step computes with the numbers as they are."""
    stored(tmp_path / "model", SIGNED)
    numbers = np.ones((16, 8), np.float32)
    (tmp_path / "model" / "w.dat").write_bytes(tensor_file(numbers, 0))
    words = "--loss mean_squared_error --optimizer sgd --target tract --train b"
    made(step_main, tmp_path / "model", *words.split(), "-o", tmp_path / "step")
    assert not (tmp_path / "step" / "graph.quant").exists()


@pytest.mark.parametrize("target", ["nnef", "tract", "portable"])
def test_gradients_are_those_of_these_numbers(target: str, tmp_path: Path) -> None:
    """A folder of its own gets the file as it is; other targets get numbers."""
    numbers = MEANINGS[SIGNED](stored(tmp_path / "model", SIGNED).astype(float))
    out = tmp_path / "bwd"
    made(main, tmp_path / "model", "--target", target, "--check", "-o", out)
    graph, data = nnef_grad.load(out), nnef_grad.load_data(out)
    kept = target != "portable"
    assert data.header("w").items.is_quantized == kept
    assert (out / "w.dat").samefile(tmp_path / "model" / "w.dat") == kept
    values = random_values(graph, seed=2)
    x = torch.tensor(values.inputs["x"], dtype=torch.float64, requires_grad=True)
    y = torch.tanh(x @ torch.tensor(numbers).T + torch.tensor(data["b"]))
    (wanted,) = torch.autograd.grad(y, x, torch.tensor(values.inputs["grad_y"]))
    found = nnef_grad.evaluate(graph, values.inputs, data.of(graph))
    np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-5, atol=1e-6)


def test_adapters_and_biases_are_trained_beside_them_in_tract(tmp_path: Path) -> None:
    """As by torch, beside the same numbers; the codes are the file of the model."""
    tract = pytest.importorskip("tract")
    numbers = MEANINGS[SIGNED](stored(tmp_path / "model", SIGNED).astype(float))
    step = tmp_path / "step"
    words = (
        "--loss mean_squared_error --optimizer sgd --learning-rate 0.1 --target tract"
    )
    adapters = ["--adapters", "w:rank=2", "--train", "b", "-o", step]
    made(step_main, tmp_path / "model", *words.split(), *adapters)
    assert (step / "w.dat").samefile(tmp_path / "model" / "w.dat")
    assert (step / "graph.quant").read_text() == f'"w": {SIGNED};\n'
    names = ["b", "w_lora_A", "w_lora_B"]
    state: list[Any] = [nnef_grad.load_data(step)[name] for name in names]
    trained = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in state]
    b, down, up = trained
    optimizer = torch.optim.SGD(trained, 0.1)
    runnable = tract.nnef().load(str(step)).into_runnable()
    random = np.random.default_rng(3)
    for _ in range(20):
        x, wanted = (random.standard_normal((4, n)).astype(np.float32) for n in (8, 16))
        loss, *state = runnable.run([x, wanted, *state])
        given = torch.tensor(x, dtype=torch.float64)
        y = torch.tanh(given @ (torch.tensor(numbers) + up @ down).T + b)
        expected = torch.nn.functional.mse_loss(y, torch.tensor(wanted).double())
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(loss.to_numpy(), expected.item(), rtol=1e-5)
    for found, tensor in zip(state, trained, strict=True):
        np.testing.assert_allclose(
            found.to_numpy(), tensor.detach(), rtol=1e-3, atol=1e-6
        )
