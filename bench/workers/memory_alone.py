"""The rows of bench.memory that are measured in a process without PyTorch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import answer_by_kind
from bench.workers.memory import mebibytes

WORDS, STEPS, LENGTH = 5000, 50, 128
# tract's file of a tensor begins with its type and shape.
HEADER = 128


def stages(path: str) -> dict[str, list[float]]:
    """From an ONNX file to gradients: the seconds of each stage, and the peak after it."""
    import onnxruntime

    import nnef_grad
    from nnef_grad import interop

    out, kept = Path(path).with_name("backward.onnx"), {}

    def read() -> None:
        kept["graph"], kept["data"] = interop.from_onnx(path)

    def differentiate() -> None:
        kept["backward"] = nnef_grad.differentiate(kept["graph"])

    def write() -> None:
        interop.to_onnx(kept["backward"].graph, out, kept["data"])

    def load() -> None:
        kept["session"] = onnxruntime.InferenceSession(out)

    def run() -> None:
        types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
        fed = {
            node.name: np.ones(node.shape, types[node.type])
            for node in kept["session"].get_inputs()
        }
        kept["session"].run(None, fed)

    found = {}
    for stage in (read, differentiate, write, load, run):
        begun = time.perf_counter()
        stage()
        seconds = time.perf_counter() - begun
        found[stage.__name__] = [seconds, mebibytes("VmHWM")]
    return found


def batches() -> Iterator[tuple[Any, Any]]:
    """Sequences that repeat, which is what is learned, and their next tokens."""
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        tokens = np.tile(random.integers(WORDS, size=(1, LENGTH // 4 + 1)), 4)
        yield tokens[:, :LENGTH], tokens[:, 1 : LENGTH + 1]


def in_tract(path: str) -> dict[str, Any]:
    """The losses of a step in a folder, and what they take."""
    import tract

    step = Path(path)
    model = tract.nnef().load(str(step))
    names = [model.input_name(index) for index in range(model.input_count())]
    runnable = model.into_runnable()
    facts = dict(zip(names, runnable.input_facts(), strict=True))
    state: list[Any] = []
    for name in names[2:]:
        shape = [int(extent) for extent in facts[name].dims()]
        stored = np.fromfile(step / f"{name}.dat", np.float32, offset=HEADER)
        state.append(stored.reshape(shape))
    loaded, losses = mebibytes("VmHWM"), []
    begun = time.process_time()
    for tokens, target in batches():
        loss, *state = runnable.run([tokens, target, *state])
        losses.append(float(loss.to_numpy()))
    seconds = (time.process_time() - begun) / STEPS
    peak = mebibytes("VmHWM")
    return {"losses": losses, "loaded": loaded, "peak": peak, "seconds": seconds}


if __name__ == "__main__":
    answer_by_kind(stages, in_tract)
