"""Models of any format, with their data, for the command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import nnef_grad
from nnef_grad.autodiff.backward import GROUPS
from nnef_grad.base.errors import UsageError, is_bug, suggestion
from nnef_grad.base.source import Source
from nnef_grad.commandline import console
from nnef_grad.emit.bodies import LONGEST, SHORT
from nnef_grad.graph.extents import symbols_of
from nnef_grad.graph.names import with_plain_names
from nnef_grad.graph.printer import has_plain_names
from nnef_grad.graph.symbols import example_sizes, with_numbers
from nnef_grad.model import Options, declared_variables, from_container, from_source
from nnef_grad.storage.archives import BLOCK, is_archive
from nnef_grad.storage.containers import open_container
from nnef_grad.storage.data import arrays_of
from nnef_grad.storage.files import reading
from nnef_grad.storage.output import beside_data, is_onnx
from nnef_grad.storage.paths import open_file

if TYPE_CHECKING:
    from nnef_grad.frontends.onnx.model import InFile
    from nnef_grad.interop import TorchModel

Group = TypeVar("Group")

# The endings of what torch.export.save, LiteRT's converters and numpy.savez write.
PROGRAM = ".pt2"
TFLITE = ".tflite"
ARRAYS = ".npz"


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

    graph: nnef_grad.Graph
    rules: nnef_grad.Rules | None
    stored: Any = None
    torch: TorchModel | None = None
    in_file: InFile | None = None

    @property
    def wrt(self) -> str | list[str]:
        """The default of --wrt: of a PyTorch model, inputs and trainable parameters."""
        if self.torch is None:
            return "all"
        graph, random = self.graph, self.torch.random
        inputs = [n for n in graph.input_names if n not in random]
        scalar = [n for n in inputs if graph.tensors[n].dtype == "scalar"]
        return [*scalar, *self.torch.trainable]

    @property
    def arrays(self) -> Mapping[str, Any]:
        """Its data as arrays, by label, as far as there are any."""
        if isinstance(self.stored, nnef_grad.VariableData):
            return arrays_of(declared_variables(self.graph), self.stored)
        return self.stored or {}

    def in_words(self, message: str) -> str:
        """A message, with the names that tensors have in the file."""
        names = self.in_file.names if self.in_file else {}
        return re.sub(r"'(\w+)'", lambda m: f"'{names.get(m[1], m[1])}'", message)

    def names(self, backward: nnef_grad.Backward) -> dict[str, str]:
        """What tensors are called in a file, and their gradients, by their names here."""
        names = dict(self.in_file.names) if self.in_file else {}
        named = backward.gradients.items() if names else ()
        return names | {own: self.called(name, own) for name, own in named}

    def called(self, name: str, gradient: str) -> str:
        """What the gradient of a tensor is called in a file."""
        return self.in_file.after(name, gradient) if self.in_file else gradient

    def shown(self, row: nnef_grad.CheckedGradient) -> nnef_grad.CheckedGradient:
        """The comparison of a gradient, by the names that tensors have in the file."""
        names = self.in_file.names if self.in_file else {}
        tensor = names.get(row.tensor, row.tensor)
        return replace(
            row, tensor=tensor, gradient=self.called(row.tensor, row.gradient)
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


@dataclass(frozen=True)
class Reading:
    """The options that say how a model is read; see `nnef-grad --help`."""

    input_shape: tuple[str, ...]
    batch: int | None
    symbol: tuple[str, ...]
    constant: tuple[str, ...]
    unroll: int | None
    dialect: str | None
    lenient: bool
    rules: str | None
    expand: tuple[str, ...] = ()
    gelu: str = "exact"

    def open(self, model: str, target: str) -> Opened:
        """The model at a path, or on stdin, for something that is made for a target."""
        opened = self._open(model, target)
        console.sizes.update(example_sizes(opened.graph))
        return opened

    def _open(self, model: str, target: str) -> Opened:
        own = None if self.rules is None else nnef_grad.load_rules(self.rules)
        shapes = dict(map(_shape, self.input_shape))
        numbers = dict(map(_symbol, self.symbol))
        constants = dict(chain.from_iterable(map(_constants, self.constant)))
        if model.endswith(PROGRAM):
            return self._program(model, own, shapes, numbers, constants)
        if is_onnx(model):
            from nnef_grad.interop import from_onnx

            sizes: Any = {"input_shapes": shapes, "batch": self.batch}
            read = from_onnx(model, **sizes, symbols=numbers, constants=constants)
            return Opened(read.graph, own, read.data, in_file=read.in_file)
        # tract loads a loop faster than its steps, but for the shortest.
        usual = SHORT if target == "tract" else LONGEST
        options = Options(
            shapes,
            self.batch,
            [*split(self.expand), *["gelu"] * (self.gelu == "sigmoid")],
            own,
            self.lenient,
            self.dialect,
            numbers,
            usual if self.unroll is None else self.unroll,
            constants,
        )
        if model == console.PIPE:
            graph = from_source(console.read_stdin(), options=options)
            return _plain(Opened(graph, own), target)
        if model.endswith(TFLITE):
            from nnef_grad.interop import from_tflite

            tflite = from_tflite(model)
            source = Source(model, nnef_grad.dumps(tflite.graph))
            graph = from_source(source, options=options._replace(dialect="nnef"))
            return _plain(Opened(graph, own, tflite.data), target)
        container = open_container(model)
        graph = from_container(container, options)
        stored = nnef_grad.VariableData(container).of(graph)
        return _plain(Opened(graph, own, stored), target)

    def _program(
        self,
        path: str,
        rules: nnef_grad.Rules | None,
        shapes: Mapping[str, Sequence[int]],
        numbers: dict[str, int],
        constants: Mapping[str, Any],
    ) -> Opened:
        """A program that torch.export has saved."""
        from nnef_grad.interop import from_torch

        if shapes:
            message = "the inputs of a program of PyTorch have the shapes of its export"
            raise UsageError(f"{message}: give its symbols numbers, by --symbol")
        model = from_torch(path, constants=constants)
        if self.batch is not None:
            symbols = symbols_of(tuple(x.shape[:1] for x in model.graph.inputs))
            if not symbols:
                message = "the batch of the program is a number"
                raise UsageError(f"{message}: export it with dynamic_shapes")
            numbers |= dict.fromkeys(symbols, self.batch)
        graph = with_numbers(model.graph, numbers)
        return Opened(graph, rules, model.data, replace(model, graph=graph))


def output_path(out: str, model: str) -> str:
    """OUT, of which the name says nothing if it has a dot anywhere: what is made of a model
    with data is a folder, unless the suffix is a known one.
    """
    with reading(model):
        place = Path(model)
        has_data = is_onnx(model) or model.endswith((PROGRAM, TFLITE)) or place.is_dir()
        # Reading from a pipe would take away what it begins with.
        if not has_data and place.is_file():
            with place.open("rb") as file:
                has_data = is_archive(file.read(BLOCK))
    return beside_data(out) if has_data and out != console.PIPE else out


def _plain(opened: Opened, target: str) -> Opened:
    """The model with names of the standard, where tract is not to read them."""
    graph = opened.graph
    if target == "tract" or has_plain_names(graph):
        return opened
    from nnef_grad.frontends.onnx.model import InFile

    plain = with_plain_names(graph)
    found = {name: plain.names[tensor] for name, tensor in graph.tensors.items()}
    names = {new: name for name, new in found.items() if new != name}
    return replace(opened, graph=plain, in_file=InFile(names, found=found))


def taken(kind: type[Group], options: dict[str, Any]) -> Group:
    """A group of options, which is taken out of all of them."""
    group: Any = kind
    names = [field.name for field in fields(group) if field.name in options]
    return kind(**{name: options.pop(name) for name in names})


def split(values: Sequence[str]) -> list[str]:
    """The names in the values of an option, each of which may be several."""
    names = (name.strip() for value in values for name in value.split(","))
    return list(filter(None, names))


@contextmanager
def expecting(option: str, what: str, text: str) -> Iterator[None]:
    """Turns the error of a value that cannot be read into one of the user."""
    try:
        yield
    except ValueError:
        raise UsageError(f"{option} expects {what} and got '{text}'") from None


def _symbol(text: str) -> tuple[str, int]:
    with expecting("--symbol", "NAME=N, a whole number,", text):
        name, _, number = text.rpartition("=")
        if not number.strip().isdecimal():
            raise ValueError(number)
        return name.strip(), int(number)


def _constants(text: str) -> Iterator[tuple[str, Any]]:
    """A number, or the arrays of a file, by the names of inputs."""
    name, is_number, number = text.partition("=")
    if text.endswith(ARRAYS) or not is_number:
        yield from arrays_in(text).items()
        return
    with expecting("--constant", "NAME=X, a number, or FILE.npz", text):
        words = {"true": 1.0, "false": 0.0}
        value = words[number] if number in words else float(number)
        yield name.strip(), int(value) if value.is_integer() else value


def arrays_in(path: str) -> dict[str, Any]:
    """The arrays in a file that numpy.savez has written."""
    import numpy as np

    with open_file(path) as file:
        try:
            if not path.endswith(ARRAYS):
                raise ValueError("it is not called x.npz")
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
        except Exception as error:
            if is_bug(error):
                raise
            what = f"'{path}' has no arrays of numpy.savez: {error}"
            raise UsageError(what) from None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    with expecting("--input-shape", "NAME=EXTENT,EXTENT,...", text):
        name, extents = text.split("=", 1)
        return name.strip(), tuple(map(int, split([extents])))
