"""Gradients for each example of random graphs in runtimes, beside our own evaluation of the same
graphs in double precision, which `per_example_graphs` compares with a loop over examples.

`python -m support.per_example_runtimes --graphs 2000`, with the tests on the path: each graph with
a number of examples and with an open one, its inputs with their examples along any axis. Runtimes
are in processes of their own, for some graphs at a time: one that ends takes these with it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.extents import symbol
from nnef_grad.graph.symbols import numbers_of, with_numbers
from nnef_grad.runtimes import find_runtime

from .per_example_graphs import COUNT, batched, examples_of, has_rule_of_no_body
from .random_graphs.generate import make_graph
from .random_graphs.graphs import RandomGraph

Array = Any
RUNTIMES = ("onnxruntime", "openvino", "tract")
SHARE = 25
# Of single precision, relative to the largest element.
TOLERANCE = 2e-3


def verdicts(graph: RandomGraph, is_open: bool) -> Iterator[tuple[str, str]]:
    """What each runtime makes of the gradients of a graph: its name, and a word."""
    one = nnef_grad.loads(graph.text)
    random = np.random.default_rng([len(graph.text), is_open])
    axes = {
        n: int(random.integers(x.rank + 1))
        for n, x in zip(one.input_names, one.inputs, strict=True)
    }
    many, names = batched(one, symbol("n") if is_open else COUNT, axes)
    outputs = [*names.values()]
    backward = nnef_grad.differentiate(many, outputs=outputs, per_example=axes)
    examples = examples_of(graph, COUNT)
    fed = {
        name: np.stack([each[name] for each in examples], at)
        for name, at in axes.items()
    }
    data = {label: value.numpy() for label, value in graph.variables.items()}
    numbers = numbers_of(many, {name: value.shape for name, value in fed.items()})
    shapes = with_numbers(many, numbers).tensors
    for y, seed in backward.seeds.items():
        fed[seed] = random.standard_normal(shapes[y].shape)
    wanted = nnef_grad.evaluate(backward, fed, data)
    for runtime in filter(find_spec, RUNTIMES):
        yield runtime, _verdict(runtime, backward.graph, fed, data, wanted)


def _verdict(
    runtime: str,
    graph: nnef_grad.Graph,
    fed: Mapping[str, Array],
    data: Mapping[str, Array],
    wanted: Mapping[str, Array],
) -> str:
    arrays = [fed[name] for name in graph.input_names]
    single = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in arrays]
    try:
        results = find_runtime(runtime).compile(graph, data, threads=1)(single)
    except NnefGradError as refusal:
        return f"refused: {refusal.message}"
    rounded = {n: x.astype(np.float32) for n, x in fed.items() if x.dtype.kind == "f"}
    near = nnef_grad.evaluate(graph, {**fed, **rounded}, data)
    for name, found in zip(graph.output_names, results, strict=True):
        # What rounding of the inputs changes as much is ill conditioned.
        spread = _distance(near[name], wanted[name])
        if not _distance(found, wanted[name]) <= TOLERANCE + 1e3 * spread:
            return f"wrong: {name} {_distance(found, wanted[name]):.2g} ({spread:.2g})"
    return "equal"


def _distance(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape:
        return np.inf
    known = np.isfinite(wanted) & (np.abs(wanted) < 1e30)
    if not known.any():
        return 0.0
    scale = max(1.0, float(np.abs(wanted[known]).max()))
    return float(np.abs(found - wanted)[known].max()) / scale


def run(seed: int, numbers: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """Of each graph and runtime: the name, closed or open, the runtime, a word."""
    rows = []
    for number in numbers:
        graph = make_graph(seed, number)
        for size in ("closed", "open"):
            told = (graph.name, size)
            if has_rule_of_no_body(graph):
                rows.append((*told, "", "quantized"))
                continue
            try:
                rows += [(*told, *each) for each in verdicts(graph, size == "open")]
            except NnefGradError as refusal:
                rows.append((*told, "", f"refused: {refusal.message}"))
            except Exception as failure:
                rows.append((*told, "", f"failed: {type(failure).__name__}: {failure}"))
    return rows


def in_processes(
    seed: int, numbers: Sequence[int], workers: int
) -> Iterator[tuple[str, str, str, str]]:
    """The rows of some graphs; of those alone whose process ends, that it ended."""
    shares = [numbers[i : i + SHARE] for i in range(0, len(numbers), SHARE)]
    context = get_context("spawn")
    for begin in range(0, len(shares), workers):
        with ProcessPoolExecutor(workers, context) as pool:
            some = shares[begin : begin + workers]
            futures = [(share, pool.submit(run, seed, share)) for share in some]
            for share, future in futures:
                try:
                    yield from future.result()
                except BrokenProcessPool:
                    yield from _one_by_one(seed, share)


def _one_by_one(seed: int, share: Sequence[int]) -> Iterator[tuple[str, str, str, str]]:
    for number in share:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            try:
                yield from pool.submit(run, seed, [number]).result()
            except BrokenProcessPool:
                yield f"{seed}:{number}", "", "", "ended: the process of a runtime"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser("per_example_runtimes", description=__doc__)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(arguments)
    words = Counter[tuple[str, str, str]]()
    numbers = range(options.first, options.first + options.graphs)
    for name, size, runtime, word in in_processes(
        options.seed, numbers, options.workers
    ):
        words[size, runtime, word.partition(":")[0]] += 1
        if word.startswith(("wrong", "failed", "ended")) or (runtime and ":" in word):
            print(name, size, runtime, word, flush=True)
    for (size, runtime, word), count in sorted(words.items()):
        print(size, runtime, word, count)
    return int(any(word in ("wrong", "failed") for _, _, word in words))


if __name__ == "__main__":
    sys.exit(main())
