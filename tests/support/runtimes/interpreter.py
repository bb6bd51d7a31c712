"""The Khronos interpreter in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from nnef_tools.interpreter.pytorch import NNEFModule

from support.runtimes.cases import Array
from support.runtimes.worker import serve, signature


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs."""
    names, outputs = signature(folder)
    module = NNEFModule(str(folder))
    with torch.no_grad():
        results = module(*(torch.from_numpy(inputs[name]) for name in names))
    # A variable that is returned is a parameter still.
    return {name: r.detach().numpy() for name, r in zip(outputs, results, strict=True)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(execute)
