"""Every operation, forward and backward, written to an ONNX file and run by ONNX Runtime,
with and without its optimisations.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.operation_models import Model, models
from support.parts import PARTS, part_of
from support.runtimes.cases import Case, Outcome, compare
from support.runtimes.matrix import DIRECTIONS, example

import nnef_grad
from nnef_grad import interop

onnxruntime: Any = import_module("onnxruntime") if find_spec("onnxruntime") else None

TYPES = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(bool)": "?"}


def outcome(case: Case, path: Path, level: Any) -> Outcome:
    """What the runtime makes of the file."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    feeds = {
        fed.name: case.inputs[fed.name].astype(TYPES[fed.type])
        for fed in session.get_inputs()
    }
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, feeds), strict=True))
    return Outcome({name: array.shape for name, array in found.items()}, found)


def fault(model: Model, direction: str, folder: Path) -> str:
    """How a graph is wrong in the runtime; empty if it is right."""
    case, expected = example(model, DIRECTIONS[direction])
    path = folder / "model.onnx"
    graph = nnef_grad.loads(case.text)
    interop.to_onnx(graph, path, case.variables, overwrite=True)
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL):
        verdict = compare(outcome(case, path, level), expected)
        if verdict.word != "ok":
            return f"{model.name} {level}: {verdict.word} {verdict.detail}"
    return ""


@pytest.mark.skipif(
    not (onnxruntime and find_spec("onnx")), reason="the tests of ONNX files run them"
)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_operation_in_an_onnx_file(
    direction: str, part: int, tmp_path: Path
) -> None:
    chosen = part_of(models(), part)
    found = [fault(model, direction, tmp_path) for model in chosen]
    assert [text for text in found if text] == []
