"""The statements of a graph, with the values that it is run on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Shape = tuple[int, ...]
SOURCES = ("external", "variable", "constant")


@dataclass(frozen=True)
class Statement:
    """One operation. An operand is the name of a tensor, a literal, or a tuple of them;
    a result is a name, or a tuple of names where it is an array.
    """

    operation: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    results: tuple[Any, ...]
    dtype: str | None = None

    @property
    def inputs(self) -> list[str]:
        return [operand for operand in flat(self.operands) if isinstance(operand, str)]

    @property
    def outputs(self) -> list[str]:
        return list(flat(self.results))

    @property
    def text(self) -> str:
        left = ", ".join(operand_text(result) for result in self.results)
        brackets = f"<{self.dtype}>" if self.dtype else ""
        arguments = [operand_text(operand) for operand in self.operands]
        arguments += [f"{key} = {value_text(v)}" for key, v in self.attributes.items()]
        return f"{left} = {self.operation}{brackets}({', '.join(arguments)});"


@dataclass(frozen=True)
class RandomGraph:
    """A graph, its data, and how it is to be differentiated.

    Attributes:
        name: the seed and the number that it was made of.
        feeds, variables: values of the externals by name, and of the variables by label.
        moving: the tensors through which a gradient can flow.
        options: what `nnef_grad.differentiate` is called with.
    """

    name: str
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    feeds: Mapping[str, Tensor]
    variables: Mapping[str, Tensor]
    moving: Collection[str]
    options: Mapping[str, Any]

    @property
    def text(self) -> str:
        return self.document([statement.text for statement in self.statements])

    def document(self, statements: Sequence[str]) -> str:
        """The text of the graph, given that of its statements."""
        # By name, which is not the order of the statements: any will do.
        inputs = sorted(
            s.outputs[0] for s in self.statements if s.operation == "external"
        )
        lines = "\n".join(f"    {statement}" for statement in statements)
        head = f"graph net( {', '.join(inputs)} ) -> ( {', '.join(self.outputs)} )"
        return f"version 1.0;\n\n{head}\n{{\n{lines}\n}}\n"

    @property
    def operations(self) -> list[str]:
        """The operations, tensors that only enter the graph left out."""
        names = (statement.operation for statement in self.statements)
        return [name for name in names if name not in SOURCES]

    @property
    def targets(self) -> list[str]:
        """The tensors that it is differentiated with respect to."""
        if self.options["wrt"] != "all":
            return list(self.options["wrt"])
        entering = [s for s in self.statements if s.operation in SOURCES[:2]]
        return [s.outputs[0] for s in entering if s.dtype in (None, "scalar")]

    @property
    def differentiated(self) -> list[str]:
        """The operations that gradients flow through: between targets and outputs."""
        dependent = set(self.targets)
        for statement in self.statements:
            if not dependent.isdisjoint(statement.inputs):
                dependent.update(n for n in statement.outputs if n in self.moving)
        needed, found = {*self.options.get("outputs", self.outputs)}, []
        for statement in reversed(self.statements):
            if not needed.isdisjoint(dependent.intersection(statement.outputs)):
                needed.update(dependent.intersection(statement.inputs))
                found.append(statement.operation)
        return [name for name in found if name not in SOURCES]


def flat(values: Any) -> Iterator[Any]:
    """The items of nested tuples, in order."""
    for value in values:
        if isinstance(value, tuple):
            yield from flat(value)
        else:
            yield value


def operand_text(operand: Any) -> str:
    """A tensor, a literal, or an array of them, as it is written."""
    if isinstance(operand, tuple):
        return f"[{', '.join(map(operand_text, operand))}]"
    return operand if isinstance(operand, str) else value_text(operand)


def value_text(value: Any) -> str:
    """The value of an attribute, as it is written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))})"
    return repr(value)
