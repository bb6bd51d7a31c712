"""Makes the folder `tones` again: a small network for sounds, trained in PyTorch, and
exported by torch-to-nnef.

    pip install torch torch-to-nnef
    python samples/exported/export.py

Another folder is an argument. It tells four pitches apart. Batches may be of any size: `B`
in the exported text.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.nn import Conv1d, Linear, Module
from torch.nn.functional import cross_entropy
from torch_to_nnef.export import export_model_to_nnef
from torch_to_nnef.inference_target import TractNNEF

FOLDER = Path(__file__).parent / "tones"
LENGTH, BATCH, STEPS = 64, 32, 400
# Of tract, for which it is exported.
VERSION = "0.23.8"
# In periods for each sample of a sound.
PITCHES = (0.05, 0.11, 0.19, 0.31)


class Tones(Module):
    """Two convolutions along time, the mean over time, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Conv1d(1, 8, 7, stride=2, padding=3)
        self.conv2 = Conv1d(8, 16, 5, stride=2, padding=2)
        self.head = Linear(16, len(PITCHES))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(sound).relu()
        features = self.conv2(hidden).relu()
        return self.head(features.mean(2))


def main(folder: Path = FOLDER) -> None:
    torch.manual_seed(0)
    module = Tones()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for sounds, labels in batches():
        loss = cross_entropy(module(sounds), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f} after {STEPS} steps in PyTorch")
    export(module.eval(), folder)


def export(module: Module, folder: Path) -> None:
    """Writes a folder with a graph.nnef and a file for each parameter."""
    with TemporaryDirectory() as made:
        target = TractNNEF(
            VERSION,
            check_io=False,  # with True, tract's command line runs it for comparison
            specific_tract_binary_path=command_line(Path(made)),
            dynamic_axes={"sound": {0: "B"}},
            dump_identity_properties=False,
        )
        written = export_model_to_nnef(
            module,
            torch.zeros(2, 1, LENGTH),
            Path(made) / "tones.nnef",
            target,
            input_names=["sound"],
            output_names=["scores"],
            compression_level=None,  # a folder, and no archive
        )
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(written, folder)


def command_line(folder: Path) -> Path:
    """What stands for tract's command line, which torch-to-nnef would download from the
    network, though it asks for its version alone.
    """
    program = folder / "tract"
    program.write_text(f"#!/bin/sh\necho tract {VERSION}\n")
    program.chmod(0o755)
    return program


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Noisy tones of random phase and loudness, with the number of their pitch."""
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        labels = random.integers(len(PITCHES), size=BATCH)
        phase, loudness = random.random((2, BATCH, 1, 1))
        turns = np.array(PITCHES)[labels, None, None] * np.arange(LENGTH) + phase
        sounds = (0.5 + loudness) * np.sin(2 * np.pi * turns)
        sounds += 0.3 * random.standard_normal(sounds.shape)
        yield torch.tensor(sounds, dtype=torch.float32), torch.from_numpy(labels)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
