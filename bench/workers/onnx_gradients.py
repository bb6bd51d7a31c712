"""Runs an ONNX file of gradients, in ONNX Runtime or in OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.processes import Program, serve
from bench.workers.onnx_runtime import session

Fed = dict[str, Any]


def prepare(request: dict[str, Any]) -> Program:
    """The request has the `runtime`, the `folder` of the file and of what it is fed with,
    and the number of `threads`.
    """
    folder = request["folder"]
    fed = dict(np.load(f"{folder}/fed.npz"))
    load = RUNTIMES[request["runtime"]]
    return load(f"{folder}/gradients.onnx", fed, request["threads"])


def in_onnx_runtime(file: str, fed: Fed, threads: int) -> Callable[[], Any]:
    made = session(file, threads)
    read = {node.name for node in made.get_inputs()}
    return partial(made.run, None, {n: x for n, x in fed.items() if n in read})


def in_openvino(file: str, fed: Fed, threads: int) -> Callable[[], Any]:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    made = openvino.Core().compile_model(file, "CPU", settings)
    read = {name for node in made.inputs for name in node.names}
    asked = made.create_infer_request()
    given = {n: x for n, x in fed.items() if n in read}
    names = [node.any_name for node in openvino.Core().read_model(file).outputs]

    def run() -> list[Any]:
        results = asked.infer(given, share_inputs=True, share_outputs=True)
        return [results[name] for name in names]

    return run


RUNTIMES = {"onnxruntime": in_onnx_runtime, "openvino": in_openvino}

if __name__ == "__main__":
    serve(prepare)
