"""Writes the gradients of a network of PyTorch as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import nnef_grad
from bench.processes import answer
from bench.workers.torch_models import inputs, module
from nnef_grad.interop import from_torch
from nnef_grad.targets.onnx.writing import write
from nnef_grad.targets.tensors import DTYPES


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The request has the `net`, the `batch`, and the `folder` of the file and of what it
    is fed with. Returns the names of the parameters, in the order of the results.
    """
    x = inputs(request["net"], request["batch"])
    model = from_torch(module(request["net"]), (x,))
    found = {n: v for n, v in model.parameters.items() if v in model.trainable}
    made = nnef_grad.differentiate(model.graph, wrt=[*dict.fromkeys(found.values())])
    folder = Path(request["folder"])
    for target in ("onnx", "openvino"):
        lowered = nnef_grad.lower(made.graph, target)
        data = {**model.data, **lowered.data}
        file, is_portable = folder / f"gradients.{target}.onnx", target == "openvino"
        write(lowered.graph, file, data, overwrite=True, is_portable=is_portable)
    ((output, seed),) = made.seeds.items()
    (y,) = (t for t in model.graph.outputs if model.graph.names[t] == output)
    (name,) = model.graph.input_names
    random = np.random.default_rng(0).standard_normal(y.shape)
    np.savez(
        folder / "fed.npz", **{name: x.numpy(), seed: random.astype(DTYPES[y.dtype])}
    )
    return {"parameters": first_names(found), "seed": seed}


def first_names(found: dict[str, str]) -> list[str]:
    """What torch calls each variable; parameters that are one have one name."""
    named = {variable: name for name, variable in reversed(found.items())}
    return [named[variable] for variable in dict.fromkeys(found.values())]


if __name__ == "__main__":
    answer(main)
