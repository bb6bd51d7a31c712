"""The texts of rules: how an operation was differentiated, for a reader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from nnef_grad.autodiff.rules import Derivation, Rules
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
    """How an operation is differentiated.

    Attributes:
        title: a phrase: which rule it is.
        text: the text of the rule, in NNEF or Python; may be empty.
    """

    title: str
    text: str = ""


def rule_text(rules: Rules, operation: Operation) -> RuleText:
    """How the rules differentiate an operation."""
    name = operation.name
    if name in _NONE:
        return RuleText(_NONE[name])
    found: Derivation = rules.derivation(operation)
    if found.vjp is not None:
        return _of_vjp(found.vjp)
    if found.decompose is instantiate_body:
        body = _definition(operation.definition)
        return RuleText("differentiated through its definition", body)
    if found.decompose is not None:
        how = "replaced by other operations, which are differentiated"
        return RuleText(f"{how}: {_place(found.decompose)}", _source(found.decompose))
    return RuleText("it has no derivative: its results do not move with its operands")


def of_update(recipe: Fragment) -> RuleText:
    """The use that a training step makes of gradients: an optimizer, or clipping."""
    return RuleText(f"part of {recipe.name}, in the training step", _definition(recipe))


def _of_vjp(vjp: Callable[..., Any]) -> RuleText:
    if isinstance(vjp, partial):
        (fragment,) = vjp.args
        return RuleText(_fragment_place(fragment), _definition(fragment))
    return RuleText(_place(vjp), _source(vjp))


def _fragment_place(fragment: Fragment) -> str:
    return f"{fragment.name} in {fragment.span.source.name}"


def _definition(fragment: Fragment) -> str:
    """The definition of a fragment, as it was written."""
    text, place = fragment.span.source.text, fragment.span.start
    found = _DEFINITION.match(text, max(text.rfind("fragment", 0, place), 0))
    return "" if found is None else found[0]


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
