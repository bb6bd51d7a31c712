"""Reads a model of any format: its values (values.py), and its operations as operations of
the standard, which are emitted, or computed where their operands are known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import copysign, isinf, isnan, prod
from typing import Any

import numpy as np

from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import InvalidGraphError, Problem, located, suggestion
from nnef_grad.base.source import NOWHERE, Span
from nnef_grad.emit.arguments import bind, freeze
from nnef_grad.emit.arithmetic import MAX_ITEMS, compute
from nnef_grad.emit.bodies import LONGEST
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import VISIT, Evaluator, Scope
from nnef_grad.frontends.arguments import fit, match
from nnef_grad.frontends.folding import EXACT_OF_EXTENTS, FRACTIONS, WHOLE, as_int, fold
from nnef_grad.frontends.values import (
    common_dtype,
    converted,
    dtype_of,
    is_known,
    is_open,
    is_uniform,
    items_of,
    shape_of,
    simple,
)
from nnef_grad.graph.extents import Dimension, Extent, OpenExtentError, has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.stops import says_stop, stop_definition
from nnef_grad.language import syntax
from nnef_grad.language.library import STDLIB, Library
from nnef_grad.language.syntax import Fragment
from nnef_grad.language.typecheck import identifiers
from nnef_grad.language.types import GENERIC, LARGEST, OPERATIONS, ArrayType, TensorType
from nnef_grad.ops.orders import DECLARED
from nnef_grad.ops.ranges import EXACT, Range
from nnef_grad.ops.shape import number, reshaped
from nnef_grad.ops.traits import FED

# The most elements that are computed while a model is read: of a document, or of a file of no
# size; and how many more for each element that a file has.
MOST_WORK = 100_000_000
WORK_PER_ELEMENT = 30

# The arguments of an operation, by the names of its parameters.
Values = Mapping[str, Any]


class Reading(Evaluator):
    """Evaluates what a model computes: bodies of fragments, and what front ends expand.

    Attributes:
        emitter: emits the operations.
        builtin: the fragments that expansions, and each other, may use.
        fragments: those of the model itself, by name.
        compounds: the standard operations whose bodies are put in their place.
        warnings: what was ignored, or may mean something else.
        sizes: how far from zero some integers are at most, of which no range tells that.
        whole: the extents that scalars are, where they were converted from these.
        unroll: the most steps of a loop that are put one after the other.
    """

    def __init__(
        self, emitter: Emitter, builtin: Library, compounds: Collection[str] = ()
    ) -> None:
        super().__init__(emitter)
        self.builtin = self.scope_library = builtin
        self.fragments: Mapping[str, Fragment] = {}
        self.compounds = compounds
        self.warnings: list[Problem] = []
        self.sizes, self.whole = dict[Tensor, float](), dict[Tensor, Any]()
        self.work, self.most_work, self.unroll = 0, MOST_WORK, LONGEST
        self._ranges: dict[Emitter, Ranges] = {}

    def spend(self, work: Dimension) -> None:
        """Counts elements before they are computed, and refuses too many."""
        self.work += work
        if self.work > self.most_work:
            what = "what is computed while the model is read comes to more than"
            raise InvalidGraphError(f"{what} {self.most_work:,} elements")

    def numbers_of(self, tensor: Tensor, span: Span) -> Array | None:
        """The numbers that a tensor has whatever the model is fed; None if it has none."""
        return None

    def empty_rows(self, value: Any) -> list[int]:
        """The rows of a variable that have only zeros, as far as its data are known."""
        return []

    def range_of(self, value: Any) -> Range:
        """The range of a tensor, or of a literal."""
        own = self._ranges.setdefault(self.emitter, Ranges(self.emitter.producers))
        return own.of(value)

    # ---- Expressions ----

    def evaluate(self, expression: syntax.Expression, scope: Scope, hint: str) -> Any:
        """The value of an expression, which may be one of numpy's arrays."""
        return _OWN_VISIT[type(expression)](self, expression, scope, hint)

    def _operator(self, node: syntax.Operator, scope: Scope, hint: str) -> Any:
        values = [self._part(operand, scope, hint) for operand in node.operands]
        if any(isinstance(value, (Tensor, np.ndarray)) for value in values):
            name = OPERATIONS[node.symbol, len(values)]
            return self.standard(name, values, {}, None, hint, node.span)
        if {*map(type, values)} in ({int, float}, {Extent, float}):
            values = list(map(float, values))
        return compute(node.symbol, values, node.span)

    def _subscript(self, node: syntax.Subscript, scope: Scope, hint: str) -> Any:
        """As in `Evaluator`; an item of an array is a number of Python."""
        item = super()._subscript(node, scope, hint)
        return item.item() if isinstance(item, np.generic) else item

    # ---- Invocations ----

    def _invocation(
        self,
        node: syntax.Invocation,
        scope: Scope,
        hint: str,
    ) -> Any:
        fragment = self._declaration(node)
        given, ignored = match(fragment, node)
        for keyword in ignored:
            message = f"'{node.name}' has no parameter '{keyword.name}': it is ignored"
            self.warnings.append(Problem(message, self.place(keyword.span)))
        values = {n: self._part(a, scope, hint) for n, a in given.items()}
        places = {n: self.place(a.span) for n, a in given.items()}
        place = self.place(node.span)
        self._count(place)
        is_own = fragment is self.fragments.get(fragment.name)
        is_loose = is_own and fragment.body is not None
        fitted = fit(fragment, values, places, self.numbers_of, is_loose=is_loose)
        return self._invoke(fragment, fitted, node.dtype, hint, place)

    def _declaration(self, node: syntax.Invocation) -> Fragment:
        name, library = node.name, self.scope_library
        if name in library:
            return library[name]
        near = suggestion(name, list(library))
        raise InvalidGraphError(
            f"there is no operation '{name}'{near}", self.place(node.span)
        )

    def _invoke(
        self,
        fragment: Fragment,
        values: Values,
        dtype: str | None,
        hint: str,
        place: Span,
    ) -> Any:
        """The results of an operation of the libraries."""
        is_whole = fragment.name in STDLIB and fragment.name not in self.compounds
        if fragment.body is not None and not is_whole:
            return self.body(fragment, values, hint, place)
        return self._emit(fragment, values, dtype, hint, place)

    def body(self, fragment: Fragment, values: Values, hint: str, place: Span) -> Any:
        """The results of a fragment, which is replaced by its body."""
        naming = self.naming_of(fragment, hint)
        results = tuple(self.results_of(fragment, values, naming, place).values())
        return results[0] if len(results) == 1 else results

    @staticmethod
    def naming_of(fragment: Fragment, hint: str) -> Callable[[str], str]:
        """Names for the values of a body that is expanded."""
        own = fragment.results[0].name if len(fragment.results) == 1 else None
        return lambda name: hint if name == own else f"{hint}_{name}"

    def results_of(
        self,
        fragment: Fragment,
        values: Values,
        naming: Callable[[str], str],
        place: Span,
    ) -> dict[str, Any]:
        """The results of the body of a fragment, by name; `naming` names its values."""
        _check_results(fragment, place)
        outer = self.scope_library
        if fragment is not self.fragments.get(fragment.name):
            self.scope_library = self.builtin
        try:
            given = {**fragment.defaults, **values}
            return self.instantiate(fragment, given, naming, place)
        finally:
            self.scope_library = outer

    @contextmanager
    def emitting(self, emitter: Emitter) -> Iterator[None]:
        """Emits to another graph for a while."""
        outer, self.emitter = self.emitter, emitter
        try:
            yield
        finally:
            self.emitter = outer

    # ---- What operations become ----

    def converted(self, x: Any, dtype: str, hint: str, span: Span) -> Any:
        """A value as one of a data type; scalars are truncated to integers."""
        if is_known(x):
            # Whether an open extent is zero may not be known.
            with suppress(OpenExtentError):
                if not (is_open(x) and dtype == "scalar"):
                    return simple(converted(x, dtype))
            made = self.materialize(x, dtype, hint, span)
            self.whole[made] = x
            return made
        if dtype == "integer" and x in self.whole:
            return self.whole[x]
        if (x.dtype, dtype) == ("scalar", "integer"):
            return self.library("truncate", [x], {}, hint, span)
        return self.cast(x, dtype, hint, span)

    def standard(
        self,
        name: str,
        operands: Sequence[Any],
        attributes: Values,
        dtype: str | None,
        hint: str,
        span: Span,
    ) -> Any:
        """The result of an operation that graphs have; operands are in declared order."""
        fragment = DECLARED[name]
        names = (p.name for p in fragment.operands)
        values = {**dict(zip(names, operands, strict=False)), **attributes}
        return self._emit(fragment, values, dtype, hint, self.place(span))

    def library(
        self,
        name: str,
        operands: Sequence[Any],
        attributes: Values,
        hint: str,
        span: Span,
    ) -> Any:
        """The results of a fragment that front ends share, or of the format's own."""
        fragment = self.builtin[name]
        names = (p.name for p in fragment.parameters)
        values = {**dict(zip(names, operands, strict=False)), **attributes}
        return self.body(fragment, values, hint, span)

    def _emit(
        self,
        fragment: Fragment,
        values: Values,
        dtype: str | None,
        hint: str,
        place: Span,
    ) -> Any:
        """Emits an operation as it is, or computes it if all its operands are known."""
        values = _with_axes(fragment, values)
        if fragment.name == "copy" and says_stop(hint):
            fragment = stop_definition()
        operands = [values[p.name] for p in fragment.operands if p.name in values]
        generic = dtype
        if generic is None and fragment.deduces_dtype:
            generic = common_dtype(
                values[p.name]
                for p in fragment.generic_parameters
                if p.name in values and p in fragment.operands
            )
        is_computed = operands and all(map(is_known, operands))
        # Attributes may have symbols that no operand has, as the shape of the result.
        settings = (values[p.name] for p in fragment.attributes if p.name in values)
        is_closed = not any(has_symbols(freeze(value)) for value in settings)
        if is_computed and is_closed and fragment.name in DECLARED:
            with located(place):
                results = fold(fragment, values, generic, self.spend)
            return results[0] if len(results) == 1 else results
        given = dict(values)
        for p in fragment.operands:
            if p.name in given:
                word = f"{hint}_{p.name}"
                given[p.name] = self._operand(
                    p.type, given[p.name], generic, word, place
                )
        given = {name: _literal(fragment, x, place) for name, x in given.items()}
        call = bind(fragment, given, None if fragment.deduces_dtype else generic)
        names = tuple(f"{hint}_{r.name}" for r in fragment.results)
        hints = (hint,) if len(names) == 1 else names
        results = self.emitter.emit_op(call, hints=hints, span=place)
        if fragment.name in EXACT_OF_EXTENTS:
            self._note_extents(fragment, operands, results[0])
        parts: list[Any] = [list(r) if isinstance(r, tuple) else r for r in results]
        if fragment.name in WHOLE and all(map(_is_whole, operands)):
            self._warn_of_digits(fragment.name, operands, hint, place)
            # Of integers, which NNEF computes in scalars.
            if fragment.name in FRACTIONS:
                return self.library("truncate", parts, {}, hint, place)
            return self.cast(parts[0], "integer", hint, place)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _note_extents(
        self, fragment: Fragment, operands: Sequence[Any], made: Any
    ) -> None:
        """Keeps the extents that scalars are, of which exporters ask for the greater one."""
        given = [*map(self._as_extents, operands)] if self.whole else []
        if is_open(given) and all(map(is_known, given)):
            values = {p.name: x for p, x in zip(fragment.operands, given, strict=True)}
            with suppress(OpenExtentError):
                (self.whole[made],) = fold(fragment, values, None, self.spend)

    def _as_extents(self, value: Any) -> Any:
        """The known value of an operand of scalars, as integers where it is whole."""
        if isinstance(value, Tensor):
            if value in self.whole:
                return self.whole[value]
            numbers = self.numbers_of(value, NOWHERE)
            value = value if numbers is None else numbers
        return value if isinstance(value, Tensor) else as_int(value)

    def _warn_of_digits(
        self, name: str, operands: Sequence[Any], hint: str, place: Span
    ) -> None:
        """Warns of integers that may be too large for the scalars that compute them."""
        if self.integer_size(name, operands) >= EXACT:
            what = f"'{hint}' is an integer that is computed in single precision"
            message = f"{what}: beyond 2^24 it loses digits, except in an ONNX file"
            self.warnings.append(Problem(message, place, "onnx"))

    def integer_size(self, name: str, operands: Sequence[Any]) -> float:
        """How far from zero a sum or product of integers may be, as far as that is known."""
        sizes = [*map(self._size, operands)] if name in ("add", "sub", "mul") else [0]
        return prod(sizes) if name == "mul" else sum(sizes)

    def _size(self, value: Any) -> float:
        """How far from zero integers may be, as far as that is known."""
        if is_known(value):
            return 0 if is_open(value) else float(np.max(np.abs(value), initial=0))
        return self.sizes.get(value) or self.range_of(value).integer_size

    def _operand(
        self, type_: Any, value: Any, generic: str | None, hint: str, place: Span
    ) -> Any:
        if isinstance(type_, ArrayType):
            return [
                self._operand(type_.item, item, generic, hint, place) for item in value
            ]
        assert isinstance(type_, TensorType)
        dtype = generic if type_.dtype == GENERIC else type_.dtype
        return self.materialize(value, dtype or dtype_of(value), hint, place)

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """A value as an operand of a data type: a tensor or a literal."""
        if isinstance(value, Tensor):
            return self.cast(value, dtype, hint, span)
        if is_open(value):
            numbers = self._numbers(np.asarray(value))
            return self.cast(numbers, dtype, hint, span)
        array = converted(value, dtype)
        if array.dtype.kind == "f" and (holes := np.isnan(array)).any():
            return self._with_holes(array, holes, hint, span)
        _refuse_unwritten(array, span)
        if not array.ndim:
            return simple(array)
        items = array.reshape(-1)[: 1 if is_uniform(array) else None]
        if items.size > MAX_ITEMS:
            message = f"a constant has {items.size} items, and at most {MAX_ITEMS}"
            raise InvalidGraphError(message, span)
        attributes = {"shape": list(array.shape), "value": items.tolist()}
        return self._emit(STDLIB["constant"], attributes, dtype, hint, span)

    def _with_holes(self, array: Array, holes: Array, hint: str, span: Span) -> Tensor:
        """Numbers some of which are NaN, which has no literal in NNEF: a square root is."""
        is_all = bool(holes.all())
        below = self.materialize(
            np.full(array.shape if is_all else (), -1.0), "scalar", hint, span
        )
        nan: Tensor = self.emitter("sqrt", below, hint=hint if is_all else "nan")
        if is_all:
            return nan
        where = self.materialize(holes, "logical", "holes", span)
        numbers = np.where(holes, 0.0, array)
        chosen: Tensor = self.standard(
            "select", [where, nan, numbers], {}, None, hint, span
        )
        return chosen

    def _numbers(self, extents: Any) -> Any:
        """Extents with symbols as scalars."""
        emit = self.emitter
        numbers = [number(emit, extent) for extent in extents.flat]
        if not extents.ndim:
            return numbers[0]
        items = [emit("unsqueeze", item, axes=[0], hint="item") for item in numbers]
        row = emit("concat", items, axis=0, hint="numbers")
        return reshaped(emit, row, extents.shape)

    def cast(self, x: Tensor, dtype: str, hint: str, span: Span) -> Any:
        """A tensor as one of another data type. Whole numbers stay what they are."""
        if x.dtype == dtype:
            return x
        if dtype == "logical":
            number = self.cast(x, "scalar", hint, span)
            return self.standard("ne", [number, 0.0], {}, None, hint, span)
        if (x.dtype, dtype) == ("logical", "scalar"):
            return self.standard("select", [x, 1.0, 0.0], {}, None, hint, span)
        if x.dtype == "logical":
            x = self.cast(x, "scalar", hint, span)
        call = bind(STDLIB["cast"], {"input": x}, dtype)
        (result,) = self.emitter.emit_op(call, hints=(hint,), span=span)
        return result

    def returned(self, value: Any, name: str) -> Tensor:
        """A value as an output of this name: it is no input, and is returned once."""
        tensor = self.materialize(value, dtype_of(value), name, NOWHERE)
        producer, emitter = self.emitter.producer(tensor), self.emitter
        is_own = producer is not None and producer.name not in FED
        if is_own and tensor not in emitter.names:
            return emitter.pin_name(tensor, name)
        return emitter.emit_named(name, "copy", x=tensor)

    def place(self, span: Span) -> Span:
        """The place of a part of the body that is expanded, with its caller."""
        if self.caller is None or span.caller is not None:
            return span
        return span._replace(caller=self.caller)


class Later:
    """A value that is made when it is first needed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._value = cache(make)

    def __call__(self) -> Any:
        """The value."""
        return self._value()


_OWN_VISIT: dict[type, Callable[..., Any]] = {
    **VISIT,
    syntax.Identifier: lambda reading, *args: reading._identifier(*args),
    syntax.Operator: Reading._operator,
    syntax.Subscript: Reading._subscript,
    syntax.Invocation: lambda reading, *args: reading._invocation(*args),
}


def _with_axes(fragment: Fragment, values: Values) -> Mapping[str, Any]:
    """The arguments of an operation, with axes that are counted from the beginning."""
    axes = values.get("axes", [])
    if fragment.name == "unsqueeze" or min(axes, default=0) >= 0:
        return values
    rank = len(shape_of(values[fragment.operands[0].name]))
    counted = [axis + rank if -rank <= axis < 0 else axis for axis in axes]
    return {**values, "axes": counted}


def _refuse_unwritten(numbers: Array, place: Span) -> None:
    """Refuses numbers that no text of NNEF has, and no reader would take."""
    if numbers.dtype.kind == "i" and (numbers != numbers.astype(np.int32)).any():
        raise InvalidGraphError("an integer of the graph has more than 32 bits", place)


_NO_NUMBER = "what is not a number has no literal in NNEF"


def _literal(fragment: Fragment, value: Any, place: Span) -> Any:
    """An argument that NNEF can write."""
    numbers = [x for x in items_of(value) if isinstance(x, float)]
    if any(map(isnan, numbers)):
        message = f"'{fragment.name}' would read 'nan': {_NO_NUMBER}"
        raise InvalidGraphError(message, place)
    is_infinite = isinstance(value, float) and isinf(value)
    return copysign(LARGEST, value) if is_infinite else value


def _is_whole(value: Any) -> bool:
    return not isinstance(value, list) and dtype_of(value) == "integer"


def _check_results(fragment: Fragment, place: Span) -> None:
    """Refuses a body that does not assign its results."""
    if fragment.body is None:
        message = f"'{fragment.name}' has no body, and no rule gives its shape"
        raise InvalidGraphError(message, place)
    assigned = {i.name for s in fragment.body for i in identifiers(s.target)}
    for result in fragment.results:
        if (name := result.name) not in assigned:
            raise InvalidGraphError(f"result '{name}' is not assigned", result.span)
