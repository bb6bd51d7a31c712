"""The data types that the results of a document have in tract. A graph computes in one
precision; who runs what is written of it gets the types of the document.

tract computes with operands of two types in the wider one, whatever a constant's is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nnef_grad.frontends.tract.operations.inputs import DTYPES
from nnef_grad.language import syntax
from nnef_grad.language.library import Library
from nnef_grad.language.typecheck import identifiers
from nnef_grad.language.types import ArrayType, TensorType

# The attributes that say the type of a result.
_SETTINGS = ("to", "datum_type", "out_dt", "acc")
# The operand whose type each result has, where that is not the widest.
_LIKE_OPERANDS = {
    f"{registry}_{name}": places
    for registry in ("tract_transformers", "tract_qwen35")
    for name, places in {
        "gdn_recurrent": (0, 5),
        "causal_conv1d_update": (0, 2),
    }.items()
}


class _Type(NamedTuple):
    """A data type of tract, and whether it is that of a constant."""

    name: str
    is_constant: bool = False


_Types = tuple[_Type | None, ...]
_Scope = Mapping[str, _Type | None]


def result_types(
    document: syntax.Document, library: Library, stored: Callable[[str], str | None]
) -> dict[str, str]:
    """The data types of the results of a graph that are known, by name; `stored` gives those
    of variables by their labels.
    """
    reading = _Reading(document, library, stored)
    scope = reading.run(document.graph.body, {})
    names = [result.name for result in document.graph.results]
    return {name: own.name for name in names if (own := scope.get(name))}


class _Reading:
    """A type for each name; None for what takes any."""

    def __init__(
        self,
        document: syntax.Document,
        library: Library,
        stored: Callable[[str], str | None],
    ) -> None:
        self.own = {f.name: f for f in document.fragments if f.body is not None}
        self.library, self.stored = library, stored

    def run(self, body: Iterable[syntax.Assignment], scope: _Scope) -> _Scope:
        """The types after some statements."""
        known = dict(scope)
        for statement in body:
            names = [identifier.name for identifier in identifiers(statement.target)]
            types = self.types(statement.value, known)
            known.update(zip(names, types * len(names), strict=False))
        return known

    def types(self, value: syntax.Expression, scope: _Scope) -> _Types:
        """Those of the results of an expression; one stands for all."""
        if isinstance(value, syntax.Identifier):
            return (scope.get(value.name),)
        if isinstance(value, syntax.Invocation):
            return self._called(value, scope)
        if isinstance(value, (syntax.Array, syntax.Tuple)):
            items = () if isinstance(value.items, syntax.Numbers) else value.items
        elif isinstance(value, syntax.Operator):
            if value.symbol in ("<", ">", "<=", ">=", "==", "!=", "&&", "||", "!"):
                return (_Type("bool"),)
            items = value.operands
        elif isinstance(value, (syntax.Conditional, syntax.Subscript, syntax.Range)):
            return self.types(value.value, scope)
        else:
            return (None,)
        return (_widest(t for item in items for t in self.types(item, scope)),)

    def _called(self, call: syntax.Invocation, scope: _Scope) -> _Types:
        fragment = self.own.get(call.name) or self.library.get(call.name)
        if fragment is None:
            return (None,)
        places = zip(call.keywords, fragment.parameters, strict=False)
        named = [keyword or parameter.name for keyword, parameter in places]
        values = dict(zip(named, call.values, strict=False))
        if call.name in self.own:
            bound = {
                n: _widest(self.types(value, scope)) for n, value in values.items()
            }
            after = self.run(fragment.body or (), bound)
            return tuple([after.get(result.name) for result in fragment.results])
        words = [
            value.value if isinstance(value, syntax.Literal) else None
            for value in map(values.get, (*_SETTINGS, "label"))
        ]
        told = next((str(word).lower() for word in words[:-1] if word), None)
        if call.name == "variable":
            name = self.stored(str(words[-1])) or call.dtype or "scalar"
            return (_Type(_DEFAULTS.get(name, name), is_constant=True),)
        if told or call.name in ("external", "tract_core_external"):
            name = told or call.dtype or "scalar"
            return (_Type(_DEFAULTS.get(name, name)),)
        operands = [_widest(self.types(value, scope)) for value in values.values()]
        places_like = _LIKE_OPERANDS.get(call.name)
        if places_like and len(operands) > max(places_like):
            return tuple([operands[place] for place in places_like])
        return tuple([_declared(r) or _widest(operands) for r in fragment.results])


_DEFAULTS = {"scalar": "f32", "integer": "i64", "logical": "bool"}


def _declared(result: syntax.Result) -> _Type | None:
    """The type of a result that its declaration says; scalars may have several."""
    type_ = result.type.item if isinstance(result.type, ArrayType) else result.type
    dtype = type_.dtype if isinstance(type_, TensorType) else None
    return _Type(_DEFAULTS[dtype]) if dtype in ("integer", "logical") else None


def _widest(types: Iterable[_Type | None]) -> _Type | None:
    """The type in which operands are computed with."""
    known = [t for t in types if t is not None]
    live = [t for t in known if not t.is_constant] or known
    return max(live, key=_width, default=None)


def _width(own: _Type) -> tuple[int, int]:
    kinds = ("logical", "integer", "scalar")
    digits = "".join(filter(str.isdigit, own.name))
    return kinds.index(DTYPES.get(own.name, "logical")), int(digits or 0)
