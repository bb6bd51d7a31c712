"""The two forms of the state of a step: variables that the document updates, or inputs and
outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from nnef_grad.autodiff import recompute as recomputation
from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.passes import replace_variables
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.model import declared_variables
from nnef_grad.runtimes import in_single
from nnef_grad.storage.containers import APPLY
from nnef_grad.storage.data import VariableData, arrays_of
from nnef_grad.storage.output import ONNX_TARGETS
from nnef_grad.targets import lower_beside
from nnef_grad.targets.tensors import DTYPES

Form = Literal["variables", "inputs"]

# Targets that compute in single precision with data of half precision.
_MIXING = ("nnef", *ONNX_TARGETS)


@dataclass(frozen=True)
class Step:
    """A training step, as a graph.

    Attributes:
        graph: the graph. Its inputs are those of the model in order, `target_<output>`
            for each output with a loss, `learning_rate` if it is not fixed,
            `loss_scale` if there is one, `noise_<variable>` for each trained variable
            if there is noise; then, if state is in inputs, each trained
            variable under its own name, and the state. Its outputs are the loss; then,
            if state is in inputs, the new values in the same order; then `is_finite`,
            1.0 or 0.0, if the loss has a scale.
        inputs: the names of the inputs, in order.
        outputs: the names of the outputs, in order.
        state: the new value of each variable that changes: an output for each input if
            state is in inputs, otherwise the result of an update for each variable.
        data: the known initial values: of variables by label, of inputs by name.
        labels: the label of each trained variable and each tensor of state, by its
            name.
        model: the graph that is trained.
        objective: the graph of the loss: the model, the losses and the penalties.
        backward: its backward graph, with the gradients before clipping.
        apply: the step that uses the gradients, if this one only adds them up.
        accumulate: the number of batches whose gradients are averaged.
        trained: the labels of the trained variables.
        noise: the names of the inputs of standard normal numbers.
        stored: the files of the model, if its values came from there; unchanged values
            share them.
        target: the target that it was lowered for.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: Mapping[str, str]
    data: Mapping[str, Array] = field(repr=False)
    labels: Mapping[str, str] = field(repr=False)
    model: Graph = field(repr=False)
    objective: Graph = field(repr=False)
    backward: Backward = field(repr=False)
    apply: Step | None = None
    accumulate: int = 1
    trained: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    stored: VariableData | None = field(default=None, repr=False)
    target: str = "nnef"
    warnings: tuple[str, ...] = ()

    @property
    def shown(self) -> Backward:
        """The step as a backward graph, for `nnef_grad.report`."""
        return replace(self.backward, graph=self.graph)

    @property
    def parts(self) -> dict[str, Step]:
        """The step, and the one that uses the gradients, by their subfolders."""
        return {"": self} if self.apply is None else {"": self, APPLY: self.apply}

    @property
    def values(self) -> dict[str, Array]:
        """The data, all by label."""
        fed = {n: label for n, label in self.labels.items() if n in self.inputs}
        return {fed.get(place, place): value for place, value in self.data.items()}


def in_form(
    step: Step,
    data: Mapping[str, Array],
    form: Form,
    target: str,
    recompute: float | None,
) -> Step:
    """A step whose state is in variables, in a form for a target, with the values that it
    begins with: those of the model, by label, and zeros.
    """
    graph, state, labels = step.graph, step.state, step.labels
    # Inputs have no labels: the notes alone say whose values the model is to get.
    whose = dict[str, str]()
    if form == "inputs":
        graph, state = _with_inputs(graph, labels)
        own = {*step.objective.labels.values()}
        whose = {n: f", '{labels[n]}'" for n in state if labels[n] in own}
    notes = (f"  {y}: the new value of {x}{whose.get(x, '')}" for x, y in state.items())
    graph = replace(graph, notes=(*graph.notes, *notes))
    warnings: tuple[str, ...] = ()
    if recompute is not None:
        spared = recomputation.recompute(graph, recompute)
        graph, warnings = spared.graph, spared.warnings
    lowered = lower_beside(step.graph.labels.values(), graph, target)
    # A target may change names.
    inputs, outputs = lowered.graph.input_names, lowered.graph.output_names
    before = (*graph.input_names, *graph.output_names)
    names = dict(zip(before, (*inputs, *outputs), strict=True))
    values = _values(step, graph, data, names)
    if target not in _MIXING:
        values = in_single(values, [np.float16])
    return replace(
        step,
        graph=lowered.graph,
        inputs=inputs,
        outputs=outputs,
        state={names.get(old, old): names.get(new, new) for old, new in state.items()},
        data={**values, **lowered.data},
        labels={names.get(name, name): label for name, label in labels.items()},
        noise=tuple(names.get(name, name) for name in step.noise),
        target=target,
        warnings=warnings,
    )


def _values(
    step: Step, graph: Graph, data: Mapping[str, Array], names: Mapping[str, str]
) -> dict[str, Array]:
    """The values to begin with, by what a variable of a step is called in the graph of a
    form: its label, or the name of its input.
    """
    values, own = dict[str, Array](), {*step.objective.labels.values()}
    fed = {*graph.inputs}
    variables = zip(step.graph.variables, step.graph.labels.items(), strict=True)
    for variable, (name, label) in variables:
        place = names.get(name, name) if variable in fed else label
        if place in values:
            message = f"'{place}' is the name of an input and the label of a variable"
            raise UsageError(f"{message}: give the variable another label")
        if label not in own:
            values[place] = np.zeros(variable.shape, np.float32)
        elif label in data:
            values[place] = data[label]
            # A step moves them by less than half precision tells apart.
            if name in step.labels and data[label].dtype == np.float16:
                values[place] = data[label].astype(np.float32)
    return values


def typed(graph: Graph, data: Mapping[str, Any]) -> tuple[dict[str, Array], list[str]]:
    """Data of the types of the graph, in which labels are unique, and a warning if some
    have more digits than files and most runtimes keep: double precision stays, for those
    that compute in it, and half precision, in which files share the data of a model.

    Raises:
        UsageError: one is of a kind or a shape that its variable cannot have.
    """
    longer, declared = list[str](), declared_variables(graph)
    if isinstance(data, VariableData):
        data = arrays_of(declared, data)
    values = dict(data)
    for label, dtype, shape, _ in declared:
        if label not in values:
            continue
        try:
            value, wanted = np.asarray(values[label]), DTYPES[dtype]
        except ValueError as error:
            message = f"the data of variable '{label}' are not an array: {error}"
            raise UsageError(message) from None
        if not np.can_cast(value.dtype, wanted, "same_kind"):
            what = f"variable '{label}' is a tensor<{dtype}>"
            raise UsageError(f"{what}, and its data are {value.dtype}")
        if value.shape != shape:
            what = f"variable '{label}' of shape {list(shape)}"
            raise UsageError(f"{what} is given data of shape {list(value.shape)}")
        single = value.astype(wanted, copy=False)
        is_long = value.dtype == np.float64
        if is_long and not np.array_equal(single, value, equal_nan=True):
            longer.append(f"'{label}'")
        values[label] = value if value.dtype in (np.float16, np.float64) else single
    what = f"files store in single precision the data of {', '.join(longer)}"
    return values, [what] if longer else []


def in_inputs(step: Step) -> Step:
    """The step with its state in inputs: itself, or one that does the same for a runtime
    that keeps no variables.
    """
    updates = [op for op in step.graph.operations if op.name == "update"]
    if not updates:
        return step
    updated = (step.graph.names[op.inputs[0]] for op in updates)
    graph, state = _with_inputs(step.graph, dict.fromkeys([*step.labels, *updated]))
    names = {label: name for name, label in step.labels.items()}
    return replace(
        step,
        graph=replace(graph, notes=()),
        inputs=graph.input_names,
        outputs=graph.output_names,
        state=state,
        data={names.get(label, label): v for label, v in step.data.items()},
    )


def _with_inputs(graph: Graph, changed: Iterable[str]) -> tuple[Graph, dict[str, str]]:
    """A graph with variables that steps change as inputs, and the new values that it gives
    them as outputs, between the loss and what it reports besides. What reads the result of
    such an update reads the new value; updates of other variables stay.
    """
    names, tensors = graph.names, graph.tensors
    variables = {tensors[name]: None for name in changed}
    carried, values = dict[Tensor, Any](), dict[Tensor, Any]()

    def without_updates(op: Operation) -> Fate:
        if op.name != "update" or op.inputs[0] not in variables:
            return op
        carried[op.inputs[0]] = values[op.outputs[0]] = op.inputs[1]
        return {op.outputs[0]: op.inputs[1]}

    without = sweep(graph, without_updates)
    fed = [*(x for x in variables if x not in carried), *carried]
    reports = [t for t in graph.outputs if t not in values]
    outputs = (*reports[:1], *carried.values(), *reports[1:])
    state = {names[old]: names[new] for old, new in carried.items()}
    return replace_variables(replace(without, outputs=outputs), fed), state
