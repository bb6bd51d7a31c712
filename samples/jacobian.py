"""The Jacobian of a network's outputs with respect to its input, in one graph:

nnef-grad mlp.nnef --jacobian --wrt x -o jacobian.nnef
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nnef_grad

MODEL = Path(__file__).parent / "mlp.nnef"


def main() -> None:
    graph = nnef_grad.load(MODEL, batch=1)
    jacobian = nnef_grad.jacobian(graph, wrt=["x"], with_outputs=True)
    generator = np.random.default_rng(0)
    weights = {
        str(op.attributes["label"]): generator.standard_normal(t.shape)
        for op in graph.operations
        for t in op.outputs
        if op.name == "variable"
    }
    x = generator.standard_normal((1, 8))
    found = nnef_grad.evaluate(jacobian, {"x": x}, weights)
    print("y:", found["y"].shape, "jacobian_x:", found["jacobian_x"].shape)
    # The probabilities add up to one wherever x is, so the rows add up to zero.
    print(f"sum of the rows: {np.abs(found['jacobian_x'].sum(axis=(0, 1))).max():.1e}")
    print(nnef_grad.check(graph, jacobian))


if __name__ == "__main__":
    main()
