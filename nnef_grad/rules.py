"""Which rule differentiates an operation: one lookup, in one order.

    the user's rule; the Python rule; the rule in derivatives.nnef; the operation's own body

A rule, of whatever kind, is a function of the emitter, the operation and the gradients
of its results; see ops/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from nnef_grad import syntax
from nnef_grad.emit import Emitter
from nnef_grad.check import check_fragments
from nnef_grad.errors import InvalidGraphError, Problem
from nnef_grad.evaluate import Evaluator, parameters
from nnef_grad.files import PathLike, read_source
from nnef_grad.ir import Operation
from nnef_grad.library import FragmentFile, Library, standard, with_fragments
from nnef_grad.ops import RULES
from nnef_grad.parser import parse_fragments
from nnef_grad.source import Source
from nnef_grad.types import GENERIC, TensorType, Type, leaves

Rule = Callable[..., Sequence[Any]]
SUFFIX = "_vjp"


@lru_cache(maxsize=1)
def calculus() -> FragmentFile:
    """The rules of derivatives.nnef, by the name of the fragment."""
    return FragmentFile(Path(__file__).parent / "derivatives.nnef")


def load_rules(path: PathLike) -> Rules:
    """The standard rules, and those of a file of fragments named `<operation>_vjp`,
    which go first.

    Raises:
        NnefGradError: the file cannot be read, is no list of fragments, or a rule does
            not fit its operation.
    """
    return _with_rules(read_source(path))


def loads_rules(text: str, *, name: str = "<string>") -> Rules:
    """As `load_rules`, from a text; `name` is what error messages call it."""
    return _with_rules(Source(name, text))


def _with_rules(source: Source) -> Rules:
    fragments = parse_fragments(source)
    library = with_fragments(fragments)
    problems = [*_signature_problems(fragments), *check_fragments(fragments, library)]
    if problems:
        raise InvalidGraphError.collect(problems)
    return Rules({f.name: f for f in fragments})


def _signature_problems(fragments: Iterable[syntax.Fragment]) -> Iterator[Problem]:
    for fragment in fragments:
        name = fragment.name.removesuffix(SUFFIX)
        if fragment.name == name or name not in standard():
            message = f"'{fragment.name}' is not named after an operation, with {SUFFIX} behind it"
            yield Problem(message, fragment.span)
        else:
            yield from signature_problems(fragment, standard()[name])


class Rules:
    """The lookup of rules."""

    def __init__(self, user: Library | None = None) -> None:
        self._user: Library = user if user is not None else {}
        self._found: dict[str, Rule | None] = {}

    def find(self, name: str) -> Rule | None:
        """The rule of an operation; None where its body must do."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Rule | None:
        if name + SUFFIX in self._user:
            return partial(apply, self._user[name + SUFFIX])
        if name in RULES:
            return RULES[name]
        return (
            partial(apply, calculus()[name + SUFFIX])
            if name + SUFFIX in calculus()
            else None
        )

    def is_zero(self, name: str) -> bool:
        """Whether the rule of an operation says that its derivative is zero."""
        rule = self.find(name)
        return isinstance(rule, partial) and all(
            _is_zero(s.value) for s in rule.args[0].body
        )


def _is_zero(expression: syntax.Expression) -> bool:
    return isinstance(expression, syntax.Literal) and expression.value == 0.0


def apply(
    rule: syntax.Fragment, emit: Emitter, operation: Operation, *gradients: Any
) -> Sequence[Any]:
    """The gradients of the operands, by a rule written in NNEF."""
    definition = operation.definition
    bound = parameters(definition, operation.operands, operation.attributes)
    for result, tensor, gradient in zip(
        definition.results, operation.results, gradients
    ):
        bound[result.name] = list(tensor) if isinstance(tensor, tuple) else tensor
        bound[f"d{result.name}"] = _instantiated(emit, tensor, gradient)
    scope = {p.name: bound[p.name] for p in rule.parameters}
    results = Evaluator(emit).inlined(rule, scope, emit.naming, operation.span)
    return [results.get(f"d{p.name}") for p in definition.operands]


def _instantiated(emit: Emitter, result: Any, gradient: Any) -> Any:
    """A gradient as an expression sees it: zeros where nothing depends on the
    result.
    """
    if isinstance(result, tuple):
        return [_instantiated(emit, *pair) for pair in zip(result, gradient)]
    return (
        emit("constant", shape=result.shape, value=(0.0,), hint="zeros")
        if gradient is None
        else gradient
    )


def signature_problems(
    rule: syntax.Fragment, definition: syntax.Fragment
) -> Iterator[Problem]:
    """Where a rule's parameters and results are not those that the convention asks for."""
    expected = expected_parameters(definition)
    if [p.name for p in rule.parameters] != expected:
        message = f"the parameters of '{rule.name}' must be ({', '.join(expected)})"
        yield Problem(message, rule.span)
    gradients = [
        f"d{p.name}" for p in definition.operands if _is_differentiable(p.type)
    ]
    for result in rule.results:
        if result.name not in gradients:
            message = (
                f"'{result.name}' is not the gradient of an operand of"
                f" '{definition.name}': {', '.join(gradients)}"
            )
            yield Problem(message, result.span)
    if rule.body is None:
        yield Problem(f"'{rule.name}' has no body", rule.span)


def expected_parameters(definition: syntax.Fragment) -> list[str]:
    """The parameters of the rule of an operation, in order."""
    return [
        *(p.name for p in definition.operands),
        *(r.name for r in definition.results),
        *(f"d{r.name}" for r in definition.results if _is_differentiable(r.type)),
        *(p.name for p in definition.attributes),
    ]


def _is_differentiable(type_: Type) -> bool:
    """Whether values of the type can be scalar tensors."""
    return any(
        isinstance(leaf, TensorType) and leaf.dtype in ("scalar", GENERIC, None)
        for leaf in leaves(type_)
    )
