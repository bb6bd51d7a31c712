"""tract, which reads NNEF without Khronos' parser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tract

from support.runtimes.cases import Array
from support.runtimes.worker import serve, signature


def execute(folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs.

    Inputs are in the order in which they are declared as external. Outputs are in the
    order of the signature, and have names of tract's own.
    """
    _, outputs = signature(folder)
    model = _reader().load(folder)
    names = [model.input_name(index) for index in range(model.input_count())]
    results = model.into_runnable().run([inputs[name] for name in names])
    return {
        name: result.to_numpy() for name, result in zip(outputs, results, strict=True)
    }


def _reader() -> tract.Nnef:
    """The reader with the registries that documents of tract's dialect name."""
    return tract.nnef().with_tract_extra().with_onnx().with_tract_transformers()


if __name__ == "__main__":
    serve(execute)
