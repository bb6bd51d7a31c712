"""From a PyTorch module to its gradients in ONNX Runtime, without its training edition:
the module becomes an NNEF graph, which is differentiated and written as an ONNX file.

    pip install '.[torch]' onnxruntime
"""

from __future__ import annotations

import tempfile
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
    x, seed = torch.randn(2, 3, 8, 8), torch.randn(2, 5)
    with tempfile.TemporaryDirectory() as folder:
        gradients = in_onnx_runtime(module, x, seed, Path(folder))

    named = dict(module.named_parameters())
    expected = torch.autograd.grad(module(x), list(named.values()), seed)
    for name, wanted in zip(named, expected, strict=True):
        error = abs(torch.from_numpy(gradients[name]) - wanted).max()
        print(f"{name:10} {list(wanted.shape)!s:15} off by {error:.0e} from torch")


def in_onnx_runtime(module, x, seed, folder):
    """The gradients of a module's parameters, by their names in torch."""
    model = interop.from_torch(module, [x])
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    interop.to_onnx(backward.graph, folder / "backward.onnx", model.data)
    session = onnxruntime.InferenceSession(folder / "backward.onnx")
    feeds = {"input": x.numpy(), backward.seeds["output"]: seed.numpy()}
    found = session.run(list(backward.gradients.values()), feeds)
    return model.gradients_to_torch(dict(zip(backward.gradients, found, strict=True)))


if __name__ == "__main__":
    main()
