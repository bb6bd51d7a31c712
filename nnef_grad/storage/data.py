"""The data of variables: what a model has of them, and what another model is given.

Nothing is read before it is asked for, and then one tensor at a time. Files travel from
one model to another as they are; only who asks for an array gets one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from nnef_grad.errors import Problem, UsageError
from nnef_grad.source import Span
from nnef_grad.storage.containers import Container, opened
from nnef_grad.storage.files import PathLike
from nnef_grad.storage.parts import Part
from nnef_grad.storage.paths import Steps, data_steps, is_label, label_of
from nnef_grad.storage.tensor_file import (
    HEADER,
    Header,
    header_of,
    read_array,
    read_header,
    write_array,
)

# To copy the data of a model takes no numpy.
if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Data = Mapping[str, npt.ArrayLike]

# ---- The data of a model ----


def load_data(path: PathLike) -> VariableData:
    """The data of a model's variables, which are read when they are asked for.

    Args:
        path: a folder, an archive, or a text: then the data stand beside it.

    Raises:
        NnefGradError: there is nothing that a model is stored in, or it is damaged.
    """
    return VariableData(opened(path))


class VariableData(Mapping[str, "Array"]):
    """The data of variables by label; upper and lower case are one. To ask for one reads
    its file, and nothing is kept: the array, which is not to be written to, is gone when
    the caller drops it.

    Lookups raise `KeyError` where a label has no data, and `UsageError` where it is no
    label, or what is stored there is no tensor.
    """

    def __init__(self, container: Container) -> None:
        self._container = container

    def __repr__(self) -> str:
        return f"VariableData({self._container.name!r})"

    def __getitem__(self, label: str) -> Array:
        return read_array(self._part(label))

    def __contains__(self, label: object) -> bool:
        is_one = isinstance(label, str) and is_label(label)
        return is_one and self.find(str(label)) is not None

    def __iter__(self) -> Iterator[str]:
        return filter(None, map(label_of, self._container.files()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def header(self, label: str) -> Header:
        """The type and shape of the data, without reading more."""
        return read_header(self._part(label))

    def find(self, label: str) -> Part | None:
        """The file with the data, if there is one."""
        return self._container.find(data_steps(label))

    def _part(self, label: str) -> Part:
        part = self.find(label)
        if part is None:
            raise KeyError(label)
        return part


# ---- The data of a graph ----


class Declared(NamedTuple):
    """A variable as a graph declares it."""

    label: str
    dtype: str
    shape: tuple[int, ...]
    span: Span | None = None

    def __str__(self) -> str:
        shape = list(self.shape)
        return f"variable '{self.label}' of type {self.dtype} and shape {shape}"

    def check(self, header: Header, given: str) -> None:
        """Raises `UsageError` where data do not fit."""
        if header.shape != self.shape:
            raise UsageError(f"{self} {given} of shape {list(header.shape)}")
        if header.items.dtype != self.dtype:
            raise UsageError(f"{self} {given} of type {header.items.name}")


# What there is of the data of a variable.
Find = Callable[[Declared], "Part | None"]


def parts_of(
    declared: Iterable[Declared], data: Data, near: Path, partial: bool = False
) -> dict[Steps, Part]:
    """The tensor files of some variables, by where they are to stand.

    Args:
        declared: the variables.
        data: an array for each label; those of other labels are passed over. Of a
            ChainMap, each mapping is looked through: what is stored in one is shared.
        near: a folder on the file system that they are to be written to.
        partial: whether variables may have no data.

    Raises:
        UsageError: data are missing or do not fit; the error tells all that is wrong.
    """
    sources = _sources(data, near)

    def find(variable: Declared) -> Part | None:
        part = _first(variable, sources)
        if part is None and not partial:
            raise UsageError(f"{variable} has no data")
        return part

    found = [(data_steps(v.label), part) for v, part in _found(declared, find)]
    return dict(sorted(found, key=lambda item: (item[1].order, item[0])))


def arrays_of(declared: Iterable[Declared], data: VariableData) -> dict[str, Array]:
    """The arrays of those variables that have any, by label. Codes of a quantization are
    passed over.

    Raises:
        UsageError: one does not fit its variable, or is no tensor; the error tells all
            that is wrong.
    """
    parts = _found(declared, _stored(data))
    return {
        variable.label: read_array(part)
        for variable, part in sorted(parts, key=lambda item: item[1].order)
        if not read_header(part).items.is_quantized
    }


def _found(declared: Iterable[Declared], find: Find) -> list[tuple[Declared, Part]]:
    """The variables that something is found for, with that; all that is wrong is told at
    once.
    """
    found: list[tuple[Declared, Part]] = []
    problems: list[Problem] = []
    for variable in declared:
        try:
            part = find(variable)
            if part is not None:
                found.append((variable, part))
        except UsageError as error:
            problems.append(Problem(error.message, variable.span))
    if problems:
        raise UsageError.collect(problems)
    return found


def _sources(data: Data, near: Path) -> list[Find]:
    """Where data are looked for, one after another."""
    if isinstance(data, ChainMap):
        return [find for map_ in data.maps for find in _sources(map_, near)]
    return [_stored(data) if isinstance(data, VariableData) else _given(data, near)]


def _first(variable: Declared, sources: Iterable[Find]) -> Part | None:
    parts = (find(variable) for find in sources)
    return next((part for part in parts if part is not None), None)


def _stored(data: VariableData) -> Find:
    def find(variable: Declared) -> Part | None:
        part = data.find(variable.label)
        if part is not None:
            variable.check(read_header(part), f"has data in '{part.name}'")
        return part

    return find


def _given(data: Data, near: Path) -> Find:
    labels: dict[str, str] = {}
    for label in data:
        if labels.setdefault(_key(label), label) != label:
            raise UsageError(f"there are two variables with the label '{label}'")

    def find(variable: Declared) -> Part | None:
        label = labels.get(_key(variable.label))
        return None if label is None else _Given(variable, data, label, near)

    return find


def _key(label: str) -> str:
    """Labels that lead to one file have one key."""
    return label.replace("\\", "/").lower()


class _Given(Part):
    """An array that is to become a tensor file. It is not kept: who gave it may read it
    from a file whenever it is asked for.
    """

    def __init__(self, variable: Declared, data: Data, label: str, near: Path) -> None:
        self.name = label
        self._variable = variable
        self._data = data
        self._near = near
        self._size = HEADER + header_of(self._array()).length

    @property
    def size(self) -> int:
        return self._size

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        with TemporaryFile(dir=self._near) as file:
            write_array(file, self._array())
            file.seek(0)
            yield file

    def place(self, path: Path) -> None:
        with path.open("xb") as file:
            write_array(file, self._array())

    def _array(self) -> Array:
        import numpy as np

        try:
            array = np.asarray(self._data[self.name])
        except ValueError as error:
            message = f"the data of {self._variable} are no array: {error}"
            raise UsageError(message) from None
        try:
            self._variable.check(header_of(array), "is given data")
        except ValueError as error:
            raise UsageError(f"{self._variable} is given data {error}") from None
        return array
