"""Losses and optimizers, as users name them: `adam`, `huber(delta = 0.5)`,
`mine.nnef:focal(gamma = 2.0)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from nnef_grad.base.errors import (
    InvalidGraphError,
    UsageError,
    bounded_nesting,
    suggestion,
)
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator
from nnef_grad.language import syntax
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import STDLIB, FragmentFile, Library, extended
from nnef_grad.language.parser import parse_fragments, parse_invocation
from nnef_grad.language.typecheck import ExpressionChecker
from nnef_grad.language.types import (
    INTEGER,
    SCALAR,
    Generics,
    TensorType,
    Type,
    holds_tensors,
    is_assignable,
)
from nnef_grad.ops.registry import OpSet
from nnef_grad.storage.files import read_source


class Kind(NamedTuple):
    """A kind of recipe: what messages call it, the file with those of the project, the
    tensors that the parameters of its fragments begin with, and what these return, besides
    further results.
    """

    name: str
    file: str
    begins: tuple[str, ...]
    returns: tuple[str, ...] = ()


LOSS = Kind("loss", "losses.nnef", ("output", "target"))
# What the new value of a parameter is called among the results.
NEW = "new_"
OPTIMIZER = Kind(
    "optimizer", "optimizers.nnef", ("variable", "gradient"), (f"{NEW}variable",)
)
LEARNING_RATE = "learning_rate"
LOSS_SCALE = "loss_scale"
# What it is multiplied by, whatever it is.
FACTOR = "learning_rate_factor"
_IN_FILE = re.compile(r"(?P<path>.+\.nnef):(?=\w)")


@dataclass(frozen=True)
class Recipe:
    """The fragment of a loss or an optimizer, with the settings that were given, by name,
    the fragments beside it, the place where it was named, and whether it is the user's own.
    """

    fragment: syntax.Fragment
    settings: Mapping[str, Any]
    library: Library
    span: Span
    is_own: bool

    @property
    def name(self) -> str:
        """The name of the fragment."""
        return self.fragment.name

    def setting(self, parameter: syntax.Parameter) -> Any:
        """The value of a parameter: as it was given, or the default."""
        if parameter.name in self.settings:
            return self.settings[parameter.name]
        if parameter.default is None:
            message = f"nothing gives the parameter '{parameter.name}' of '{self.name}'"
            raise UsageError(f"{message} a value", parameter.span)
        return syntax.literal_value(parameter.default)

    def emit(self, emitter: Emitter, values: Mapping[str, Any]) -> dict[str, Any]:
        """Emits the body of the fragment for a value of each parameter, and returns that of
        each result, by name. What it calls is in its library: another recipe, or the graph,
        may have other fragments of these names.
        """
        inlined = {name for name, f in self.library.items() if f.body is not None}
        evaluator, outer = Evaluator(emitter, inlined), emitter.opset
        emitter.opset = outer.extended(self.library.values())
        try:
            naming = emitter.naming
            return evaluator.instantiate(self.fragment, values, naming, self.span)
        finally:
            emitter.opset = outer


# What losses are called in other libraries.
_ELSEWHERE = {
    **dict.fromkeys(("mse", "mse_loss", "l2", "l2_loss"), "mean_squared_error"),
    **dict.fromkeys(("mae", "l1", "l1_loss"), "mean_absolute_error"),
    **dict.fromkeys(("smooth_l1", "smooth_l1_loss", "huber_loss"), "huber"),
    **dict.fromkeys(("bce", "bce_loss"), "binary_cross_entropy"),
    **dict.fromkeys(("bce_with_logits", "logistic"), "sigmoid_cross_entropy"),
    **dict.fromkeys(("ce", "cross_entropy"), "softmax_cross_entropy_with_labels"),
    **dict.fromkeys(("kl", "kl_div", "kld"), "kullback_leibler"),
}


def read_recipe(
    text: str, kind: Kind, further: Mapping[str, Type] | None = None
) -> Recipe:
    """The recipe that a text names, with its settings.

    Args:
        text: a name, with settings in parentheses if there are any; one of a file of the
            user's comes after the path and a colon.
        kind: what it must be.
        further: the types of settings that all of this kind have, by name.
    """
    in_file = _IN_FILE.match(text)
    built_in = _built_in(kind.file)
    own = _own_fragments(in_file["path"]) if in_file else built_in
    library = extended(own.values(), _all_built_in()) if in_file else built_in
    source = Source(f"<{kind.name}>", text)
    start = in_file.end() if in_file else 0
    with bounded_nesting(Span(source, start, len(text))):
        call = parse_invocation(source, start)
        if call.name not in own:
            names = sorted(name for name in own if _is_of(own[name], kind))
            meant = _ELSEWHERE.get(call.name, call.name)
            near = suggestion(meant, names) or f": there are {', '.join(names)}"
            raise UsageError(f"there is no {kind.name} '{call.name}'{near}", call.span)
        fragment = own[call.name]
        _refuse_others(fragment, kind)
        settings = _settings(call, {**_types(fragment, kind), **(further or {})})
    return Recipe(fragment, settings, library, call.span, is_own=in_file is not None)


def with_settings(recipe: Recipe, text: str) -> Recipe:
    """The optimizer with further settings, a text such as `beta1 = 0.8, eps = 1e-6`."""
    call = parse_invocation(Source("<settings>", f"{recipe.name}({text})"), 0)
    types = _types(recipe.fragment, OPTIMIZER)
    settings = {**recipe.settings, **_settings(call, types)}
    return replace(recipe, settings=settings, span=call.span)


def state_parameters(fragment: syntax.Fragment) -> list[syntax.Parameter]:
    """The parameters that are state: the fragment returns their new values."""
    results = {r.name for r in fragment.results}
    return [
        p
        for p in fragment.parameters[len(OPTIMIZER.begins) :]
        if holds_tensors(p.type) and NEW + p.name in results
    ]


def _types(fragment: syntax.Fragment, kind: Kind) -> dict[str, Type]:
    """The types of the settings of a fragment, by name."""
    state = {p.name for p in state_parameters(fragment)}
    parameters = fragment.parameters[len(kind.begins) :]
    types = {p.name: p.type for p in parameters if p.name not in state}
    return {**types, FACTOR: SCALAR} if LEARNING_RATE in types else types


def _is_of(fragment: syntax.Fragment, kind: Kind) -> bool:
    first = fragment.parameters[: len(kind.begins)]
    begins = tuple(p.name for p in first if holds_tensors(p.type))
    return fragment.body is not None and begins == kind.begins


def _refuse_others(fragment: syntax.Fragment, kind: Kind) -> None:
    """Raises `UsageError` where a fragment is not of a kind."""
    article = "an" if kind.name[0] in "aeiou" else "a"
    what = f"'{fragment.name}' is not {article} {kind.name}"
    if not _is_of(fragment, kind):
        begins = " and ".join(f"'{name}'" for name in kind.begins)
        message = f"{what}: its parameters do not begin with the tensors {begins}"
        raise UsageError(message, fragment.span)
    results = {result.name for result in fragment.results}
    for name in kind.returns:
        if name not in results:
            raise UsageError(f"{what}: it returns no '{name}'", fragment.span)
    for result in fragment.results:
        if result.type != _NUMBERS:
            message = f"its result '{result.name}' is of type {result.type}"
            raise UsageError(f"{what}: {message}, and not {_NUMBERS}", result.span)


_NUMBERS = TensorType(SCALAR.dtype)


@lru_cache(maxsize=2)
def _built_in(name: str) -> FragmentFile:
    return FragmentFile(Path(__file__).parent / name)


def _all_built_in() -> Library:
    """The fragments of the project: a file of the user's may have recipes of all kinds."""
    return extended(_built_in(LOSS.file).values(), _built_in(OPTIMIZER.file))


def _own_fragments(path: str) -> Library:
    """The fragments of a file of the user's, checked."""
    source = read_source(path)
    with bounded_nesting(Span(source, 0, 0)):
        fragments = parse_fragments(source)
        library = extended(fragments, extended(_all_built_in().values(), STDLIB))
        problems = check_fragments(fragments, library)
    if problems:
        raise InvalidGraphError.collect(problems)
    return {f.name: f for f in fragments}


def _settings(call: syntax.Invocation, types: Mapping[str, Type]) -> dict[str, Any]:
    """The values of the arguments of an invocation, by name, each of its type."""
    settings: dict[str, Any] = {}
    for argument in call.arguments:
        if not isinstance(argument, syntax.Keyword):
            message = f"a setting of '{call.name}' needs its name"
            raise UsageError(f"{message}: {', '.join(types)}", argument.span)
        name = argument.name
        if name not in types:
            near = suggestion(name, list(types)) or f"; it has {', '.join(types)}"
            message = f"'{call.name}' has no setting '{name}'{near}"
            raise UsageError(message, argument.span)
        if name in settings:
            message = f"the setting '{name}' of '{call.name}' is given twice"
            raise UsageError(message, argument.span)
        settings[name] = _value(argument, types[name])
    return settings


def _value(argument: syntax.Keyword, wanted: Type) -> Any:
    checker = ExpressionChecker(STDLIB)
    type_ = checker.type_of(argument.value)
    if checker.problems:
        raise InvalidGraphError.collect(checker.problems)
    # A whole number may be written without its point.
    is_whole = type_ == INTEGER and wanted in (SCALAR, _NUMBERS)
    if not is_whole and not is_assignable(type_, wanted, Generics()):
        message = f"'{argument.name}' is of type {wanted}, and not {type_}"
        raise UsageError(message, argument.value.span)
    evaluator = Evaluator(Emitter(OpSet()))
    value = evaluator.evaluate(argument.value, {}, argument.name)
    return float(value) if is_whole else value
