"""The samples: each compiles, and its gradients are those of autograd, twice."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from support.checks import check_gradients, check_twice

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.nnef")), ids=lambda p: p.stem)
def test_a_sample(path: Path) -> None:
    text = path.read_text("utf-8")
    # Khronos' inference refuses a bias of shape [1, 1], and has the shape of sample wrong,
    # which is the derivative of the derivative of max_pool.
    check_gradients(text, shapes=path.stem != "linear", transform=positive)
    right = path.stem not in ("linear", "convnet")
    check_twice(text, shapes=right, transform=positive)


def positive(value: torch.Tensor) -> torch.Tensor:
    """A variance is among the values."""
    return value.abs() + 0.1


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_a_script(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr().out
    for expected in SHOWN[path.stem]:
        assert expected in shown


NEEDS = {
    "data_parallel": ("onnx", "onnxruntime", "sklearn"),
    "fine_tune": ("onnx", "onnxruntime", "sklearn"),
    "fine_tune_in_tract": ("tract",),
    "gradients_in_engines": ("onnx",),
    "gradients_in_tract": ("tract",),
    "onnx_to_onnx_runtime": ("onnx", "onnxruntime"),
    "pytorch_to_onnx_runtime": ("onnx", "onnxruntime"),
    "train_digits": ("onnx", "onnxruntime", "sklearn"),
}
# How many gradients each compares.
COMPARED = {
    "gradients_in_tract": 5,
    "onnx_to_onnx_runtime": 5,
    "pytorch_to_onnx_runtime": 4,
}

# What each script says, if all is well.
SHOWN = {
    "data_parallel": ["epoch 5 by 1: loss", "% of 452 right"],
    "demo": [
        *(f"{path.name}: " for path in SAMPLES.glob("*.nnef")),
        "grad_a = sum_reduce(grad_a_full, axes = [0]);",
    ],
    "fine_tune": ["the last layer", "right, in torch"],
    "fine_tune_in_tract": ["step 200 in tract: loss 0.0", "% of other tones right, 9"],
    # Of each engine that is installed, what test_onnx_portable compares.
    "gradients_in_engines": [],
    "gradients_in_tract": ["grad_x", "grad_bias2"],
    "onnx_to_onnx_runtime": ["x ", "kernel", "offset"],
    "pytorch_to_onnx_runtime": ["0.weight", "4.bias"],
    "hessian_vector": ["relative error"],
    "jacobian": ["all agree with central differences"],
    "own_operations": [
        "by_its_body: |grad_weight| = 1.468227026275, agrees",
        "by_rules_in_a_file: |grad_weight| = 1.468227026275, agrees",
        "by_functions: |grad_weight| = 1.468227026275, agrees",
    ],
    "train_digits": ["epoch 10: loss 0.0", "220 steps in onnxruntime"],
}


@pytest.mark.parametrize("name", COMPARED)
def test_gradients_in_other_runtimes_are_right(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in NEEDS[name]:
        pytest.importorskip(package)
    runpy.run_path(str(SAMPLES / f"{name}.py"), run_name="__main__")
    errors = re.findall(r"off by (\S+)", capsys.readouterr().out)
    assert len(errors) == COMPARED[name]
    assert max(map(float, errors)) < 1e-5


def test_the_hessian_vector_product_is_exact(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(SAMPLES / "hessian_vector.py"), run_name="__main__")
    error = re.findall(r"relative error (\S+)", capsys.readouterr().out)
    assert float(error[0]) < 1e-7
