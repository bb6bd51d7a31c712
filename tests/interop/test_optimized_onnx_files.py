"""ONNX files that went through ONNX Runtime's optimizers and quantizers: gradients are those of
the module in PyTorch, and quantized files compute what ONNX Runtime does.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
import torch
from support.onnx_files import run
from torch import nn

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]


class Convolutions(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, padding=1),
        )
        self.last = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        one = torch.relu(self.one(x))
        two = torch.relu(self.two(one) + one)
        return self.last(two.mean((2, 3)))


class Encoder(nn.Module):  # type: ignore[misc]
    """A layer of a transformer, as exporters write it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 16),
        )  # fmt: skip
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))

    def forward(self, x: Any) -> Any:
        def heads(y: Any) -> Any:
            return y.view(x.shape[0], x.shape[1], 2, 8).transpose(1, 2)

        q, k, v = (heads(layer(x)) for layer in self.qkv)
        shares = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        mixed = (shares @ v).transpose(1, 2).reshape(x.shape)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.down(nn.functional.gelu(self.up(x))))


SHAPES = {Convolutions: (2, 3, 8, 8), Encoder: (2, 6, 16)}


def exported(kind: Any, folder: Path) -> tuple[Any, Any]:
    """A module, whose parameters differ, and an input of it."""
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(SHAPES[kind])
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), folder / "net.onnx", dynamo=False, opset_version=17,
            input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
    return module, x


def optimized(folder: Path, level: str) -> Path:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(folder / f"{level}.onnx")
    options.log_severity_level = 3
    given = str(folder / "net.onnx")
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return folder / f"{level}.onnx"


def kinds(path: Path) -> set[str]:
    return {
        n.op_type for n in onnx.load(path).graph.node if n.domain == "com.microsoft"
    }


def gradients(path: Path, x: Any, seed: Any) -> dict[str, Array]:
    model = interop.from_onnx(path)
    backward = nnef_grad.differentiate(model.graph, with_outputs=True)
    written = path.with_name("backward.onnx")
    interop.to_onnx(
        backward, written, model.data, in_file=model.in_file, overwrite=True
    )
    return run(written, {"x": x.numpy(), "grad_y": seed.numpy()})


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
def test_gradients_of_an_optimized_file(kind: Any, level: str, tmp_path: Path) -> None:
    module, x = exported(kind, tmp_path)
    path = optimized(tmp_path, level)
    assert bool(kinds(path)) == (level == "EXTENDED")
    double = kind().double()
    double.load_state_dict(module.state_dict())
    leaf = x.double().requires_grad_()
    y = double(leaf)
    seed = torch.randn(y.shape)
    named = dict(double.named_parameters())
    wanted = torch.autograd.grad(y, [leaf, *named.values()], seed.double())
    found = gradients(path, x, seed)
    np.testing.assert_allclose(found["y"], y.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_x"], wanted[0], rtol=1e-3, atol=1e-5)
    # Matrices are stored transposed, and called otherwise.
    others = [array for name, array in found.items() if name != "y"]
    for parameter, gradient in zip(named, wanted[1:], strict=True):
        like = [a for a in others if a.size == gradient.numel()]
        wide = [gradient.numpy(), gradient.numpy().T]
        distance = min(
            float(np.abs(a.reshape(g.shape) - g).max())
            for a in like
            for g in wide
            if a.shape == g.shape or a.ndim != 2
        )
        assert distance < 1e-5 * float(gradient.abs().max()) + 1e-6, parameter


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("how", ["dynamic", "QDQ", "QOperator"])
def test_a_quantized_file_computes_the_same(
    kind: Any, how: str, tmp_path: Path
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    _, x = exported(kind, tmp_path)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.feeds = iter([{"x": x.numpy()}])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    given, path = tmp_path / "net.onnx", tmp_path / "codes.onnx"
    # Products of eight bits are cut off by some processors.
    if how == "dynamic":
        quantization.quantize_dynamic(given, path, reduce_range=True)
    else:
        form = getattr(quantization.QuantFormat, how)
        quantization.quantize_static(
            given, path, Reader(), quant_format=form, reduce_range=True
        )
    seed = torch.randn((2, 4) if kind is Convolutions else x.shape)
    found = gradients(path, x, seed)
    own = run(path, {"x": x.numpy()}, is_optimised=False)["y"]
    differences = np.abs(found["y"] - own)
    assert differences.mean() < 0.01 * np.abs(own).max()
    assert np.abs(found["grad_x"]).max() > 0
