"""The lookup of derivatives, in one order, and their application.

    the user's rule; a decomposition, for the settings that it is for; zero, for steps;
    the rule in Python; the rule in derivatives.nnef; the operation's own body

A rule, of whatever kind, is a function of the emitter, the operation and the gradients
of its results; see ops/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Union

from nnef_grad.base.errors import (
    InvalidGraphError,
    NnefGradError,
    Problem,
    UsageError,
    suggestion,
)
from nnef_grad.base.source import Span
from nnef_grad.emit.arguments import settings_key, thaw
from nnef_grad.emit.bodies import MARK, Body, body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator, instantiate_body, parameters
from nnef_grad.emit.rewriting import Decompose
from nnef_grad.emit.rule_results import check_gradients
from nnef_grad.graph.ir import Operation, Tensor, map_tensors, shape_of
from nnef_grad.language import syntax
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import STDLIB, FragmentFile, Library, with_fragments
from nnef_grad.language.types import GENERIC, ArrayType, TensorType, Type, leaves
from nnef_grad.ops import DECOMPOSITIONS, RULES, SHAPES
from nnef_grad.ops.registry import Function, OpSet, Rule, ShapeFunction, Shapes
from nnef_grad.ops.traits import FLAT

SUFFIX = "_vjp"
SHAPE = "_shape"
SUFFIXES = (SUFFIX, SHAPE)

Evaluation = Callable[..., Any]
Gradients = tuple[tuple[Tensor, Union[Tensor, float]], ...]
# Emits operations for some tensors, and returns tensors and numbers in nested tuples. It
# depends on nothing but the data types and shapes of the tensors.
Build = Callable[[Emitter, Sequence[Tensor]], "tuple[Any, ...]"]


# The rules of derivatives.nnef, by the name of the fragment.
DERIVATIVES = FragmentFile(Path(__file__).parent / "derivatives.nnef")


@dataclass(frozen=True)
class Derivation:
    """The derivative of an operation: a rule, a decomposition into other operations, zero,
    or none.
    """

    vjp: Rule | None = None
    # Whether the rule depends on nothing but its arguments; users' Python may do anything.
    is_traced: bool = True
    decompose: Decompose | None = None
    is_zero: bool = False
    # The settings that have none of these, as a part of a sentence.
    limit: str = ""


class Rules:
    """Your own rules, and the lookup of derivatives.

    Register rules in Python by decorators:

        rules = nnef_grad.Rules()  # or nnef_grad.load_rules(...)

        @rules.vjp("swish")
        def swish_vjp(emit, operation, dy): ...

    The operation is a standard one, or one that the rules or the graph declare. `load`,
    `differentiate`, `jacobian`, `evaluate` and `check` verify this against their graph.
    Rules may also serve other graphs: an operation with a shape and a vjp or an
    evaluation need not be in this one.

    Attributes:
        declarations: the operations that the user's rules declare, by name.
        shapes: the shape functions of all operations, by name.
        evaluations: for the user's operations, functions of numpy arrays that compute
            them, by name.
    """

    def __init__(self, fragments: Sequence[syntax.Fragment] = ()) -> None:
        self._fragments: Library = {f.name: f for f in fragments}
        self._functions: dict[str, Rule] = {}
        self._derivations: dict[str, Derivation | None] = {}
        self.declarations = declared_operations(fragments)
        self.shapes: dict[str, ShapeFunction] = dict(SHAPES)
        for name in self.declarations:
            fragment = self._fragments.get(name + SHAPE)
            if fragment is not None:
                self.shapes[name] = partial(self._shape_by, fragment)
        self.evaluations: dict[str, Evaluation] = {}

    def vjp(self, name: str) -> Callable[[Function], Function]:
        """Registers the vector-Jacobian product of an operation, which is standard or
        declared by a document or the rules.

        The function takes the emitter (`Emit`), the operation, and the gradient of each
        result. It returns a list with a gradient for each operand: a tensor of the
        result's or the operand's shape, a number for a tensor filled with it, or None.
        For an array of tensors, the gradient is a list. The result is checked.

        Raises:
            UsageError: no operation is named.
        """
        return _enter("vjp", self._functions, name)

    def shape(self, name: str) -> Callable[[Function], Function]:
        """Registers the shape function of an operation.

        The function takes the shapes of the operands and the attributes by keyword. It
        returns a shape, or a list of shapes for several results or an array of tensors.
        The result is checked.
        """
        return _enter("shape", self.shapes, name)

    def evaluation(self, name: str) -> Callable[[Function], Function]:
        """Registers the evaluation of an operation, for `evaluate` and `check`.

        The function takes the operands, as numpy arrays, and the attributes by keyword.
        It returns an array, or a list of arrays for several results or an array of
        tensors. The result is checked.
        """
        return _enter("evaluation", self.evaluations, name)

    def _shape_by(
        self, rule: syntax.Fragment, /, *shapes: Any, **attributes: Any
    ) -> Any:
        """The opset is looked up at each call: shapes may be entered later."""
        return shapes_by_rule(rule, self.opset, *shapes, **attributes)

    @property
    def opset(self) -> OpSet:
        """The operations of the standard and of the rules."""
        return OpSet(with_fragments(self.declarations.values()), self.shapes)

    def refuse_unknown(self, declared: Collection[str]) -> None:
        """Checks that each rule in Python is for an operation that exists.

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
        operations = {*STDLIB, *SHAPES, *self.declarations, *declared, *whole}
        for kind, table in tables.items():
            for name in sorted(table.keys() - operations):
                near = suggestion(name, sorted(operations))
                advice = near or ": declare it in the rules or the document"
                what = f"the rules have the {kind} of '{name}', which is not an"
                where = "of the standard, of the rules or of the graph"
                raise UsageError(f"{what} operation {where}{advice}")

    def derivation(self, operation: Operation) -> Derivation:
        """How an operation is differentiated."""
        name = operation.name
        special = DECOMPOSITIONS.get(name)
        if special is not None and not self.is_own(name) and special.applies(operation):
            return Derivation(decompose=special.build)
        rule = self.rule(name)
        if rule is not None:
            return rule
        if operation.definition.body is not None:
            return Derivation(decompose=instantiate_body)
        return Derivation(limit="" if special is None else special.limit)

    def is_own(self, name: str) -> bool:
        """Whether the user has a rule for an operation."""
        return name in self._functions or name + SUFFIX in self._fragments

    def rule(self, name: str) -> Derivation | None:
        """The rule of an operation, if it has one; it may be zero."""
        if name in self._functions:
            return Derivation(vjp=self._functions[name], is_traced=False)
        if name not in self._derivations:
            self._derivations[name] = self._find(name)
        return self._derivations[name]

    def _find(self, name: str) -> Derivation | None:
        if name + SUFFIX in self._fragments:
            return _by_fragment(self._fragments[name + SUFFIX])
        if name in FLAT:
            return Derivation(is_zero=True)
        if name in RULES:
            return Derivation(vjp=RULES[name])
        fragment = DERIVATIVES.get(name + SUFFIX)
        return None if fragment is None else _by_fragment(fragment)


def _by_fragment(fragment: syntax.Fragment) -> Derivation:
    values = [statement.value for statement in fragment.body or ()]
    is_zero = all(isinstance(v, syntax.Literal) and v.value == 0.0 for v in values)
    return Derivation(vjp=partial(apply_rule, fragment), is_zero=is_zero)


def _enter(
    kind: str, table: dict[str, Any], name: Any
) -> Callable[[Function], Function]:
    if not isinstance(name, str):
        message = "a rule needs the name of its operation"
        raise UsageError(f"{message}: @rules.{kind}('mul'), say")

    def enter(function: Function) -> Function:
        table[name] = function
        return function

    return enter


# ---- The application of rules ----
#
# What a rule emits depends on the shapes, data types and attributes of an operation, not on
# which tensors it has. So it is traced: applied to tensors that stand for any. What it emits
# for these is a body, which is instantiated wherever the operation differs from the traced
# one in its tensors only.


def pull_back(
    rule: Rule,
    operation: Operation,
    received: tuple[Any, ...],
    emit: Emitter,
    inputs: Sequence[Tensor],
) -> Gradients:
    """The gradients that a rule gives the tensors among the operands of an operation
    that is like another one, but for the tensors that it has and received.
    """
    tensors = iter(inputs)
    values = operation.operands, operation.results, received
    operands, results, gradients = map_tensors(lambda _: next(tensors), values)
    # A rule may look for the operation itself.
    is_itself = (operands, results) == (operation.operands, operation.results)
    alike = operation if is_itself else operation.rewired(operands, results)
    return tuple(check_gradients(alike, rule(emit, alike, *gradients), emit.knows))


def structural_key(operation: Operation, received: tuple[Any, ...]) -> object:
    """Equal for operations, and what they received, that differ in tensors only."""
    return (
        operation.name,
        operation.dtype,
        settings_key(operation),
        _kinds(operation.operands),
        _kinds(operation.results),
        map_tensors(lambda _: True, received),
    )


def _kinds(value: Any) -> object:
    if type(value) is Tensor:
        return value.dtype, value.shape
    if isinstance(value, tuple):
        return tuple([_kinds(item) for item in value])
    return repr(value)


class Traces:
    """The traces of one differentiation, by keys that are equal for equal operations."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._met: set[object] = set()
        self._bodies: dict[object, Body | None] = {}

    def apply(
        self,
        key: object,
        build: Build,
        inputs: Sequence[Tensor],
        caller: Span | None = None,
    ) -> tuple[Any, ...]:
        """Emits what `build` does for some inputs, at the place of a caller, and returns
        what it returns. It is traced when the key is met again, which tells how it differs
        from others, and the data types and shapes of the inputs; None if it may depend on
        anything.
        """
        results = None
        if key is not None and key in self._met:
            if key not in self._bodies:
                self._bodies[key] = _traced(build, self._emit, inputs)
            body = self._bodies[key]
            results = body and instantiate(body, self._emit, inputs, caller=caller)
        self._met.add(key)
        return build(self._emit, inputs) if results is None else results


def _traced(build: Build, emit: Emitter, inputs: Sequence[Tensor]) -> Body | None:
    """The body that is emitted; None where an operation is refused, to be refused for
    the tensors themselves, or has several results, which are named together.
    """
    tracer = Emitter(emit.opset, naming=lambda name: f"{name}{MARK}")
    try:
        stand_ins = [tracer.stand_in(tensor) for tensor in inputs]
        results = build(tracer, stand_ins)
    except NnefGradError:
        return None
    emitted = tracer.operations[len(inputs) :]
    if not all(len(op.results) == len(op.outputs) == 1 for op in emitted):
        return None
    return body_of(stand_ins, emitted, results, tracer.called)


def apply_rule(
    rule: syntax.Fragment, emit: Emitter, operation: Operation, *gradients: Any
) -> Sequence[Any]:
    """The gradients of the operands, by a rule written in NNEF."""
    definition, scope = operation.definition, parameters(operation)
    columns = definition.results, operation.results, gradients
    for result, tensor, gradient in zip(*columns, strict=True):
        scope[result.name] = list(tensor) if isinstance(tensor, tuple) else tensor
        scope[f"d{result.name}"] = _instantiated(emit, tensor, gradient)
    results = Evaluator(emit).instantiate(rule, scope, emit.naming, operation.span)
    return [results.get(f"d{p.name}") for p in definition.operands]


def _instantiated(emit: Emitter, result: Any, gradient: Any) -> Any:
    """The value of a gradient in an expression: zeros if nothing depends on the result."""
    if isinstance(result, tuple):
        pairs = zip(result, gradient, strict=True)
        return [_instantiated(emit, *pair) for pair in pairs]
    if gradient is not None:
        return gradient
    return emit("constant", shape=result.shape, value=(0.0,), hint="zeros")


def shapes_by_rule(
    rule: syntax.Fragment, opset: OpSet, /, *operands: Any, **attributes: Any
) -> Shapes:
    """The shapes of an operation's results, by a rule that returns tensors of them."""
    emitter = Emitter(opset)
    operand_shapes = iter(operands)
    scope = {
        p.name: thaw(p.type, attributes[p.name])
        if p.name in attributes
        else _stand_in(emitter, p.type, next(operand_shapes))
        for p in rule.parameters
    }
    try:
        results = Evaluator(emitter).instantiate(rule, scope, str, None)
    except RecursionError:
        message = f"'{rule.name}' and the shape rules that it uses use each other"
        raise InvalidGraphError(f"{message} without end", rule.span) from None
    shapes = [_shapes(value) for value in results.values()]
    return shapes[0] if len(shapes) == 1 else shapes


def _stand_in(emitter: Emitter, type_: Type, shape: Any) -> Any:
    """A tensor, or an array of tensors, of given shapes."""
    if isinstance(type_, ArrayType):
        return [_stand_in(emitter, type_.item, item) for item in shape]
    (leaf,) = leaves(type_)
    dtype = leaf.dtype if isinstance(leaf, TensorType) else None
    dtype = "scalar" if dtype in (None, GENERIC) else dtype
    return emitter.tensor(dtype, shape, "operand")


def _shapes(value: Any) -> Any:
    return [_shapes(v) for v in value] if isinstance(value, list) else shape_of(value)


# ---- Files of rules ----
#
# fragment mul_vjp( x, y, z, dz ) -> ( dx, dy )    the operands, the results, the gradients
#                                                  of the results, the attributes
# fragment gate_shape( x ) -> ( y )                the parameters of the operation


def check_rules(fragments: Sequence[syntax.Fragment]) -> list[Problem]:
    """The problems of the fragments of a file of rules."""
    # Rules are not operations: documents cannot invoke them.
    library = with_fragments(declared_operations(fragments).values())
    return [*_naming_problems(fragments), *check_fragments(fragments, library)]


def _naming_problems(fragments: Sequence[syntax.Fragment]) -> Iterator[Problem]:
    operations = {**STDLIB, **declared_operations(fragments)}
    for fragment in fragments:
        name, (operation, suffix) = fragment.name, _split(fragment.name)
        if not suffix and name in STDLIB:
            yield Problem(f"operation '{name}' is already defined", fragment.span)
        elif operation in operations and suffix:
            yield from signature_problems(fragment, operations[operation])
        elif name not in operations:
            what = f"'{operation}' is not a standard operation"
            message = f"{what}: declare it here, without a body"
            if not suffix:
                suffixes = " or ".join(SUFFIXES)
                advice = f"name it after an operation, with {suffixes} after it"
                message = f"'{name}' is not a rule: {advice}"
            yield Problem(message, fragment.span)


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
