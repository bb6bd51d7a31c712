"""Measures the forms that targets choose among, and the speeds by which they choose.

    python -m bench.forms onnx tract interpreter

For each runtime it prints, for gradients of convolutions of many shapes, the time of each
form that applies, and of the one that the cost model chooses; then the speeds that fit
the times best, for the table in nnef_grad/targets/costs.py. Times are the least of some.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import nnef_grad
from bench.timing import interleaved
from nnef_grad import Graph, interop, targets
from nnef_grad.emit.rewriting import inline
from nnef_grad.graph.ir import Operation
from nnef_grad.graph.passes import prune
from nnef_grad.targets.costs import SPEEDS, Speeds, work
from nnef_grad.targets.forms import Form, open_forms

Array = npt.NDArray[Any]
Program = Callable[[], Sequence[Array]]

THREADS = 2


class Layer(NamedTuple):
    """A convolution of square images, padded by half of its filter."""

    batch: int
    channels: int
    filters: int
    extent: int
    size: int
    stride: int = 1
    groups: int = 1
    is_padded: bool = True

    @property
    def text(self) -> str:
        pad = self.size // 2 if self.is_padded else 0
        return (
            "version 1.0;\ngraph net( x ) -> ( y )\n{\n"
            f"x = external(shape = {[self.batch, self.channels, self.extent, self.extent]});\n"
            f"w = variable(shape = {[self.filters, self.channels // self.groups, self.size, self.size]},"
            " label = 'w');\n"
            f"y = conv(x, w, 0.0, padding = [({pad}, {pad}), ({pad}, {pad})],"
            f" stride = {[self.stride] * 2}, groups = {self.groups});\n}}\n"
        )


LAYERS = (
    Layer(1, 64, 256, 56, 1),
    Layer(1, 2048, 512, 7, 1),
    Layer(1, 64, 64, 56, 3),
    Layer(1, 256, 256, 14, 3),
    Layer(1, 512, 512, 7, 3),
    Layer(1, 16, 16, 224, 3),
    Layer(1, 64, 64, 224, 3),
    Layer(1, 48, 16, 112, 3),
    Layer(1, 128, 128, 28, 3),
    Layer(8, 64, 64, 56, 3),
    Layer(1, 3, 64, 224, 7, stride=2),
    Layer(1, 3, 64, 224, 11, stride=4),
    Layer(1, 128, 128, 28, 3, stride=2),
    Layer(1, 256, 512, 28, 1, stride=2),
    Layer(8, 64, 64, 56, 1),
    Layer(8, 512, 2048, 7, 1),
    Layer(8, 512, 512, 7, 3),
    Layer(8, 64, 64, 28, 3),
    Layer(8, 16, 32, 64, 5),
    Layer(8, 3, 64, 224, 7, stride=2),
    Layer(8, 16, 16, 128, 3),
    Layer(8, 64, 32, 64, 3),
    Layer(8, 128, 32, 28, 3),
    Layer(1, 128, 32, 56, 3),
    Layer(8, 256, 256, 14, 3),
    Layer(8, 64, 128, 56, 3, stride=2),
    Layer(8, 104, 104, 28, 3, groups=13),
    Layer(1, 96, 96, 32, 3, groups=96),
    Layer(1, 128, 128, 56, 3, groups=128),
    Layer(4, 96, 96, 32, 3, groups=96),
    Layer(1, 64, 64, 28, 3, groups=4),
    Layer(1, 256, 1024, 6, 6, is_padded=False),
    Layer(8, 256, 1024, 6, 6, is_padded=False),
)


class Timed(NamedTuple):
    """A form of a gradient: its seconds, what the model says it takes, and how much of
    each kind of work it is.
    """

    form: str
    seconds: float
    cost: float
    amounts: tuple[float, ...]


# ---- Forms ----


def candidates(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph as it is, and with each form of each operation of the derivative."""
    yield "as it is", graph
    for op, form in open_forms(graph):
        if op.origin is not None:
            yield form.build.__name__, with_form(graph, op, form)


def with_form(graph: Graph, operation: Operation, form: Form) -> Graph:
    return prune(inline(graph, lambda op: form.build if op is operation else None))


def keep_forms(graph: Graph, runtimes: Sequence[str], lacks: object = None) -> Graph:
    """In place of the choice that lowering begins with: here all forms are measured."""
    return graph


# ---- Runtimes ----


def onnx_program(
    graph: Graph, data: dict[str, Array], feeds: dict[str, Array]
) -> Program:
    from bench.workers.onnx_runtime import session

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        interop.to_onnx(graph, path, data)
        loaded = session(str(path), THREADS)
    fed = {x.name: feeds[x.name] for x in loaded.get_inputs()}
    return lambda: loaded.run(None, fed)


def interpreter_program(
    graph: Graph, data: dict[str, Array], feeds: dict[str, Array]
) -> Program:
    import torch
    from nnef_tools.interpreter.pytorch import NNEFModule

    # Threads that wait for each other would spoil the times where something else runs.
    torch.set_num_threads(1)
    lowered = nnef_grad.lower(graph, "khronos")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "model")
        nnef_grad.save(lowered.graph, place, data={**data, **lowered.data})
        module = NNEFModule(str(place))
    fed = [torch.from_numpy(feeds[name]) for name in lowered.graph.input_names]

    def run() -> Sequence[Array]:
        with torch.no_grad():
            return [result.detach().numpy() for result in module(*fed)]

    return run


def tract_program(
    graph: Graph, data: dict[str, Array], feeds: dict[str, Array]
) -> Program:
    import tract

    lowered = nnef_grad.lower(graph, "tract")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "model")
        nnef_grad.save(lowered.graph, place, data={**data, **lowered.data})
        model = tract.nnef().load(place)
    fed = [feeds[model.input_name(i)] for i in range(model.input_count())]
    runnable = model.into_runnable()
    return lambda: [result.to_numpy() for result in runnable.run(fed)]


PROGRAMS = {
    "onnx": onnx_program,
    "interpreter": interpreter_program,
    "tract": tract_program,
}


# ---- Measuring ----


def timed(layer: Layer, wrt: str, runtime: str) -> list[Timed]:
    """The forms of the gradient of a layer with respect to its input or filter."""
    graph = nnef_grad.loads(layer.text)
    backward = nnef_grad.differentiate(graph, wrt=[wrt]).graph
    draw = np.random.default_rng(0)
    feeds = {
        name: draw.standard_normal(tensor.shape, np.float32)
        for name, tensor in zip(backward.input_names, backward.inputs, strict=True)
    }
    (weights,) = graph.variables
    data = {"w": draw.standard_normal(weights.shape, np.float32)}
    forms = list(candidates(backward))
    programs = {name: PROGRAMS[runtime](made, data, feeds) for name, made in forms}
    for program in programs.values():
        program()
    times = interleaved(programs, 15, 1.0)
    found = []
    for name, made in forms:
        work_done = tuple(work(made.operations, runtime).values())
        cost = np.dot(work_done, SPEEDS[runtime]) / 1e9
        found.append(Timed(name, min(times[name]), float(cost), work_done))
    return found


def fitted(rows: Sequence[Timed], rounds: int = 2000) -> Speeds:
    """The speeds of which none is negative and whose relative errors are least, by
    descent along one after the other.
    """
    weights = np.array([row.seconds for row in rows]) ** -0.9
    matrix = np.array([row.amounts for row in rows]) * weights[:, None] * 1e-9
    wanted = np.array([row.seconds for row in rows]) * weights
    scale = np.abs(matrix).max(axis=0, initial=1e-30)
    normal, right = (matrix / scale).T @ (matrix / scale), (matrix / scale).T @ wanted
    found = np.zeros(len(scale))
    for _ in range(rounds):
        for i, diagonal in enumerate(np.diag(normal)):
            if diagonal > 0:
                found[i] = max(
                    0.0, found[i] - (normal[i] @ found - right[i]) / diagonal
                )
    return Speeds(*(float(f"{speed:.3g}") for speed in found / scale))


def measure(runtime: str) -> None:
    rows, losses = [], []
    for layer in LAYERS:
        for wrt in ("w", "x"):
            found = timed(layer, wrt, runtime)
            chosen = min(found, key=lambda row: row.cost)
            best = min(row.seconds for row in found)
            rows += found
            losses.append(log(chosen.seconds / best))
            forms = (
                f"{row.form} {row.seconds * 1e3:.2f} ({row.cost * 1e3:.2f})"
                for row in found
            )
            print(f"{runtime} {tuple(layer)} {wrt}: {', '.join(forms)}", flush=True)
            print(f"    chosen: {chosen.form}, {chosen.seconds / best:.2f} x the best")
    print(f"{runtime}: the chosen forms take {exp(fmean(losses)):.2f} x the best ones")
    print(f"speeds that fit: {fitted(rows)}")


def main() -> None:
    targets.choose_forms = keep_forms  # type: ignore[attr-defined]
    parser = argparse.ArgumentParser(prog="python -m bench.forms", description=__doc__)
    parser.add_argument("runtime", nargs="+", choices=PROGRAMS)
    for runtime in parser.parse_args().runtime:
        measure(runtime)


if __name__ == "__main__":
    main()
