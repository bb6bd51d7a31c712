"""Runs an ONNX file of gradients, in ONNX Runtime or in OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import Program, serve
from bench.workers.onnx_runtime import session
from nnef_grad.runtimes.openvino import compile_for_openvino

Fed = dict[str, Any]


def prepare(request: dict[str, Any]) -> Program:
    """The request has the `runtime`, the `folder` of the file and of what it is fed with,
    and the number of `threads`.
    """
    folder = request["folder"]
    fed = dict(np.load(f"{folder}/fed.npz"))
    target, load = RUNTIMES[request["runtime"]]
    return load(f"{folder}/gradients.{target}.onnx", fed, request["threads"])


def in_onnx_runtime(file: str, fed: Fed, threads: int) -> Callable[[], Any]:
    made = session(file, threads)
    read = {node.name for node in made.get_inputs()}
    return partial(made.run, None, {n: x for n, x in fed.items() if n in read})


def in_openvino(file: str, fed: Fed, threads: int) -> Callable[[], Any]:
    made = compile_for_openvino(Path(file), threads)
    read = {name for node in made.inputs for name in node.names}
    given = {n: x for n, x in fed.items() if n in read}
    request, count = made.create_infer_request(), len(made.outputs)

    def run() -> list[Any]:
        request.infer(given, share_inputs=True)
        return [request.get_output_tensor(place).data for place in range(count)]

    return run


# The target whose file each reads, and what loads it.
RUNTIMES = {
    "onnxruntime": ("onnx", in_onnx_runtime),
    "openvino": ("openvino", in_openvino),
}

if __name__ == "__main__":
    serve(prepare)
