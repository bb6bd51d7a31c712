"""The nodes of an ONNX file, as they are made of the operations of a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.errors import UnsupportedError, UsageError
from nnef_grad.frontends.onnx.model import FIXED, InFile
from nnef_grad.frontends.view import entering
from nnef_grad.graph.extents import Dimension, Extent, has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor
from nnef_grad.graph.loops import Loop, is_loop
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.printer import print_operation
from nnef_grad.graph.symbols import number_needed_by, symbols
from nnef_grad.language.labels import is_constant
from nnef_grad.ops.traits import FED
from nnef_grad.targets.tensors import DTYPES

# The version of ONNX's operators that is written.
OPSET = 21

# What writes operations.
WRITERS: dict[str, Callable[[Nodes, Operation], None]] = {}
writer = entering(WRITERS)


def _declared(name: str, dtype: str, shape: Shape) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype]))
    extents = [str(n) if has_symbols(n) else n for n in shape]
    return helper.make_tensor_value_info(name, kind, extents)


def _typed(value: Any, dtype: Any, title: str) -> Array:
    """An array of a data type, which must have its numbers."""
    with np.errstate(over="raise"):
        try:
            return np.asarray(value).astype(dtype, copy=False)
        except FloatingPointError:
            what = f"{title} has a number that is too large for {np.dtype(dtype)}"
            raise UsageError(f"{what}, as it would be in the ONNX file") from None


class Nodes:
    """The nodes of a graph, or of the body of a loop; the constants and arrays of the whole
    model, by name, and what tensors are called in the file that they are from.
    """

    def __init__(
        self,
        graph: Graph,
        data: Data,
        appearance: InFile,
        around: Nodes | None = None,
    ) -> None:
        self._root: Nodes = around._root if around else self
        self._data = data
        self.made: list[Any] = []
        self.constants: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.called: dict[str, str] = {}
        self._names = dict(graph.names)
        self._known: dict[object, str] = {}
        self._operation: Operation | None = None
        self._origin: tuple[Operation | None, str] = None, ""
        # What is declared otherwise than it is computed with: the name, and the shape.
        self._outside: dict[Tensor, tuple[str, Shape]] = {}
        if around is None:
            self._appear(graph, appearance)
            self._symbols = self._places(graph)
            self._add_graph(graph)

    def _appear(self, graph: Graph, appearance: InFile) -> None:
        """Gives tensors the names and the shapes of the file that they are from."""
        seen = {*graph.inputs, *graph.outputs, *graph.variables}
        wished = {graph.names[x]: x for x in seen if graph.names[x] in appearance.names}
        others = {name for name in graph.tensors if name not in wished}
        # What is not in the graph, such as a bias that its gradient does not depend on,
        # is named by the metadata.
        self.called = {n: x for n, x in appearance.names.items() if n not in others}
        for name, x in wished.items():
            if appearance.names[name] in others:
                del self.called[name]
            else:
                self._names[x] = appearance.names[name]
        self._supply = NameSupply(self._names.values())
        for x, name in graph.names.items():
            shape = appearance.shapes.get(name, x.shape)
            if x in seen and shape != x.shape:
                self._outside[x] = self._names[x], shape
                self._names[x] = self._supply.fresh(f"{name}_aligned")

    def _add_graph(self, graph: Graph) -> None:
        for x in graph.inputs:
            self._enter(x)
        self.add_all(graph)
        self._operation = None
        sources = {*graph.inputs, *graph.variables}
        for x in dict.fromkeys(graph.outputs):
            if x in self._outside and x not in sources:
                name, shape = self._outside[x]
                whole = self.constant(shape, np.int64, "shape")
                self.add("Reshape", [self._names[x], whole], [name])

    def _enter(self, x: Tensor) -> None:
        """Gives a tensor of the file the shape that it is computed with."""
        if x in self._outside:
            whole = self.extents(x.shape)
            self.add("Reshape", [self._outside[x][0], whole], [self._names[x]])

    def declared(self, x: Tensor) -> Any:
        """An input or an output, as the file has it."""
        name, shape = self._outside.get(x, (self._names[x], x.shape))
        return _declared(name, x.dtype, shape)

    def add_all(self, graph: Graph) -> None:
        """Adds all operations of a graph."""
        for operation in graph.operations:
            self._operation = operation
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
        value = np.asarray(self._data[label.lower()])
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
        name, shape = self._outside.get(tensor, (self._names[tensor], tensor.shape))
        self.arrays[name] = _typed(value, dtype, title).reshape(shape)

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
            axes = list(range(value.rank, rank))
            operands = [name, self.constant(axes, np.int64, "axes")]
            self._known[key] = self.node("Unsqueeze", operands, f"{name}_aligned")
        return self._known[key]

    def constant(self, value: Any, dtype: type, hint: str) -> str:
        """The name of a constant."""
        array = _typed(value, dtype, self._title)
        key, root = (dtype, array.shape, array.tobytes()), self._root
        if key not in root._known:
            root._known[key] = self._keep(root.fresh(hint), array)
        return root._known[key]

    # ---- Extents ----

    def _places(self, graph: Graph) -> dict[str, tuple[str, int]]:
        """For each symbol an input, by name, and the axis whose extent it is."""
        places = {
            str(extent): (self._names[tensor], axis)
            for tensor in graph.inputs
            for axis, extent in enumerate(tensor.shape)
        }
        missing = [name for name in symbols(graph) if name not in places]
        if missing:
            what = f"the symbol '{missing[0]}' is not the extent of an axis of an input"
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
        """A list of one extent: a sum of products of symbols."""
        assert isinstance(extent, Extent)
        if extent not in self._known:
            terms = []
            for names, factor in extent.terms.items():
                factors = [*map(self._symbol, names)]
                if factor != 1 or not names:
                    factors.append(self.extents([factor], "factor"))
                terms.append(self._chain("Mul", factors))
            self._known[extent] = self._chain("Add", terms)
        return self._known[extent]

    def _chain(self, kind: str, names: Sequence[str]) -> str:
        total, *others = names
        for name in others:
            total = self.node(kind, [total, name], "extent")
        return total

    def _symbol(self, name: str) -> str:
        if name not in self._known:
            source, axis = self._symbols[name]
            part = {"start": axis, "end": axis + 1}
            self._known[name] = self.node("Shape", [source], f"extent_{name}", **part)
        return self._known[name]

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

    def body(self, loop: Loop, operands: Sequence[Tensor]) -> Any:
        """The body of a Scan. It reads what it sees whole where that is; its parts have no
        axis along which they are scanned or collected.
        """
        fresh, graph = self.fresh, loop.body
        inner = Nodes(graph, {}, InFile(), around=self)
        inner._names = {x: fresh(name) for x, name in graph.names.items()}
        whole = zip(loop.full, operands, strict=False)
        inner._names.update((x, self._names[outer]) for x, outer in whole)
        declared = [inner.declared(x) for x in loop.state_inputs]
        for x, way in zip(loop.parts, loop.scanned, strict=True):
            name, axes = fresh("part"), self.extents([way.axis], "axes")
            inner.add("Unsqueeze", [name, axes], [inner._names[x]])
            declared.append(_without_axis(name, x, way.axis))
        inner.add_all(graph)
        results = [inner.declared(x) for x in loop.next_values]
        for output, way in loop.collected:
            x, axes = graph.outputs[output], self.extents([way.axis], "axes")
            name = inner.node("Squeeze", [inner._names[x], axes], "collected")
            results.append(_without_axis(name, x, way.axis))
        return helper.make_graph(inner.made, graph.name, declared, results)


def _without_axis(name: str, tensor: Tensor, axis: int) -> Any:
    shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
    return _declared(name, tensor.dtype, shape)
