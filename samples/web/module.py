"""A folder with a page that trains in the browser, but for what nnef-grad makes: its files,
a network of PyTorch in ONNX, and the digits that come with scikit-learn.

    pip install '.[torch]' scikit-learn
    python samples/web/module.py page
"""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential

from nnef_grad import interop

BATCH = torch.export.Dim("batch")


def main(folder: Path) -> None:
    left_out = ignore_patterns("node_modules", "*.py", "__pycache__")
    copytree(Path(__file__).parent, folder, ignore=left_out, dirs_exist_ok=True)
    torch.manual_seed(0)
    example = [torch.zeros(2, 1, 8, 8)]
    model = interop.from_torch(network(), example, dynamic_shapes=[{0: BATCH}])
    interop.to_onnx(model.graph, folder / "digits.onnx", model.data, overwrite=True)
    images, labels = digits()
    (folder / "digits.bin").write_bytes(np.c_[images, labels].tobytes())


def network() -> Sequential:
    return Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(256, 10)
    )


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of 64 bytes from 0 to 16, and their labels, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order].astype(np.uint8), labels[order].astype(np.uint8)


if __name__ == "__main__":
    main(Path(*sys.argv[1:] or ["page"]))
