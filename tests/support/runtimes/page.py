"""The page that says which consumers run the graphs of an operation, made of matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from support.runtimes.cases import Verdict
from support.runtimes.matrix import Matrix

LETTERS = {
    "khronos": "K",
    "session": "S",
    "interpreter": "I",
    "tract": "T",
    "onnx": "O",
    "openvino": "V",
    "converter": "C",
}
HEAD = """# Where each operation runs

A test runs each standard operation, with its main settings and on random values, in these
consumers of NNEF, and writes this page.

- **K**: the Khronos parser and its shape inference
- **S**: the Khronos C++ runtime, `nnef.Session`
- **I**: the Khronos PyTorch interpreter, `NNEFModule` of `nnef_tools`
- **T**: tract
- **O**: ONNX Runtime, through `to_onnx`, with its default options and without optimizations
- **V**: OpenVINO, as `runtime="openvino"` uses it
- **C**: ONNX Runtime, through the converter of `nnef_tools`

In the tables of operations, a letter means that the consumer computes all graphs of the
operation correctly; a dot, that it fails for at least one. The columns are values of
`--target`; `nnef` is the default.
"""
COUNTS = """## How many graphs run

A cell is the number of graphs, of {number}, that the consumer computes correctly.
"""
NETWORKS = """## Networks

The backward graphs of networks that Khronos publishes, written with `--target portable`, for
a small image and random weights. A cell is the largest error of any gradient, relative to
its largest number, compared with torch in double precision.
"""

# By target, then by direction: forward or backward.
Results = Mapping[str, Mapping[str, Matrix]]


def page(
    results: Results, promised: Mapping[str, Collection[str]], networks: Matrix
) -> str:
    """The whole page.

    Args:
        results: what the matrices say.
        promised: for a target the consumers that are to run its graphs. Where they do
            not, the page says what they do instead.
        networks: what consumers make of backward graphs of networks.
    """
    directions = list(dict.fromkeys(d for found in results.values() for d in found))
    graphs = len(next(iter(results.values()))[directions[0]])
    counts, errors = _counts(results, directions), _errors(networks)
    parts = [
        HEAD,
        "\n".join([COUNTS.format(number=graphs), *counts]) + "\n",
        "\n".join([NETWORKS, *errors]) + "\n",
    ]
    for direction in directions:
        found = {target: results[target][direction] for target in results}
        parts.append("\n".join(_section(direction, found, promised)) + "\n")
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _counts(results: Results, directions: Iterable[str]) -> Iterator[str]:
    """A row for each consumer, in each direction."""
    rows = [
        [f"{consumer}, {direction}"]
        + [_count(found[direction], consumer) for found in results.values()]
        for direction in directions
        for consumer in LETTERS
    ]
    return _table(["", *results], rows)


def _count(matrix: Matrix, consumer: str) -> str:
    verdicts = [row[consumer].word for row in matrix.values() if consumer in row]
    return str(verdicts.count("ok")) if verdicts else ""


def _errors(networks: Matrix) -> Iterator[str]:
    consumers = list(next(iter(networks.values())))
    rows = [
        [name, *(_error(row[consumer]) for consumer in consumers)]
        for name, row in networks.items()
    ]
    return _table(["", *consumers], rows)


def _error(verdict: Verdict) -> str:
    return f"{verdict.error:.0e}" if verdict.word == "ok" else verdict.word


def _section(
    direction: str,
    found: Mapping[str, Matrix],
    promised: Mapping[str, Collection[str]],
) -> Iterator[str]:
    yield f"## {direction.capitalize()} graphs"
    yield ""
    columns = {target: by_operation(matrix) for target, matrix in found.items()}
    operations = dict.fromkeys(name for rows in columns.values() for name in rows)
    yield from _table(
        ["operation", *found],
        [
            [
                f"`{name}`",
                *(letters_of(rows.get(name, {})) for rows in columns.values()),
            ]
            for name in operations
        ],
    )
    failures = [
        line
        for target, matrix in found.items()
        for line in _failures(target, matrix, promised.get(target, ()))
    ]
    if failures:
        yield ""
        yield "These consumers of a target fail on its graphs:"
        yield ""
        yield from failures


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
