"""The options that say how a model is read, and what a result is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import nnef_grad
from nnef_grad.base.errors import UsageError, is_bug
from nnef_grad.commandline import console
from nnef_grad.emit.bodies import most_steps
from nnef_grad.graph.symbols import example_sizes
from nnef_grad.model import Options, from_source
from nnef_grad.opening import PROGRAM, TFLITE, Opened, in_standard_names, open_model
from nnef_grad.storage.archives import BLOCK, is_archive
from nnef_grad.storage.files import reading
from nnef_grad.storage.output import beside_data, is_onnx
from nnef_grad.storage.paths import open_file

Group = TypeVar("Group")

# The ending of what numpy.savez writes.
ARRAYS = ".npz"


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
        options = Options(
            dict(map(_shape, self.input_shape)),
            self.batch,
            [*split(self.expand), *["gelu"] * (self.gelu == "sigmoid")],
            None if self.rules is None else nnef_grad.load_rules(self.rules),
            self.lenient,
            self.dialect,
            dict(map(_symbol, self.symbol)),
            most_steps(target) if self.unroll is None else self.unroll,
            dict(chain.from_iterable(map(_constants, self.constant))),
        )
        if model == console.PIPE:
            graph = from_source(console.read_stdin(), options=options)
            opened = Opened(graph, options.rules)
        else:
            opened = open_model(model, options)
        # tract reads the names of its dialect.
        return opened if target == "tract" else in_standard_names(opened)


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
