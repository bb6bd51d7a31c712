"""The flat graph, the intermediate representation of the compiler.

    Graph     ::= name, inputs, Operation*, outputs
    Operation ::= definition, Operand*, attributes, results
    Operand   ::= Tensor | literal | Operand*
    Tensor    ::= data type, shape

Everything is frozen. A tensor is itself, whatever it is called: names are a table of the
graph, by which it is printed. An operation comes after those that produce its operands, so
the order of `operations` is an order of evaluation. The uses of a tensor are computed on
demand: there are no use lists to maintain. Nothing here depends on how text is read or
written, or on the meaning of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict, Union, cast

from nnef_grad.base.errors import Problem
from nnef_grad.base.frozen import FrozenDict, OpenDict, frozen
from nnef_grad.base.source import Span
from nnef_grad.graph.extents import Dimension
from nnef_grad.language.library import STDLIB
from nnef_grad.language.syntax import Fragment, Value

Integers = tuple[int, ...]
Shape = tuple[Dimension, ...]

# The operations that graphs have and NNEF has not: one that passes its operand on, and no
# gradient back (stops.py), a loop (loops.py), and the indices of elements in order
# (ops/orders.py). The last two have no words in the standard.
STOP = "stop_gradient"
LOOP = "<loop>"
ARGSORT = "<argsort>"
WORDLESS = frozenset({LOOP, ARGSORT})


@frozen(eq=False)
class Tensor:
    """A tensor of the graph, equal to nothing but itself. `dtype` is scalar, integer,
    logical or string; `shape` has an extent for each axis: an integer, or an `Extent` where
    it is open.
    """

    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


# A literal operand is a constant tensor of rank 0.
Operand = Union[Tensor, bool, int, float, str, "tuple[Operand, ...]"]
# A result that is declared as an array of tensors is a tuple of them.
Result = Union[Tensor, "tuple[Tensor, ...]"]


# The types of the attributes of standard operations. The user's own may have others.
Attributes = TypedDict(
    "Attributes",
    {
        "alpha": float,
        "axes": Integers,
        "axis": int,
        "axis_count": int,
        "axis_start": int,
        "begin": Shape,
        "beta": float,
        "bias": float,
        "bits": int,
        "border": str,
        "count": Dimension,
        "descending": bool,
        "dilation": Integers,
        "end": Shape,
        "epsilon": float,
        "factor": Integers,
        "groups": int,
        "label": str,
        # A Loop of loops.py.
        "loop": Any,
        "lambda": float,
        "method": str,
        "normalize": bool,
        "output_shape": Shape,
        "output_size": Shape,
        "padding": "tuple[tuple[Dimension, Dimension], ...]",
        "ranks": Integers,
        "ratios": Integers,
        "repeats": Shape,
        "resize_method": str,
        "sampling_rate": Integers,
        "shape": Shape,
        "signed": bool,
        "size": Shape,
        "stride": Shape,
        "symmetric": bool,
        "times": int,
        "transposeA": bool,
        "transposeB": bool,
        # A number for pad, a list of numbers for a constant.
        "value": Any,
    },
    total=False,
)


@frozen(eq=False)
class Operation:
    """One invocation, equal to nothing but itself.

    Attributes:
        definition: the declaration of the operation, from the standard or the document.
        operands: a value for each tensor parameter of the declaration, in order, with
            defaults filled in.
        attributes: a value for each other parameter, by name, with defaults filled in.
        results: a value for each declared result.
        dtype: the binding of the generic data type `?` of the declaration, or None.
        span: the name of the operation in the source text, or of the one in whose place
            it is; None if the compiler made the operation otherwise.
        origin: the forward operation whose derivative this one is part of, or None in a
            forward graph. It is the heading of a comment, and decides nothing.
        module: the path of the module that it was read from, or None where no file says
            it. Reports group by it.
        name: the name of the operation.
        inputs: the tensors among the operands, in order; one that is used twice is
            listed twice.
        outputs: the result tensors, in order.
    """

    definition: Fragment
    operands: tuple[Operand, ...]
    attributes: Attributes
    results: tuple[Result, ...]
    dtype: str | None = None
    span: Span | None = field(default=None, repr=False)
    origin: Operation | None = field(default=None, repr=False)
    module: tuple[str, ...] | None = field(default=None, repr=False)
    name: str = field(init=False, repr=False)
    inputs: tuple[Tensor, ...] = field(init=False, repr=False)
    outputs: tuple[Tensor, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        draft: Any = self
        if type(self.attributes) is not FrozenDict:
            draft.attributes = FrozenDict(self.attributes)
        draft.name = self.definition.name
        draft.inputs = tensors(self.operands)
        draft.outputs = tensors(self.results)

    def rewired(
        self,
        operands: tuple[Operand, ...],
        results: tuple[Result, ...],
        span: Span | None = None,
    ) -> Operation:
        """The same operation of other operands, to other results, maybe elsewhere."""
        return Operation(
            self.definition,
            operands,
            self.attributes,
            results,
            self.dtype,
            span or self.span,
            self.origin,
            self.module,
        )

    @property
    def place(self) -> Span | None:
        """Its place in the source, or that of the operation it is the derivative of."""
        if self.span is None and self.origin is not None:
            return self.origin.place
        return self.span

    @property
    def settings(self) -> Mapping[str, Any]:
        """The attributes, untyped: for code that handles any operation."""
        return cast("Mapping[str, Any]", self.attributes)


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantization of a tensor, by its name; `span` is that in the source text."""

    tensor: str
    operation: Fragment
    # A value for each parameter but the first, with defaults filled in. That of a tensor
    # is a number, or nested tuples, for example with a value per channel.
    attributes: Mapping[str, Value]
    span: Span | None = field(default=None, compare=False, repr=False)


class Views(NamedTuple):
    """Printers of a graph, which import it: its statements, and its views for a person."""

    statements: Callable[[Graph], list[str]]
    line: Callable[[Graph], str]
    text: Callable[[Graph], str]
    html: Callable[[Graph], str]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Graph:
    """A flat graph. It is equal to another one if both have the same text, comments aside.

    Attributes:
        name: the name of the graph.
        inputs: the inputs, in the order of the signature.
        outputs: the results, in the order of the signature.
        operations: all operations in an order of evaluation, including `external` and
            `variable`.
        names: what its tensors are called, and maybe what others are that are gone; a
            draft while the graph is still being made.
        declared: the names of all operations declared in the source document, including
            those that were replaced by their bodies.
        quantization: how tensors are quantized, by name, in the order of the tensors.
        notes: lines for the reader, printed as comments at the head of the text.
        warnings: the repairs of lenient reading, and what it would read otherwise, each a
            message with its place.
        facts: what the network says of the symbols in its shapes, a sentence each.
        datum_types: the data types that inputs and results have in a file of tract, by
            name, where NNEF has others.
        dialect: that of the document that it was read from, in which it is written;
            empty is the standard.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    names: Mapping[Tensor, str]
    quantization: Mapping[str, Quantization] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    facts: tuple[str, ...] = ()
    datum_types: Mapping[str, str] = field(default_factory=dict)
    dialect: str = ""
    # The package enters them when it is imported.
    views: ClassVar[Views]

    def __post_init__(self) -> None:
        if type(self.names) not in (FrozenDict, OpenDict):
            object.__setattr__(self, "names", FrozenDict(self.names))
        for name in ("quantization", "datum_types"):
            if type(mapping := getattr(self, name)) is not FrozenDict:
                object.__setattr__(self, name, FrozenDict(mapping))

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The declarations of the operations in the graph that are not standard."""
        own = {op.name: op.definition for op in self.operations}
        known = {STOP, *WORDLESS, *STDLIB}
        return tuple(f for n, f in own.items() if n not in known)

    @property
    def custom_operations(self) -> frozenset[str]:
        """The names of operations, here or in the source, that are not standard."""
        return self.declared.union(f.name for f in self.fragments)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """The variables, in the order of their declaration."""
        return tuple(
            t for op in self.operations if op.name == "variable" for t in op.outputs
        )

    @property
    def labels(self) -> dict[str, str]:
        """The label of each variable, by its name. In what torch-to-nnef has exported,
        labels are PyTorch's names: `fc1_weight` is `fc1.weight`.
        """
        return {
            self.names[op.outputs[0]]: op.attributes["label"]
            for op in self.operations
            if op.name == "variable"
        }

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the graph, by its name."""
        return {self.names[t]: t for op in self.operations for t in op.outputs}

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of the signature."""
        return tuple([self.names[tensor] for tensor in self.inputs])

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the results, in the order of the signature."""
        return tuple([self.names[tensor] for tensor in self.outputs])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self is other or (
            self.views.statements(self) == self.views.statements(other)
            and self.quantization == other.quantization
            and self.datum_types == other.datum_types
        )

    def __hash__(self) -> int:
        return hash((self.name, len(self.inputs), len(self.operations)))

    def __repr__(self) -> str:
        return self.views.line(self)

    def __str__(self) -> str:
        return self.views.text(self)

    def _repr_html_(self) -> str:
        return self.views.html(self)


def tensors(values: Iterable[object]) -> tuple[Tensor, ...]:
    """The tensors among values, nested ones too; a tuple of them is itself."""
    whole = tuple(values)
    for value in whole:
        if type(value) is not Tensor:
            return tuple(_leaves(whole))
    return cast("tuple[Tensor, ...]", whole)


def _leaves(values: tuple[object, ...]) -> list[Tensor]:
    leaves: list[Tensor] = []
    for value in values:
        if type(value) is Tensor:
            leaves.append(value)
        elif type(value) is tuple:
            leaves += _leaves(value)
    return leaves


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The value with another one for each tensor in it."""
    if type(value) is Tensor:
        return function(value)
    if isinstance(value, tuple):
        return tuple([map_tensors(function, item) for item in value])
    return value


def shape_of(operand: Operand) -> Shape:
    """The shape of a tensor; a literal has rank 0."""
    return operand.shape if isinstance(operand, Tensor) else ()
