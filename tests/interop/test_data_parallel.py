"""NNEF models that several processes train, by DistributedDataParallel over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nnef_grad

pytest.importorskip("torch")

import torch
from torch import distributed, multiprocessing

if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch has no gloo here", allow_module_level=True)

from support import data_parallel

from nnef_grad.torch import Module

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "data_parallel.py"
COUNT = 2
TEXT = """
version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1, 6]);
    weight1 = variable(shape = [8, 6], label = 'layer.0/weight');
    bias1 = variable(shape = [1, 8], label = 'layer.0/bias');
    weight2 = variable(shape = [3, 8], label = 'layer.1/weight');
    linear1 = linear(x, weight1, bias1);
    hidden = tanh(linear1);
    y = linear(hidden, weight2, 0.0);
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model in it."""
    generator = np.random.default_rng(0)
    graph = nnef_grad.loads(TEXT)
    data = {
        str(op.attributes["label"]): generator.standard_normal(t.shape, np.float32)
        for op in graph.operations
        if op.name == "variable"
        for t in op.outputs
    }
    nnef_grad.save(graph, tmp_path / "model", data=data)
    return tmp_path


@pytest.mark.parametrize("runtime", ["interpreter", "onnxruntime"])
def test_two_processes_have_the_gradients_of_one(folder: Path, runtime: str) -> None:
    if runtime == "onnxruntime":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    generator = torch.Generator().manual_seed(0)
    # Odd: the first process has one more.
    x, target = (torch.randn(7, n, generator=generator) for n in (6, 3))
    multiprocessing.spawn(
        data_parallel.share, (COUNT, folder, runtime, x, target), COUNT
    )
    module = Module(folder / "model", runtime)
    expected = data_parallel.gradients_of(module, x, target)
    trained = _trained_by_one(Module(folder / "model", runtime), x, target)
    for rank in range(COUNT):
        gradients, state = torch.load(folder / f"{rank}.pt")
        for name, wanted in expected.items():
            error = (gradients[name] - wanted).abs().max() / wanted.abs().max()
            assert error < 1e-6
        for name, wanted in trained.items():
            torch.testing.assert_close(state[name], wanted, rtol=1e-5, atol=1e-6)


def _trained_by_one(
    module: Module, x: torch.Tensor, target: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The parameters after the steps that the processes make together."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for x_part, target_part in zip(x.split(COUNT), target.split(COUNT), strict=True):
        optimizer.zero_grad()
        (module(x_part) - target_part).square().sum().backward()
        optimizer.step()
    state: dict[str, torch.Tensor] = module.state_dict()
    return state


# ---- The sample ----


def run_by_torchrun(
    script: Path, folder: Path, count: int
) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", str(count), str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        check=False,
        timeout=180,
    )


def test_two_processes_train_the_model_of_one(tmp_path: Path) -> None:
    """The last batch has one image: the second process leaves each epoch early."""
    states = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        done = run_by_torchrun(SAMPLE, folder, count)
        assert done.returncode == 0, done.stderr
        assert f"epoch 5 by {count}: loss" in done.stdout
        states.append(Module(folder / "trained", "interpreter").state_dict())
    one, two = states
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-6)


DIES = """
import os, runpy, torch

made, step = 0, torch.optim.SGD.step

def counted(self, *args):
    global made
    made += 1
    # After the first epoch, amid the second.
    if made == 15 and os.environ["RANK"] == "1":
        os._exit(7)
    return step(self, *args)

torch.optim.SGD.step = counted
runpy.run_path({sample!r}, run_name="__main__")
"""


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES.format(sample=str(SAMPLE)), "utf-8")
    done = run_by_torchrun(script, tmp_path, COUNT)
    assert done.returncode != 0
    assert "ChildFailedError" in done.stderr
    assert "exitcode  : 7" in done.stderr
    assert "epoch 1 by 2" in done.stdout
    assert "epoch 2" not in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dies.py", "trained"]
    module = Module(tmp_path / "trained", "interpreter")
    assert all(parameter.isfinite().all() for parameter in module.parameters())
