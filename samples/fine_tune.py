"""The last layer of a ResNet from PyTorch, trained in ONNX Runtime; everything else is
frozen. The step goes backward through that layer alone.

    pip install '.[torch]' onnxruntime scikit-learn

The weights of the network are random here, where those of a trained one would be: even
random features are enough to tell digits apart.
"""

from __future__ import annotations

import time
from collections import OrderedDict

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import BatchNorm2d, Conv2d, Flatten, Linear, Module, ReLU, Sequential

import nnef_grad
from nnef_grad import interop
from nnef_grad.training import run

BATCH, EPOCHS = 64, 10
HELD_OUT = 360


def main() -> None:
    images, labels = digits()
    torch.manual_seed(0)
    module = resnet()
    module(torch.from_numpy(images[HELD_OUT:]))  # for the means and variances
    model = interop.from_torch(module.eval(), [torch.zeros(BATCH, 1, 8, 8)])
    whole, step = compiled(model), compiled(model, train=["classifier.*"])
    compare(all_layers=whole, the_last_layer=step)

    batches = epochs(images[HELD_OUT:], labels[HELD_OUT:])
    began = time.perf_counter()
    training = run(step, batches, learning_rate=0.003)
    losses = list(training)
    seconds = time.perf_counter() - began
    print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {len(losses)} steps: {seconds:.1f} s"
    )

    into_torch(training.data, module)
    found = module(torch.from_numpy(images[:HELD_OUT])).argmax(1).numpy()
    right = (found == labels[:HELD_OUT]).mean()
    print(f"{100 * right:.1f} % of {HELD_OUT} other digits right, in torch")


def compiled(
    model: interop.TorchModel, train: list[str] | None = None
) -> nnef_grad.Step:
    """A step that trains some layers, or all."""
    return nnef_grad.training_step(
        model, loss="softmax_cross_entropy_with_labels", optimizer="adam", train=train
    )


def compare(**steps: nnef_grad.Step) -> None:
    """Prints what steps cost."""
    for name, step in steps.items():
        cost = nnef_grad.statistics(step.graph)
        print(
            f"{name.replace('_', ' '):14} {cost.operations:4} operations,"
            f" {cost.multiply_adds / 1e6:4.0f} million multiply-adds,"
            f" {len(step.state):3} tensors change"
        )


def into_torch(data: dict[str, np.ndarray], module: Module) -> None:
    """Gives a module the values of variables: their labels are its names."""
    values = {
        name: torch.from_numpy(data[name]).reshape(tensor.shape)
        for name, tensor in module.named_parameters()
    }
    module.load_state_dict(values, strict=False)


def resnet() -> Sequential:
    """A small ResNet for images of 8 x 8 pixels."""
    layers = OrderedDict(
        stem=convolution(1, 16),
        block1=Block(16, 32),
        block2=Block(32, 64, stride=2),
        flatten=Flatten(),
        classifier=Linear(1024, 10),
    )
    return Sequential(layers)


class Block(Module):
    """Two convolutions, added to one that skips them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.path = Sequential(
            convolution(inputs, outputs, stride=stride),
            ReLU(),
            convolution(outputs, outputs),
        )
        self.shortcut = convolution(inputs, outputs, size=1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.path(x) + self.shortcut(x)).relu()


def convolution(
    inputs: int, outputs: int, size: int = 3, stride: int = 1
) -> Sequential:
    """A convolution with batch normalization."""
    filters = Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return Sequential(filters, BatchNorm2d(outputs, momentum=None))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of shape [count, 1, 8, 8] and their labels, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    scaled = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return scaled[order], labels[order]


def epochs(images: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Batches of images in random order, and their labels."""
    generator = np.random.default_rng(1)
    whole = len(images) // BATCH * BATCH
    orders = [generator.permutation(len(images))[:whole] for _ in range(EPOCHS)]
    chosen = np.reshape(orders, (-1, BATCH))
    return [(images[indices], labels[indices]) for indices in chosen]


if __name__ == "__main__":
    main()
