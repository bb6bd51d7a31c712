"""From a PyTorch module to its gradients in ONNX Runtime, without its training edition:
the module is exported to ONNX, converted to NNEF by nnef_tools, differentiated, and
converted back.

    pip install '.[onnx]' onnxruntime torch
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, Softmax

import nnef_grad
from nnef_grad import interop


def main() -> None:
    torch.manual_seed(0)
    module = Sequential(
        *(Conv2d(3, 4, 3, padding=1), ReLU(), MaxPool2d(2)),
        *(Flatten(), Linear(64, 5), Softmax(dim=1)),
    )
    x, seed = torch.randn(2, 3, 8, 8, requires_grad=True), torch.randn(2, 5)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its exporter
        gradients = in_onnx_runtime(module, x, seed, Path(folder))

    expected = torch.autograd.grad(module(x), [x, *module.parameters()], seed)
    for (name, gradient), wanted in zip(gradients.items(), expected, strict=True):
        error = abs(torch.from_numpy(gradient).reshape(wanted.shape) - wanted).max()
        print(f"{name:10} {list(gradient.shape)!s:15} off by {error:.0e} from torch")


def in_onnx_runtime(module, x, seed, folder):
    """The gradients of a module's inputs and parameters, by name."""
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(module, (x,), folder / "model.onnx", dynamo=False, **names)
    graph, data = interop.from_onnx(folder / "model.onnx")
    backward = nnef_grad.differentiate(graph)
    interop.to_onnx(backward.graph, folder / "backward.onnx", data)
    session = onnxruntime.InferenceSession(folder / "backward.onnx")
    feeds = {"x": x.detach().numpy(), backward.seeds["y"]: seed.numpy()}
    found = session.run(list(backward.gradients.values()), feeds)
    return dict(zip(backward.gradients, found, strict=True))


if __name__ == "__main__":
    main()
