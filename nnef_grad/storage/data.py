"""The data of variables: those of a stored model, and those to be stored with another.

Data are read on demand, one tensor at a time. Files are passed from one model to
another unread; an array is made only when a caller asks for one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

from nnef_grad.base.errors import Problem, UsageError
from nnef_grad.base.public import public
from nnef_grad.base.source import Span
from nnef_grad.graph.ir import Graph, Quantization, Shape, Tensor
from nnef_grad.language.labels import label_key
from nnef_grad.storage import tensor_file
from nnef_grad.storage.containers import Container, open_container
from nnef_grad.storage.files import PIECE, Part, PathLike, StoredPart
from nnef_grad.storage.paths import Steps, data_steps, is_label, label_of
from nnef_grad.storage.tensor_file import Header, header_of, read_header

# Copying the data of a model does not need numpy.
if TYPE_CHECKING:
    import numpy.typing as npt

    from nnef_grad.base.arrays import Array

    Data = Mapping[str, npt.ArrayLike]

# The quantizations whose codes are numbers of even steps.
LINEAR = frozenset(f"{name}linear_quantize" for name in ("", "min_max_", "zero_point_"))

# ---- Variables ----


class Declared(NamedTuple):
    """The declaration of a variable."""

    label: str
    dtype: str
    shape: Shape
    span: Span | None = None

    def __str__(self) -> str:
        shape = list(self.shape)
        return f"variable '{self.label}' of type {self.dtype} and shape {shape}"

    def check(self, header: Header, has: str) -> None:
        """Raises `UsageError` if data with this header do not fit."""
        if not header.fits(self.shape):
            raise UsageError(f"{self} {has} of shape {list(header.shape)}")
        # tract writes integers as codes, which mean something else only with an entry in
        # the quantization info.
        are_integers = self.dtype == "integer" and header.items.is_quantized
        if header.items.dtype != self.dtype and not are_integers:
            raise UsageError(f"{self} {has} of type {header.items.name}")


# ---- The data of a model ----


@public
def load_data(path: PathLike) -> VariableData:
    """The data of a model's variables, read on demand.

    Args:
        path: a folder, an archive, or a text with the data files beside it.

    Raises:
        NnefGradError: the path is not a model, or it is damaged.
    """
    return VariableData(open_container(path))


class VariableData(Mapping[str, "Array"]):
    """The data of variables by label, ignoring case. Each lookup reads the file again;
    the array is read-only, and not cached. Data may be quantized codes: `of(graph)` is the
    same with the numbers that these mean.

    Attributes:
        meanings: what codes mean, if a variable has codes, by the keys of labels.
        tensors: the variables of a graph, by the keys of their labels.

    Lookups raise `KeyError` if a label has no data, and `UsageError` if it is not a
    valid label, or its file is not a tensor.
    """

    def __init__(
        self,
        container: Container,
        keeps_blocks: bool = False,
        meanings: Mapping[str, Quantization] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._container = container
        self.keeps_blocks = keeps_blocks
        self.meanings = meanings or {}
        self.tensors = tensors or {}

    def __repr__(self) -> str:
        return f"VariableData({self._container.name!r})"

    @property
    def with_blocks(self) -> VariableData:
        """The same, for a graph that reads blocks: they are written as they are."""
        return VariableData(self._container, True, self.meanings, self.tensors)

    def of(self, graph: Graph) -> VariableData:
        """The same, with the numbers that quantized codes mean by the quantization info of
        the graph, if that is linear: the signs of logarithms are not in their codes.
        """
        entries = graph.quantization
        meanings = {
            label_key(label): entries[name]
            for name, label in graph.labels.items()
            if name in entries and entries[name].operation.name in LINEAR
        }
        tensors = graph.tensors
        own = {label_key(x): tensors[n] for n, x in graph.labels.items()}
        meanings, own = {**self.meanings, **meanings}, {**self.tensors, **own}
        return VariableData(self._container, self.keeps_blocks, meanings, own)

    def __getitem__(self, label: str) -> Array:
        key = label_key(label)
        part, meaning, own = (
            self._part(label),
            self.meanings.get(key),
            self.tensors.get(key),
        )
        if own is not None:
            of_integers = own.dtype == "integer"
            return tensor_file.read_array(part, meaning, of_integers, own.shape)
        # Without any quantization info, codes are integers of tract.
        return tensor_file.read_array(part, meaning, not self._has_info)

    @cached_property
    def _has_info(self) -> bool:
        return self._container.quantization() is not None

    def integers(self, label: str) -> Array:
        """The array, of which codes are integers."""
        return tensor_file.read_array(self._part(label), are_integers=True)

    def __contains__(self, label: object) -> bool:
        is_one = isinstance(label, str) and is_label(label)
        return is_one and self.find(str(label)) is not None

    def __iter__(self) -> Iterator[str]:
        return filter(None, map(label_of, self._container.files()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """True: what is in a folder is not counted to know whether there are data."""
        return True

    def header(self, label: str) -> Header:
        """The type and shape of the data; only the header is read."""
        return read_header(self._part(label))

    def find(self, label: str) -> StoredPart | None:
        """The file with the data, if there is one."""
        return self._container.find(data_steps(label))

    def refuse_twins(self, labels: Iterable[str]) -> None:
        """Raises `UsageError` if labels that differ in case alone, which the standard takes
        for one, have different data.
        """
        first: dict[str, str] = {}
        for label in labels:
            if (other := first.setdefault(label_key(label), label)) == label:
                continue
            parts = [part for part in map(self.find, (other, label)) if part]
            if len({part.name for part in parts}) > 1 and _differ(*parts):
                message = f"labels '{other}' and '{label}' differ in case alone"
                why = "NNEF takes them for one, but they have different data"
                raise UsageError(f"{message}: {why}")

    def fitting(self, variable: Declared) -> StoredPart | None:
        """The same, checked to fit a variable."""
        part = self.find(variable.label)
        if part is not None:
            variable.check(read_header(part), f"has data in '{part.name}'")
        return part

    def _part(self, label: str) -> StoredPart:
        part = self.find(label)
        if part is None:
            raise KeyError(label)
        return part


def _differ(one: StoredPart, other: StoredPart) -> bool:
    """Whether two files have different contents."""
    starts = range(0, max(one.size, other.size), PIECE)
    return any(one.read(i, PIECE) != other.read(i, PIECE) for i in starts)


class SinglePrecision(Mapping[str, "Array"]):
    """The data, in single precision, of variables that are stored in half or double
    precision, or in blocks; `blocks` and `codes` are labels of those in these.
    """

    def __init__(
        self, data: VariableData | Mapping[str, Array], declared: Iterable[Declared]
    ) -> None:
        declared = [*declared]
        pairs = ((v.label, _header(data, v)) for v in declared)
        headers = {label: header for label, header in pairs if header}
        self._data = data
        self.blocks = {n for n, header in headers.items() if header.items.is_blocks}
        self.codes = {
            v.label
            for v in declared
            if v.label in headers
            and v.dtype == "scalar"
            and headers[v.label].items.is_quantized
        }
        known = getattr(data, "meanings", ())
        readable = {n for n in self.codes if label_key(n) in known}
        self._shapes = {v.label: v.shape for v in declared}
        self._labels = [
            n
            for n, header in headers.items()
            if n in self.blocks | readable
            or (header.items.name == "float" and header.bits != 32)
        ]

    def __getitem__(self, label: str) -> Array:
        if label not in self._labels:
            raise KeyError(label)
        array: Array = self._data[label].astype("float32", copy=False)
        is_stored = isinstance(self._data, VariableData)
        return array.reshape(self._shapes[label]) if is_stored else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


def _header(
    data: VariableData | Mapping[str, Array], variable: Declared
) -> Header | None:
    """The header of the data of a variable; None if there are none that can be read."""
    try:
        if isinstance(data, VariableData):
            part = data.fitting(variable)
            return None if part is None else read_header(part)
        return header_of(data[variable.label]) if variable.label in data else None
    except (UsageError, ValueError):
        return None  # and whoever writes the data says why


# ---- The data of a graph ----


def undeclared(declared: Iterable[Declared], data: Data) -> list[Declared]:
    """Descriptions of the data whose labels no variable has."""
    import numpy as np

    labels = {label_key(variable.label) for variable in declared}
    others = {
        label: header_of(np.asarray(array))
        for label, array in data.items()
        if label_key(label) not in labels
    }
    return [Declared(label, h.items.dtype, h.shape) for label, h in others.items()]


AnyPart = TypeVar("AnyPart", bound=Part)


def tensor_files(
    declared: Iterable[Declared], data: Data, partial: bool = False
) -> dict[Steps, Part]:
    """The tensor files of variables, by their path in the model. Data under other labels
    are ignored; of a ChainMap, the mappings are searched one by one, so that stored data
    are shared. With `partial`, variables may have no data.
    """
    parts = _find_all(declared, _lookup(data), partial)
    placed = [(data_steps(variable.label), part) for variable, part in parts]
    return dict(sorted(placed, key=lambda item: (item[1].order, item[0])))


def arrays_of(declared: Iterable[Declared], data: VariableData) -> dict[str, Array]:
    """The arrays of variables with data, by label, but for codes of unknown meaning. What
    several labels mean has the first one.
    """
    declared = {label_key(v.label): v for v in reversed([*declared])}.values()
    parts = _find_all(declared, data.fitting, partial=True)
    meanings = data.meanings
    return {
        v.label: tensor_file.read_array(
            part, meanings.get(label_key(v.label)), True, v.shape
        )
        for v, part in sorted(parts, key=lambda item: item[1].order)
        if label_key(v.label) in meanings
        or v.dtype == "integer"
        or not read_header(part).items.is_quantized
    }


def _find_all(
    declared: Iterable[Declared],
    find: Callable[[Declared], AnyPart | None],
    partial: bool,
) -> list[tuple[Declared, AnyPart]]:
    """The variables with data, and the data; all problems are reported at once."""
    pairs: list[tuple[Declared, AnyPart]] = []
    problems: list[Problem] = []
    for variable in declared:
        try:
            part = find(variable)
            if part is not None:
                pairs.append((variable, part))
            elif not partial:
                raise UsageError(f"{variable} has no data")
        except UsageError as error:
            problems.append(Problem(error.message, variable.span))
    if problems:
        raise UsageError.collect(problems)
    return pairs


def _lookup(data: Data) -> Callable[[Declared], Part | None]:
    """The lookup in data of one kind, or in several mappings one by one."""
    if isinstance(data, VariableData):
        return partial(_stored, data)
    if isinstance(data, ChainMap):
        lookups = [_lookup(map_) for map_ in data.maps]
        return lambda v: next(filter(None, (find(v) for find in lookups)), None)
    labels: dict[str, str] = {}
    for label in data:
        if labels.setdefault(label_key(label), label) != label:
            raise UsageError(f"there are two variables with the label '{label}'")

    def find(variable: Declared) -> Part | None:
        label = labels.get(label_key(variable.label))
        return None if label is None else _ArrayPart(variable, data, label)

    return find


def _stored(data: VariableData, variable: Declared) -> Part | None:
    """The file of a variable, or the numbers in its blocks, which few runtimes read."""
    part = data.fitting(variable)
    if part is None or data.keeps_blocks or not read_header(part).items.is_blocks:
        return part
    return _ArrayPart(variable, data, variable.label)


class _ArrayPart(Part):
    """An array to be written as a tensor file. It is looked up anew at each use."""

    def __init__(self, variable: Declared, data: Data, label: str) -> None:
        self._variable = variable
        self._data = data
        self._label = label
        self.size = tensor_file.HEADER + header_of(self._array()).length

    def write(self, target: BinaryIO) -> None:
        tensor_file.write_array(target, self._array())

    def _array(self) -> Array:
        import numpy as np

        try:
            array = np.asarray(self._data[self._label])
        except ValueError as error:
            message = f"the data of {self._variable} are not an array: {error}"
            raise UsageError(message) from None
        if isinstance(self._data, VariableData):
            # It fits, and blocks may be those of a matrix.
            array = array.reshape(self._variable.shape)
        try:
            self._variable.check(header_of(array), "is given data")
        except ValueError as error:
            raise UsageError(f"{self._variable} is given data {error}") from None
        return array
