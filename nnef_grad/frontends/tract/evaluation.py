"""Expressions and invocations of a document of tract's dialect to values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from nnef_grad.base.errors import InvalidGraphError, suggestion
from nnef_grad.base.source import Span
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import NoValueError, Scope
from nnef_grad.emit.loops import LONGEST
from nnef_grad.frontends.reading import EXPANSIONS, Reading
from nnef_grad.frontends.step import Step
from nnef_grad.frontends.tract.library import REFUSED, builtin, idiom_of, own_library
from nnef_grad.frontends.values import LARGEST, Array, as_array, is_known
from nnef_grad.graph.extents import symbol
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.language import syntax


class Stored(Protocol):
    """The data of variables, by label."""

    def __contains__(self, label: object) -> bool: ...
    def __getitem__(self, label: str) -> Any: ...
    def header(self, label: str) -> Any:
        """The type and shape of the data."""


class Given(NamedTuple):
    """The knowledge of a reader beside the text.

    Attributes:
        symbols: the numbers of symbols.
        stored: the data of the variables, if there are any.
        shapes: gives the shape of an external from its name and its declared shape.
        extents: the extents that the caller gives an external, by its name and axis;
            None where it gives none.
        compounds: the standard operations whose bodies are put in their place.
        unroll: how many steps a loop may have at most that is not kept as a loop.
    """

    symbols: Mapping[str, int]
    stored: Stored | None
    shapes: Callable[[str, Shape], Shape]
    extents: Callable[[str, int], int | None]
    compounds: Collection[str] = ()
    unroll: int = LONGEST


class DocumentReading(Reading):
    """Evaluates the expressions of a document.

    Attributes:
        symbols: the numbers of symbols; None for one that has none.
        given: what is known beside the text.
        is_in_loop: whether the body of a loop is read.
        numbers: the variables that were read as numbers.
        failed: the names whose statements have failed.
    """

    def __init__(
        self,
        emitter: Emitter,
        document: syntax.Document,
        symbols: Mapping[str, int | None],
        given: Given,
    ) -> None:
        super().__init__(emitter, builtin(), given.compounds)
        self.fragments = {f.name: f for f in document.fragments}
        self.scope_library = own_library(document.fragments, emitter.opset.declarations)
        self.symbols = symbols
        self.given = given
        self.is_in_loop = False
        self.numbers: set[Tensor] = set()
        self.failed: set[str] = set()

    def _identifier(self, node: syntax.Identifier, scope: Scope, hint: str) -> Any:
        name = node.name
        if name in scope:
            return scope[name]
        if name in self.failed:
            raise NoValueError(name)
        if name in self.symbols:
            number = self.symbols[name]
            return symbol(name) if number is None else number
        if name == "inf":  # which NNEF cannot write
            return LARGEST
        near = suggestion(name, [*scope, *self.symbols])
        raise InvalidGraphError(f"'{name}' is not defined{near}", self.place(node.span))

    def _declaration(self, node: syntax.Invocation) -> syntax.Fragment:
        name = node.name
        if name in REFUSED and name not in self.scope_library:
            message = f"'{name}' is not supported: {REFUSED[name]}"
            raise InvalidGraphError(message, self.place(node.span))
        return super()._declaration(node)

    def _invoke(
        self,
        fragment: syntax.Fragment,
        values: Mapping[str, Any],
        dtype: str | None,
        hint: str,
        place: Span,
    ) -> Any:
        if fragment is self.fragments.get(fragment.name) and fragment.body is not None:
            return self._own(fragment, values, hint, place)
        return super()._invoke(fragment, values, dtype, hint, place)

    def _own(
        self,
        fragment: syntax.Fragment,
        values: Mapping[str, Any],
        hint: str,
        place: Span,
    ) -> Any:
        """The results of a fragment of the document."""
        name = idiom_of(fragment)
        if name in EXPANSIONS and all(map(is_known, values.values())):
            return super()._invoke(fragment, values, None, hint, place)
        if name is None or name in (*self.compounds, *EXPANSIONS):
            return self._body(fragment, values, hint, place)
        whole = {**fragment.defaults, **values}
        operands = [whole[p.name] for p in fragment.operands]
        attributes = {p.name: whole[p.name] for p in fragment.attributes}
        return self.standard(name, operands, attributes, None, hint, place)

    @contextmanager
    def in_loop(self) -> Iterator[None]:
        """Reads the body of a loop for a while."""
        outer, self.is_in_loop = self.is_in_loop, True
        try:
            yield
        finally:
            self.is_in_loop = outer

    # ---- Numbers ----

    def numbers_of(self, tensor: Tensor, span: Span) -> Array | None:
        """The numbers that a variable holds; None for another tensor.

        Raises:
            InvalidGraphError: the document has no data.
        """
        label = self._label(tensor)
        is_list = len(tensor.shape) <= 1 or np.prod(tensor.shape) == 1
        if label is None or not is_list:
            return None
        data = self.data_of(tensor)
        if data is None:
            message = f"the data of variable '{label}' is needed to read the document"
            advice = "read the folder or the archive with its data"
            found = advice if self.given.stored is None else "there is none"
            raise InvalidGraphError(f"{message}: {found}", span)
        return data.reshape(-1)

    def data_of(self, value: Any) -> Array | None:
        """The data of a variable; None for another value, and if there is no data."""
        found = self._stored(value)
        if found is not None:
            self.numbers.add(value)
        return found

    def empty_rows(self, value: Any) -> list[int]:
        """As in `Reading`: the data may be beside the document."""
        found = self._stored(value)
        if found is None or found.ndim < 2 or found.dtype.kind != "f":
            return []
        filled = found.reshape(len(found), -1).any(axis=1)
        return [int(row) for row in np.flatnonzero(~filled)]

    def _stored(self, value: Any) -> Array | None:
        label = self._label(value)
        if label is None or self.given.stored is None or label not in self.given.stored:
            return None
        return as_array(self.given.stored[label])

    def _label(self, value: Any) -> str | None:
        made = self.emitter.producer(value) if isinstance(value, Tensor) else None
        is_variable = made is not None and made.name == "variable"
        return str(made.attributes["label"]) if made and is_variable else None


def document(step: Step) -> DocumentReading:
    """The reading of the document in which an operation stands."""
    return cast("DocumentReading", step.reading)
