"""Gradients of TFLite files: `python -m support.tflite_files FILE ...`, in the folder `tests/`.

Needs `ai-edge-litert`. It prints a line for each file: the number of operations and four
relative differences, or the reason why it is refused.

- `forward`: the results, in double precision, from those of LiteRT;
- `LiteRT`: a difference of results along the gradient of the inputs, from that of LiteRT, which
  computes in single precision: the best of a few steps;
- `slope`: the slope along a random direction of all inputs and variables, by the gradients,
  from central differences in double precision: the best of a few steps, as networks have kinks;
- `ONNX`: that slope by the gradients of ONNX Runtime.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad import interop
from support.onnx_files import run

Named = dict[str, Any]
LITE_STEPS = 0.1, 0.03, 0.01, 0.003
STEPS = 1e-5, 1e-6, 1e-7, 1e-8, 1e-9


class LiteRT:
    """A file in the runtime of its makers: the results for inputs, by names in order."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(str(path))
        self.interpreter.allocate_tensors()

    def __call__(self, inputs: Named, names: tuple[str, ...]) -> Named:
        details = self.interpreter.get_input_details()
        for detail, array in zip(details, inputs.values(), strict=True):
            fed = array.astype(detail["dtype"]).reshape(detail["shape"])
            self.interpreter.set_tensor(detail["index"], fed)
        self.interpreter.invoke()
        outputs = self.interpreter.get_output_details()
        found = (self.interpreter.get_tensor(detail["index"]) for detail in outputs)
        return dict(zip(names, found, strict=True))


class Comparison:
    """A model, a point, and a random sum of its results: a loss."""

    def __init__(self, model: interop.Model, lite: LiteRT, seed: int = 0) -> None:
        self.graph, self.data = model
        self.lite, self.rng = lite, np.random.default_rng(seed)
        names = self.graph.names
        self.inputs = {
            names[x]: self.rng.uniform(0, 1, x.shape) for x in self.graph.inputs
        }
        self.backward = nnef_grad.differentiate(self.graph, with_outputs=True)
        self.seeds = {
            name: self.rng.standard_normal(self.graph.tensors[y].shape)
            for y, name in self.backward.seeds.items()
        }
        self.labels = self.graph.labels
        numbers = {name: self.data[label] for name, label in self.labels.items()}
        self.point = {
            name: np.float64({**self.inputs, **numbers}[name])
            for name in self.backward.gradients
        }
        feeds = {**self.inputs, **self.seeds}
        self.own = nnef_grad.evaluate(
            self.backward.graph, feeds, self.data, dtype=np.float64
        )

    def numbers(self) -> Iterator[float]:
        """The four numbers of a row."""
        theirs = self.lite(self.inputs, self.graph.output_names)
        yield max(_apart(self.own[y], theirs[y]) for y in theirs)
        toward = {x: self.gradient(self.own, x) for x in self.inputs}
        longest = max(np.abs(d).max() for d in toward.values())
        toward = {x: d / longest for x, d in toward.items()}
        yield min(
            _relative(
                self.difference(self.in_lite, toward, step),
                self.difference(self.interpreted, toward, step),
            )
            for step in LITE_STEPS
        )
        drawn = {
            name: self.rng.standard_normal(x.shape) * (np.abs(x).mean() + 1e-3)
            for name, x in self.point.items()
        }
        slope = self.slope(drawn, self.own)
        yield min(
            _relative(self.difference(self.interpreted, drawn, h) / (2 * h), slope)
            for h in STEPS
        )
        yield _relative(self.slope(drawn, self.in_onnx()), slope)

    def gradient(self, results: Mapping[str, Any], name: str) -> Any:
        return np.float64(results[self.backward.gradients[name]])

    def slope(self, along: Named, results: Mapping[str, Any]) -> float:
        return sum(
            float((self.gradient(results, x) * d).sum()) for x, d in along.items()
        )

    def loss(self, results: Mapping[str, Any]) -> float:
        pairs = self.backward.seeds.items()
        return sum(
            float((np.float64(results[y]) * self.seeds[n]).sum()) for y, n in pairs
        )

    def difference(
        self, loss: Callable[[Named], float], along: Named, step: float
    ) -> float:
        ahead, back = (
            loss({**self.point, **{x: self.point[x] + h * d for x, d in along.items()}})
            for h in (step, -step)
        )
        return ahead - back

    def in_lite(self, point: Named) -> float:
        fed = {name: point.get(name, x) for name, x in self.inputs.items()}
        return self.loss(self.lite(fed, self.graph.output_names))

    def interpreted(self, point: Named) -> float:
        fed = {name: point.get(name, x) for name, x in self.inputs.items()}
        moved = {label: point[n] for n, label in self.labels.items() if n in point}
        data = {**self.data, **moved}
        return self.loss(nnef_grad.evaluate(self.graph, fed, data, dtype=np.float64))

    def in_onnx(self) -> Named:
        given = {
            name: np.float32(x) for name, x in {**self.inputs, **self.seeds}.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "whole.onnx"
            interop.to_onnx(self.backward.graph, file, self.data)
            return run(file, given)


def _apart(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / (np.abs(wanted).max() + 1e-30))


def _relative(found: float, wanted: float) -> float:
    return abs(found - wanted) / (abs(wanted) + 1e-30)


def line(path: Path) -> str:
    """The row of a file."""
    try:
        model = interop.from_tflite(path)
        numbers = Comparison(model, LiteRT(path)).numbers()
    except nnef_grad.NnefGradError as error:
        return f"refused: {error}"
    found = " ".join(f"{number:8.1e}" for number in numbers)
    return f"{len(model.graph.operations):10d} {found}"


if __name__ == "__main__":
    print(f"{'file':45s} operations  forward   LiteRT    slope     ONNX")
    for argument in sys.argv[1:]:
        print(f"{Path(argument).name:45s} {line(Path(argument))}", flush=True)
