"""From an ONNX file to its gradients in ONNX Runtime, for authors of converters: graphs
of nnef_tools are converted in memory, between its readers and writers.

    ONNX -> nnef_tools -> nnef_grad -> nnef_tools -> ONNX

    pip install '.[onnx]' onnxruntime torch
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from nnef_tools.conversion import nnef_to_onnx, onnx_to_nnef
from nnef_tools.io.onnx import Reader, Writer
from onnx import TensorProto, helper, numpy_helper
from torch.nn.functional import avg_pool2d, conv2d, linear

import nnef_grad
from nnef_grad import interop


def main() -> None:
    draw = partial(np.random.default_rng(0).standard_normal, dtype=np.float32)
    shapes = {"kernel": (4, 3, 3, 3), "bias": 4, "weight": (5, 64), "offset": 5}
    weights = {name: draw(shape) for name, shape in shapes.items()}
    x, seed = draw((2, 3, 8, 8)), draw((2, 5))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model(weights), folder / "model.onnx")
        gradients = backward(folder / "model.onnx", folder / "backward.onnx")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # The writer lists weights among the inputs.
        session = onnxruntime.InferenceSession(folder / "backward.onnx", options)
        found = session.run(list(gradients), {"x": x, "grad_y": seed})

    values = {"x": x, **weights}
    expected = by_torch({n: torch.from_numpy(v) for n, v in values.items()}, seed)
    for (name, wanted), result in zip(expected.items(), found, strict=True):
        error = np.abs(result.reshape(wanted.shape) - wanted.numpy()).max()
        print(f"{name:8} {list(result.shape)!s:14} off by {error:.0e} from torch")


def model(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A small classifier, made with the onnx package."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node(
            "AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "weight", "offset"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 13)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def backward(source: Path, target: Path) -> list[str]:
    """Writes the backward graph of an ONNX file, and returns its outputs."""
    converted = onnx_to_nnef.Converter(keep_io_names=True)(Reader()(str(source)))
    graph, data = interop.from_nnef_tools(converted)
    derived = nnef_grad.differentiate(graph)
    lowered = nnef_grad.lower(derived.graph, "onnx")
    result = interop.to_nnef_tools(lowered.graph, {**data, **lowered.data})
    Writer()(nnef_to_onnx.Converter()(result), str(target))
    return list(derived.gradients.values())


def by_torch(
    values: dict[str, torch.Tensor], seed: np.ndarray
) -> dict[str, torch.Tensor]:
    """The gradients by torch, by name."""
    x, kernel, bias, weight, offset = (v.requires_grad_() for v in values.values())
    pooled = avg_pool2d(conv2d(x, kernel, bias, padding=1).relu(), 2)
    y = linear(pooled.flatten(1), weight, offset).softmax(1)
    found = torch.autograd.grad(y, list(values.values()), torch.from_numpy(seed))
    return dict(zip(values, found, strict=True))


if __name__ == "__main__":
    main()
