"""A Hessian-vector product, compared with a difference of gradients.

On the command line:

    nnef-grad residual.nnef --hvp --wrt image -o hessian_vector.nnef

The input vector_image is the direction v, the output hvp_image is H v: the gradient of
<gradient, v> with respect to the image.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nnef_grad

MODEL = Path(__file__).parent / "residual.nnef"


def main() -> None:
    graph = nnef_grad.load(MODEL)
    gradient = nnef_grad.differentiate(graph, seed="ones", wrt=["image"])
    product = nnef_grad.hvp(graph, wrt=["image"])

    generator = np.random.default_rng(0)
    tensors = graph.tensors
    weights = {
        str(op.attributes["label"]): 0.3 * generator.standard_normal(t.shape)
        for op in graph.operations
        for t in op.outputs
        if op.name == "variable"
    }
    image, v = generator.standard_normal((2, *tensors["image"].shape))

    given = {"image": image, product.seeds["image"]: v}
    exact = nnef_grad.evaluate(product, given, weights)[product.gradients["image"]]

    step = 1e-6
    above, below = (
        nnef_grad.evaluate(gradient, {"image": image + h * v}, weights)["grad_image"]
        for h in (step, -step)
    )
    difference = (above - below) / (2.0 * step)
    error = np.abs(exact - difference).max() / np.abs(exact).max()
    print(nnef_grad.summary(graph, gradient))
    print(nnef_grad.summary(graph, product))
    print(f"H v and a difference of gradients: relative error {error:.1e}")


if __name__ == "__main__":
    main()
