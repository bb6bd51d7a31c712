"""Digits, learned from random weights: a convolutional net with batch normalization.

    pip install . onnx onnxruntime scikit-learn
    python samples/train_digits.py

    pip install tract torch
    python samples/train_digits.py tract
    python samples/train_digits.py khronos        # the interpreter of nnef_tools, in PyTorch

The trained model is in the folder `trained_digits`: an ordinary one, without anything of
the training, which another runtime runs on the digits that were held out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import nnef_grad
from nnef_grad.runtimes import find_runtime
from nnef_grad.training import run

GRAPH = """
version 1.0;

graph digits( image ) -> ( logits )
{
    image = external(shape = [64, 1, 8, 8]);
    filter1 = variable(shape = [8, 1, 3, 3], label = 'conv1/filter');
    mean1 = variable(shape = [1, 8], label = 'norm1/mean');
    variance1 = variable(shape = [1, 8], label = 'norm1/variance');
    offset1 = variable(shape = [1, 8], label = 'norm1/offset');
    scale1 = variable(shape = [1, 8], label = 'norm1/scale');
    filter2 = variable(shape = [16, 8, 3, 3], label = 'conv2/filter');
    mean2 = variable(shape = [1, 16], label = 'norm2/mean');
    variance2 = variable(shape = [1, 16], label = 'norm2/variance');
    offset2 = variable(shape = [1, 16], label = 'norm2/offset');
    scale2 = variable(shape = [1, 16], label = 'norm2/scale');
    weight = variable(shape = [10, 256], label = 'classifier/weight');
    bias = variable(shape = [1, 10], label = 'classifier/bias');

    conv1 = conv(image, filter1);
    norm1 = batch_normalization(conv1, mean1, variance1, offset1, scale1, epsilon = 1e-5);
    relu1 = relu(norm1);
    conv2 = conv(relu1, filter2, padding = [(1, 1), (1, 1)], stride = [2, 2]);
    norm2 = batch_normalization(conv2, mean2, variance2, offset2, scale2, epsilon = 1e-5);
    relu2 = relu(norm2);
    features = reshape(relu2, shape = [0, -1]);
    logits = linear(features, weight, bias);
}
"""
BATCH, EPOCHS = 64, 10
HELD_OUT = 360
# The runtime that runs what another one has trained.
OTHER = {"onnxruntime": "numpy", "tract": "onnxruntime", "khronos": "onnxruntime"}


def main(runtime: str = "onnxruntime", folder: Path = Path("trained_digits")) -> None:
    images, labels = digits()
    batches = epochs(images[HELD_OUT:], labels[HELD_OUT:])
    step = digits_step()
    began = time.perf_counter()
    training = run(
        step, batches, runtime=runtime, learning_rate=lambda n: rate(n, len(batches))
    )
    losses = np.reshape(list(training), (EPOCHS, -1))
    seconds = time.perf_counter() - began
    for epoch, mean in enumerate(losses.mean(axis=1), start=1):
        print(f"epoch {epoch}: loss {mean:.4f}")
    print(f"{losses.size} steps in {runtime}: {seconds:.1f} s")

    training.save(folder, overwrite=True)
    other = OTHER[runtime]
    right = accuracy(folder, other, images[:HELD_OUT], labels[:HELD_OUT])
    print(f"{100 * right:.1f} % of {HELD_OUT} other digits right, in {other}")


def digits_step() -> nnef_grad.Step:
    """The step of the net with its random weights."""
    graph = nnef_grad.loads(GRAPH)
    return nnef_grad.training_step(
        graph,
        loss="softmax_cross_entropy_with_labels",
        optimizer="adam",
        data=random_weights(graph),
        batch_statistics=0.1,
    )


def random_weights(graph: nnef_grad.Graph) -> dict[str, np.ndarray]:
    """Values by label: random filters and matrices, normalizations that change nothing."""
    draw = np.random.default_rng(0).standard_normal
    fixed = {"mean": 0.0, "variance": 1.0, "offset": 0.0, "scale": 1.0, "bias": 0.0}
    data = {}
    for op in graph.operations:
        if op.name == "variable":
            label, shape = str(op.attributes["label"]), op.outputs[0].shape
            value = fixed.get(label.rpartition("/")[2])
            deviation = np.sqrt(2 / np.prod(shape[1:]))
            weights = (
                deviation * draw(shape) if value is None else np.full(shape, value)
            )
            data[label] = weights.astype(np.float32)
    return data


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of shape [count, 1, 8, 8] and their labels, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    scaled = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return scaled[order], labels[order]


def epochs(images: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """The batches of all epochs, each with the images in another order; those that do not
    fill a batch are left out.
    """
    generator = np.random.default_rng(1)
    whole = len(images) // BATCH * BATCH
    orders = [generator.permutation(len(images))[:whole] for _ in range(EPOCHS)]
    chosen = np.reshape(orders, (-1, BATCH))
    return [(images[indices], labels[indices]) for indices in chosen]


def rate(steps: int, total: int) -> float:
    """The learning rate after a number of steps: it falls to zero."""
    return 0.01 * (1 - steps / total)


def accuracy(
    folder: Path, runtime: str, images: np.ndarray, labels: np.ndarray
) -> float:
    """How many images a model in a folder gets right, run by a runtime."""
    graph = nnef_grad.load(folder, batch=len(images))
    model = find_runtime(runtime).compile(graph, nnef_grad.load_data(folder))
    (logits,) = model([images])
    return float((logits.argmax(axis=1) == labels).mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
