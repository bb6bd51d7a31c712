"""What tract writes of ONNX files, trained: `python -m support.tract_trainings FILE ...`, in the
folder `tests/`.

It prints for each file how far the losses of ten steps with tract's dump, in tract, are from
those with the ONNX file, in ONNX Runtime; from those in which the file's parameters of up to eight
elements, which are numbers in the dump, are not trained either; the first loss and the last one.
Where these are far apart, it prints how far they are in double precision.
"""

from __future__ import annotations

import sys
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tract

import nnef_grad
from nnef_grad import interop, training
from support.tract_dumps import CLOSE, FailedError, original, stage, typed_model

STEPS, RATE = 10, 1e-3
# tract writes as numbers what has no more elements.
MOST_WRITTEN = 8


def line(path: Path) -> str:
    """The row of a file."""
    wanted = original(path)
    if wanted.failure:
        raise FailedError(wanted.failure)
    shapes = {name: x.shape for name, x in wanted.feeds.items()}
    with tempfile.TemporaryDirectory() as name, stage("training"):
        folder = Path(name) / "dump"
        registries = tract.nnef().with_onnx().with_tract_extra()
        registries.with_tract_transformers().write_model_to_dir(
            typed_model(path, wanted), str(folder)
        )
        names = nnef_grad.load(folder).input_names
        model = interop.from_onnx(path, input_shapes=shapes)
        dump = nnef_grad.load(
            folder, input_shapes=dict(zip(names, shapes.values(), strict=True))
        )
        data = nnef_grad.load_data(folder)
        numbers = [
            label
            for name, label in model.graph.labels.items()
            if prod(model.graph.tensors[name].shape) <= MOST_WRITTEN
        ]
        feeds = [*wanted.feeds.values()]
        made, own, own_without = (
            training.training_step(
                graph,
                loss="mean_squared_error",
                optimizer="sgd",
                data=stored,
                freeze=frozen,
            )
            for graph, stored, frozen in (
                (dump, data, ()),
                (model.graph, model.data, ()),
                (model.graph, model.data, numbers),
            )
        )
        found = _losses(made, feeds, "tract")
        apart, rest = (
            _apart(found, _losses(step, feeds, "onnxruntime"))
            for step in (own, own_without)
        )
        row = f"{apart:.1e}, {rest:.1e}; losses {found[0]:.6g} to {found[-1]:.6g}"
        if rest > CLOSE:
            exact = (
                _losses(step, feeds, "numpy", np.float64)
                for step in (made, own_without)
            )
            row += f"; in double precision {_apart(*exact):.1e}"
        return row


def _losses(step: Any, feeds: list[Any], runtime: Any, dtype: Any = np.float32) -> Any:
    """The losses of the steps, with targets of zeros."""
    inputs = step.graph.tensors
    names = [n for n in step.graph.input_names if n != "learning_rate"]
    others = [np.zeros(inputs[n].shape, dtype) for n in names[len(feeds) :]]
    batch = dict(zip(names, [*feeds, *others], strict=True))
    batches = [batch] * STEPS
    run = training.run(
        step, batches, runtime=runtime, learning_rate=RATE, dtype=dtype, progress=False
    )
    return np.array([*map(float, run)])


def _apart(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / (np.abs(wanted).max() + 1e-30))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        try:
            row = line(Path(argument))
        except FailedError as error:
            row = str(error)
        print(f"{argument[-50:]:50s} {row}", flush=True)
