"""The nodes of an ONNX file, as they are made of the operations of a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.errors import UnsupportedError, UsageError
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.frontends.onnx.model import FIXED, InFile
from nnef_grad.frontends.view import entering
from nnef_grad.graph.atoms import Atom, Extreme, Symbol
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    bounds,
    has_symbols,
    multiple,
    symbols_in,
    symbols_of,
)
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor
from nnef_grad.graph.loops import Loop, is_loop
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.printer import print_operation
from nnef_grad.graph.symbols import number_needed_by
from nnef_grad.language.identifiers import spelled
from nnef_grad.language.labels import is_constant, label_key
from nnef_grad.ops.traits import FED
from nnef_grad.targets.onnx.precision import in_double
from nnef_grad.targets.tensors import DTYPES

# The version of ONNX's operators that is written: the first that has all of them.
OPSET = 18

# What writes operations.
WRITERS: dict[str, Callable[[Nodes, Operation], None]] = {}
writer = entering(WRITERS)


class _Value(NamedTuple):
    """How a tensor is declared: its name, its shape, and the number of its type."""

    name: str
    shape: Shape
    kind: int

    def info(self) -> Any:
        """Its declaration in a file."""
        extents = [_dimension(n) for n in self.shape]
        return helper.make_tensor_value_info(self.name, self.kind, extents)


def _dimension(extent: Dimension) -> int | str:
    """A number, or what is written for an open extent: a symbol is its name."""
    names = symbols_of(extent)
    is_symbol = [spelled(name) for name in names] == [str(extent)]
    return names[0] if is_symbol else str(extent) if names else int(extent)


def _kind(dtype: str) -> int:
    """The type that what has a data type of NNEF is computed in."""
    kind: int = helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype]))
    return kind


def _typed(value: Any, dtype: Any, title: str) -> Array:
    """An array of a data type, which must have its numbers."""
    with np.errstate(over="raise"):
        try:
            return np.asarray(value).astype(dtype, copy=False)
        except FloatingPointError:
            what = f"{title} has a number that is too large for {np.dtype(dtype)}"
            raise UsageError(f"{what}, as it would be in the ONNX file") from None


def _squeezed_reductions(graph: Graph) -> dict[Operation, Operation]:
    """The reductions of which nothing is read but by the squeeze of their axes, by that: the
    two are one operator.
    """
    near = DefUse(graph)
    pairs = ((op, near.producer(op.operands[0])) for op in near.named("squeeze"))
    return {
        op: source
        for op, source in pairs
        if source is not None
        and source.name in REDUCTION_OPERATORS
        and source.attributes["axes"] == op.attributes["axes"]
        and near.uses[source.outputs[0]] == 1
    }


REDUCTION_OPERATORS = {
    "max_reduce": "ReduceMax",
    "mean_reduce": "ReduceMean",
    "min_reduce": "ReduceMin",
    "sum_reduce": "ReduceSum",
}


class Nodes:
    """The nodes of a graph, or of the body of a loop; the constants and arrays of the whole
    model, by name, and what tensors are called in the file that they are from. Bodies see
    what is stored outside, and what is computed there, unless the model is portable: that is
    then carried as a state, as OpenVINO 2026.4 refuses bodies that see what is computed.
    """

    def __init__(
        self,
        graph: Graph,
        data: Data,
        appearance: InFile,
        around: Nodes | None = None,
        *,
        is_portable: bool = False,
    ) -> None:
        self._root: Nodes = around._root if around else self
        self._is_portable = is_portable
        self._data = data
        self.made: list[Any] = []
        self.constants: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.called: dict[str, str] = {}
        self._names = dict(graph.names)
        self._known: dict[object, str] = {}
        self._operation: Operation | None = None
        self.squeezed: dict[Operation, Operation] = {}
        self._origin: tuple[Operation | None, str] = None, ""
        # What is declared otherwise than it is computed with.
        self._outside: dict[Tensor, _Value] = {}
        if around is None:
            self._appear(graph, appearance)
            self._symbols = self._places(graph)
            self._add_graph(graph)

    def _appear(self, graph: Graph, appearance: InFile) -> None:
        """Gives tensors the names, the shapes and the types of the file that they are from."""
        wished = {n: x for n, x in graph.tensors.items() if n in appearance.names}
        others = {name for name in graph.tensors if name not in wished}
        # What keeps its name in the graph may be in the way of another one.
        while blocked := {n for n in wished if appearance.names[n] in others}:
            others |= blocked
            wished = {n: x for n, x in wished.items() if n not in blocked}
        # What is not in the graph, such as a bias that its gradient does not depend on,
        # is named by the metadata.
        self.called = {n: x for n, x in appearance.names.items() if n not in others}
        for name, x in wished.items():
            self._names[x] = appearance.names[name]
        self._supply = NameSupply(self._names.values())
        ends = {*graph.inputs, *graph.outputs}.difference(graph.variables)
        for x in (*graph.inputs, *graph.variables, *graph.outputs):
            name, own = graph.names[x], _Value(self._names[x], x.shape, _kind(x.dtype))
            kind = appearance.types.get(name, own.kind) if x in ends else own.kind
            outside = _Value(own.name, appearance.shapes.get(name, x.shape), kind)
            if outside != own:
                self._outside[x] = outside
                what = "computed" if outside.shape == own.shape else "aligned"
                self._names[x] = self._supply.fresh(f"{own.name}_{what}")

    def _add_graph(self, graph: Graph) -> None:
        for x in graph.inputs:
            self._enter(x)
        self.add_all(graph)
        self._operation = None
        sources = {*graph.inputs, *graph.variables}
        for x in dict.fromkeys(graph.outputs):
            if x in self._outside and x not in sources:
                self._convert(self._computed(x), self._outside[x])

    def _enter(self, x: Tensor) -> None:
        """Gives a tensor of the file the shape and the type that it is computed with."""
        if x in self._outside:
            self._convert(self._outside[x], self._computed(x))

    def _convert(self, own: _Value, wanted: _Value) -> None:
        """Makes a value of one that has another shape, or is of another type."""
        if own.shape != wanted.shape:
            is_last = own.kind == wanted.kind
            name = wanted.name if is_last else self._supply.fresh(f"{own.name}_aligned")
            self.add("Reshape", [own.name, self.extents(wanted.shape)], [name])
            own = own._replace(name=name)
        if own.kind != wanted.kind:
            self.add("Cast", [own.name], [wanted.name], to=wanted.kind)

    def _computed(self, x: Tensor) -> _Value:
        return _Value(self._names[x], x.shape, _kind(x.dtype))

    def declared(self, x: Tensor) -> Any:
        """An input or an output, as the file has it."""
        return self._outside.get(x, self._computed(x)).info()

    def add_all(self, graph: Graph) -> None:
        """Adds all operations of a graph."""
        self.squeezed = _squeezed_reductions(graph)
        written = {*self.squeezed.values()}
        for operation in graph.operations:
            self._operation = operation
            if operation in written:
                continue
            if operation.name == "variable":
                self._variable(operation)
            elif operation.name == "constant":
                self._constant(operation)
            elif operation.name not in FED:
                with number_needed_by(operation):
                    WRITERS[operation.name](self, operation)

    def _variable(self, operation: Operation) -> None:
        """Numbers of half precision stay so in the file, and are cast as they are read."""
        (tensor,) = operation.outputs
        label = str(operation.attributes["label"])
        value = np.asarray(self._data[label_key(label)])
        is_half = tensor.dtype == "scalar" and value.dtype == np.float16
        dtype = np.float16 if is_half else DTYPES[tensor.dtype]
        self.put(tensor, value, f"'{label}'", dtype)
        self._enter(tensor)
        if is_half:
            name = self._names[tensor]
            single = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
            self._names[tensor] = self.node("Cast", [name], f"{name}_single", to=single)

    def put(self, tensor: Tensor, value: Array, title: str, dtype: Any) -> None:
        """Gives a variable its value, or an input one for runs that do not feed it."""
        if value.shape != tensor.shape:
            given, own = list(value.shape), list(tensor.shape)
            message = f"the data of {title} have the shape {given}"
            raise UsageError(f"{message}, and not {own}")
        place = self._outside.get(tensor, self._computed(tensor))
        self.arrays[place.name] = _typed(value, dtype, title).reshape(place.shape)

    def _constant(self, operation: Operation) -> None:
        """Keeps a constant, of which one element may stand for all."""
        (tensor,) = operation.outputs
        items, name = operation.attributes["value"], self._names[tensor]
        value = _typed(items, DTYPES[tensor.dtype], f"'{name}'")
        if value.size != 1 or set(tensor.shape) <= {1}:
            self._keep(name, value.reshape(tensor.shape))
        else:
            one = numpy_helper.from_array(value.reshape(1))
            self.node("ConstantOfShape", [self.extents(tensor.shape)], value=one)

    def _keep(self, name: str, value: Array) -> str:
        self._root.constants.append(numpy_helper.from_array(value, name))
        return name

    def model(self, graph: Graph, metadata: Mapping[str, Mapping[str, str]]) -> Any:
        """The model, without the arrays; `metadata` say what tensors are to each other."""
        ends = [[*map(self.declared, side)] for side in (graph.inputs, graph.outputs)]
        notes = "\n".join(graph.notes)
        body = helper.make_graph(
            self.made, graph.name, *ends, self.constants, doc_string=notes
        )
        versions = [helper.make_opsetid("", OPSET)]
        version = helper.find_min_ir_version_for(versions)
        about = {"producer_name": "nnef-grad", "ir_version": version}
        model = helper.make_model(body, opset_imports=versions, **about)
        called = self.called
        texts = {
            f"nnef_grad.{kind}": json.dumps(
                {called.get(x, x): called.get(y, y) for x, y in related.items()}
            )
            for kind, related in metadata.items()
        }
        labelled = zip(graph.variables, graph.labels.values(), strict=True)
        stored = [self._names[x] for x, label in labelled if is_constant(label)]
        fixed = [*(constant.name for constant in self.constants), *stored]
        texts |= {FIXED: json.dumps(fixed)} if fixed else {}
        helper.set_model_props(model, texts)
        return model

    # ---- Operands ----

    def operand(self, value: Operand, dtype: str, rank: int | None = None) -> str:
        """The name of an operand; of one with a rank, as ONNX aligns axes from the right."""
        if not isinstance(value, Tensor):
            return self.constant(value, DTYPES[dtype], "number")
        name = self._names[value]
        if rank is None or value.rank in (0, rank):
            return name
        key = value, rank
        if key not in self._known:
            low, high = sorted((value.rank, rank))
            kind = "Unsqueeze" if value.rank < rank else "Squeeze"
            operands = [name, self.constant([*range(low, high)], np.int64, "axes")]
            self._known[key] = self.node(kind, operands, f"{name}_aligned")
        return self._known[key]

    def constant(self, value: Any, dtype: type, hint: str) -> str:
        """The name of a constant."""
        array = _typed(value, dtype, self._title)
        key, root = (dtype, array.shape, array.tobytes()), self._root
        if key not in root._known:
            root._known[key] = self._keep(root.fresh(hint), array)
        return root._known[key]

    # ---- Extents ----

    def _places(self, graph: Graph) -> dict[Symbol, tuple[str, int, int, int]]:
        """For each symbol an input, by name, and an axis whose extent is a multiple of it and a
        number more.
        """
        places = {
            symbol: (self._names[tensor], axis, factor, rest)
            for tensor in graph.inputs
            for axis, extent in enumerate(tensor.shape)
            for symbol, factor, rest in multiple(extent)
        }
        for symbol in symbols_in(tuple(tensor.shape for tensor in graph.inputs)):
            if symbol not in places:
                what = f"the symbol '{symbol.name}' is not the extent of an axis of an input"
                raise UnsupportedError(f"{what} in '{graph.name}'", remedy="symbol")
        return places

    def extents(self, extents: Sequence[Dimension], hint: str = "shape") -> str:
        """The name of a list of integers, which is computed where they have symbols."""
        root, whole = self._root, tuple(extents)
        if not has_symbols(whole):
            return self.constant(list(whole), np.int64, hint)
        if whole not in root._known:
            pieces: list[str] = []
            for is_open, group in groupby(whole, key=has_symbols):
                own = [*group]
                pieces += map(root._extent, own) if is_open else [root.extents(own)]
            if len(pieces) > 1:
                pieces = [root.node("Concat", pieces, hint, axis=0)]
            (root._known[whole],) = pieces
        return root._known[whole]

    def _extent(self, extent: Dimension) -> str:
        """A list of one extent: a sum of products of atoms."""
        if not isinstance(extent, Extent):
            return self.extents([extent], "number")
        if extent not in self._known:
            terms = []
            for atoms, factor in extent.terms.items():
                factors = [*map(self._atom, atoms)]
                if factor != 1 or not atoms:
                    factors.append(self.extents([factor], "factor"))
                terms.append(self._chain("Mul", factors))
            self._known[extent] = self._chain("Add", terms)
        return self._known[extent]

    def _atom(self, atom: Atom) -> str:
        if atom not in self._known:
            self._known[atom] = self._made(atom)
        return self._known[atom]

    def _made(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self._number_of(atom)
        if isinstance(atom, Extreme):
            parts = [*map(self._extent, atom.parts)]
            return self.node(atom.name.capitalize(), parts, "extent")
        whole, by = self._extent(atom.whole), self._extent(atom.by)
        if bounds(atom.whole)[0] < 0:
            # Integers are divided toward zero, and the rest has the sign of the divisor.
            whole = self._chain("Sub", [whole, self._chain("Mod", [whole, by])])
        return self._chain("Div", [whole, by])

    def _chain(self, kind: str, names: Sequence[str]) -> str:
        total, *others = names
        for name in others:
            total = self.node(kind, [total, name], "extent")
        return total

    def _number_of(self, symbol: Symbol) -> str:
        """The number of a symbol, from the extent of an input that has it alone."""
        source, axis, factor, rest = self._symbols[symbol]
        part = {"start": axis, "end": axis + 1}
        number = self.node("Shape", [source], f"extent_{symbol.name}", **part)
        if rest:
            number = self._chain("Sub", [number, self.extents([rest], "rest")])
        if factor != 1:
            number = self._chain("Div", [number, self.extents([factor], "factor")])
        return number

    # ---- Nodes ----

    def node(
        self, kind: str, inputs: Sequence[str], hint: str = "", **attributes: Any
    ) -> str:
        """Adds a node, and gives the name of its result: the operation's without a hint."""
        names = [self.fresh(hint)] if hint else self.results
        self.add(kind, inputs, names, **attributes)
        return names[0]

    def fresh(self, hint: str) -> str:
        """A new name."""
        return self._root._supply.fresh(hint)

    @property
    def is_portable(self) -> bool:
        """Whether other engines than ONNX Runtime are to read the model."""
        return self._root._is_portable

    @property
    def results(self) -> list[str]:
        """The names of the results of the operation."""
        assert self._operation is not None
        return [self._names[tensor] for tensor in self._operation.outputs]

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> None:
        """Adds a node with these results."""
        comment = self._comment()
        for name, value in attributes.items():
            if isinstance(value, float):
                attributes[name] = _typed(value, np.float32, self._title).item()
        self.made.append(
            helper.make_node(kind, inputs, outputs, outputs[0], comment, **attributes)
        )

    @property
    def _title(self) -> str:
        return f"'{self._operation.name}'" if self._operation else "the graph"

    def _comment(self) -> str:
        """The forward operation whose derivative the nodes are part of."""
        operation = self._operation if self is self._root else None
        origin = operation.origin if operation else None
        if origin is not self._origin[0]:
            is_plain = origin is not None and not is_loop(origin)
            text = print_operation(origin, self._names) if origin and is_plain else ""
            self._origin = origin, text
        return self._origin[1]

    # ---- Loops ----

    def carried(self, loop: Loop, operands: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """What the body sees whole that is a state for it, with what it is outside."""
        root = self._root
        stored = {*root.arrays, *(x.name for x in root.constants)}
        whole = zip(loop.full, operands, strict=False) if self.is_portable else ()
        return {x: outer for x, outer in whole if self._names[outer] not in stored}

    def body(self, loop: Loop, operands: Sequence[Tensor]) -> Any:
        """The body of a Scan. It reads what it sees whole where that is, unless it is
        carried; its parts have no axis along which they are scanned or collected.
        """
        fresh, graph = self.fresh, in_double(loop.body)
        inner = Nodes(graph, {}, InFile(), around=self)
        inner._names = {x: fresh(name) for x, name in graph.names.items()}
        whole, carried = (
            zip(loop.full, operands, strict=False),
            self.carried(loop, operands),
        )
        seen = ((x, outer) for x, outer in whole if x not in carried)
        inner._names.update((x, self._names[outer]) for x, outer in seen)
        declared = [inner.declared(x) for x in (*loop.state_inputs, *carried)]
        for x, way in zip(loop.parts, loop.scanned, strict=True):
            name, axes = fresh("part"), self.extents([way.axis], "axes")
            inner.add("Unsqueeze", [name, axes], [inner._names[x]])
            declared.append(_without_axis(name, x, way.axis))
        inner.add_all(graph)
        results = [inner.declared(x) for x in loop.next_values]
        for x in carried:
            kept = inner._computed(x)
            same = inner.node("Identity", [kept.name], f"{kept.name}_kept")
            results.append(kept._replace(name=same).info())
        for output, way in loop.collected:
            x, axes = graph.outputs[output], self.extents([way.axis], "axes")
            name = inner.node("Squeeze", [inner._names[x], axes], "collected")
            results.append(_without_axis(name, x, way.axis))
        return helper.make_graph(inner.made, graph.name, declared, results)


def _without_axis(name: str, tensor: Tensor, axis: int) -> Any:
    shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
    return _Value(name, shape, _kind(tensor.dtype)).info()
