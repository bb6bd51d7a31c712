"""Random graphs and their backward graphs, lowered for a target, in its runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

import nnef_grad
from nnef_grad.graph.passes import prune
from support.runtimes.cases import Array, Case, Verdict, brief, relative_error
from support.runtimes.harness import consumers_of
from support.runtimes.matrix import Example, retyped, rounded, verdicts

from .generate import make_graph
from .graphs import RandomGraph
from .minimise import minimise

# Of a graph that single precision comes further from than this, no runtime says much.
CONDITION = 2e-5
TOLERANCE = 1e-3
CHUNK = 100


def failures(
    seed: int,
    numbers: Iterable[int],
    target: str,
    order: int = 1,
    runtimes: Sequence[str] | None = None,
) -> Iterator[str]:
    """What is to be told of each graph that fails in a runtime of a target, or in others: the
    smallest one found that fails in the same way. The gradients are of an order.
    """
    graphs = {f"{seed}:{n}": make_graph(seed, n) for n in numbers}
    made = {name: example(graph, target, order) for name, graph in graphs.items()}
    examples = {name: found for name, found in made.items() if found is not None}
    for runtime in runtimes or consumers_of(target):
        for name, verdict in verdicts(runtime, examples, tolerance=TOLERANCE).items():
            if verdict.word != "ok":
                yield report(graphs[name], target, order, runtime, verdict)


def example(graph: RandomGraph, target: str, order: int) -> Example | None:
    """The backward graph in the form of a target, and what it ought to compute; None where
    the target cannot express it, or it wants more than single precision.
    """
    # The outputs too, as gradients leave out most of what computes them.
    options = {**graph.options, "with_outputs": True}
    found = nnef_grad.differentiate(nnef_grad.loads(graph.text), **options).graph
    found = _numbers_only(found)
    for _ in range(order - 1):
        found = _numbers_only(nnef_grad.differentiate(found, with_outputs=True).graph)
    inputs, variables = _inputs(graph, found), _numbers(graph.variables)
    with np.errstate(all="ignore"):
        expected = nnef_grad.evaluate(found, inputs, variables)
        single = nnef_grad.evaluate(found, inputs, variables, dtype=np.float32)
    if any(relative_error(single[n], a) > CONDITION for n, a in expected.items()):
        return None
    try:
        lowered = nnef_grad.lower(found, target)
    except nnef_grad.UnsupportedError:
        return None
    fed = retyped({n: inputs[n] for n in lowered.graph.input_names}, lowered.graph)
    labels = {str(op.attributes.get("label")) for op in lowered.graph.operations}
    data = {k: v for k, v in {**variables, **lowered.data}.items() if k in labels}
    return Example(Case(nnef_grad.dumps(lowered.graph), fed, data), expected)


def _numbers_only(graph: nnef_grad.Graph) -> nnef_grad.Graph:
    """The graph without outputs that are indices, or truths: where elements are equal
    but for rounding, these are others.
    """
    numbers = tuple(tensor for tensor in graph.outputs if tensor.dtype == "scalar")
    return prune(replace(graph, outputs=numbers))


def _inputs(graph: RandomGraph, backward: nnef_grad.Graph) -> dict[str, Array]:
    """The values of the graph, and random seeds."""
    generator = np.random.default_rng(len(graph.text))
    known = _numbers(graph.feeds)
    return {
        name: known[name]
        if name in known
        else rounded(generator.standard_normal(backward.tensors[name].shape))
        for name in backward.input_names
    }


def _numbers(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: rounded(tensor.numpy()) for name, tensor in tensors.items()}


def report(
    graph: RandomGraph, target: str, order: int, runtime: str, verdict: Verdict
) -> str:
    """What failed, and the smallest graph found that fails in the same way."""
    small = minimise(graph, partial(_fails, target, order, runtime, verdict.word))
    head = f"{graph.name}, {target} in {runtime}, {small.options}: {verdict.word}"
    return f"{head}\n{brief(verdict.detail)}\n{small.text}"


def _fails(
    target: str, order: int, runtime: str, word: str, graph: RandomGraph
) -> bool:
    try:
        found = example(graph, target, order)
    except nnef_grad.NnefGradError:
        return False
    if found is None:
        return False
    (verdict,) = verdicts(runtime, {"": found}, tolerance=TOLERANCE).values()
    return verdict.word == word


def run_in_runtimes(
    seed: int,
    graphs: int,
    target: str,
    order: int,
    runtimes: Sequence[str] | None = None,
) -> int:
    """Prints what fails, and returns how much that is."""
    told = 0
    for begin in range(0, graphs, CHUNK):
        numbers = range(begin, min(begin + CHUNK, graphs))
        for text in failures(seed, numbers, target, order, runtimes):
            print(text, flush=True)
            told += 1
    print(f"seed {seed}: {graphs} graphs for {target}, order {order}, {told} failed")
    return told
