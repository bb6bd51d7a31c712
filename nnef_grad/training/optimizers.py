"""Optimizers: the new values of variables by their gradients, and the state that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of, tensors
from nnef_grad.graph.names import step_names
from nnef_grad.ops.opset import OpSet
from nnef_grad.training.choice import Choice
from nnef_grad.training.draft import Draft, sources_of
from nnef_grad.training.forms import Carried
from nnef_grad.training.recipes import (
    FACTOR,
    LEARNING_RATE,
    NEW,
    OPTIMIZER,
    Recipe,
    opset_of,
    state_parameters,
)

# How often the shapes of state are inferred from each other.
_ROUNDS = 8


@dataclass(frozen=True)
class State:
    """A tensor that an optimizer keeps from step to step, zeros in the beginning.

    Attributes:
        name: its name in the fragment.
        shape: its shape.
        is_shared: whether it is the same for all variables, as it depends on none.
    """

    name: str
    shape: Shape
    is_shared: bool


def update(
    draft: Draft,
    choice: Choice,
    gradients: Mapping[str, Tensor],
    learning_rate: Tensor | None,
    opset: OpSet,
) -> list[Carried]:
    """Emits the new values of variables, and those of the state of their optimizers.

    Args:
        draft: the graph that has the variables and the gradients.
        choice: the variables, and how each is trained.
        gradients: their gradients, by the names of the variables.
        learning_rate: the input with the learning rate, for optimizers that are given
            none.
        opset: the operations of the graph.

    Returns:
        The variables in order, then the state of each.
    """
    kept = _Kept(draft, choice, learning_rate, opset)
    variables = [kept.step(name, gradients[name]) for name in choice.recipes]
    return [*variables, *kept.state]


class _Kept:
    """The state of several optimizers."""

    def __init__(
        self, draft: Draft, choice: Choice, learning_rate: Tensor | None, opset: OpSet
    ) -> None:
        self._carried: dict[Tensor, Carried] = {}
        self._draft = draft
        self._choice = choice
        self._learning_rate = learning_rate
        self._opset = opset
        self._states: dict[object, list[State]] = {}
        self._groups: dict[object, str] = {}
        self._variables: dict[object, Tensor] = {}
        # The learning rate and state, and what is computed from nothing else.
        self._shared = set(tensors([learning_rate]))

    @property
    def state(self) -> list[Carried]:
        """The state of each variable, then that which all share."""
        return sorted(self._carried.values(), key=lambda c: c.variable in self._shared)

    def step(self, name: str, gradient: Tensor) -> Carried:
        """Emits the new value of a variable, and the new state."""
        recipe, emit = self._choice.recipes[name], self._draft.emit
        rate, variable = self._rate(recipe), self._draft.tensor(name)
        states = self._states_of(recipe, variable.shape, rate)
        held = {state.name: self._held(state, name) for state in states}
        values = _values(recipe, variable, gradient, rate)
        unused = {p.name: 0.0 for p in state_parameters(recipe.fragment)}
        emit.naming = step_names(f"{{}}_{name}")
        new = emit.tensor("scalar", variable.shape, NEW + name)
        emit.origin = _heading(recipe, {**values, **held}, new)
        before = len(emit.operations)
        results = recipe.emit(emit, {**values, **unused, **held})
        self._name_shared(emit.operations[before:], recipe, f"_{name}")
        for state, tensor in held.items():
            self._carry(tensor, results[NEW + state])
        emit.origin = None
        return Carried(variable, results[NEW + "variable"])

    def _rate(self, recipe: Recipe) -> Any:
        """The learning rate, times its factor."""
        rate = recipe.settings.get(LEARNING_RATE, self._learning_rate)
        factor = recipe.settings.get(FACTOR, 1.0)
        if isinstance(rate, Tensor) and factor != 1.0:
            emit = self._draft.emit
            emit.naming = str
            word = f"{self._group(recipe)}_{LEARNING_RATE}"
            rate = emit("mul", rate, factor, hint=word)
            self._shared.add(rate)
            return rate
        return rate * factor if isinstance(rate, float) else rate

    def _name_shared(
        self, operations: Sequence[Operation], recipe: Recipe, ending: str
    ) -> None:
        """Calls what does not depend on a variable after the optimizer."""
        group = self._group(recipe)
        hints = self._draft.emit.hints
        for op in operations:
            if op.inputs and self._shared.issuperset(op.inputs):
                self._shared.update(op.outputs)
                for tensor in op.outputs:
                    word = hints[tensor].replace(ending, "", 1)
                    hints[tensor] = f"{group}_{word}"

    def _states_of(self, recipe: Recipe, shape: Shape, rate: Any) -> list[State]:
        key = _key(recipe), shape
        if key not in self._states:
            self._states[key] = _states(recipe, shape, rate, self._opset)
        return self._states[key]

    def _carry(self, tensor: Tensor, new: Any) -> None:
        """Carries state on, the first time that it gets its new value."""
        if tensor in self._carried:
            return
        if not isinstance(new, Tensor):
            new = self._draft.emit("constant", shape=tensor.shape, value=(new,))
        self._carried[tensor] = Carried(tensor, new)

    def _held(self, state: State, name: str) -> Tensor:
        """The variable of a state: of a variable, or of all that share its optimizer."""
        owner = label = self._group(self._choice.recipes[name])
        if not state.is_shared:
            owner, label = name, self._choice.labels[name]
        key = owner, state.name, state.is_shared
        if key not in self._variables:
            made = self._draft.variable(
                f"{owner}_{state.name}", state.shape, f"{label}/{state.name}"
            )
            self._variables[key] = made
            self._shared |= {made} if state.is_shared else set()
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
    return Operation(
        fragment,
        tuple(values[p.name] for p in fragment.operands),
        {p.name: values[p.name] for p in fragment.attributes},  # type: ignore[arg-type]
        (result,),
    )


def _key(recipe: Recipe) -> object:
    """A key that is equal for variables that share state. State may depend on any setting,
    the learning rate too.
    """
    return recipe.name, id(recipe.fragment), repr(sorted(recipe.settings.items()))


# ---- State ----


def _states(
    recipe: Recipe, shape: Shape, learning_rate: Any, opset: OpSet
) -> list[State]:
    """The state that an optimizer keeps for a variable of a shape, by its settings.

    A state has the shape of its new value. As that may depend on the shapes of others, all
    are numbers at first, and grow.

    Raises:
        NnefGradError: the fragment does not return the new value of a parameter, or
            gives it another shape than that of the variable.
    """
    names = [p.name for p in state_parameters(recipe.fragment)]
    shapes: dict[str, Shape] = dict.fromkeys(names, ())
    for _ in range(_ROUNDS):
        tried = _Trial(recipe, shape, shapes, learning_rate, opset)
        if tried.shapes == shapes:
            return [
                State(name, shapes[name], tried.is_shared(name))
                for name in names
                if name in tried.needed()
            ]
        shapes = tried.shapes
    message = (
        f"the state of '{recipe.name}' has no shape: its new value is larger each time"
    )
    raise UsageError(message, recipe.fragment.span)


class _Trial:
    """An optimizer, emitted for state of some shapes.

    Attributes:
        shapes: the shapes of the new state.
    """

    def __init__(
        self,
        recipe: Recipe,
        shape: Shape,
        shapes: Mapping[str, Shape],
        learning_rate: Any,
        opset: OpSet,
    ) -> None:
        self._emitter = Emitter(opset_of([recipe], opset))
        variable, gradient = (self._tensor(shape, name) for name in OPTIMIZER.begins)
        rate = learning_rate
        if isinstance(rate, Tensor):
            rate = self._tensor((), LEARNING_RATE)
        self._given = {variable, gradient}
        self._state = {name: self._tensor(shapes[name], name) for name in shapes}
        values = _values(recipe, variable, gradient, rate)
        self._results = recipe.emit(self._emitter, {**values, **self._state})
        found = shape_of(self._results[NEW + "variable"])
        if found != shape:
            what = f"'{recipe.name}' gives a variable of shape {list(shape)}"
            message = f"{what} a value of shape {list(found)}"
            raise UsageError(message, recipe.fragment.span)
        self.shapes = {name: shape_of(self._results[NEW + name]) for name in shapes}

    def _tensor(self, shape: Shape, name: str) -> Tensor:
        return self._emitter.tensor("scalar", shape, name)

    def needed(self) -> set[str]:
        """The state that the new variable depends on, at once or in later steps."""
        return self._reached(self._sources(NEW + "variable"))

    def is_shared(self, name: str) -> bool:
        """Whether a state depends on no variable."""
        every = {name, *self._reached(self._sources(NEW + name))}
        return all(self._given.isdisjoint(self._sources(NEW + n)) for n in every)

    def _reached(self, sources: set[Tensor]) -> set[str]:
        """The state among tensors, and what its new values depend on."""
        found = set[str]()
        pending = [name for name, tensor in self._state.items() if tensor in sources]
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                sources = self._sources(NEW + name)
                pending += [n for n, t in self._state.items() if t in sources]
        return found

    def _sources(self, result: str) -> set[Tensor]:
        """All that a result is computed from."""
        return sources_of(self._emitter.operations, self._results[result])


def _values(
    recipe: Recipe, variable: Tensor, gradient: Tensor, learning_rate: Any
) -> dict[str, Any]:
    """The values of the parameters that are no state."""
    first, second, *others = recipe.fragment.parameters
    values: dict[str, Any] = {first.name: variable, second.name: gradient}
    state = {p.name for p in state_parameters(recipe.fragment)}
    for parameter in others:
        if parameter.name == LEARNING_RATE and learning_rate is not None:
            values[LEARNING_RATE] = learning_rate
        elif parameter.name not in state:
            values[parameter.name] = recipe.setting(parameter)
    return values
