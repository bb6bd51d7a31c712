"""What reads ONNX besides ONNX Runtime for Python: the file for any engine, in one of them."""

from __future__ import annotations

import base64
import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad.interop import to_onnx
from support.runtimes.cases import Array
from support.runtimes.worker import serve

SAMPLES = Path(__file__).parents[3] / "samples"
# Runs a file on inputs by name.
Run = Callable[[Path, Mapping[str, Array]], Sequence[Array]]


def reference() -> Run:
    from onnx.reference import ReferenceEvaluator

    return lambda path, fed: ReferenceEvaluator(str(path)).run(None, dict(fed))


def web(package: str = "onnxruntime-web") -> Run:
    """In Node.js, which has packages of npm beside the sample. It is started here, before
    memory is limited: it reserves more than it needs.
    """
    script = Path(__file__).with_name("web.mjs")
    words: list[str | Path] = ["node", script, SAMPLES / "web", package]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    node = subprocess.Popen(words, text=True, **pipes)

    def run(path: Path, fed: Mapping[str, Array]) -> Sequence[Array]:
        assert node.stdin is not None
        assert node.stdout is not None
        sent = {name: _sent(array) for name, array in fed.items()}
        line = json.dumps({"path": str(path), "fed": sent})
        print(line, file=node.stdin, flush=True)
        answer = json.loads(node.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return [_received(y) for y in answer["made"].values()]

    return run


def _sent(array: Array) -> dict[str, Any]:
    data = base64.b64encode(array.tobytes()).decode()
    return {"type": str(array.dtype), "dims": array.shape, "data": data}


def _received(sent: Mapping[str, Any]) -> Array:
    data = base64.b64decode(sent["data"])
    return np.frombuffer(data, sent["type"]).reshape(sent["dims"])


def in_sample(name: str) -> Run:
    """As the tutorial on GPUs runs it."""
    sample = runpy.run_path(str(SAMPLES / "gradients_in_engines.py"))
    run: Run = sample[name]
    return run


OWN: dict[str, Callable[[], Run]] = {"reference": reference, "web": web}


def main(name: str) -> None:
    run = OWN[name]() if name in OWN else in_sample(name)

    def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
        graph, path = nnef_grad.load(folder), folder / "graph.onnx"
        data = nnef_grad.load_data(folder)
        to_onnx(graph, path, data, target="onnx-portable", overwrite=True)
        return dict(zip(graph.output_names, run(path, inputs), strict=True))

    serve(execute)


if __name__ == "__main__":
    main(sys.argv[1])
