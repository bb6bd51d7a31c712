"""The page that says which consumers run the graphs of an operation, and its table, made of
matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from support.runtimes.cases import Verdict
from support.runtimes.matrix import Matrix
from support.tables import csv_of

LETTERS = {
    "khronos": "K",
    "session": "S",
    "interpreter": "I",
    "tract": "T",
    "onnx": "O",
    "openvino": "V",
    "converter": "C",
    "reference": "R",
    "web": "W",
    "tvm": "M",
    "iree": "E",
    "tinygrad": "G",
    "mnn": "N",
}
HEAD = """# Where each operation runs

A test runs each standard operation, with its main settings and on random values, in these consumers of NNEF, and writes this page. Of
{number} graphs, forward / backward, so many are computed correctly as [the default](how-to/runtimes.md) writes them; written with one of the
targets beside, all are.

|  | consumer | default | targets |
|---|---|---|---|
"""
CONSUMERS = {
    "khronos": "the Khronos parser and its shape inference",
    "session": "the Khronos C++ runtime, `nnef.Session`",
    "interpreter": "the Khronos PyTorch interpreter, `NNEFModule` of `nnef_tools`",
    "tract": "tract",
    "onnx": "ONNX Runtime, through `to_onnx`, with its default options and without optimizations",
    "openvino": 'OpenVINO, as `runtime="openvino"` uses it',
    "converter": "ONNX Runtime, through the converter of `nnef_tools`",
}
ENGINES = {
    "reference": "`onnx.reference`, the interpreter of the package `onnx`",
    "web": "ONNX Runtime in browsers, `onnxruntime-web`, in Node.js",
    "tvm": "TVM, for the processor",
    "iree": "IREE, for the processor",
    "tinygrad": "tinygrad, for the processor",
    "mnn": "MNN, for the processor",
}
ENGINES_TARGET = "onnx-portable"
OF_ENGINES = """
Other engines of ONNX run what `--target onnx-portable` writes. They are tested where they are installed:

|  | engine | forward / backward |
|---|---|---|
"""
TABLE = """
In the table, a letter means that the consumer computes all graphs of the operation correctly; a dot, that it fails for at least one.

[Each operation in each consumer](tables/runtimes.csv)
"""
NETWORKS = """
## Networks

The backward graphs of networks that Khronos publishes, written with `--target portable`, for a small image and random weights. A cell is the
largest error of any gradient, relative to its largest number, compared with torch in double precision.

"""

# By target, then by direction: forward or backward.
Results = Mapping[str, Mapping[str, Matrix]]


def page(
    results: Results, promised: Mapping[str, Collection[str]], networks: Matrix
) -> str:
    """The whole page, without its table.

    Args:
        results: what the matrices say.
        promised: for a target the consumers that are to run its graphs. Where they do
            not, the page says what they do instead.
        networks: what consumers make of backward graphs of networks.
    """
    found = [m for by_direction in results.values() for m in by_direction.values()]
    head = HEAD.format(number=len(found[0])) + _lines(_counts(results))
    if ENGINES_TARGET in results:
        head += OF_ENGINES + _lines(_counts_of_engines(results[ENGINES_TARGET]))
    failures = "".join(f"{line}\n" for line in _all_failures(results, promised))
    if failures:
        failures = f"\nThese consumers of a target fail on its graphs:\n\n{failures}"
    return head + failures + TABLE + NETWORKS + _lines(_errors(networks))


def table(results: Results) -> str:
    """The table: a row for each operation in each direction, a column for each target."""
    directions = list(dict.fromkeys(d for found in results.values() for d in found))
    rows = [
        [f"`{name}`", direction, *(letters_of(by.get(name, {})) for by in columns)]
        for direction in directions
        for columns in [[by_operation(m[direction]) for m in results.values()]]
        for name in dict.fromkeys(name for by in columns for name in by)
    ]
    return csv_of(["operation", "graph", *results], rows)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _counts(results: Results) -> Iterator[list[str]]:
    """A row for each consumer: how many graphs of the default, and the targets that give all."""
    default, *others = results
    for consumer, told in CONSUMERS.items():
        counts = " / ".join(_right(results[default], consumer))
        targets = [f"`{t}`" for t in others if _is_complete(results[t], consumer)]
        yield [f"**{LETTERS[consumer]}**", told, counts, ", ".join(targets)]


def _counts_of_engines(found: Mapping[str, Matrix]) -> Iterator[list[str]]:
    for engine, told in ENGINES.items():
        counts = " / ".join(_right(found, engine))
        yield [f"**{LETTERS[engine]}**", told, counts]


def _right(found: Mapping[str, Matrix], consumer: str) -> Iterator[str]:
    for matrix in found.values():
        verdicts = [row[consumer].word for row in matrix.values() if consumer in row]
        yield str(verdicts.count("ok"))


def _is_complete(found: Mapping[str, Matrix], consumer: str) -> bool:
    rows = [row for matrix in found.values() for row in matrix.values()]
    return all(consumer in row and row[consumer].word == "ok" for row in rows)


def _errors(networks: Matrix) -> Iterator[list[str]]:
    consumers = list(next(iter(networks.values())))
    yield ["", *consumers]
    yield ["---"] * (len(consumers) + 1)
    for name, row in networks.items():
        yield [name, *(_error(row[consumer]) for consumer in consumers)]


def _error(verdict: Verdict) -> str:
    return f"{verdict.error:.0e}" if verdict.word == "ok" else verdict.word


def _all_failures(
    results: Results, promised: Mapping[str, Collection[str]]
) -> Iterator[str]:
    for target, found in results.items():
        for matrix in found.values():
            yield from _failures(target, matrix, promised.get(target, ()))


def by_operation(matrix: Matrix) -> dict[str, dict[str, list[Verdict]]]:
    """The verdicts on the graphs of an operation, by consumer."""
    rows: dict[str, dict[str, list[Verdict]]] = {}
    for name, row in matrix.items():
        collected = rows.setdefault(operation_of(name), {})
        for consumer, verdict in row.items():
            collected.setdefault(consumer, []).append(verdict)
    return rows


def operation_of(name: str) -> str:
    """The operation of a model."""
    return name.rpartition("-")[0]


def letters_of(row: Mapping[str, list[Verdict]]) -> str:
    return " ".join(
        LETTERS[consumer] if all(v.word == "ok" for v in found) else "·"
        for consumer, found in row.items()
    )


def _failures(target: str, matrix: Matrix, promised: Collection[str]) -> Iterator[str]:
    """A line for each operation that a consumer fails on, with the settings."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for name, row in matrix.items():
        for consumer in promised:
            key = (operation_of(name), consumer, row[consumer].word)
            grouped.setdefault(key, []).append(name.rpartition("-")[2])
    for (operation, consumer, word), numbers in grouped.items():
        if word != "ok":
            listed = ", ".join(numbers)
            yield f"- {target}: `{operation}` (graph {listed}), {consumer}: {word}"
