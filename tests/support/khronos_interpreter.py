"""The Khronos interpreter in PyTorch, in this process: its results are tensors of torch."""

from __future__ import annotations

import warnings
from pathlib import Path

import nnef
import numpy as np
import torch

from support import reference


def interpreted(
    text: str,
    feeds: dict[str, torch.Tensor],
    variables: dict[str, torch.Tensor],
    folder: Path,
) -> list[torch.Tensor]:
    """The results of a graph in the interpreter, which reads its variables from
    files.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nnef_tools.interpreter.pytorch import NNEFModule

        (folder / "graph.nnef").write_text(text, "utf-8")
        for label, value in variables.items():
            path = folder / f"{label}.dat"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                nnef.write_tensor(file, value.numpy().astype(np.float32))
        # Its own batch normalization takes no literal operands.
        module = NNEFModule(str(folder), decomposed=["batch_normalization"])
        inputs = [feeds[name].float() for name in reference.signature(text).inputs]
        return list(module(*inputs))
