"""Derivatives for each example beside a loop over the examples: of random graphs of one
example, computed for a batch of them, and of models that have a batch.

`python -m support.per_example_graphs --graphs 2000`, with the tests on the path, compares that
many, in double precision; `--order 2` differentiates what comes out again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad import Backward, Graph
from nnef_grad.autodiff.batching import batch
from nnef_grad.base.errors import NoDerivativeError
from nnef_grad.base.frozen import NOTHING
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.passes import prune
from nnef_grad.graph.symbols import example_sizes, with_numbers
from nnef_grad.ops.registry import OpSet

from .random_graphs.generate import make_graph
from .random_graphs.graphs import RandomGraph

Array = Any
Names = Mapping[str, str]
COUNT = 3
TOLERANCE = 1e-12


class Unlike(AssertionError):
    """What is found for an example is not what it is alone."""


def distance(found: Array, wanted: Array) -> float:
    """The largest difference, relative to the largest finite element."""
    if found.shape != wanted.shape:
        return np.inf
    is_finite = np.isfinite(wanted)
    if not np.array_equal(found[~is_finite], wanted[~is_finite], equal_nan=True):
        return np.inf
    if not is_finite.any():
        return 0.0
    scale = max(1.0, float(np.abs(wanted[is_finite]).max()))
    return float(np.abs(found - wanted)[is_finite].max()) / scale


# ---- Random graphs ----


@dataclass(frozen=True)
class Pair:
    """A graph of one example, and one of a batch of them.

    Attributes:
        names: of the outputs of the first, the names in the second.
        feeds: the inputs of each example, by their names in the first.
        fed: of those whose names differ, the names in the second.
    """

    one: Graph
    many: Graph
    names: Names
    feeds: Sequence[Mapping[str, Array]]
    fed: Names
    data: Mapping[str, Array]

    def compare(self) -> tuple[Pair, float]:
        """Compares their outputs, and their gradients for each example.

        Returns:
            The graphs of these, and the largest relative error.

        Raises:
            NoDerivativeError: there is no gradient for each example, or none at all.
            Unlike: one differs.
        """
        outputs, of_many = [*self.names], [*self.names.values()]
        many = nnef_grad.differentiate(
            self.many, outputs=of_many, per_example=True, with_outputs=True
        )
        back = {name: x for x, name in self.fed.items()}
        wrt = {back.get(x, x): x for x in many.gradients}
        one = nnef_grad.differentiate(
            self.one, wrt=[*wrt], outputs=outputs, with_outputs=True
        )
        generator = np.random.default_rng(1)
        shapes = {one.seeds[y]: self.one.tensors[y].shape for y in outputs}
        feeds = [
            {**each, **{n: generator.standard_normal(s) for n, s in shapes.items()}}
            for each in self.feeds
        ]
        seeds = {one.seeds[y]: many.seeds[name] for y, name in self.names.items()}
        gradients = {one.gradients[x]: many.gradients[n] for x, n in wrt.items()}
        fed = {**self.fed, **seeds}
        pair = Pair(one.graph, many.graph, gradients, feeds, fed, self.data)
        return pair, pair.distance({**self.names, **gradients})

    def distance(self, names: Names) -> float:
        """The largest relative error of what both compute, by names in the one and the
        other.
        """
        rows = [nnef_grad.evaluate(self.one, each, self.data) for each in self.feeds]
        stacked = {
            self.fed.get(name, name): np.stack([each[name] for each in self.feeds])
            for name in self.feeds[0]
        }
        found = nnef_grad.evaluate(self.many, stacked, self.data)
        errors = [0.0]
        for alone, each in names.items():
            wanted = np.stack([row[alone] for row in rows])
            errors.append(distance(found[each], wanted))
            if errors[-1] > TOLERANCE:
                raise Unlike(f"{each}: {errors[-1]:.2g}")
        return max(errors)


def pair_of(graph: RandomGraph, count: int = COUNT) -> Pair:
    """A random graph, and the same for some examples."""
    one = nnef_grad.loads(graph.text)
    many, names = batched(one, count)
    data = {label: value.numpy() for label, value in graph.variables.items()}
    return Pair(one, many, names, examples_of(graph, count), {}, data)


def batched(
    graph: Graph, count: int, axes: Mapping[str, int] = NOTHING
) -> tuple[Graph, Names]:
    """A graph for so many examples, whose outputs have them along axis 0, as its inputs
    have, but for those with other axes; and the names of its outputs, by those in the
    graph.
    """
    emit = Emitter(OpSet().extended(graph.fragments), {})
    many: dict[Any, Any] = {}
    inputs: list[Any] = []
    for x in graph.inputs:
        at = axes.get(name := graph.names[x], 0)
        shape = (*x.shape[:at], count, *x.shape[at:])
        many[x] = given = emit.emit_named(name, "external", x.dtype, shape=shape)
        inputs.append(given)
        if at:
            order = [at, *(axis for axis in range(given.rank) if axis != at)]
            many[x] = emit("transpose", given, axes=order)
    found = batch(emit, graph, many)
    outputs = {
        graph.names[y]: emit.emit_named(f"{graph.names[y]}_each", "copy", x=found[y])
        for y in graph.outputs
        if y in found and y.dtype == "scalar"
    }
    operations = tuple(emit.operations)
    names = emit.assigned_names(operations, ())
    ends = tuple(inputs), tuple(outputs.values())
    whole = prune(Graph("many", *ends, operations, names))
    return whole, {name: names[y] for name, y in outputs.items()}


def examples_of(graph: RandomGraph, count: int) -> list[dict[str, Array]]:
    """The inputs of some examples: values near those of the graph, and the same indices in
    another order.
    """
    generator = np.random.default_rng(int(graph.name.rpartition(":")[2]))

    def near(value: Array) -> Array:
        if value.dtype.kind == "f":
            return value * (1 + 0.01 * generator.standard_normal(value.shape))
        return generator.permutation(value.ravel()).reshape(value.shape)

    return [{n: near(x.numpy()) for n, x in graph.feeds.items()} for _ in range(count)]


def has_rule_of_no_body(graph: RandomGraph) -> bool:
    """Whether a gradient is not that of the operations that the batch is made of: it goes
    straight through a quantization.
    """
    return any("quantize" in name for name in graph.operations)


def run(seed: int, numbers: range, order: int) -> Iterator[tuple[str, str, float]]:
    """What became of each graph: its name, a word, the largest error."""
    for number in numbers:
        graph, error = make_graph(seed, number), 0.0
        if has_rule_of_no_body(graph):
            yield graph.name, "quantized", error
            continue
        try:
            pair = pair_of(graph)
            for _ in range(order):
                pair, error = pair.compare()
        except (NoDerivativeError, nnef_grad.UsageError) as refusal:
            yield graph.name, f"refused: {refusal.message}", error
        except Exception as failure:
            yield graph.name, f"failed: {type(failure).__name__}: {failure}", error
        else:
            yield graph.name, "equal", error


# ---- Models ----


def has_batch(graph: Graph) -> bool:
    """Whether axis 0 of all inputs has one extent, which is not 1."""
    extents = {x.shape[:1] for x in graph.inputs}
    return len(extents) == 1 and extents.isdisjoint([(), (1,)])


def compare_model(graph: Graph) -> float:
    """The gradients of a model for each example, beside those of its sum with cotangents of
    zero for the others; open extents have a number then.

    Returns:
        The largest relative error.
    """
    backward = nnef_grad.differentiate(graph, per_example=True)
    sizes = {symbol: least + 2 for symbol, least in example_sizes(graph).items()}
    graph = with_numbers(graph, sizes) if sizes else graph
    generator = np.random.default_rng(0)

    def drawn(x: nnef_grad.Tensor) -> Array:
        if x.dtype == "scalar":
            return generator.uniform(0.1, 0.9, x.shape)
        values = generator.integers(0, 2, x.shape)
        return values if x.dtype == "integer" else values.astype(bool)

    feeds = dict(zip(graph.input_names, map(drawn, graph.inputs), strict=True))
    tensors = graph.tensors
    data = {label: drawn(tensors[name]) for name, label in graph.labels.items()}
    cotangents = {
        y: generator.standard_normal(tensors[y].shape) for y in backward.seeds
    }
    seeds = {backward.seeds[y]: value for y, value in cotangents.items()}
    found = nnef_grad.evaluate(backward, {**feeds, **seeds}, variables=data)
    errors = [0.0]
    for x, rows in _rows(graph, backward, feeds, cotangents, data).items():
        own = rows
        if x in feeds:
            index = np.arange(len(rows))
            own, others = rows[index, index], rows.copy()
            others[index, index] = 0.0
            # Outside of a domain nothing is a number.
            if np.nan_to_num(others).any():
                raise Unlike(f"an example moves with another by '{x}'")
        errors.append(distance(found[backward.gradients[x]], own))
    return max(errors)


def _rows(
    graph: Graph,
    backward: Backward,
    feeds: Mapping[str, Array],
    cotangents: Mapping[str, Array],
    data: Mapping[str, Array],
) -> dict[str, Array]:
    """The gradients of what each example adds to the sum."""
    plain = nnef_grad.differentiate(
        graph, wrt=[*backward.gradients], outputs=[*cotangents]
    )
    rows = []
    for index in range(graph.inputs[0].shape[0]):
        alone = {plain.seeds[y]: np.zeros_like(dy) for y, dy in cotangents.items()}
        for y, dy in cotangents.items():
            alone[plain.seeds[y]][index] = dy[index]
        rows.append(nnef_grad.evaluate(plain, {**feeds, **alone}, variables=data))
    return {x: np.stack([row[d] for row in rows]) for x, d in plain.gradients.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where something differs."""
    parser = argparse.ArgumentParser("per_example_graphs", description=__doc__)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--order", type=int, default=1)
    options = parser.parse_args(arguments)
    words, largest = Counter[str](), 0.0
    for name, word, error in run(options.seed, range(options.graphs), options.order):
        words[word.partition(":")[0]] += 1
        largest = max(largest, error)
        if ":" in word:
            print(name, word, flush=True)
    print(dict(words), f"largest error {largest:.2g}")
    return 1 if words["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
