"""Models of any format, opened as one: a graph, its data, and what the file calls its
tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nnef_grad.autodiff.backward import GROUPS, Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.base.source import Source
from nnef_grad.graph.extents import has_symbols, symbols_of
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.names import with_plain_names
from nnef_grad.graph.printer import has_plain_names
from nnef_grad.graph.symbols import with_numbers
from nnef_grad.model import (
    Options,
    declared_variables,
    dumps,
    from_container,
    from_source,
)
from nnef_grad.storage.containers import open_container
from nnef_grad.storage.data import VariableData, arrays_of
from nnef_grad.storage.output import is_onnx

if TYPE_CHECKING:
    from nnef_grad.frontends.onnx.model import InFile
    from nnef_grad.frontends.torch.model import TorchModel
    from nnef_grad.interpreter.gradcheck import CheckedGradient

# The endings of what torch.export.save and LiteRT's converters write.
PROGRAM = ".pt2"
TFLITE = ".tflite"


@dataclass(frozen=True)
class Opened:
    """A model.

    Attributes:
        graph: its graph.
        rules: the user's own rules, if there are any.
        stored: its data, by label, if there can be any.
        torch: what PyTorch says of it, if it is from there.
        in_file: how its tensors appear in the ONNX file, if it is one.
    """

    graph: Graph
    rules: Rules | None
    stored: Any = None
    torch: TorchModel | None = None
    in_file: InFile | None = None

    @property
    def wrt(self) -> str | list[str]:
        """What a model is differentiated with respect to by default: of a PyTorch model, inputs
        and trainable parameters.
        """
        if self.torch is None:
            return "all"
        graph, random = self.graph, self.torch.random
        inputs = [n for n in graph.input_names if n not in random]
        scalar = [n for n in inputs if graph.tensors[n].dtype == "scalar"]
        return [*scalar, *self.torch.trainable]

    def drawn(self, seed: int) -> dict[str, Any]:
        """Random numbers for the inputs that stand for them, if their extents are known."""
        if self.torch is None:
            return {}
        # Importing NumPy takes longer than compiling.
        from numpy.random import default_rng

        random, generator = self.torch.random, default_rng(seed)
        closed = (n for n, drawn in random.items() if not has_symbols(drawn.shape))
        return {name: random[name].draw(generator) for name in closed}

    @property
    def arrays(self) -> Mapping[str, Any]:
        """Its data as arrays, by label, as far as there are any."""
        if isinstance(self.stored, VariableData):
            return arrays_of(declared_variables(self.graph), self.stored)
        return self.stored or {}

    def in_words(self, message: str) -> str:
        """A message, with the names that tensors have in the file."""
        names = self.in_file.names if self.in_file else {}
        return re.sub(r"'(\w+)'", lambda m: f"'{names.get(m[1], m[1])}'", message)

    def names(self, backward: Backward) -> dict[str, str]:
        """The names of tensors in a file, and of their gradients, by their names here."""
        names = dict(self.in_file.names) if self.in_file else {}
        named = backward.gradients.items() if names else ()
        return names | {own: self.called(name, own) for name, own in named}

    def called(self, name: str, gradient: str) -> str:
        """The name of the gradient of a tensor in a file."""
        return self.in_file.after(name, gradient) if self.in_file else gradient

    def shapes(self, backward: Backward) -> dict[str, Any]:
        """The shapes that gradients have in a file, where others, by the names of what they
        are of.
        """
        return self.in_file.shapes_of_gradients(backward) if self.in_file else {}

    def shown(self, row: CheckedGradient, shapes: Mapping[str, Any]) -> CheckedGradient:
        """The comparison of a gradient, by the names and `shapes` that are in the file."""
        names = self.in_file.names if self.in_file else {}
        return replace(
            row,
            tensor=names.get(row.tensor, row.tensor),
            gradient=self.called(row.tensor, row.gradient),
            shape=shapes.get(row.tensor, row.shape),
        )

    def named(self, words: Sequence[str]) -> list[str]:
        """The names in the graph of what a file may call otherwise."""
        found = self.in_file.found if self.in_file is not None else {}
        for word in words:
            if found.get(word) == "":
                what = f"'{word}' is not one tensor of the graph"
                why = (
                    "constants decide it, no output depends on it, or a loop repeats it"
                )
                raise UsageError(f"{what}: {why}")
            if found and word not in (*found, *self.graph.tensors, *GROUPS):
                near = suggestion(word, [*found])
                raise UsageError(f"the file has no tensor '{word}'{near}")
        return [found.get(word, word) for word in words]


def open_model(path: str, options: Options) -> Opened:
    """The model at a path: an NNEF text, folder or archive, an ONNX or a TFLite file, or a
    program of PyTorch.
    """
    if path.endswith(PROGRAM):
        return _program(path, options)
    if is_onnx(path):
        from nnef_grad.frontends.onnx.entry import from_onnx

        read = from_onnx(
            path,
            input_shapes=options.input_shapes,
            batch=options.batch,
            symbols=options.symbols,
            constants=options.constants,
            unroll=options.unroll,
        )
        return Opened(read.graph, options.rules, read.data, in_file=read.in_file)
    if path.endswith(TFLITE):
        from nnef_grad.frontends.tflite import from_tflite

        converted = from_tflite(path)
        source = Source(path, dumps(converted.graph))
        graph = from_source(source, options=options._replace(dialect="nnef"))
        return Opened(graph, options.rules, converted.data)
    container = open_container(path)
    graph = from_container(container, options)
    return Opened(graph, options.rules, VariableData(container).of(graph))


def _program(path: str, options: Options) -> Opened:
    """A program that torch.export has saved."""
    from nnef_grad.frontends.torch import from_torch

    if options.input_shapes:
        message = "the inputs of a program of PyTorch have the shapes of its export"
        raise UsageError(f"{message}: give numbers to its symbols instead")
    model = from_torch(path, constants=options.constants, unroll=options.unroll)
    numbers = dict(options.symbols or {})
    if options.batch is not None:
        symbols = symbols_of(tuple(x.shape[:1] for x in model.graph.inputs))
        if not symbols:
            message = "the batch of the program is a number"
            raise UsageError(f"{message}: export it with dynamic_shapes")
        numbers |= dict.fromkeys(symbols, options.batch)
    graph = with_numbers(model.graph, numbers)
    return Opened(graph, options.rules, model.data, replace(model, graph=graph))


def in_standard_names(opened: Opened) -> Opened:
    """The model with names of the standard."""
    graph = opened.graph
    if has_plain_names(graph):
        return opened
    from nnef_grad.frontends.onnx.model import InFile

    plain = with_plain_names(graph)
    found = {name: plain.names[tensor] for name, tensor in graph.tensors.items()}
    names = {new: name for name, new in found.items() if new != name}
    return replace(opened, graph=plain, in_file=InFile(names, found=found))
