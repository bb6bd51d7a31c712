"""A model with random weights, and its backward graph run by tract from Python.

    pip install . tract

On the command line it is: nnef-grad model/ --target tract -o model_bwd/
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tract

import nnef_grad

MODEL = Path(__file__).parent / "mlp.nnef"


def main() -> None:
    graph = nnef_grad.load(MODEL)
    generator = np.random.default_rng(0)
    weights = {
        str(op.attributes["label"]): generator.standard_normal(t.shape, np.float32)
        for op in graph.operations
        for t in op.outputs
        if op.name == "variable"
    }
    backward = nnef_grad.differentiate(graph)
    lowered = nnef_grad.lower(backward.graph, "tract")
    inputs = zip(lowered.graph.input_names, lowered.graph.inputs, strict=True)
    feeds = {
        name: generator.standard_normal(tensor.shape, np.float32)
        for name, tensor in inputs
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backward"
        nnef_grad.save(lowered.graph, path, data={**weights, **lowered.data})
        model = tract.nnef().load(path)
        found = model.into_runnable().run(list(feeds.values()))

    exact = nnef_grad.evaluate(backward, feeds, weights)
    for name, result in zip(backward.gradients.values(), found, strict=True):
        error = np.abs(result.to_numpy() - exact[name]).max()
        print(f"{name:13} {list(exact[name].shape)!s:9} off by {error:.0e}")


if __name__ == "__main__":
    main()
