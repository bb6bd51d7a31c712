"""Expressions and invocations of a document of tract's dialect to values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import nan, prod
from typing import Any, NamedTuple, cast

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import InvalidGraphError, bugs_at, located, suggestion
from nnef_grad.base.source import Span
from nnef_grad.emit.bodies import LONGEST
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import NoValueError, Scope
from nnef_grad.frontends.reading import Reading
from nnef_grad.frontends.tract.library import REFUSED, TRACT_LIBRARY, builtin, idiom_of
from nnef_grad.frontends.values import is_known
from nnef_grad.frontends.view import View, entering
from nnef_grad.graph.extents import Dimension, OpenExtentError
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.learning import symbol_of
from nnef_grad.language import syntax
from nnef_grad.language.library import Joined, extended
from nnef_grad.language.types import LARGEST
from nnef_grad.storage.data import VariableData

# What expands operations, by their names: called with a view of one (view.py), and the arguments in
# declared order.
EXPANSIONS: dict[str, Callable[..., Any]] = {}
expansion = entering(EXPANSIONS)


def spelling(name: str) -> str:
    """A name as tract writes it without extended identifiers: with underscores."""
    plain = "".join(c if c.isalnum() else "_" for c in name)
    return plain if name[:1].isalpha() or name[:1] == "_" else f"_{plain}"


def symbol_names(symbols: Collection[str]) -> dict[str, str]:
    """The symbol that each name stands for: those of extension lines have other spellings
    elsewhere, unless two have the same.
    """
    spelled = Counter(map(spelling, symbols))
    one = (name for name in symbols if spelled[spelling(name)] == 1)
    return {spelling(n): n for n in one} | {n: n for n in symbols}


class Given(NamedTuple):
    """The knowledge of a reader beside the text: numbers of symbols, data of variables, the
    shapes and extents that the caller gives inputs, the compounds that are expanded, and
    the most steps of a loop that is not kept as one, and the names of quantized tensors.
    """

    symbols: Mapping[str, int]
    stored: VariableData | None
    shapes: Callable[[str, Shape], Shape]
    extents: Callable[[str, int], int | None]
    compounds: Collection[str] = ()
    unroll: int = LONGEST
    quantized: Collection[str] = ()


class DocumentReading(Reading):
    """Evaluates the expressions of a document.

    Attributes:
        numbers: the variables that were read as numbers.
        failed: the names whose statements have failed.
        datum_types: the data types of inputs that NNEF does not have, by their names.
        counted: the first of the numbers that are counted along an open axis.
    """

    def __init__(
        self,
        emitter: Emitter,
        document: syntax.Document,
        symbols: Mapping[str, int | None],
        given: Given,
    ) -> None:
        super().__init__(emitter, builtin(), given.compounds)
        self.document = document
        self.fragments = {f.name: f for f in document.fragments}
        # Its own go first, also where the standard has an operation of their name.
        declared = Joined(TRACT_LIBRARY, emitter.opset.declarations)
        self.scope_library = extended(document.fragments, declared)
        self.symbols = symbols
        self.symbol_names = symbol_names(symbols)
        self.given, self.unroll = given, given.unroll
        self.is_in_loop = False
        self.numbers: set[Tensor] = set()
        self.failed: set[str] = set()
        self.datum_types: dict[str, str] = {}
        self.counted: dict[Tensor, Dimension] = {}

    def _identifier(self, node: syntax.Identifier, scope: Scope, hint: str) -> Any:
        name = node.name
        if name in scope:
            return scope[name]
        if name in self.failed:
            raise NoValueError(name)
        if name in self.symbol_names:
            own = self.symbol_names[name]
            number = self.symbols[own]
            return symbol_of(own) if number is None else number
        if name == "inf":  # which NNEF cannot write
            return LARGEST
        if name == "NaN":  # which tract writes, and does not read
            return self.materialize(nan, "scalar", hint, self.place(node.span))
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
        """As in `Reading`; a fragment of the document is its body, or an idiom."""
        is_own = fragment is self.fragments.get(fragment.name)
        name = idiom_of(fragment) if is_own else None
        is_computed = name in EXPANSIONS and all(map(is_known, values.values()))
        if not is_own or fragment.body is None or is_computed:
            # From here on types are right, and what is evaluated is our own.
            with bugs_at(f"'{fragment.name}'", NoValueError):
                if fragment.name in EXPANSIONS:
                    view = View(self, fragment.name, hint, place, dtype)
                    return _expanded(view, fragment, values)
                return super()._invoke(fragment, values, dtype, hint, place)
        if name is None or name in (*self.compounds, *EXPANSIONS):
            return self.body(fragment, values, hint, place)
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
        """The numbers that a variable holds; None for another tensor."""
        y = self.emitter.made_by(tensor, "variable")
        if y is None or (tensor.rank > 1 and prod(tensor.shape) != 1):
            return None
        if (data := self.data_of(tensor)) is not None:
            return data.reshape(-1)
        label, is_alone = y.attributes["label"], self.given.stored is None
        message = f"the data of variable '{label}' is needed to read the document"
        advice = "read the folder or the archive with its data"
        raise InvalidGraphError(
            f"{message}: {advice if is_alone else 'there is none'}", span
        )

    def data_of(self, value: Any) -> Array | None:
        """The data of a variable; None for another value, and if there is no data."""
        if (data := self._stored(value)) is not None:
            self.numbers.add(value)
        return data

    def empty_rows(self, value: Any) -> list[int]:
        """As in `Reading`: the data may be beside the document."""
        data = self._stored(value)
        if data is None or data.ndim < 2 or data.dtype.kind != "f":
            return []
        return np.flatnonzero(~data.any(axis=tuple(range(1, data.ndim)))).tolist()

    def stored_type(self, label: str) -> str | None:
        """The data type of tract in which a variable is stored, if it is of floats."""
        stored = self.given.stored
        if stored is None or label not in stored:
            return None
        header = stored.header(label)
        return f"f{header.bits}" if header.items.name == "float" else None

    def _stored(self, value: Any) -> Array | None:
        is_tensor, stored = isinstance(value, Tensor), self.given.stored
        y = self.emitter.made_by(value, "variable") if is_tensor else None
        if y is None or stored is None or y.attributes["label"] not in stored:
            return None
        label = str(y.attributes["label"])
        if value.dtype == "integer":
            return stored.integers(label)
        # What codes mean is known when the graph is.
        has_codes = stored.header(label).items.is_quantized
        if has_codes or not stored.header(label).fits(value.shape):
            return None
        return np.asarray(stored[label]).reshape(value.shape)


def _expanded(view: View, fragment: syntax.Fragment, values: Mapping[str, Any]) -> Any:
    whole = {**fragment.defaults, **values}
    arguments = [whole[p.name] for p in fragment.parameters]
    with located(view.span):
        try:
            return EXPANSIONS[view.name](view, *arguments)
        except OpenExtentError as error:
            raise error.of(view.name, view.span) from None


def document(view: View) -> DocumentReading:
    """The reading of the document in which an operation stands."""
    return cast("DocumentReading", view.reading)
