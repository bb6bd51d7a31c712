"""Models: texts, folders and archives to graphs, and back."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules, check_rules
from nnef_grad.base.choices import Dialect
from nnef_grad.base.errors import (
    InvalidGraphError,
    UsageError,
    bounded_nesting,
    refuse_unknown,
)
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.bodies import LONGEST
from nnef_grad.emit.builder import build_graph
from nnef_grad.emit.quantization import read_quantization
from nnef_grad.frontends import TRACT, dialect_of
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.graph.printer import has_standard_text, print_graph, print_quantization
from nnef_grad.language.labels import label_key
from nnef_grad.language.library import STDLIB, with_fragments
from nnef_grad.language.parser import (
    parse_document,
    parse_fragments,
    parse_quantization,
)
from nnef_grad.language.syntax import Document
from nnef_grad.language.typecheck import identifiers
from nnef_grad.storage import containers, output
from nnef_grad.storage.containers import Container
from nnef_grad.storage.data import (
    Declared,
    SinglePrecision,
    VariableData,
    tensor_files,
    undeclared,
)
from nnef_grad.storage.files import Part, PathLike, Text, read_source, write_texts
from nnef_grad.storage.output import ModelFormat
from nnef_grad.storage.paths import Steps

if TYPE_CHECKING:
    from nnef_grad.storage.data import Data

Shapes = Mapping[str, Sequence[int]]


class Options(NamedTuple):
    """How a text is read; see `load`."""

    input_shapes: Shapes | None = None
    batch: int | None = None
    expand: Sequence[str] = ()
    rules: Rules | None = None
    lenient: bool = False
    dialect: Dialect | None = None
    symbols: Mapping[str, int] | None = None
    unroll: int = LONGEST
    constants: Mapping[str, Any] | None = None

    def extent(self, name: str, axis: int) -> int | None:
        """The extent that the caller gives an axis of an input, if it does."""
        shapes = self.input_shapes or {}
        if name in shapes:
            return dict(enumerate(shapes[name])).get(axis)
        return self.batch if axis == 0 else None

    def shape(self, name: str, declared: Shape) -> Shape:
        """The shape of an input."""
        shapes = self.input_shapes or {}
        shape = tuple(shapes.get(name, declared))
        if len(shape) != len(declared):
            wrong = f"the shape {list(shape)} has rank {len(shape)}"
            raise UsageError(f"input '{name}' has rank {len(declared)}, but {wrong}")
        if self.batch is not None and name not in shapes and shape:
            shape = (self.batch, *shape[1:])
        if shape != declared and any(extent < 1 for extent in shape):
            must = f"the extents of input '{name}' must be positive"
            raise UsageError(f"{must}, but are {list(shape)}")
        return shape


_USUAL = Options()


@public
def load(
    path: PathLike,
    *,
    input_shapes: Shapes | None = None,
    batch: int | None = None,
    expand: Sequence[str] = (),
    rules: Rules | None = None,
    lenient: bool = False,
    dialect: Dialect | None = None,
    symbols: Mapping[str, int] | None = None,
    unroll: int = LONGEST,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """Reads a graph, with its quantization info. `load_data` reads the data of its
    variables.

    Args:
        path: a folder with a graph.nnef and optionally a graph.quant; an archive of
            such files, .tar or .tgz; or a text, x.nnef, optionally with an x.quant
            beside it. The content, not the name, determines the format.
        input_shapes: shapes for external tensors, by name, instead of the declared
            ones; of the same rank.
        batch: the extent of axis 0 of every external tensor, instead of the declared
            one.
        expand: standard compound operations to replace by their bodies.
        rules: your own rules, with the shapes of operations that the document declares
            without a body.
        lenient: whether to repair exporters' known mistakes; the warnings of the graph
            list the repairs.
        dialect: 'nnef', the standard, or 'tract', the dialect of tract and
            torch-to-nnef, which becomes standard operations; by default, as the
            document's extension lines say.
        symbols: numbers for symbolic extents in tract's dialect.
        unroll: the most steps of a loop in tract's dialect to unroll. Longer loops stay
            loops, which ONNX and tract run.
        constants: arrays for inputs that become constants, by name, or a number for all
            elements of one. What follows from constants alone is computed here.

    Returns:
        The flat graph, checked, with the shape of every tensor.

    Raises:
        NnefGradError: it cannot be read, or its text is not a valid graph.
    """
    options = Options(
        input_shapes,
        batch,
        expand,
        rules,
        lenient,
        dialect,
        symbols,
        unroll,
        constants,
    )
    return from_container(containers.open_container(path), options)


def from_container(container: Container, options: Options = _USUAL) -> Graph:
    """The graph of an open container."""
    stored = VariableData(container)
    return from_source(container.graph(), container.quantization(), options, stored)


@public
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
    dialect: Dialect | None = None,
    symbols: Mapping[str, int] | None = None,
    unroll: int = LONGEST,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """Reads a graph from a string; `name` is its name in error messages, `quant` a
    string of quantization info. Otherwise as `load`.
    """
    options = Options(
        input_shapes,
        batch,
        expand,
        rules,
        lenient,
        dialect,
        symbols,
        unroll,
        constants,
    )
    info = None if quant is None else Source(f"{name}.quant", quant)
    return from_source(Source(name, text), info, options)


@public
def dumps(graph: Graph | Backward) -> str:
    """The text of a graph: a flat document of NNEF 1.0. What was read from a document in
    tract's dialect is in this dialect, with operations that tract has, as are loops and
    elements in order; `lower` makes it standard.
    """
    return _text(_for_reader(_graph(graph)))


@public
def save(
    graph: Graph | Backward,
    path: PathLike,
    *,
    data: Mapping[str, Any] | None = None,
    partial: bool = False,
    everything: bool = False,
    overwrite: bool = False,
) -> None:
    """Writes a graph, with its quantization info, if any. Writing is atomic: the output
    appears whole or not at all.

    Args:
        graph: the graph.
        path: an archive, by its suffix: .tgz, .tar.gz or .tar; a folder, if it exists
            as one, ends with a slash or has no suffix; otherwise a text.
        data: an array for each variable of the graph, by label, for a folder or an
            archive. Files from `load_data` are shared, or copied without being read.
            None writes no data files.
        partial: whether variables may have no data.
        everything: whether to write data under other labels too; of a ChainMap, only
            those of the first mapping. Otherwise they are ignored.
        overwrite: whether to replace an existing file, or a folder that holds a model
            and nothing else.

    Raises:
        NnefGradError: data are missing or do not fit their variable, or the output
            exists and must not be replaced, or cannot be written.
    """
    graph = _for_reader(_graph(graph))
    if output.format_of(path) is ModelFormat.TEXT:
        _save_text(graph, path, data, overwrite)
        return
    if graph.dialect and data is not None:
        graph, data = as_stored(graph, data)
    declared = declared_variables(graph)
    parts = _parts(texts_of(graph), declared, data, partial, everything)
    output.write_stored(path, parts, overwrite=overwrite)


def save_source(
    path: PathLike,
    source: Source,
    quantization: Source | None,
    data: Data,
    *,
    overwrite: bool = False,
) -> None:
    """Writes a folder or an archive with the texts of a model as they are, and an array
    for each variable, by label; otherwise as `save`.
    """
    output.refuse_text(path)
    info = None if quantization is None else quantization.text
    declared = declared_variables(from_source(source, quantization))
    parts = _parts((source.text, info), declared, data)
    output.write_stored(path, parts, overwrite=overwrite)


def save_several(
    models: Mapping[str, tuple[Graph, Data]], path: PathLike, *, overwrite: bool = False
) -> None:
    """Writes several graphs, with all their data, as one folder or archive, atomically.

    Args:
        models: the graphs and their data, by the subfolders that they are in; '' is the
            folder itself. Of the mappings of a ChainMap the first is written as a whole,
            and of the others what is declared.
        path: the folder or the archive, as in `save`.
        overwrite: whether to replace what is there.

    Raises:
        NnefGradError: as `save`.
    """
    if output.format_of(path) is ModelFormat.TEXT:
        message = f"'{path}' is one text, and these are {len(models)}"
        raise UsageError(f"{message}: write a folder or an archive")
    parts: dict[Steps, Part] = {}
    for folder, (graph, data) in models.items():
        declared = declared_variables(graph)
        own = _parts(texts_of(graph), declared, data, everything=True)
        for steps, part in own.items():
            place = (*filter(None, [folder]), *steps)
            if place in parts:
                message = f"'{'/'.join(place)}' would be two files"
                raise UsageError(f"{message}: give a variable another label")
            parts[place] = part
    output.write_stored(path, parts, overwrite=overwrite)


def _parts(
    texts: tuple[str, str | None],
    declared: list[Declared],
    data: Data | None,
    partial: bool = False,
    everything: bool = False,
) -> dict[Steps, Part]:
    """The files of a model: of its texts, and of the data of its variables."""
    names = (containers.GRAPH, containers.QUANTIZATION)
    pairs = zip(names, texts, strict=True)
    parts: dict[Steps, Part] = {(n,): Text(text) for n, text in pairs if text}
    if data is not None and everything:
        whole = data.maps[0] if isinstance(data, ChainMap) else data
        declared = [*declared, *undeclared(declared, whole)]
    if data is not None:
        parts |= tensor_files(declared, data, partial)
    return parts


def texts_of(graph: Graph) -> tuple[str, str | None]:
    """The text of a graph, and that of its quantization info, if it has any."""
    entries = graph.quantization
    return _text(graph), print_quantization(entries) if entries else None


def _save_text(
    graph: Graph, path: PathLike, data: Data | None, overwrite: bool
) -> None:
    if data is not None:
        output.refuse_text(path)
    texts = {Path(path): _text(graph)}
    beside = containers.quantization_path(path)
    if graph.quantization or beside.exists():
        # Old info would be about the tensors of another graph.
        texts[beside] = print_quantization(graph.quantization)
    write_texts(texts, overwrite=overwrite)


def _text(graph: Graph) -> str:
    """The text of a graph, which `load` reads as that graph.

    Raises:
        UsageError: the graph has no input, which NNEF requires. A step that uses sums
            of gradients with a fixed learning rate has none.
    """
    if not graph.inputs:
        message = f"graph '{graph.name}' has no input, which NNEF requires"
        is_step = any(op.name == "update" for op in graph.operations)
        advice = ": without a fixed learning rate, a step that uses sums has one"
        raise UsageError(message + advice if is_step else message)
    if has_standard_text(graph):
        return print_graph(graph)
    # Importing the lowerings takes longer than compiling.
    from nnef_grad.targets.tract.dialect import print_in_dialect

    return print_in_dialect(graph)


def _for_reader(graph: Graph) -> Graph:
    """A graph that was read from a document of tract, as tract has it."""
    if graph.dialect != TRACT:
        return graph
    # Importing the lowerings takes longer than compiling.
    from nnef_grad.targets.tract.rewriting import for_its_reader

    return for_its_reader(graph)


def as_stored(graph: Graph, stored: Data) -> tuple[Graph, Data]:
    """A graph that was lowered for tract, for the numbers of its variables as they are
    stored, and these: other targets have them in single precision.
    """
    # Importing the lowerings takes longer than compiling.
    from nnef_grad.targets.tract.precision import cast_variables

    single = SinglePrecision(stored, declared_variables(graph))  # type: ignore[arg-type]
    made = cast_variables(graph, {*single, *single.codes}, single.blocks)
    if not isinstance(stored, VariableData):
        return made, stored
    codes = {
        n: replace(stored.meanings[label_key(label)], tensor=n)
        for n, label in made.labels.items()
        if label in single.codes and label_key(label) in stored.meanings
    }
    made = replace(made, quantization={**made.quantization, **codes})
    return made, stored.with_blocks


def declared_variables(graph: Graph) -> list[Declared]:
    """The variables that a graph declares, to look up their data."""
    return [
        Declared(str(op.attributes["label"]), t.dtype, t.shape, op.span)
        for op in graph.operations
        if op.name == "variable"
        for t in op.outputs
    ]


def _graph(graph: Graph | Backward) -> Graph:
    return graph.graph if isinstance(graph, Backward) else graph


@collector_paused()
def from_source(
    source: Source,
    quantization: Source | None = None,
    options: Options = _USUAL,
    stored: VariableData | None = None,
) -> Graph:
    """The graph of a source; `stored` are data for dialects that compute with them."""
    with bounded_nesting(Span(source, 0, 0)):
        for name in options.expand:
            refuse_unknown([name], STDLIB, "the standard has no operation")
            if STDLIB[name].body is None:
                raise UsageError(f"'{name}' is a primitive operation: it has no body")
        rules = options.rules if options.rules is not None else Rules()
        if dialect_of(source, options.dialect) == TRACT:
            from nnef_grad.frontends.tract.evaluation import Given
            from nnef_grad.frontends.tract.reading import read_graph

            given = Given(
                options.symbols or {},
                stored,
                options.shape,
                options.extent,
                {*options.expand},
                options.unroll,
                _quantized(quantization),
            )
            graph, document = read_graph(source, rules.opset, given)
            graph = replace(graph, dialect=TRACT)
            _refuse_unknown_inputs(document, options)
        else:
            document = parse_document(source)
            _refuse_unknown_inputs(document, options)
            for name in options.symbols or ():
                message = f"a standard document has no symbols, but '{name}' is given"
                raise UsageError(message)
            graph = build_graph(
                document,
                rules.opset,
                shapes=options.shape,
                compounds=options.expand,
                lenient=options.lenient,
            )
        rules.refuse_unknown(graph.declared)
        if stored is not None:
            stored.refuse_twins(graph.labels.values())
        if quantization is not None:
            library = with_fragments(document.fragments)
            assigned = document.graph.body if graph.dialect == TRACT else ()
            numbers = {i.name for s in assigned for i in identifiers(s.target)}
            entries = read_quantization(quantization, graph, library, numbers)
            graph = replace(graph, quantization=entries)
        if not options.constants:
            return graph
        # Importing numpy takes longer than compiling.
        from nnef_grad.frontends.constants import with_constants

        return with_constants(graph, options.constants, rules.opset)


def _quantized(info: Source | None) -> set[str]:
    """The names of the tensors that quantization info is about."""
    if info is None:
        return set()
    return {x.tensor for x in parse_quantization(info, extended=True)}


def _refuse_unknown_inputs(document: Document, options: Options) -> None:
    inputs = [p.name for p in document.graph.parameters]
    named = (*(options.input_shapes or ()), *(options.constants or ()))
    refuse_unknown(named, inputs, "the graph has no input")


# ---- Rules ----


@public
def load_rules(path: PathLike) -> Rules:
    """The standard rules, and those of a file, which take precedence.

    The file is a list of fragments: `<operation>_vjp` for a standard operation, or for
    one that the file declares without a body; for the latter also `<operation>_shape`,
    which returns tensors of the result shapes.

    Raises:
        NnefGradError: the file cannot be read, is not a list of fragments, or a rule
            does not fit its operation.
    """
    return _rules(read_source(path))


@public
def loads_rules(text: str, *, name: str = "<string>") -> Rules:
    """As `load_rules`, from a string; `name` is its name in error messages."""
    return _rules(Source(name, text))


def _rules(source: Source) -> Rules:
    with bounded_nesting(Span(source, 0, 0)):
        fragments = parse_fragments(source)
        problems = check_rules(fragments)
    if problems:
        raise InvalidGraphError.collect(problems)
    return Rules(fragments)
