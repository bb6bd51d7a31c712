"""The page that says which consumers run the graphs of an operation, made of matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from witnesses.cases import Verdict
from witnesses.matrix import Matrix

LETTERS = {
    "khronos": "K",
    "session": "S",
    "interpreter": "I",
    "tract": "T",
    "onnx": "O",
}
HEAD = """# Where the graphs of each operation run

Each standard operation in its main settings, in consumers of NNEF. The page is made by
running the graphs on random values, and a test fails where it does not agree.

- **K**: the Khronos parser and its shape inference
- **S**: the Khronos C++ runtime, `nnef.Session`
- **I**: the Khronos PyTorch interpreter, `NNEFModule` of `nnef_tools`
- **T**: tract
- **O**: ONNX Runtime, by the converter of `nnef_tools`

A letter says that the consumer accepts all graphs of the operation, and that its results
are right; a dot, that it does not, for one of them at least.
"""

# By target, then by direction: forward or backward.
Results = Mapping[str, Mapping[str, Matrix]]


def page(results: Results, promised: Mapping[str, Collection[str]]) -> str:
    """The whole page.

    Args:
        results: what the matrices say.
        promised: for a target the consumers that are to run its graphs. Where they do
            not, the page says what they do instead.
    """
    directions = list(dict.fromkeys(d for found in results.values() for d in found))
    parts = [HEAD]
    for direction in directions:
        found = {target: results[target][direction] for target in results}
        parts.append("\n".join(_section(direction, found, promised)) + "\n")
    return "\n".join(parts)


def _section(
    direction: str,
    found: Mapping[str, Matrix],
    promised: Mapping[str, Collection[str]],
) -> Iterator[str]:
    yield f"## {direction.capitalize()} graphs"
    yield ""
    yield f"| operation | {' | '.join(found)} |"
    yield "|---" * (len(found) + 1) + "|"
    columns = {target: by_operation(matrix) for target, matrix in found.items()}
    for operation in dict.fromkeys(name for rows in columns.values() for name in rows):
        cells = (letters_of(rows.get(operation, {})) for rows in columns.values())
        yield f"| `{operation}` | {' | '.join(cells)} |"
    failures = [
        line
        for target, matrix in found.items()
        for line in _failures(target, matrix, promised.get(target, ()))
    ]
    if failures:
        yield ""
        yield "Of the consumers of a target, these do not run its graphs:"
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
