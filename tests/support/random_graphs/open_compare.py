"""The gradients of open random graphs, of one order or two: one document for all numbers
of its symbols, against torch's autograd, and in the runtimes of a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch

import nnef_grad
from nnef_grad.graph.symbols import with_numbers
from support.runtimes.cases import Case, relative_error
from support.runtimes.harness import consumers_of
from support.runtimes.matrix import Example, verdicts

from .open_graphs import Numbers, OpenGraph, Tensors, make_graph, values
from .runtimes import CHUNK, CONDITION, TOLERANCE

EXACT = 1e-7
Function = Callable[[Mapping[str, torch.Tensor], Numbers], Tensors]


class WrongError(Exception):
    """The gradients are not those of torch."""


def gradients(function: Function, backward: nnef_grad.Backward) -> Function:
    """What a backward graph computes of a function, by torch."""

    def differentiated(
        entering: Mapping[str, torch.Tensor], numbers: Numbers
    ) -> Tensors:
        outputs = function(entering, numbers)
        products = [
            (outputs[name] * entering[seed]).sum()
            for name, seed in backward.seeds.items()
        ]
        wrt = {name: entering[name] for name in backward.gradients}
        found = torch.autograd.grad(
            torch.stack(products).sum(),
            list(wrt.values()),
            create_graph=True,
            allow_unused=True,
        )
        pairs = zip(wrt.items(), found, strict=True)
        results = {
            backward.gradients[name]: torch.zeros_like(tensor) if g is None else g
            for (name, tensor), g in pairs
        }
        return {**outputs, **results}

    return differentiated


def examples(graph: OpenGraph, target: str, order: int) -> dict[str, Example]:
    """The backward graph for a target, at all numbers; none where single precision says
    little of it.

    Raises:
        WrongError: it is not what torch computes.
    """
    backward = nnef_grad.loads(graph.text)
    function: Function = graph.__call__
    for _ in range(order):
        made = nnef_grad.differentiate(backward, with_outputs=True)
        backward, function = made.graph, gradients(function, made)
    lowered = nnef_grad.lower(backward, target)
    assert not lowered.data
    text = nnef_grad.dumps(lowered.graph)
    found = {}
    for numbers in graph.sizes:
        inputs, variables = fed(graph, backward, numbers)
        expected = compared(function, backward, inputs, variables, numbers)
        feeds = {name: tensor.detach().numpy() for name, tensor in inputs.items()}
        data = {name: tensor.detach().numpy() for name, tensor in variables.items()}
        with np.errstate(all="ignore"):
            single = nnef_grad.evaluate(backward, feeds, data, dtype=np.float32)
        if any(relative_error(single[n], a) > CONDITION for n, a in expected.items()):
            return {}
        found[f"{graph.name} at {numbers}"] = Example(Case(text, feeds, data), expected)
    return found


def fed(
    graph: OpenGraph, backward: nnef_grad.Graph, numbers: Numbers
) -> tuple[Tensors, Tensors]:
    """Random inputs and variables of the backward graph."""
    generator = torch.Generator().manual_seed(len(graph.text) + sum(numbers.values()))
    sized = with_numbers(backward, numbers)
    shapes = {name: sized.tensors[name].shape for name in sized.input_names}
    inputs = values(shapes, numbers, generator)
    # The same at all numbers, as a file has them.
    generator.manual_seed(len(graph.text))
    variables = values(graph.variables, numbers, generator)
    variables = {name: (tensor / 2).detach() for name, tensor in variables.items()}
    for tensor in (*inputs.values(), *variables.values()):
        tensor.requires_grad_()
    return inputs, variables


def compared(
    function: Function,
    backward: nnef_grad.Graph,
    inputs: Tensors,
    variables: Tensors,
    numbers: Numbers,
) -> dict[str, np.ndarray]:
    """The outputs in double precision, after they were compared with torch."""
    by_torch = function({**inputs, **variables}, numbers)
    feeds = {name: tensor.detach().numpy() for name, tensor in inputs.items()}
    data = {name: tensor.detach().numpy() for name, tensor in variables.items()}
    found = nnef_grad.evaluate(backward, feeds, data)
    if found.keys() != by_torch.keys():
        raise WrongError(f"outputs {sorted(found)}, not {sorted(by_torch)}")
    for name, array in found.items():
        wanted = by_torch[name].detach().numpy()
        if array.shape != wanted.shape:
            raise WrongError(f"{name}: {array.shape}, not {wanted.shape}, at {numbers}")
        if (error := relative_error(array, wanted)) > EXACT:
            raise WrongError(f"{name}: relative error {error:.2g} at {numbers}")
    return found


def failures(
    seed: int, numbers: Iterable[int], target: str, order: int = 1
) -> Iterator[str]:
    """What is to be told of each graph that is wrong, or fails in a runtime."""
    found: dict[str, Example] = {}
    texts = {}
    for graph in (make_graph(seed, number) for number in numbers):
        try:
            made = examples(graph, target, order)
        except nnef_grad.NnefGradError as error:
            # A number is needed: the user is told, and gives it.
            if error.problems[0].remedy == "symbol":
                continue
            yield f"{graph.name}, order {order}: {error}\n{graph.text}"
            continue
        except WrongError as error:
            yield f"{graph.name}, order {order}: {error}\n{graph.text}"
            continue
        found.update(made)
        texts.update(dict.fromkeys(made, graph.text))
    for runtime in consumers_of(target):
        for name, verdict in verdicts(runtime, found, tolerance=TOLERANCE).items():
            if verdict.word != "ok":
                what = f"{verdict.word} {verdict.detail}"
                yield f"{name}, order {order}, {runtime}: {what}\n{texts[name]}"


def run_open(seed: int, graphs: int, target: str, order: int) -> int:
    """Prints what fails, and returns how much that is."""
    told = 0
    for begin in range(0, graphs, CHUNK):
        for text in failures(
            seed, range(begin, min(begin + CHUNK, graphs)), target, order
        ):
            print(text, flush=True)
            told += 1
    print(
        f"seed {seed}: {graphs} open graphs for {target}, order {order}, {told} failed"
    )
    return told
