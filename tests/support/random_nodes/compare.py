"""What the compiler makes of a file: the results of ONNX Runtime, and their gradients."""

from __future__ import annotations

import re
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

import nnef_grad
from nnef_grad import interop
from support.onnx_files import run

from .draw import Array
from .generate import Drawn, Skipped, make_graph

FAILURES = ("wrong forward", "wrong gradient", "bug")


class Outcome(NamedTuple):
    kind: str
    message: str = ""
    drawn: Drawn | None = None

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    def report(self) -> str:
        """The message, the file, and the values that it is fed."""
        assert self.drawn
        text = onnx.printer.to_text(self.drawn.model)
        fed = "\n".join(
            f"{n} = {np.asarray(a).tolist()}" for n, a in self.drawn.fed.items()
        )
        return f"{self.kind}: {self.message}\n{text}\n{fed}"


def compare(seed: int, number: int, *, with_gradient: bool) -> Outcome:
    """Graph `number` of a seed, read and evaluated."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "model.onnx")
        try:
            drawn = make_graph(
                seed, number, lambda model, fed: _computed(model, fed, path)
            )
            expected = [*run(path, drawn.fed).values()]
        except Skipped:
            return Outcome("skipped")
        try:
            return _compared(path, drawn, expected, with_gradient)
        except nnef_grad.NnefGradError as error:
            return Outcome("refused", _kind_of(str(error)), drawn)
        except Exception as error:
            return Outcome("bug", f"{type(error).__name__}: {error}", drawn)


def _computed(model: Any, fed: dict[str, Array], path: Path) -> dict[str, Array]:
    onnx.save(model, path)
    try:
        results = run(path, fed)
    except Exception:  # whatever a runtime raises of a node that it does not run
        raise Skipped from None
    # Infinities are numbers of a wide range in NNEF, and maxima of a NaN are not defined.
    if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in results.values()):
        raise Skipped
    return results


def _kind_of(message: str) -> str:
    line = re.sub(r"^.*?: (error: )?", "", message.splitlines()[0])
    return re.sub(r"[\w./]*\d[\w./]*|'[^']*'|\[[^]]*\]", "_", line)[:90]


def _compared(
    path: Path, drawn: Drawn, expected: list[Array], with_gradient: bool
) -> Outcome:
    model = interop.from_onnx(path)
    graph, data = model.graph, model.data
    tensors = graph.tensors
    fed = {n: a for n, a in drawn.fed.items() if tensors.get(n) in graph.inputs}
    found = [*nnef_grad.evaluate(graph, fed, data, dtype=np.float32).values()]
    for mine, theirs in zip(found, expected, strict=True):
        if mine.shape != theirs.shape:
            return Outcome("wrong forward", f"{mine.shape}, not {theirs.shape}", drawn)
        numbers = np.asarray(mine, float), np.asarray(theirs, float)
        if not np.allclose(*numbers, 1e-3, 1e-4):
            return Outcome(
                "wrong forward",
                f"{mine.ravel()[:40]}\nnot {theirs.ravel()[:40]}",
                drawn,
            )
    ends = graph.inputs, graph.outputs
    if not with_gradient or not all(any(t.dtype == "scalar" for t in e) for e in ends):
        return Outcome("right", "", drawn)
    backward = nnef_grad.differentiate(graph, wrt="inputs")
    checked = nnef_grad.check(graph, backward, inputs=fed, variables=data)
    if checked.passed:
        return Outcome("right", "", drawn)
    return Outcome("wrong gradient", str(checked), drawn)
