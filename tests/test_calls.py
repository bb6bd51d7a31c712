"""Every function of the package, given what it does not take: the error is one of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nnef_grad
from nnef_grad import interop, training
from nnef_grad.runtimes import find_runtime

TEXT = """\
version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [4, 3]);
    w = variable(shape = [5, 3], label = 'w');
    y = linear(x, w, 0.0);
}
"""
GRAPH = nnef_grad.loads(TEXT)
DATA = {"w": np.ones((5, 3), np.float32)}
BACKWARD = nnef_grad.differentiate(GRAPH)
STEP = nnef_grad.training_step(
    GRAPH, loss="huber", optimizer="adam", learning_rate=0.1, data=DATA
)
BATCH = [np.zeros((4, 3)), np.zeros((4, 5))]
X = {"x": np.zeros((4, 3))}
TOOLS = interop.to_nnef_tools(GRAPH, DATA)


def run(**settings: Any) -> list[float]:
    return list(training.run(**settings))


# Each function, with arguments that it takes.
CALLS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "loads": (nnef_grad.loads, {"text": TEXT, "symbols": None, "dialect": None}),
    "load": (nnef_grad.load, {"path": "model.nnef"}),
    "load_data": (nnef_grad.load_data, {"path": "model.nnef"}),
    "loads_rules": (nnef_grad.loads_rules, {"text": ""}),
    "load_rules": (nnef_grad.load_rules, {"path": "rules.nnef"}),
    "dumps": (nnef_grad.dumps, {"graph": GRAPH}),
    "save": (nnef_grad.save, {"graph": GRAPH, "path": "out", "data": DATA, "overwrite": True}),
    "differentiate": (nnef_grad.differentiate, {"graph": GRAPH, "wrt": ["w"], "outputs": ["y"], "stop": ["x"], "seed": "input", "recompute": None, "rules": None}),
    "recompute": (nnef_grad.recompute, {"graph": BACKWARD.graph, "limit": 0.5}),
    "function": (nnef_grad.function, {"model": GRAPH, "derivative": "gradient", "wrt": ["w"], "outputs": ["y"],
        "stop": ["x"], "per_example": False, "runtime": "numpy", "data": DATA, "rules": None, "threads": None}),
    "jacobian": (nnef_grad.jacobian, {"graph": GRAPH, "wrt": ["w"], "outputs": ["y"]}),
    "jvp": (nnef_grad.jvp, {"graph": GRAPH, "wrt": ["w"], "outputs": ["y"], "stop": ["x"], "rules": None}),
    "hvp": (nnef_grad.hvp, {"graph": GRAPH, "wrt": ["w"], "outputs": ["y"], "stop": ["x"], "rules": None}),
    "hessian": (nnef_grad.hessian, {"graph": GRAPH, "wrt": ["w"], "outputs": ["y"], "stop": ["x"], "rules": None}),
    "laplacian": (nnef_grad.laplacian, {"graph": GRAPH, "wrt": ["x"], "outputs": ["y"], "stop": ["w"], "rules": None}),
    "divergence": (nnef_grad.divergence, {"graph": GRAPH, "wrt": ["x"], "outputs": ["y"], "stop": ["w"], "rules": None}),
    "saliency": (nnef_grad.saliency, {"graph": GRAPH, "wrt": ["x"], "outputs": ["y"], "stop": ["w"], "rules": None}),
    "gradient_penalty": (nnef_grad.gradient_penalty, {"graph": GRAPH, "wrt": ["x"], "outputs": ["y"], "stop": ["w"], "norm": 1.0, "rules": None}),
    "split": (nnef_grad.split, {"graph": GRAPH, "backward": BACKWARD}),
    "split_costs": (nnef_grad.split_costs, {"halves": nnef_grad.split(GRAPH, BACKWARD)}),
    "statistics": (nnef_grad.statistics, {"graph": GRAPH}),
    "summary": (nnef_grad.summary, {"graph": GRAPH, "backward": BACKWARD}),
    "report": (nnef_grad.report, {"graph": GRAPH, "backward": BACKWARD, "path": "report.html"}),
    "lower": (nnef_grad.lower, {"graph": GRAPH, "target": "onnx"}),
    "evaluate": (nnef_grad.evaluate, {"graph": GRAPH, "inputs": X, "variables": DATA, "rules": None}),
    "check": (nnef_grad.check, {"graph": GRAPH, "backward": BACKWARD, "inputs": X, "variables": DATA}),
    "training_step": (nnef_grad.training_step, {"model": GRAPH, "loss": "huber", "optimizer": "adam",
        "learning_rate": 0.1, "data": DATA, "train": ["w"], "adapters": {"w": 1}, "freeze": [], "groups": None,
        "l2": 0.0, "clip_norm": None, "clip_value": None, "clip_per_example": None, "noise": None,
        "accumulate": 1, "loss_scale": False, "batch_statistics": None, "quantize": False, "recompute": None,
        "state": None, "target": "nnef", "rules": None}),
    "run": (run, {"step": STEP, "batches": [BATCH], "runtime": "numpy", "learning_rate": None, "loss_scale": 1.0,
        "noise_seed": None, "dtype": "f4", "threads": 1, "checkpoint": None, "every": 100, "resume": None,
        "progress": None}),
    "merge": (training.merge, {"model": "model", "trained": ["model"], "path": "tuned", "overwrite": True}),
    "draw_noise": (training.draw_noise, {"step": STEP, "generator": np.random.default_rng(0)}),
    "save_step": (training.save_step, {"step": STEP, "path": "step", "overwrite": True}),
    "find_runtime": (find_runtime, {"name": "numpy"}),
    "from_nnef": (interop.from_nnef, {"graph": interop.to_nnef(GRAPH, DATA)}),
    "to_nnef": (interop.to_nnef, {"graph": GRAPH, "data": DATA}),
    "from_nnef_tools": (interop.from_nnef_tools, {"graph": TOOLS}),
    "to_nnef_tools": (interop.to_nnef_tools, {"graph": GRAPH, "data": DATA}),
    "to_onnx": (interop.to_onnx, {"graph": GRAPH, "path": "out.onnx", "data": DATA}),
    "from_onnx": (interop.from_onnx, {"path": "model.onnx"}),
    "from_tflite": (interop.from_tflite, {"path": "model.tflite"}),
    "from_torch": (interop.from_torch, {"module": torch.nn.Linear(3, 5), "example_inputs": [torch.zeros(4, 3)], "batch": None, "allow_own_backward": False}),
}  # fmt: skip

WRONG: Mapping[str, Any] = {
    "None": None, "one": 1, "a fraction": 1.5, "true": True, "no number": float("nan"),
    "less than nothing": -1, "a word": "x", "nothing": "", "bytes": b"x",
    "a list": [], "words": ["x"], "a list of None": [None], "lists": [["x"]],
    "a mapping": {}, "numbers by name": {"x": 1}, "None by name": {"x": None},
    "names by number": {1: "x"}, "an object": object(), "a function": lambda: 0,
    "a row": np.zeros(3), "no row": np.zeros(0), "half": np.zeros((4, 3), np.float16),
    "turned": np.zeros((3, 4)).T, "array of words": np.array(["a"]), "complex": np.array(1j),
    "arrays": {"x": np.zeros((4, 3)), "w": np.zeros((5, 3)).T, "v": np.zeros(1)},
    "words by name": {"x": np.full((4, 3), "a"), "w": np.full((5, 3), "a")},
    "rows of their own": [[1.0], [1.0, 2.0]],
    "graph": GRAPH, "backward": BACKWARD, "step": STEP, "a class": dict,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.nnef").write_text(TEXT)
    Path("rules.nnef").write_text("")
    interop.to_onnx(GRAPH, "model.onnx", DATA)
    nnef_grad.save(GRAPH, "model", data=DATA)


def test_all_functions_are_called() -> None:
    modules = (nnef_grad, interop, training)
    names = {name for module in modules for name in module.__all__}
    functions = {name for name in names if name.islower()}
    assert functions <= {*CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_each_argument_in_turn(name: str) -> None:
    function, given = CALLS[name]
    for argument in given:
        for what, wrong in WRONG.items():
            with only_our_errors(f"{name}({argument} = {what})"):
                function(**{**given, argument: wrong})


@contextmanager
def only_our_errors(call: str) -> Iterator[None]:
    try:
        yield
    except nnef_grad.NnefGradError:
        pass
    except Exception as error:
        pytest.fail(f"{call}: {type(error).__name__}: {error}")


def test_an_argument_of_another_kind_is_named() -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.differentiate(GRAPH, wrt=[1])  # type: ignore[list-item]
    assert "'wrt' of differentiate is 'all' or" in str(caught.value)
    assert str(caught.value).endswith("a sequence of a string, and not list of int")


def test_a_string_is_no_sequence_of_its_letters() -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.differentiate(GRAPH, outputs="yz")
    assert str(caught.value).endswith("a sequence of a string or None, and not str")


WRONG_DOORS: Mapping[str, tuple[Callable[[Path], Any], str]] = {
    "a path for a graph": (
        lambda folder: nnef_grad.differentiate("m.nnef"),  # type: ignore[arg-type]
        "'graph' of differentiate is Graph, and not str: load reads one from a path, and function takes the path",
    ),
    "a model for a graph": (
        lambda folder: nnef_grad.differentiate(BACKWARD),  # type: ignore[arg-type]
        "'graph' of differentiate is Graph, and not Backward: it has one, .graph",
    ),
    "a module for a graph": (
        lambda folder: nnef_grad.jvp(torch.nn.Linear(3, 2)),
        "'graph' of jvp is Graph, and not Linear: interop.from_torch reads modules",
    ),
    "an ONNX file": (
        lambda folder: nnef_grad.load(onnx_file(folder)),
        "'FOLDER/m.onnx' is an ONNX file: interop.from_onnx reads it",
    ),
    "weights": (
        lambda folder: nnef_grad.load(weights(folder)),
        "'FOLDER/m.pt' is weights without a graph: load them into their module, which interop.from_torch reads",
    ),
    "a file that is there": (
        lambda folder: nnef_grad.save(
            GRAPH, onnx_file(folder).rename(folder / "m.nnef")
        ),
        "'FOLDER/m.nnef' exists already: overwrite=True replaces it",
    ),
    "to an ONNX file": (
        lambda folder: nnef_grad.save(GRAPH, folder / "m.onnx"),
        "'FOLDER/m.onnx' is an ONNX file: interop.to_onnx writes it",
    ),
    "an unknown suffix": (
        lambda folder: nnef_grad.save(GRAPH, folder / "grads.json"),
        "'FOLDER/grads.json' does not have the suffix of a text or an archive: .nnef, .tgz, .tar.gz, .tar, or a slash for a folder",
    ),
}


def onnx_file(folder: Path) -> Path:
    interop.to_onnx(GRAPH, folder / "m.onnx", DATA)
    return folder / "m.onnx"


def weights(folder: Path) -> Path:
    torch.save(torch.nn.Linear(2, 1).state_dict(), folder / "m.pt")
    return folder / "m.pt"


@pytest.mark.parametrize("name", WRONG_DOORS)
def test_every_door_names_the_right_one(name: str, tmp_path: Path) -> None:
    call, message = WRONG_DOORS[name]
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        call(tmp_path)
    assert str(caught.value).startswith(message.replace("FOLDER", str(tmp_path)))
