"""The view of an ATen operation that the functions in operations/ get.

A function is called with the call and the arguments of the operation in the order of its
schema, with the defaults of the schema. It may take fewer than there are: what it does not
take must have its default. One that takes any number (`*_`) looks at `Call.args`, which
has them by name. It returns the value of the result, or a tuple of them. One without a
description does what PyTorch describes under the names that it is entered with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from inspect import Parameter, signature
from math import isinf
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import NOWHERE, Span
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.frontends.conversion import MOST_ELEMENTS, Conversion
from nnef_grad.frontends.expansions.windows import Axis
from nnef_grad.frontends.torch.complexes import PARTS, Complex, in_parts, of_parts
from nnef_grad.frontends.torch.internals import Operator, schema
from nnef_grad.frontends.torch.model import Drawn
from nnef_grad.frontends.torch.nodes import OPERANDS, reachable
from nnef_grad.frontends.torch.selections import Selections
from nnef_grad.frontends.torch.symbols import Symbols
from nnef_grad.frontends.values import converted, dtype_of, is_known, is_uniform, simple
from nnef_grad.frontends.view import View, entering
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.language.identifiers import plain_name
from nnef_grad.language.library import FragmentFile

# What reads operations: `add` all overloads of it, or `add.Tensor` one; those whose results
# are drawn, and have no gradient; what is done to complex numbers; and what calls graphs.
OPERATIONS: dict[str, Callable[..., Any]] = {}
DRAWS: dict[str, Callable[..., Any]] = {}
COMPLEX: dict[str, Callable[..., Any]] = {}
HIGHER: dict[str, Callable[..., Any]] = {}
aten, draws, complexes, higher = map(entering, (OPERATIONS, DRAWS, COMPLEX, HIGHER))

# Operations that are formulas, by their names.
FORMULAS = FragmentFile(Path(__file__).parent / "aten.nnef")

# Where and how a tensor lies in memory, what computes it, and in which order (the path of an
# einsum): no graph says so. A data type is that of the result, which is looked at elsewhere.
_IGNORED = {
    "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "other",
    "cudnn_enable", "cudnn_enabled", "dtype", "path",
}  # fmt: skip


def function_of(target: Any) -> Callable[..., Any] | None:
    """The function that reads an operation, if there is one."""
    if not isinstance(target, Operator):
        return None
    return function_in(target, OPERATIONS, DRAWS)


def function_in(
    target: Any, *tables: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any] | None:
    """The function that reads an operation in the first of some tables that have it."""
    name = str(target).removeprefix("aten.")
    names = (name, name.rpartition(".")[0])
    found = (table[n] for table in tables for n in names if n in table)
    return next(found, None)


def is_drawn(target: Any) -> bool:
    """Whether the results of an operation are drawn, whatever its operands are."""
    return function_of(target) in DRAWS.values()


class ProgramValues(Conversion):
    """The state that the functions in operations/ share while a program is read.

    Attributes:
        symbols: the extents that PyTorch leaves open.
        variables: the variable of each parameter and buffer, by its name in PyTorch.
        drawn: for each input that stands for random numbers, what it must be drawn from.
        nodes: those of the program, and of its blocks.
        tensors: what the program has as parameters, buffers and constants.
        selections: what masks take that depend on data.
        pools: for the places of maxima in planes, their indices in windows, and these.
    """

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(Path(__file__).parent / "torch.nnef", FORMULAS)
        self.symbols = symbols
        self.variables: dict[str, Tensor] = {}
        self.drawn: dict[Tensor, Drawn] = {}
        self.nodes: tuple[Any, ...] = ()
        self.tensors: tuple[torch.Tensor, ...] = ()
        self.pools: dict[Tensor, tuple[Tensor, list[Axis]]] = {}
        self.selections = Selections()
        # Of each way through the module its nodes, and what masks take on it.
        self.ways: list[tuple[Sequence[Any], Selections]] = []
        self._casts: dict[tuple[Emitter, Tensor, str], Tensor] = {}
        self._drawn_elsewhere: list[Tensor] = []

    def begin(self, symbols: Symbols, nodes: tuple[Any, ...]) -> None:
        """Begins with the program of another way through the module."""
        self.symbols, self.nodes, self.selections = symbols, nodes, Selections()
        self.ways.append((nodes, self.selections))
        self._drawn_elsewhere = [*self.drawn]

    @cached_property
    def stores_infinity(self) -> bool:
        """Whether a tensor of the program is infinite somewhere; of a fake one nobody knows."""
        own = (x for x in self.tensors if type(x) in (torch.Tensor, torch.nn.Parameter))
        return any(bool(x.isinf().any()) for x in own)

    def cast(self, x: Tensor, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`, but once; whole numbers that become integers, and scalars again,
        are what they were.
        """
        key = (self.emitter, x, dtype)
        if key not in self._casts:
            result = self._casts[key] = super().cast(x, dtype, hint, span)
            if dtype == "integer" and x.dtype != dtype:
                number = self.cast(x, "scalar", hint, span)
                self._casts[self.emitter, result, "scalar"] = number
        return self._casts[key]

    def input(self, name: str, dtype: str, shape: Sequence[Any]) -> Tensor:
        """A new input of the graph."""
        return self.emitter.emit_named(
            self.supply.fresh(plain_name(name)), "external", dtype, shape=list(shape)
        )

    def draw(self, name: str, drawn: Drawn) -> Tensor:
        """An input for random numbers: one that is drawn on other ways alone, if there is one."""
        for x in self._drawn_elsewhere:
            if self.drawn[x] == drawn:
                self._drawn_elsewhere.remove(x)
                return x
        y = self.input(name, drawn.dtype, drawn.shape)
        self.drawn[y] = drawn
        return y

    def variable(self, name: str, tensor: torch.Tensor) -> Any:
        """The value of a parameter or a buffer: a variable of scalars, with the type that it
        has in torch. One without axes gets one, which is removed again: not all runtimes
        have variables without.
        """
        array = array_of(tensor).astype(np.float32)
        shape = array.shape or (1,)
        called = self.supply.fresh(plain_name(name))
        result = self.declare(called, name, array.reshape(shape), "scalar")
        self.variables[name] = result
        made = result if array.ndim else self.emitter("squeeze", result, axes=[0])
        return self.cast(made, dtype_name(tensor.dtype), called, NOWHERE)

    def complex_variable(self, name: str, tensor: torch.Tensor) -> Complex:
        """The same for complex numbers, whose parts the variable has along a last axis."""
        pairs = self.variable(name, in_parts(tensor.detach()))
        return self.of_pairs(pairs, self.emitter.names[pairs])

    def of_pairs(self, x: Tensor, hint: str) -> Complex:
        """A tensor with the parts along its last axis."""
        values: dict[str, Any] = {"value": x, "axis": len(x.shape) - 1}
        call = bind(self.emitter.opset.declarations["unstack"], values, None)
        (parts,) = cast("tuple[tuple[Tensor, ...], ...]", self.emitter.emit_op(call))
        for name, part in zip(PARTS, parts, strict=True):
            self.emitter.set_hint(part, f"{hint}_{name}")
        return of_parts(parts)

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`; a large table becomes a variable."""
        is_large = isinstance(value, np.ndarray) and value.size > MOST_ELEMENTS
        is_table = is_large and dtype == "scalar" and value.dtype.kind != "O"
        if not is_table or is_uniform(array := converted(value, dtype)):
            return super().materialize(value, dtype, hint, span)
        return self.table(hint, array.astype(np.float32), dtype)


# ---- Tensors as arrays, and their data types ----


def without_elements(shape: Sequence[Any]) -> Array:
    """A tensor of a shape in which an extent is 0, and is known: open extents are 1 in it."""
    return np.zeros([n if isinstance(n, int) else 1 for n in shape])


def dtype_name(dtype: torch.dtype) -> str:
    """The data type of NNEF for one of PyTorch."""
    if dtype == torch.bool:
        return "logical"
    if dtype.is_complex:
        message = "NNEF has no complex numbers: give the parts, torch.view_as_real(x)"
        raise UnsupportedError(message)
    return "scalar" if dtype.is_floating_point else "integer"


def value_of(tensor: torch.Tensor) -> Any:
    """The elements of a tensor, exactly: an array, or a number where it has no axes."""
    array = array_of(tensor, exact=True)
    return array if tensor.is_complex() else simple(array)


def array_of(tensor: torch.Tensor, *, exact: bool = False) -> Array:
    """The elements of a tensor: fractions in single precision, or else in double."""
    values = tensor.detach().cpu()
    if values.is_floating_point():
        values = values.to(torch.float64 if exact else torch.float32)
    try:
        return np.array(values.contiguous().numpy())
    except RuntimeError:  # of a tensor inside of torch.func
        message = "a derivative of torch.func, such as grad or vjp, is not read"
        advice = "write it out, or differentiate the graph"
        raise UnsupportedError(f"{message}: {advice}") from None


# ---- Calls ----


class Call(View):
    """A call of an operation of ATen: see `View`.

    Attributes:
        reading: the program that is read.
        node: the node of the graph of torch.
        fake: what torch knows of each result: data type and shape.
        args: the arguments by their names in the schema, defaults too.
    """

    reading: ProgramValues

    def __init__(self, reading: ProgramValues, node: Any, hint: str, span: Any) -> None:
        super().__init__(reading, str(node.target), hint, span, None)
        self.node = node
        self.fake = node.meta.get("val")
        self.args: dict[str, Any] = {}

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
    ) -> Any:
        """The results of the operation, by the function that reads it."""
        parameters = schema(self.node.target).arguments
        defaults = {p.name: p.default_value for p in parameters}
        self.args = {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}
        taken = signature(function).parameters.values()
        takes_all = any(p.kind is Parameter.VAR_POSITIONAL for p in taken)
        are_places = [p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in taken]
        count = len(defaults) if takes_all else sum(are_places) - 1
        for name in [*defaults][count:]:
            value, default = self.args[name], defaults[name]
            is_set = isinstance(value, (Tensor, np.ndarray)) or value != default
            if is_set and name not in _IGNORED:
                self.refuse(f"{name} = {value} is not supported")
        return function(self, *[self.args[name] for name in [*defaults][:count]])

    @property
    def packet(self) -> str:
        """The name of the operation without its overload."""
        return str(self.node.target.overloadpacket.__name__)

    @property
    def overload(self) -> str:
        """Which of the operations of its name it is, such as `Tensor`."""
        return str(self.node.target).rpartition(".")[2]

    def refuse(self, message: str) -> NoReturn:
        """Raises an error at the line of the module."""
        raise UnsupportedError(f"{self.name}: {message}", self.span)

    # ---- Types ----

    @property
    def result_dtype(self) -> str:
        """The data type that the (first) result has in PyTorch, as NNEF calls it."""
        fake = self.fake[0] if isinstance(self.fake, (list, tuple)) else self.fake
        return dtype_name(fake.dtype)

    @property
    def result_shape(self) -> Shape:
        """The shape that the result has in PyTorch."""
        return self.reading.symbols.shape(self.fake)

    @property
    def result_shapes(self) -> list[Shape]:
        """The shapes that several results have in PyTorch."""
        return list(map(self.reading.symbols.shape, self.fake))

    def typed(self, x: Any, dtype: str) -> Any:
        """A value as one of a data type of NNEF."""
        if dtype_of(x) == dtype:
            return x
        return self.reading.converted(x, dtype, self.hint, self.span)

    def whole(self, x: Any, dtype: str | None = None) -> Any:
        """Whole scalars as integers, if that is a data type, or else that of the result."""
        is_scalar = isinstance(x, Tensor) and x.dtype == "scalar"
        if not is_scalar or (dtype or self.result_dtype) != "integer":
            return x
        return self.reading.cast(x, "integer", self.hint, self.span)

    def scalars(self, *values: Any) -> list[Any]:
        """Values as scalars."""
        return [self.typed(x, "scalar") for x in values]

    # ---- Shapes ----

    def ratio(self, x: Any, y: Any) -> Any:
        """The quotient of two extents, as a number or a tensor."""
        if isinstance(x, int) and isinstance(y, int):
            return x / y
        place = (f"{self.hint}_extent", self.span)
        parts = [self.reading.materialize(n, "scalar", *place) for n in (x, y)]
        return self("div", *parts, hint="ratio")

    def known(self, value: Any, what: str) -> Any:
        """A value that must not depend on what the module is fed."""
        self.require(is_known(value), f"{what} must not depend on the inputs")
        return value

    def require_known(self, *extents: Any) -> None:
        """Raises an error where extents are open."""
        self.require(not has_symbols(extents), "the extents must be known")

    def alone(self, *leading: Any) -> list[Any]:
        """The first results, if there is no need of others, nor of those that are None."""
        results = [*leading, *[None] * (len(self.fake) - len(leading))]
        needed = (part.args[1] for part in self.node.users if part.users)
        is_alone = all(results[place] is not None for place in needed)
        self.require(is_alone, "only the first result can be used")
        return results

    def has_infinity(self, nodes: Sequence[Any]) -> bool:
        """Whether infinity is written where the values of nodes are computed, or is in a tensor
        of the program. In a block, and after one, it may be written anywhere.
        """
        reading = self.reading
        reached: Collection[Any] = reachable(nodes, OPERANDS)
        is_in_block = self.node.graph is not reading.nodes[0].graph
        if is_in_block or any(node.op == "get_attr" for node in reached):
            reached = reading.nodes
        numbers = (x for node in reached for x in node.args)
        is_written = any(isinstance(x, float) and isinf(x) for x in numbers)
        return is_written or reading.stores_infinity

    def stopped(self, x: Any) -> Any:
        """A value that no gradient flows through."""
        is_scalar = isinstance(x, Tensor) and x.dtype == "scalar"
        return self.reading.emitter.stop(x) if is_scalar else x
