"""Models: texts, folders and archives to graphs, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rule_files import check_rules
from nnef_grad.autodiff.rules import Rules
from nnef_grad.build.builder import build_graph
from nnef_grad.build.quantization import read_quantization
from nnef_grad.errors import (
    InvalidGraphError,
    UsageError,
    bounded_nesting,
    suggestion,
)
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.graph.printer import print_graph
from nnef_grad.graph.quantization import print_quantization
from nnef_grad.language.library import standard, with_fragments
from nnef_grad.language.parser import parse_document, parse_fragments
from nnef_grad.language.syntax import Document
from nnef_grad.source import Source, Span
from nnef_grad.storage.containers import GRAPH, QUANTIZATION, opened, quantization_path
from nnef_grad.storage.data import Declared, parts_of
from nnef_grad.storage.files import PathLike, read_source, write_texts
from nnef_grad.storage.output import ModelFormat, format_of, write_archive, write_folder
from nnef_grad.storage.parts import Part, Text
from nnef_grad.storage.paths import Steps

if TYPE_CHECKING:
    from nnef_grad.storage.data import Data

Shapes = Mapping[str, Sequence[int]]


def load(
    path: PathLike,
    *,
    input_shapes: Shapes | None = None,
    batch: int | None = None,
    expand: Sequence[str] = (),
    rules: Rules | None = None,
    lenient: bool = False,
) -> Graph:
    """Reads a graph, with its quantization info. The data of its variables are read by
    `load_data`.

    Args:
        path: a folder with a graph.nnef and maybe a graph.quant; an archive of such
            files, .tar or .tgz; or a text, x.nnef, with an x.quant beside it maybe.
            What it is counts, and not what it is called.
        input_shapes: shapes for external tensors, by name, in place of the declared
            ones; of the same rank.
        batch: the extent of dimension 0 of every external tensor, in place of the
            declared one.
        expand: compound operations of the standard to put the bodies of in their place;
            without it they stay as they are written.
        rules: rules of the user's own; they know the shapes of operations that the
            document declares without a body.
        lenient: whether what exporters are known to get wrong is repaired; what was done
            is told by the warnings of the graph.

    Returns:
        The flat graph, checked, with the shape of every tensor.

    Raises:
        NnefGradError: it cannot be read, or its text is not a valid graph.
    """
    container = opened(path)
    return from_source(
        container.graph(),
        input_shapes=input_shapes,
        batch=batch,
        expand=expand,
        rules=rules,
        lenient=lenient,
        quant=container.quantization(),
    )


def loads(
    text: str,
    *,
    name: str = "<string>",
    input_shapes: Shapes | None = None,
    batch: int | None = None,
    expand: Sequence[str] = (),
    rules: Rules | None = None,
    lenient: bool = False,
    quant: str | None = None,
) -> Graph:
    """Reads a graph from a text; `name` is what error messages call it, `quant` a text of
    quantization info. Otherwise as `load`.
    """
    return from_source(
        Source(name, text),
        input_shapes=input_shapes,
        batch=batch,
        expand=expand,
        rules=rules,
        lenient=lenient,
        quant=None if quant is None else Source(f"{name}.quant", quant),
    )


def dumps(graph: Graph | Backward) -> str:
    """The text of a graph: a flat document of NNEF 1.0."""
    return print_graph(_graph(graph))


def save(
    graph: Graph | Backward,
    path: PathLike,
    *,
    data: Data | None = None,
    partial: bool = False,
    overwrite: bool = True,
) -> None:
    """Writes a graph, with its quantization info, if it has any. What is written appears
    whole or not at all.

    Args:
        graph: what to write.
        path: an archive, by its ending: .tgz, .tar.gz or .tar; a folder, where there is
            one, or where the path ends with a slash or has no suffix; or a text.
        data: an array for each variable of the graph, by label, for a folder or an
            archive; those of other variables are not written. What `load_data` gives is
            not read: its files are shared or copied. Without it there are no data files.
        partial: whether variables that `data` has nothing for go without: somebody else
            is to give them theirs.
        overwrite: whether a file that exists is replaced, or a folder that holds a model
            and nothing else.

    Raises:
        NnefGradError: data are missing, or do not fit their variable; something exists
            and must not be replaced, or cannot be written.
    """
    graph = _graph(graph)
    form = format_of(path)
    if form is ModelFormat.TEXT:
        _save_text(graph, path, data, overwrite)
        return
    parts: dict[Steps, Part] = {(GRAPH,): Text(print_graph(graph))}
    if graph.quantization:
        parts[QUANTIZATION,] = Text(print_quantization(graph.quantization))
    if data is not None:
        parts |= parts_of(declared(graph), data, Path(path).parent, partial)
    write = write_folder if form is ModelFormat.FOLDER else write_archive
    write(path, parts, overwrite=overwrite)


def _save_text(
    graph: Graph, path: PathLike, data: Data | None, overwrite: bool
) -> None:
    if data is not None:
        message = f"'{path}' is a text, which has no data"
        raise UsageError(f"{message}: write a folder or an archive")
    texts = {Path(path): print_graph(graph)}
    beside = quantization_path(path)
    if graph.quantization or beside.exists():
        # Info that was left from another graph would be about tensors that are not here.
        texts[beside] = print_quantization(graph.quantization)
    write_texts(texts, overwrite=overwrite)


def declared(graph: Graph) -> list[Declared]:
    """The variables of a graph, for those who look for their data."""
    return [
        Declared(str(op.attributes["label"]), t.dtype, t.shape, op.span)
        for op in graph.operations
        if op.name == "variable"
        for t in op.outputs
    ]


def _graph(graph: Graph | Backward) -> Graph:
    return graph.graph if isinstance(graph, Backward) else graph


def from_source(
    source: Source,
    *,
    input_shapes: Shapes | None = None,
    batch: int | None = None,
    expand: Sequence[str] = (),
    rules: Rules | None = None,
    lenient: bool = False,
    quant: Source | None = None,
) -> Graph:
    """The checked flat graph of a source; see `load`."""
    with bounded_nesting(Span(source, 0, 0)):
        document = parse_document(source)
        wanted = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
        _refuse_unknown(document, wanted)
        _refuse_primitive(expand)
        rules = rules if rules is not None else Rules()
        graph = build_graph(
            document,
            rules.opset,
            shapes=lambda name, declared: _shape(name, declared, wanted, batch),
            compounds=expand,
            lenient=lenient,
        )
        rules.refuse_unknown(graph.declared)
        if quant is None:
            return graph
        entries = read_quantization(quant, graph, with_fragments(document.fragments))
        return replace(graph, quantization=entries)


def _refuse_unknown(document: Document, wanted: Mapping[str, Shape]) -> None:
    inputs = [p.name for p in document.graph.parameters]
    for name in wanted:
        if name not in inputs:
            near = suggestion(name, inputs)
            raise UsageError(f"the graph has no input '{name}'{near}")


def _refuse_primitive(expand: Sequence[str]) -> None:
    for name in expand:
        if name not in standard():
            near = suggestion(name, list(standard()))
            raise UsageError(f"the standard has no operation '{name}'{near}")
        if standard()[name].body is None:
            raise UsageError(f"'{name}' is a primitive operation: it has no body")


def _shape(
    name: str, declared: Shape, wanted: Mapping[str, Shape], batch: int | None
) -> Shape:
    shape = wanted.get(name, declared)
    if len(shape) != len(declared):
        message = (
            f"input '{name}' has rank {len(declared)},"
            f" and the shape {list(shape)} has rank {len(shape)}"
        )
        raise UsageError(message)
    if batch is not None and name not in wanted:
        shape = (batch, *shape[1:]) if shape else shape
    if any(extent < 1 for extent in shape) and shape != declared:
        message = (
            f"the extents of input '{name}' must be positive, and are {list(shape)}"
        )
        raise UsageError(message)
    return shape


# ---- Rules ----


def load_rules(path: PathLike) -> Rules:
    """The standard rules, and those of a file, which go first.

    The file is a list of fragments: `<operation>_vjp` for an operation of the standard, or
    for one that the file declares without a body; of the latter `<operation>_shape` too,
    which returns tensors of the shapes that the operation's results have.

    Raises:
        NnefGradError: the file cannot be read, is no list of fragments, or a rule does
            not fit its operation.
    """
    return _rules(read_source(path))


def loads_rules(text: str, *, name: str = "<string>") -> Rules:
    """As `load_rules`, from a text; `name` is what error messages call it."""
    return _rules(Source(name, text))


def _rules(source: Source) -> Rules:
    with bounded_nesting(Span(source, 0, 0)):
        fragments = parse_fragments(source)
        problems = check_rules(fragments)
    if problems:
        raise InvalidGraphError.collect(problems)
    return Rules(fragments)
