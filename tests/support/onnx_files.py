"""ONNX files in ONNX Runtime, in the process of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(
    path: Path,
    inputs: Mapping[str, Any],
    *,
    is_optimised: bool = True,
    threads: int = 1,
) -> dict[str, Any]:
    """The outputs of an ONNX file, by name, for those of these inputs that it has."""
    import onnxruntime  # which some tests skip without

    options = onnxruntime.SessionOptions()
    if not is_optimised:
        disabled = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = disabled
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    outputs = [output.name for output in session.get_outputs()]
    feeds = {fed.name: inputs[fed.name] for fed in session.get_inputs()}
    return dict(zip(outputs, session.run(outputs, feeds), strict=True))
