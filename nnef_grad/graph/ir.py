"""The flat graph: what is differentiated, transformed and written.

    Graph     ::= name, inputs, Operation*, outputs
    Operation ::= definition, Operand*, attributes, results
    Operand   ::= Tensor | literal | Operand*
    Tensor    ::= name, data type, shape

Everything is frozen. An operation stands after the operations that make its operands,
so the order of `operations` is an order of evaluation. Who uses a tensor is computed
when it is wanted: there are no use lists to keep. Nothing here knows how text is read
or written, or what an operation means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from nnef_grad.errors import Problem
from nnef_grad.language.library import standard
from nnef_grad.language.syntax import Fragment, Value
from nnef_grad.source import Span

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph. `dtype` is scalar, integer, logical or string; `shape` has
    one extent a dimension.
    """

    name: str
    dtype: str
    shape: Shape

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


# A literal operand stands for a constant tensor of rank 0.
Operand = Union[Tensor, bool, int, float, str, "tuple[Operand, ...]"]
# A result that is declared as an array of tensors is a tuple of them.
Result = Union[Tensor, "tuple[Tensor, ...]"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One invocation.

    Attributes:
        definition: the declaration of the operation, standard or the document's own.
        operands: a value for each tensor parameter of the declaration, in its order,
            defaults filled in.
        attributes: a value for each other parameter, by name, defaults filled in.
        results: a value for each declared result.
        dtype: what the generic data type `?` of the declaration stands for, or None.
        span: the name of the operation in the source text; None where the compiler made
            the operation.
        origin: the operation of the forward graph whose derivative this one is part of,
            or None in a forward graph.
    """

    definition: Fragment
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any]
    results: tuple[Result, ...]
    dtype: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    origin: Operation | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.definition.name

    @property
    def inputs(self) -> Iterator[Tensor]:
        """The tensors among the operands, in order; one that is used twice comes
        twice.
        """
        return tensors(self.operands)

    @property
    def outputs(self) -> Iterator[Tensor]:
        """The result tensors, in order."""
        return tensors(self.results)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a tensor is quantized.

    Attributes:
        tensor: the name of the tensor.
        operation: the declaration of the operation, standard or the document's own.
        attributes: a value for each parameter but the first, by name, in declared
            order, defaults filled in. The value of a tensor parameter is a number, or
            nested tuples of numbers: a constant tensor, of one value a channel say.
        span: the name of the tensor in the source text; None where there is none.
    """

    tensor: str
    operation: Fragment
    attributes: Mapping[str, Value]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Graph:
    """A flat graph.

    Attributes:
        name: the name of the graph.
        inputs: the tensors fed from outside, in the order of the signature.
        outputs: the results, in the order of the signature.
        operations: all operations in an order of evaluation; `external` and `variable`
            are operations too.
        declared: the names of the operations that the document it comes from declares,
            those too that are not in it: their bodies took their place.
        quantization: how tensors are quantized, by name, in the order of the tensors.
        notes: lines for the reader, written as comments at the head of the text.
        warnings: what was repaired in reading, a message with its place each.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    quantization: Mapping[str, Quantization] = field(default_factory=dict)
    declared: frozenset[str] = field(default=frozenset(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The declarations of the operations in it that are not the standard's."""
        own = {op.name: op.definition for op in self.operations}
        return tuple(f for name, f in own.items() if name not in standard())

    @property
    def custom_operations(self) -> frozenset[str]:
        """The names of the operations that are not the standard's, in the graph or in
        the document that it comes from.
        """
        return self.declared.union(f.name for f in self.fragments)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """The variables, in the order of their declaration."""
        return tuple(
            t for op in self.operations if op.name == "variable" for t in op.outputs
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the graph, by its name."""
        return {t.name: t for op in self.operations for t in op.outputs}


def tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """The tensors among some values, in nested ones too, in order."""
    found: list[Tensor] = []
    for value in values:
        if type(value) is Tensor:
            found.append(value)
        elif type(value) is tuple:
            found += tensors(value)
    return iter(found)


def shape_of(operand: Operand) -> Shape:
    """The shape of a tensor; a literal has rank 0."""
    return operand.shape if isinstance(operand, Tensor) else ()
