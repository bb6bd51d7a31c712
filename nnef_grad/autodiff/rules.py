"""Which rule differentiates an operation: one lookup, in one order.

    the user's rule; the Python rule; the rule in derivatives.nnef; the operation's own body

Where a Python body stands beside a rule, it goes first for the settings that it is for.

A rule, of whatever kind, is a function of the emitter, the operation and the gradients
of its results; see ops/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from nnef_grad.build.arguments import thaw
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import Evaluator, instantiate_body, parameters
from nnef_grad.errors import InvalidGraphError, Problem, UsageError, suggestion
from nnef_grad.graph.ir import Operation, shape_of
from nnef_grad.language import syntax
from nnef_grad.language.library import FragmentFile, Library, standard, with_fragments
from nnef_grad.language.typecheck import check_fragments
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type, leaves
from nnef_grad.ops import DECOMPOSITIONS, RULES, SHAPES
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import Function, ShapeFunction, Shapes
from nnef_grad.ops.traits import STEPS

Rule = Callable[..., Sequence[Any]]
Decompose = Callable[[Any, Operation], Sequence[Any]]
Evaluation = Callable[..., Any]
SUFFIX = "_vjp"
SHAPE = "_shape"
SUFFIXES = (SUFFIX, SHAPE)


@lru_cache(maxsize=1)
def derivative_library() -> FragmentFile:
    """The rules of derivatives.nnef, by the name of the fragment."""
    return FragmentFile(Path(__file__).parent / "derivatives.nnef")


def check_rules(fragments: Sequence[syntax.Fragment]) -> list[Problem]:
    """What is wrong with the fragments of a file of rules."""
    # A rule is no operation: the operations that there are do not hold the rules.
    library = with_fragments(_declarations(fragments).values())
    return [*_naming_problems(fragments), *check_fragments(fragments, library)]


def _naming_problems(fragments: Sequence[syntax.Fragment]) -> Iterator[Problem]:
    known = {**standard(), **_declarations(fragments)}
    for fragment in fragments:
        operation, suffix = _split(fragment.name)
        if not suffix and fragment.name in standard():
            message = f"operation '{fragment.name}' is already defined"
            yield Problem(message, fragment.span)
        elif fragment.name not in known and operation not in known:
            message = (
                f"'{fragment.name}' is not named after an operation,"
                f" with {' or '.join(SUFFIXES)} after it"
            )
            yield Problem(message, fragment.span)
        elif suffix:
            yield from signature_problems(fragment, known[operation])


def _split(name: str) -> tuple[str, str]:
    """The operation that a rule is for, and what kind of a rule it is."""
    suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
    return name.removesuffix(suffix), suffix


def _declarations(fragments: Iterable[syntax.Fragment]) -> dict[str, syntax.Fragment]:
    return {f.name: f for f in fragments if f.body is None and not _split(f.name)[1]}


class Rules:
    """The lookup of rules, and where rules in Python are entered:

        rules = nnef_grad.Rules()  # or nnef_grad.load_rules(...)

        @rules.vjp("swish")
        def swish_vjp(emit, operation, dy): ...

    The operation is one of the standard, or one that the rules or the graph declares.
    Which graphs there will be is not known when a rule is entered: it is checked where
    the rules meet a graph, in `load`, `differentiate`, `jacobian`, `evaluate` and
    `check`. Rules may serve other graphs too: an operation that they know the shape of,
    and the vjp or the evaluation, need not be in this one.

    Attributes:
        declarations: the operations that the user's rules declare, by name.
        shapes: the shape functions of all operations, by name.
        evaluations: for the user's operations, functions of numpy arrays that compute
            them, by name.
    """

    def __init__(self, fragments: Sequence[syntax.Fragment] = ()) -> None:
        self._fragments: Library = {f.name: f for f in fragments}
        self._functions: dict[str, Rule] = {}
        self._found: dict[str, Rule | None] = {}
        self.declarations = _declarations(fragments)
        self.shapes: dict[str, ShapeFunction] = {
            **SHAPES,
            **{
                name: partial(shapes_by_rule, self._fragments[name + SHAPE], self)
                for name in self.declarations
                if name + SHAPE in self._fragments
            },
        }
        self.evaluations: dict[str, Evaluation] = {}

    def vjp(self, name: str) -> Callable[[Function], Function]:
        """Enters the vector-Jacobian product of an operation, of the standard or of a
        document's own.

        The function is called with what emits operations (`Emit`), the operation, and
        the gradient of each of its results; it returns a list of a gradient for each
        operand: a tensor of the result's shape or the operand's, a number that stands for
        a tensor that is full of it, or None where there is none. For an operand that is
        an array of tensors it is a list of as many. What it returns is checked.

        Raises:
            UsageError: no operation is named.
        """
        return _enter("vjp", self._functions, name)

    def shape(self, name: str) -> Callable[[Function], Function]:
        """Enters what computes the shape of an operation's result.

        The function is called with the shapes of the operands and the attributes by
        keyword; it returns a shape, or a list of shapes for several results or a result
        that is an array of tensors. What it returns is checked.
        """
        return _enter("shape", self.shapes, name)

    def evaluation(self, name: str) -> Callable[[Function], Function]:
        """Enters what computes an operation, for `evaluate` and `check`.

        The function is called with the operands, arrays of numpy, and the attributes by
        keyword; it returns an array, or a list of arrays for several results or a result
        that is an array of tensors. What it returns is checked.
        """
        return _enter("evaluation", self.evaluations, name)

    @property
    def opset(self) -> OpSet:
        """The operations of the standard and of the rules."""
        return OpSet(with_fragments(self.declarations.values()), self.shapes)

    def refuse_unknown(self, declared: Collection[str]) -> None:
        """Checks that each rule in Python is for an operation that there is.

        Args:
            declared: the operations that a document or a graph declares, by name.

        Raises:
            UsageError: an operation is not the standard's, nor declared by the rules or
                by what they meet. One that they have a shape and another rule of is taken
                for an operation of another document.
        """
        tables: dict[str, Mapping[str, Any]] = {
            "vjp": self._functions,
            "shape": self.shapes,
            "evaluation": self.evaluations,
        }
        whole = self.shapes.keys() & (self._functions.keys() | self.evaluations.keys())
        known = {*standard(), *self.declarations, *declared, *whole}
        for kind, table in tables.items():
            for name in sorted(table.keys() - known):
                raise UsageError(_no_operation(kind, name, known))

    def find(self, name: str) -> Rule | None:
        """The rule of an operation; None where its body must do."""
        if name in self._functions:
            return self._functions[name]
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Rule | None:
        fragment = self._fragment(name)
        return RULES.get(name) if fragment is None else partial(apply_rule, fragment)

    def _fragment(self, name: str) -> syntax.Fragment | None:
        """The rule of an operation that is written in NNEF, if that is the one."""
        if name in self._functions:
            return None
        if name + SUFFIX in self._fragments or name in RULES:
            return self._fragments.get(name + SUFFIX)
        return derivative_library().get(name + SUFFIX)

    def body(self, operation: Operation) -> Decompose | None:
        """What emits the body of an operation that is differentiated by its body; None
        for one that has a rule, or nothing at all.
        """
        name = operation.name
        if name in self._functions or name + SUFFIX in self._fragments:
            return None
        if name in DECOMPOSITIONS and DECOMPOSITIONS[name].applies(operation):
            return DECOMPOSITIONS[name].build
        has_body = operation.definition.body is not None
        return instantiate_body if has_body and self.find(name) is None else None

    def is_zero(self, name: str) -> bool:
        """Whether the rule of an operation says that its derivative is zero."""
        fragment = self._fragment(name)
        if fragment is None:
            return name in STEPS and self.find(name) is None
        return all(_is_zero(statement.value) for statement in fragment.body or ())


def _enter(
    kind: str, table: dict[str, Any], name: Any
) -> Callable[[Function], Function]:
    if not isinstance(name, str):
        message = "a rule is entered under the name of its operation"
        raise UsageError(f"{message}: @rules.{kind}('mul'), say")

    def enter(function: Function) -> Function:
        table[name] = function
        return function

    return enter


def _no_operation(kind: str, name: str, known: Iterable[str]) -> str:
    near = (
        suggestion(name, sorted(known)) or ": declare it in the rules or the document"
    )
    return (
        f"the rules have the {kind} of '{name}', which is no operation of the standard,"
        f" of the rules or of the graph{near}"
    )


def _is_zero(expression: syntax.Expression) -> bool:
    return isinstance(expression, syntax.Literal) and expression.value == 0.0


def apply_rule(
    rule: syntax.Fragment, emit: Emitter, operation: Operation, *gradients: Any
) -> Sequence[Any]:
    """The gradients of the operands, by a rule written in NNEF."""
    definition = operation.definition
    bound = parameters(definition, operation.operands, operation.settings)
    for result, tensor, gradient in zip(
        definition.results, operation.results, gradients, strict=True
    ):
        bound[result.name] = list(tensor) if isinstance(tensor, tuple) else tensor
        bound[f"d{result.name}"] = _instantiated(emit, tensor, gradient)
    scope = {p.name: bound[p.name] for p in rule.parameters}
    results = Evaluator(emit).instantiate(rule, scope, emit.naming, operation.span)
    return [results.get(f"d{p.name}") for p in definition.operands]


def _instantiated(emit: Emitter, result: Any, gradient: Any) -> Any:
    """A gradient as an expression sees it: zeros where nothing depends on the
    result.
    """
    if isinstance(result, tuple):
        return [
            _instantiated(emit, *pair) for pair in zip(result, gradient, strict=True)
        ]
    return (
        emit("constant", shape=result.shape, value=(0.0,), hint="zeros")
        if gradient is None
        else gradient
    )


def shapes_by_rule(
    rule: syntax.Fragment, rules: Rules, *operands: Any, **attributes: Any
) -> Shapes:
    """The shapes of an operation's results, by a rule that returns tensors of them."""
    emitter = Emitter(rules.opset)
    scope: dict[str, Any] = {}
    for parameter in rule.parameters:
        if parameter.name in attributes:
            value = attributes[parameter.name]
            scope[parameter.name] = thaw(parameter.type, value)
        else:
            shape = operands[len(scope)]
            scope[parameter.name] = _stand_in(emitter, parameter.type, shape)
    try:
        results = Evaluator(emitter).instantiate(rule, scope, str, None)
    except RecursionError:
        message = (
            f"'{rule.name}' and the shape rules that it uses use each other without end"
        )
        raise InvalidGraphError(message, rule.span) from None
    shapes = [_shapes(value) for value in results.values()]
    found: Shapes = shapes[0] if len(shapes) == 1 else shapes
    return found


def _stand_in(emitter: Emitter, type_: Type, shape: Any) -> Any:
    """A tensor, or an array of tensors, of given shapes."""
    if isinstance(type_, ArrayType):
        return [_stand_in(emitter, type_.item, item) for item in shape]
    (leaf,) = leaves(type_)
    dtype = leaf.dtype if isinstance(leaf, TensorType) else None
    return emitter.tensor(
        "scalar" if dtype in (None, GENERIC) else dtype, shape, "operand"
    )


def _shapes(value: Any) -> Any:
    return [_shapes(v) for v in value] if isinstance(value, list) else shape_of(value)


def signature_problems(
    rule: syntax.Fragment, definition: syntax.Fragment
) -> Iterator[Problem]:
    """Where a rule's parameters and results are not those that the convention asks for."""
    is_shape = rule.name.endswith(SHAPE)
    parameters = [p.name for p in definition.parameters]
    expected = parameters if is_shape else expected_parameters(definition)
    if [p.name for p in rule.parameters] != expected:
        message = f"the parameters of '{rule.name}' must be ({', '.join(expected)})"
        yield Problem(message, rule.span)
    if is_shape and rule.results != definition.results:
        yield Problem(
            f"'{rule.name}' must have the results of its operation", rule.span
        )
    if not is_shape:
        yield from _result_problems(rule, definition)
    if rule.body is None:
        yield Problem(f"'{rule.name}' has no body", rule.span)


def _result_problems(
    rule: syntax.Fragment, definition: syntax.Fragment
) -> Iterator[Problem]:
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
