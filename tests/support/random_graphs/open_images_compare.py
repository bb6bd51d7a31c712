"""The gradients of open graphs of images, at all numbers that torch takes: of the document with
symbols, of that document with numbers, and of the document that was made for the numbers.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.symbols import with_numbers
from support.runtimes.cases import relative_error

from .open_compare import EXACT, Function, WrongError, compared, fed, gradients
from .open_graphs import Numbers, OpenGraph, sized
from .open_images import make_graph
from .runtimes import CONDITION, TOLERANCE

# How many documents are made for numbers, of each graph.
SIZED = 2


@dataclass
class Tally:
    """What was seen.

    Attributes:
        sizes, sessions: the numbers at which gradients were compared, and the ONNX files.
        needed: how often a number is needed, by the message.
        examples: the first graph of each.
    """

    graphs: int = 0
    open: int = 0
    sizes: int = 0
    refused: int = 0
    sessions: int = 0
    needed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def count(self, graph: OpenGraph, prefix: str, error: NnefGradError) -> None:
        word = prefix + kind_of(str(error.problems[0].message))
        self.needed[word] += 1
        self.examples.setdefault(word, f"{graph.name}: {error.problems[0].message}")

    def table(self) -> str:
        """The messages, the most frequent ones first."""
        head = (
            f"{self.graphs} graphs, {self.open} open, at {self.sizes} sizes and"
            f" {self.refused} that are refused, {self.sessions} in ONNX Runtime"
        )
        rows = [
            f"{count:6}  {word}\n        {self.examples[word]}"
            for word, count in self.needed.most_common()
        ]
        return "\n".join([head, *rows])


def kind_of(message: str) -> str:
    """A message without the extents in it."""
    message = re.sub(r"\b[BTHW]\b|'?\bt\d+'?|\b\d+\b", "_", message)
    message = re.sub(r"(max|min)(?=\()|[_()\[\]{}#*/+,-]+", "_", message)
    return re.sub(r"_[_ ]*", "_ ", message)[:120]


def compare(graph: OpenGraph, order: int, tally: Tally, *, in_onnx: bool) -> None:
    """Raises `WrongError` where some gradient is not that of torch."""
    function: Function = graph.__call__
    tally.graphs += 1
    try:
        backward, function = _backward(graph, order, function)
    except NnefGradError as error:
        # What reflects twice is refused at all numbers.
        if error.problems[0].remedy != "symbol" and not all(
            _is_refused(graph, order, function, numbers) for numbers in graph.sizes
        ):
            raise
        tally.count(graph, "", error)
        return
    tally.open += 1
    found: list[Any] = []
    for index, numbers in enumerate(graph.sizes):
        found += _at(graph, backward.graph, function, numbers, order, index < SIZED)
        tally.sizes += 1
    for numbers in graph.refused:
        _refuses(graph, backward.graph, numbers)
        tally.refused += 1
    if in_onnx:
        try:
            _in_onnx(backward, found)
            tally.sessions += 1
        except NnefGradError as error:
            tally.count(graph, "onnx: ", error)


def _backward(
    graph: OpenGraph, order: int, function: Function, numbers: Numbers | None = None
) -> tuple[nnef_grad.Backward, Function]:
    differentiated: Any = nnef_grad.loads(graph.text, symbols=numbers)
    for _ in range(order):
        made = nnef_grad.differentiate(differentiated, with_outputs=True)
        differentiated, function = made.graph, gradients(function, made)
    return made, function


# The inputs, the data of variables, and the outputs.
Run = tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray], Numbers]


def _at(
    graph: OpenGraph,
    backward: nnef_grad.Graph,
    function: Function,
    numbers: Numbers,
    order: int,
    is_made: bool,
) -> Iterator[Run]:
    try:
        inputs, variables = fed(graph, backward, numbers)
    except NnefGradError as error:
        if _is_refused(graph, order, function, numbers):
            return
        raise WrongError(f"refuses {numbers}: {error}") from None
    wanted = compared(function, backward, inputs, variables, numbers)
    feeds, data = (
        {name: tensor.detach().numpy() for name, tensor in own.items()}
        for own in (inputs, variables)
    )
    graphs = {"with numbers": with_numbers(backward, numbers)}
    if is_made:
        graphs["made for numbers"] = _backward(graph, order, function, numbers)[0].graph
    for what, own in graphs.items():
        found = nnef_grad.evaluate(own, feeds, data)
        _agree(found, wanted, EXACT, f"{what}, {numbers}")
    with np.errstate(all="ignore"):
        single = nnef_grad.evaluate(backward, feeds, data, dtype=np.float32)
    if all(relative_error(single[n], a) <= CONDITION for n, a in wanted.items()):
        yield feeds, data, wanted, numbers


def _is_refused(
    graph: OpenGraph, order: int, function: Function, numbers: Numbers
) -> bool:
    """Whether a document for the numbers alone is refused: the oracle reflects twice."""
    try:
        _backward(graph, order, function, numbers)
    except NnefGradError:
        return True
    return False


def _agree(found: Any, wanted: Any, most: float, where: str) -> None:
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            raise WrongError(f"{name}: {found[name].shape}, not {array.shape}, {where}")
        if (error := relative_error(found[name], array)) > most:
            raise WrongError(f"{name}: relative error {error:.2g}, {where}")


def _refuses(graph: OpenGraph, backward: nnef_grad.Graph, numbers: Numbers) -> None:
    """Raises `WrongError` where gradients are found for numbers that torch refuses."""
    try:
        inputs, variables = fed(graph, backward, numbers)
        declared = {n: tuple(sized(s, numbers, {})) for n, s in graph.inputs.items()}
        if any(inputs[name].shape != shape for name, shape in declared.items()):
            return
        feeds = {name: tensor.detach().numpy() for name, tensor in inputs.items()}
        data = {name: tensor.detach().numpy() for name, tensor in variables.items()}
        nnef_grad.evaluate(backward, feeds, data)
    except NnefGradError:
        return
    raise WrongError(f"takes {numbers}, which torch refuses")


def _in_onnx(backward: nnef_grad.Backward, runs: Iterable[Run]) -> None:
    """Runs one ONNX file at all numbers."""
    import onnxruntime

    runs = [*runs]
    if not runs:
        return
    data = {name: array.astype(np.float32) for name, array in runs[0][1].items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backward.onnx"
        interop.to_onnx(backward, path, data)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise WrongError(f"ONNX Runtime: {str(error)[:400]}") from None
    names = [output.name for output in session.get_outputs()]
    read = [x.name for x in session.get_inputs()]
    for feeds, own, wanted, numbers in runs:
        single = {n: {**feeds, **own}[n].astype(np.float32) for n in read}
        try:
            outputs = session.run(names, single)
        except Exception as error:
            raise WrongError(f"ONNX Runtime, {numbers}: {str(error)[:400]}") from None
        found = dict(zip(names, outputs, strict=True))
        _agree(found, wanted, TOLERANCE, f"ONNX Runtime, {numbers}")


def failures(
    seed: int, numbers: Iterable[int], target: str, order: int = 1, tally: Any = None
) -> Iterator[str]:
    """What is to be told of each graph that is wrong."""
    tally = Tally() if tally is None else tally
    for number in numbers:
        graph = make_graph(seed, number)
        try:
            compare(graph, order, tally, in_onnx=target == "onnx")
        except (NnefGradError, WrongError) as error:
            yield f"{graph.name}, order {order}: {error}\n{graph.text}"
        except Exception as error:
            yield f"{graph.name}, order {order}: {error!r}\n{graph.text}"


def run_images(seed: int, graphs: int, target: str, order: int) -> int:
    """Prints what fails, and how often a number is needed; returns how much fails."""
    tally, told = Tally(), 0
    for text in failures(seed, range(graphs), target, order, tally):
        print(text, flush=True)
        told += 1
    print(tally.table())
    print(f"seed {seed}: {graphs} graphs for {target}, order {order}, {told} failed")
    return told
