"""The samples: each compiles, and its gradients are those of autograd, twice."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from checks import check_gradients, check_twice

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


def test_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SAMPLES / "demo.py"), run_name="__main__")
    shown = capsys.readouterr().out
    for path in SAMPLES.glob("*.nnef"):
        assert f"{path.name}: " in shown
    assert "grad_a = sum_reduce(grad_a_full, axes = [0]);" in shown
