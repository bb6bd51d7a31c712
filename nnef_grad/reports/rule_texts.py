"""The texts of rules: how an operation was differentiated, for a reader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from nnef_grad.autodiff.rules import Rules
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.graph.ir import Operation
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.traits import SOURCES, STEPS

# A fragment has no braces but those of its body.
_DEFINITION = re.compile(r"fragment\b[^{]*\{[^}]*\}")
_NONE = {
    **dict.fromkeys(SOURCES, "it has no operands: there is nothing to differentiate"),
    **dict.fromkeys(
        STEPS, "a step function: the derivative is zero wherever it exists"
    ),
}


class RuleText(NamedTuple):
    """How an operation is differentiated: by which rule, in a phrase, and the text of the
    rule, in NNEF or Python, if there is one.
    """

    title: str
    text: str = ""


def rule_text(rules: Rules, operation: Operation) -> RuleText:
    """How the rules differentiate an operation."""
    name = operation.name
    if name in _NONE:
        return RuleText(_NONE[name])
    derivation = rules.derivation(operation)
    vjp, decompose = derivation.vjp, derivation.decompose
    if isinstance(vjp, partial):
        (fragment,) = vjp.args
        place = f"{fragment.name} in {fragment.span.source.name}"
        return RuleText(place, _definition(fragment))
    if vjp is not None:
        return RuleText(_place(vjp), _source(vjp))
    if decompose is instantiate_body:
        body = _definition(operation.definition)
        return RuleText("differentiated through its definition", body)
    if decompose is not None:
        how = "replaced by other operations, which are differentiated"
        return RuleText(f"{how}: {_place(decompose)}", _source(decompose))
    return RuleText("it has no derivative: its results do not move with its operands")


def of_update(recipe: Fragment) -> RuleText:
    """The use that a training step makes of gradients: an optimizer, or clipping."""
    return RuleText(f"part of {recipe.name}, in the training step", _definition(recipe))


def _definition(fragment: Fragment) -> str:
    """The definition of a fragment, as it was written."""
    text, place = fragment.span.source.text, fragment.span.start
    match = _DEFINITION.match(text, max(text.rfind("fragment", 0, place), 0))
    return "" if match is None else match[0]


def _place(function: Callable[..., Any]) -> str:
    """The name of a function, and the file that it is in."""
    name = getattr(function, "__name__", type(function).__name__)
    module = getattr(function, "__module__", None) or ""
    return f"{name} in {module.replace('.', '/')}.py" if module else name


@lru_cache(maxsize=256)
def _source(function: Callable[..., Any]) -> str:
    """The text of a function, where Python has it; otherwise what it says of itself."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""
