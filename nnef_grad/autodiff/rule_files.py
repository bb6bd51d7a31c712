"""Files of rules: which fragments they may hold, and what their parameters are.

fragment mul_vjp( x, y, z, dz ) -> ( dx, dy )    the operands, the results, the gradients
                                                 of the results, the attributes
fragment gate_shape( x ) -> ( y )                the parameters of the operation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nnef_grad.base.errors import Problem
from nnef_grad.language import syntax
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import standard, with_fragments
from nnef_grad.language.types import GENERIC, TensorType, Type, leaves

SUFFIX = "_vjp"
SHAPE = "_shape"
SUFFIXES = (SUFFIX, SHAPE)


def check_rules(fragments: Sequence[syntax.Fragment]) -> list[Problem]:
    """The problems of the fragments of a file of rules."""
    # Rules are not operations: documents cannot invoke them.
    library = with_fragments(declared_operations(fragments).values())
    return [*_naming_problems(fragments), *check_fragments(fragments, library)]


def _naming_problems(fragments: Sequence[syntax.Fragment]) -> Iterator[Problem]:
    known = {**standard(), **declared_operations(fragments)}
    for fragment in fragments:
        operation, suffix = _split(fragment.name)
        if not suffix and fragment.name in standard():
            message = f"operation '{fragment.name}' is already defined"
            yield Problem(message, fragment.span)
        elif fragment.name not in known and operation not in known:
            message = _no_operation(fragment.name)
            yield Problem(message, fragment.span)
        elif suffix:
            yield from signature_problems(fragment, known[operation])


def _no_operation(name: str) -> str:
    """Why a fragment is not a rule, and what would make it one."""
    operation, suffix = _split(name)
    if not suffix:
        return f"'{name}' is not a rule: name it after an operation, with {' or '.join(SUFFIXES)} after it"
    return f"'{operation}' is not a standard operation: declare it here, without a body"


def _split(name: str) -> tuple[str, str]:
    """The operation that a rule is for, and the suffix of the rule."""
    suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
    return name.removesuffix(suffix), suffix


def declared_operations(
    fragments: Iterable[syntax.Fragment],
) -> dict[str, syntax.Fragment]:
    """The operations that a file of rules declares, by name."""
    return {f.name: f for f in fragments if f.body is None and not _split(f.name)[1]}


def signature_problems(
    rule: syntax.Fragment, definition: syntax.Fragment
) -> Iterator[Problem]:
    """The parameters and results of a rule that do not follow the convention."""
    is_shape = rule.name.endswith(SHAPE)
    parameters = [p.name for p in definition.parameters]
    expected = parameters if is_shape else expected_parameters(definition)
    if [p.name for p in rule.parameters] != expected:
        message = f"the parameters of '{rule.name}' must be ({', '.join(expected)})"
        yield Problem(message, rule.span)
    if is_shape and rule.results != definition.results:
        message = f"'{rule.name}' must have the results of its operation"
        yield Problem(message, rule.span)
    operands = (p.name for p in definition.operands if _is_differentiable(p.type))
    gradients = [f"d{name}" for name in operands]
    for result in () if is_shape else rule.results:
        if result.name not in gradients:
            what = f"the gradient of an operand of '{definition.name}'"
            message = f"'{result.name}' is not {what}: {', '.join(gradients)}"
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
