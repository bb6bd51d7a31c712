"""Which operations of a graph a consumer fails on.

Each operation is put into a graph of its own, on the values that it has in the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import nnef_grad
from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.graph.loops import external
from nnef_grad.graph.printer import Names, print_operation
from support.runtimes.cases import Array, Case, Verdict, brief
from support.runtimes.harness import SECONDS
from support.runtimes.matrix import Example, verdicts

# Every graph has an input. This is the one of an operation that reads none.
UNUSED = Tensor("scalar", (1,))
NAME_OF_UNUSED = "unused"
COPIED = "copied"


class Blamed(NamedTuple):
    """An operation that a consumer fails on, and how it is written."""

    operation: Operation
    text: str
    verdict: Verdict

    def __str__(self) -> str:
        """The text, the shapes of what the operation reads, the verdict."""
        shapes = [str(list(tensor.shape)) for tensor in self.operation.inputs]
        read = f" on {', '.join(shapes)}" if shapes else ""
        word, detail, _ = self.verdict
        return f"{self.text}{read}: {word}: {brief(detail)}"


def blamed(consumer: str, case: Case, seconds: float = SECONDS) -> list[Blamed]:
    """The operations of a graph that a consumer fails on when they are alone.

    There may be none: then it fails on how they stand together.
    """
    graph = nnef_grad.loads(case.text)
    everything = replace(graph, outputs=tuple(graph.tensors.values()))
    values = nnef_grad.evaluate(everything, case.inputs, case.variables)
    values[NAME_OF_UNUSED] = np.zeros(UNUSED.shape)
    names = {**graph.names, UNUSED: NAME_OF_UNUSED}
    sources = {t: op for op in graph.operations for t in op.outputs}
    operations = [
        op for op in graph.operations if op.name not in ("external", "variable")
    ]
    examples = {
        str(number): _alone(operation, sources, names, values)
        for number, operation in enumerate(operations)
    }
    found = verdicts(consumer, examples, seconds).values()
    return [
        Blamed(operation, print_operation(operation, names), verdict)
        for operation, verdict in zip(operations, found, strict=True)
        if verdict.word != "ok"
    ]


def _alone(
    operation: Operation,
    sources: Mapping[Tensor, Operation],
    names: Names,
    values: Mapping[str, Array],
) -> Example:
    """A graph of an operation, which reads variables where it does in the whole, and
    inputs where something else is read there.
    """
    read = dict.fromkeys(operation.inputs)
    variables = {t: sources[t] for t in read if sources[t].name == "variable"}
    inputs = [t for t in read if t not in variables] or [UNUSED]
    statements = [
        *(print_operation(external(tensor), names) for tensor in inputs),
        *(print_operation(variable, names) for variable in variables.values()),
        print_operation(operation, names),
    ]
    fed = {names[t]: values[names[t]] for t in inputs}
    expected = {names[t]: values[names[t]] for t in operation.outputs}
    if operation.name == "constant":
        # Constants are not what graphs return.
        statements.append(f"{COPIED} = copy({next(iter(expected))})")
        expected = {COPIED: next(iter(expected.values()))}
    case = Case(
        _document(list(fed), list(expected), statements),
        fed,
        {str(v.attributes["label"]): values[names[t]] for t, v in variables.items()},
    )
    return Example(case, expected)


def _document(
    inputs: Sequence[str], outputs: Sequence[str], statements: Sequence[str]
) -> str:
    signature = f"graph alone( {', '.join(inputs)} ) -> ( {', '.join(outputs)} )"
    body = "\n".join(f"    {statement};" for statement in statements)
    return f"version 1.0;\n{signature}\n{{\n{body}\n}}\n"
