"""A network from PyTorch learns other sounds where it runs: tract trains its last layer,
with neither PyTorch nor nnef-grad.

    pip install . tract

`exported/tones` is what torch-to-nnef wrote: a network that tells four pitches apart. Here
the pitches are others. A workstation makes the training step; the device has the step, the
network, tract and numpy. docs/tract.md explains it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import copytree

import numpy as np
import tract

EXPORTED = Path(__file__).parent / "exported" / "tones"
PITCHES = (0.08, 0.15, 0.25, 0.38)
LENGTH, BATCH, STEPS = 64, 32, 200


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        step, network = Path(folder) / "step", Path(folder) / "tones"
        compile_step(step)
        copytree(EXPORTED, network)
        before = accuracy(network)
        train(step, network)
        print(
            f"{before:.0f} % of other tones right, {accuracy(network):.0f} % after it"
        )


# ---- On the workstation ----


def compile_step(folder: Path) -> None:
    """As nnef-grad-step does: see docs/tract.md."""
    import nnef_grad

    graph = nnef_grad.load(EXPORTED, symbols={"B": BATCH})
    step = nnef_grad.training_step(
        graph,
        data=nnef_grad.load_data(EXPORTED),
        loss="softmax_cross_entropy",
        optimizer="adam",
        train="head.*",
        target="tract",
    )
    nnef_grad.training.save_step(step, folder)


# ---- On the device ----

# The files of the network that what is trained goes to.
FILES = {"head_weight": "head.weight.dat", "head_bias": "head.bias.dat"}
# The numbers of a file come after its type and shape.
HEADER = 128


def train(step: Path, network: Path) -> None:
    """Trains the last layer of a network, whose files get the new values."""
    model = tract.nnef().load(step)
    names = [model.input_name(index) for index in range(model.input_count())]
    _sound, _target, _rate, *kept = names
    runnable = model.into_runnable()
    facts = runnable.input_facts()[-len(kept) :]
    state = [numbers(step, name, fact) for name, fact in zip(kept, facts, strict=True)]
    rate = np.array(0.03, np.float32)
    random = np.random.default_rng(0)
    for number in range(STEPS):
        sounds, labels = tones(random, BATCH)
        target = np.eye(len(PITCHES), dtype=np.float32)[labels]
        loss, *state = runnable.run([sounds, target, rate, *state])
        if number in (0, STEPS - 1):
            print(f"step {number + 1} in tract: loss {loss.to_numpy():.3f}")
    for name, value in zip(kept, state, strict=True):
        if name in FILES:
            write(network / FILES[name], value.to_numpy())


def numbers(folder: Path, name: str, fact: tract.fact.Fact) -> np.ndarray:
    """The values that an input begins with."""
    found = np.fromfile(folder / f"{name}.dat", np.float32, offset=HEADER)
    return found.reshape([int(extent) for extent in fact.dims()])


def write(file: Path, value: np.ndarray) -> None:
    """Replaces the numbers of a file. It is a new one: the old one may have other names,
    in folders that share their data with this one.
    """
    new = file.with_suffix(".new")
    new.write_bytes(file.read_bytes()[:HEADER] + value.tobytes())
    new.replace(file)


def accuracy(network: Path) -> float:
    """How many of 500 tones a network in a folder tells right, in percent."""
    sounds, labels = tones(np.random.default_rng(1), 500)
    (scores,) = tract.nnef().load(network).into_runnable().run([sounds])
    return 100 * float((scores.to_numpy().argmax(axis=1) == labels).mean())


def tones(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy tones of random phase and loudness, [count, 1, LENGTH], and their pitches."""
    labels = random.integers(len(PITCHES), size=count)
    phase, loudness = random.random((2, count, 1, 1))
    turns = np.array(PITCHES)[labels, None, None] * np.arange(LENGTH) + phase
    noise = 0.3 * random.standard_normal(turns.shape)
    sounds = (0.5 + loudness) * np.sin(2 * np.pi * turns) + noise
    return sounds.astype(np.float32), labels


if __name__ == "__main__":
    main()
