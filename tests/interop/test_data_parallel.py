"""NNEF models that several processes train, by DistributedDataParallel over gloo."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
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
# An interpreter that ends while a thread of gloo drops work that it has done is aborted
# (https://github.com/pytorch/pytorch/issues/190489): on a busy machine, one run in twenty,
# after all is trained and saved. It says nothing of the training, so the run is made again.
ENDED_TOO_EARLY = "terminate called without an active exception"
ATTEMPTS = 4
Examples = tuple[torch.Tensor, torch.Tensor]
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


def save_perceptron(path: Path) -> Examples:
    generator = np.random.default_rng(0)
    graph = nnef_grad.loads(TEXT)
    data = {
        str(op.attributes["label"]): generator.standard_normal(t.shape, np.float32)
        for op in graph.operations
        if op.name == "variable"
        for t in op.outputs
    }
    nnef_grad.save(graph, path, data=data)
    drawn = torch.Generator().manual_seed(0)
    x, target = (torch.randn(7, n, generator=drawn) for n in (6, 3))
    return x, target


def save_digits(path: Path) -> Examples:
    """The model of the sample, on some of its images."""
    pytest.importorskip("sklearn")
    sample = runpy.run_path(str(SAMPLE))
    sample["new_module"]().save(path)
    images, labels = sample["digits"]()
    return images[:33], torch.eye(10)[labels[:33]]


@pytest.mark.parametrize(
    "save",
    [save_perceptron, pytest.param(save_digits, marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("runtime", ["khronos", "onnxruntime"])
def test_two_processes_have_the_gradients_of_one(
    tmp_path: Path, runtime: str, save: Callable[[Path], Examples]
) -> None:
    """Of an odd number of examples, the first process has one more."""
    if runtime == "onnxruntime":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    x, target = save(tmp_path / "model")
    spawn(data_parallel.share, (COUNT, tmp_path, runtime, x, target))
    module = Module(tmp_path / "model", runtime)
    expected = data_parallel.gradients_of(module, x, target)
    trained = _trained_by_one(Module(tmp_path / "model", runtime), x, target)
    for rank in range(COUNT):
        gradients, state = torch.load(tmp_path / f"{rank}.pt")
        for name, wanted in expected.items():
            error = (gradients[name] - wanted).abs().max() / wanted.abs().max()
            assert error < 1e-6
        for name, wanted in trained.items():
            torch.testing.assert_close(state[name], wanted, rtol=1e-5, atol=1e-6)


def spawn(function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    for left in reversed(range(ATTEMPTS)):
        try:
            multiprocessing.spawn(function, arguments, COUNT)
            return
        except multiprocessing.ProcessExitedException as error:
            if error.signal_name != "SIGABRT" or not left:
                raise


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
    pytest.importorskip("sklearn")
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder / "trained", ignore_errors=True)
        done = _torchrun(script, folder, count)
        if ENDED_TOO_EARLY not in done.stderr:
            break
    return done


def _torchrun(
    script: Path, folder: Path, count: int
) -> subprocess.CompletedProcess[str]:
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


@pytest.mark.thorough
def test_two_processes_train_the_model_of_one(tmp_path: Path) -> None:
    """In equal steps, and as well. The last batch has one image: the second process leaves
    each epoch early.
    """
    states, accuracies = [], []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        done = run_by_torchrun(SAMPLE, folder, count)
        assert done.returncode == 0, done.stderr
        (last,) = re.findall(rf"epoch 5 by {count}: loss .*, (\S+) %", done.stdout)
        accuracies.append(float(last))
        states.append(Module(folder / "trained", "khronos").state_dict())
    one, two = states
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
    assert min(accuracies) >= 95
    # One image of those held out is 0.2 %.
    assert abs(accuracies[0] - accuracies[1]) < 0.3


DIES = """
import os, runpy, torch

made, step = 0, torch.optim.SGD.step

def counted(self, *args):
    global made
    made += 1
    # After the 43 steps of the first epoch, amid the second.
    if made == 50 and os.environ["RANK"] == "1":
        os._exit(7)
    return step(self, *args)

torch.optim.SGD.step = counted
runpy.run_path({sample!r}, run_name="__main__")
"""


@pytest.mark.thorough
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
    module = Module(tmp_path / "trained", "khronos")
    assert all(parameter.isfinite().all() for parameter in module.parameters())
