"""Models of any format, with their data, for the command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import nnef_grad
from nnef_grad.base.errors import UsageError
from nnef_grad.commandline import console
from nnef_grad.emit.bodies import LONGEST, SHORT
from nnef_grad.graph.extents import symbols_of
from nnef_grad.graph.symbols import with_numbers
from nnef_grad.model import Options, declared_variables, from_container, from_source
from nnef_grad.storage.containers import open_container
from nnef_grad.storage.data import arrays_of
from nnef_grad.storage.output import is_onnx

if TYPE_CHECKING:
    from nnef_grad.frontends.onnx.model import InFile
    from nnef_grad.interop import TorchModel

Group = TypeVar("Group")

# The ending of what torch.export.save writes.
PROGRAM = ".pt2"


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

    def named(self, words: Sequence[str]) -> list[str]:
        """The names in the graph of what a file may call otherwise."""
        called = self.in_file.names if self.in_file is not None else {}
        own = {word: name for name, word in called.items()}
        return [own.get(word, word) for word in words]


@dataclass(frozen=True)
class Reading:
    """The options that say how a model is read; see `nnef-grad --help`."""

    input_shape: tuple[str, ...]
    batch: int | None
    symbol: tuple[str, ...]
    unroll: int | None
    dialect: str | None
    lenient: bool
    rules: str | None
    expand: tuple[str, ...] = ()
    gelu: str = "exact"

    def open(self, model: str, target: str) -> Opened:
        """The model at a path, or on stdin, for something that is made for a target."""
        own = None if self.rules is None else nnef_grad.load_rules(self.rules)
        shapes = dict(map(_shape, self.input_shape))
        numbers = dict(map(_symbol, self.symbol))
        if model.endswith(PROGRAM):
            return self._program(model, own, shapes, numbers)
        if is_onnx(model):
            from nnef_grad.interop import from_onnx

            read = from_onnx(
                model, input_shapes=shapes, batch=self.batch, symbols=numbers
            )
            return Opened(read.graph, own, read.data, in_file=read.in_file)
        # Where there are loops, those of long ones take longer to load as their steps.
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
        )
        if model == console.PIPE:
            return Opened(from_source(console.read_stdin(), options=options), own)
        container = open_container(model)
        graph = from_container(container, options)
        return Opened(graph, own, nnef_grad.VariableData(container).of(graph))

    def _program(
        self,
        path: str,
        rules: nnef_grad.Rules | None,
        shapes: Mapping[str, Sequence[int]],
        numbers: dict[str, int],
    ) -> Opened:
        """A program that torch.export has saved."""
        from nnef_grad.interop import from_torch

        if shapes:
            message = "the inputs of a program of PyTorch have the shapes of its export"
            raise UsageError(f"{message}: give its symbols numbers, by --symbol")
        model = from_torch(path)
        if self.batch is not None:
            symbols = symbols_of(tuple(x.shape[:1] for x in model.graph.inputs))
            if not symbols:
                message = "the batch of the program is a number"
                raise UsageError(f"{message}: export it with dynamic_shapes")
            numbers |= dict.fromkeys(symbols, self.batch)
        graph = with_numbers(model.graph, numbers)
        return Opened(graph, rules, model.data, replace(model, graph=graph))


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
    with expecting("--symbol", "NAME=N, a positive number,", text):
        name, number = text.split("=")
        if not number.strip().isdecimal() or int(number) < 1:
            raise ValueError(number)
        return name.strip(), int(number)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    with expecting("--input-shape", "NAME=EXTENT,EXTENT,...", text):
        name, extents = text.split("=", 1)
        return name.strip(), tuple(map(int, split([extents])))
