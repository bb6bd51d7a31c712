"""Optimizers: the new values of variables by their gradients, and the state that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of, tensors
from nnef_grad.graph.names import with_suffix
from nnef_grad.ops.registry import OpSet
from nnef_grad.training.choice import Choice
from nnef_grad.training.draft import Draft, sources_of
from nnef_grad.training.recipes import (
    FACTOR,
    LEARNING_RATE,
    NEW,
    OPTIMIZER,
    Recipe,
    state_parameters,
)

# How often the shapes of state are inferred from each other.
_ROUNDS = 8


class State(NamedTuple):
    """A tensor that an optimizer keeps from step to step, zeros in the beginning; whether
    it is the same for all variables, as it depends on none.
    """

    name: str
    shape: Shape
    is_shared: bool


def update(
    draft: Draft,
    choice: Choice,
    gradients: Mapping[str, Tensor],
    learning_rate: Tensor | None,
) -> dict[Tensor, Tensor]:
    """Emits the new value of each variable in order, of the state of each, and of that
    which all share, from the gradients by the names of the variables, and the input with
    the learning rate, for optimizers that are given none.
    """
    optimizers = _Optimizers(draft, choice, learning_rate)
    variables = {
        draft.tensor(name): optimizers.step(name, gradients[name])
        for name in choice.recipes
    }
    states = optimizers.new_states.items()
    return variables | dict(sorted(states, key=lambda s: s[0] in optimizers.shared))


class _Optimizers:
    """Emits the optimizers of several variables.

    Attributes:
        new_states: the new value of each tensor of state so far.
        shared: the learning rate and the state that all variables share, and what is
            computed from nothing else.
    """

    def __init__(
        self, draft: Draft, choice: Choice, learning_rate: Tensor | None
    ) -> None:
        self.new_states: dict[Tensor, Tensor] = {}
        self.shared = set(tensors([learning_rate]))
        self._draft = draft
        self._choice = choice
        self._learning_rate = learning_rate
        self._states: dict[object, list[State]] = {}
        self._groups: dict[object, str] = {}
        self._variables: dict[object, Tensor] = {}

    def step(self, name: str, gradient: Tensor) -> Tensor:
        """Emits the new value of a variable, and the new state."""
        recipe, emit = self._choice.recipes[name], self._draft.emit
        rate, variable = self._rate(recipe), self._draft.tensor(name)
        key = _key(recipe), variable.shape
        if key not in self._states:
            self._states[key] = _states(recipe, variable.shape, rate, emit.opset)
        held = {state.name: self._held(state, name) for state in self._states[key]}
        values = dict(zip(OPTIMIZER.begins, (variable, gradient), strict=True))
        values |= _settings(recipe, rate)
        unused = {p.name: 0.0 for p in state_parameters(recipe.fragment)}
        subject = emit.tensor("scalar", variable.shape, NEW + name)
        heading = _heading(recipe, {**values, **held}, subject)
        before = len(emit.operations)
        with emit.deriving(heading, with_suffix(name)):
            results = recipe.emit(emit, {**values, **unused, **held})
            self._name_shared(emit.operations[before:], recipe, f"_{name}")
            for state, tensor in held.items():
                # What is shared gets its new value once.
                if tensor not in self.new_states:
                    value = results[NEW + state]
                    if not isinstance(value, Tensor):
                        value = emit("constant", shape=tensor.shape, value=(value,))
                    self.new_states[tensor] = value
        new: Tensor = results[NEW + "variable"]
        return new

    def _rate(self, recipe: Recipe) -> Any:
        """The learning rate, times its factor."""
        rate = recipe.settings.get(LEARNING_RATE, self._learning_rate)
        factor = recipe.settings.get(FACTOR, 1.0)
        if isinstance(rate, Tensor) and factor != 1.0:
            emit = self._draft.emit
            word = f"{self._group(recipe)}_{LEARNING_RATE}"
            rate = emit("mul", rate, factor, hint=word)
            self.shared.add(rate)
            return rate
        return rate * factor if isinstance(rate, float) else rate

    def _name_shared(
        self, operations: Sequence[Operation], recipe: Recipe, ending: str
    ) -> None:
        """Calls what does not depend on a variable after the optimizer."""
        hints, group = self._draft.emit.hints, self._group(recipe)
        for op in operations:
            if op.inputs and self.shared.issuperset(op.inputs):
                self.shared.update(op.outputs)
                for tensor in op.outputs:
                    word = hints[tensor].replace(ending, "", 1)
                    hints[tensor] = f"{group}_{word}"

    def _held(self, state: State, name: str) -> Tensor:
        """The variable of a state: of a variable, or of all that share its optimizer."""
        owner = label = self._group(self._choice.recipes[name])
        if not state.is_shared:
            owner, label = name, self._choice.labels[name]
        key = owner, state.name, state.is_shared
        if key not in self._variables:
            wish, label = f"{owner}_{state.name}", f"{label}/{state.name}"
            self._variables[key] = self._draft.variable(wish, state.shape, label)
            self.shared.update([self._variables[key]] if state.is_shared else ())
        return self._variables[key]

    def _group(self, recipe: Recipe) -> str:
        """The name of what variables with the same settings share."""
        number = len(self._groups) + 1
        name = recipe.name if number == 1 else f"{recipe.name}_{number}"
        return self._groups.setdefault(_key(recipe), name)


def _heading(recipe: Recipe, values: Mapping[str, Any], result: Tensor) -> Operation:
    """The heading of the operations of an optimizer: its invocation, as if it were an
    operation, without state that it does not keep.
    """
    shown = tuple(p for p in recipe.fragment.parameters if p.name in values)
    fragment = replace(recipe.fragment, parameters=shown)
    operands = tuple(values[p.name] for p in fragment.operands)
    attributes: Any = {p.name: values[p.name] for p in fragment.attributes}
    return Operation(fragment, operands, attributes, (result,))


def _key(recipe: Recipe) -> object:
    """A key that is equal for variables that share state. State may depend on any setting,
    the learning rate too.
    """
    return recipe.name, id(recipe.fragment), repr(sorted(recipe.settings.items()))


# ---- State ----


def _states(
    recipe: Recipe, shape: Shape, learning_rate: Any, opset: OpSet
) -> list[State]:
    """The state that an optimizer keeps for a variable of a shape, by its settings: that
    which the new variable depends on, at once or in later steps.

    A state has the shape of its new value. As that may depend on the shapes of others, all
    are numbers at first, and grow.
    """
    names = [p.name for p in state_parameters(recipe.fragment)]
    shapes: dict[str, Shape] = dict.fromkeys(names, ())
    for _ in range(_ROUNDS):
        before = shapes
        shapes, reads = _trial(recipe, shape, shapes, learning_rate, opset)
        if shapes == before:
            # At once, then in twice as many steps each time.
            for _ in names:
                reads = {
                    new: read.union(*(reads.get(name, ()) for name in read))
                    for new, read in reads.items()
                }
            return [
                State(name, shapes[name], reads[name].isdisjoint(OPTIMIZER.begins))
                for name in names
                if name in reads["variable"]
            ]
    message = (
        f"the state of '{recipe.name}' has no shape: its new value is larger each time"
    )
    raise UsageError(message, recipe.fragment.span)


def _trial(
    recipe: Recipe,
    shape: Shape,
    shapes: Mapping[str, Shape],
    learning_rate: Any,
    opset: OpSet,
) -> tuple[dict[str, Shape], dict[str, set[str]]]:
    """An optimizer, emitted for state of some shapes: the shapes of the new state, and the
    parameters that each new value is computed from.
    """
    emit = Emitter(opset)
    wanted = {**dict.fromkeys(OPTIMIZER.begins, shape), **shapes}
    operands = {n: emit.tensor("scalar", extents, n) for n, extents in wanted.items()}
    is_input = isinstance(learning_rate, Tensor)
    rate = emit.tensor("scalar", (), LEARNING_RATE) if is_input else learning_rate
    results = recipe.emit(emit, {**_settings(recipe, rate), **operands})
    new = {name: results[NEW + name] for name in ("variable", *shapes)}
    if (extents := shape_of(new["variable"])) != shape:
        what = f"'{recipe.name}' gives a variable of shape {list(shape)}"
        message = f"{what} a value of shape {list(extents)}"
        raise UsageError(message, recipe.fragment.span)
    sources = {name: sources_of(emit.operations, value) for name, value in new.items()}
    reads = {
        name: {n for n, operand in operands.items() if operand in sources[name]}
        for name in new
    }
    return {name: shape_of(new[name]) for name in shapes}, reads


def _settings(recipe: Recipe, learning_rate: Any) -> dict[str, Any]:
    """The values of the parameters that are neither tensors of the variable nor state."""
    state = {p.name for p in state_parameters(recipe.fragment)}
    rate = {} if learning_rate is None else {LEARNING_RATE: learning_rate}
    return {
        p.name: rate[p.name] if p.name in rate else recipe.setting(p)
        for p in recipe.fragment.parameters[len(OPTIMIZER.begins) :]
        if p.name in rate or p.name not in state
    }
