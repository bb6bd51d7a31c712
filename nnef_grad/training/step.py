"""Training steps: the gradients of a loss, and what an optimizer makes of them, in one
document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from sys import float_info
from typing import Any

import numpy as np

from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.collector import collector_paused
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.stops import without_stops
from nnef_grad.ops.opset import OpSet
from nnef_grad.runtimes import in_single
from nnef_grad.storage.data import VariableData
from nnef_grad.training.adapters import Adapters, with_adapters
from nnef_grad.training.batch_statistics import (
    Running,
    statistics_of,
    with_batch_statistics,
)
from nnef_grad.training.choice import Choice, Groups, chosen, penalties, share_labels
from nnef_grad.training.draft import Draft, variables_of
from nnef_grad.training.forms import Carried, Form, Plan, Step, as_step, typed
from nnef_grad.training.gradients import Clipping, Gradients, clipped, divided, finite
from nnef_grad.training.losses import (
    Objective,
    read_losses,
    with_losses,
)
from nnef_grad.training.numbers import fold_numbers
from nnef_grad.training.optimizers import update
from nnef_grad.training.padding import with_padding
from nnef_grad.training.quantized import Quantized, with_quantization
from nnef_grad.training.recipes import LEARNING_RATE, NEW

LOSS_SCALE = "loss_scale"
# Numbers of single precision count no further.
MOST_BATCHES = 2**24


@public
@collector_paused()
def training_step(
    model: Graph | TorchModel,
    *,
    loss: str | Mapping[str, str],
    optimizer: str,
    data: Mapping[str, Any] | None = None,
    learning_rate: float | None = None,
    train: str | Sequence[str] | None = None,
    freeze: str | Sequence[str] = (),
    groups: Groups | None = None,
    adapters: Adapters | None = None,
    padding_rows: Mapping[str, int] | None = None,
    l2: float | Mapping[str, float] = 0.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    loss_scale: bool = False,
    batch_statistics: float | None = None,
    quantize: bool = False,
    recompute: float | None = None,
    state: Form | None = None,
    target: str = "nnef",
    rules: Rules | None = None,
) -> Step:
    """A training step as a graph: the loss of a batch, its gradients, and the new value
    of each variable.

    Args:
        model: the forward graph; or the result of `interop.from_torch`, with its data,
            whose parameters with `requires_grad` are trained.
        loss: the loss of the one output, such as "huber(delta = 0.5)"; or one for each
            of several tensors, by name, whose sum is minimized. Every loss also has the
            settings `reduction` ('mean', 'sum', or 'batchmean', the sum divided by the
            extent of axis 0) and `weight`, a factor. Your own loss is a fragment in a
            file: "mine.nnef:focal".
        optimizer: the optimizer, such as "adam(beta1 = 0.8)", or "mine.nnef:lion".
        data: the values of the variables, by label.
        learning_rate: the learning rate; by default, an input of the step.
        train: the variables to train, by label or name, with wildcards. By default, all
            scalar ones that the loss depends on, except those whose values or uses show
            that they are not parameters: masks, sines and cosines of positions, the
            initial zeros of a recurrent layer; a warning names these. Running
            statistics are never trained.
        freeze: variables not to train, in the same way.
        groups: optimizer settings for some variables, by label or name with wildcards:
            a mapping such as {"learning_rate": 0.1}, or a text. A
            `learning_rate_factor` multiplies the learning rate.
        adapters: the rank of an adapter (LoRA) beside some matrices and filters, by
            label or name with wildcards; or a mapping such as {"rank": 8, "alpha": 16}.
            Only adapters, and variables that `train` names, are trained. Their labels
            are that of the variable plus `.lora_A` or `.lora_B`.
        padding_rows: the row of a table that no gradient reaches in a lookup, by the
            label or name of the table: torch's `padding_idx`, which exports lose.
        l2: the factor of half the sum of squares of filters and matrices, which is
            added to the loss; or factors by label or name with wildcards.
        clip_norm: the largest norm of all gradients together.
        clip_value: the largest absolute value of an element of a gradient.
        accumulate: the number of batches whose gradients are averaged. If more than 1,
            the step adds them up, and its attribute `apply` is the step that uses them.
        loss_scale: whether to multiply the loss by an input before differentiation, and
            divide the gradients by it, so that small ones are not lost in half
            precision. If a gradient is not finite, the step changes nothing.
        batch_statistics: the momentum of running statistics. Batch normalization then
            uses the mean and variance of the batch, and the running ones move towards
            these. By default, it uses the running ones.
        quantize: whether to quantize tensors with quantization info in the forward
            pass; gradients pass straight through.
        recompute: the most memory for what is alive at a time, as in
            `nnef_grad.recompute`: tensors are computed again instead of kept.
        state: "variables", which the document updates, or "inputs", for which trained
            variables and optimizer state are inputs and outputs. The default is
            "variables" for the target nnef, and "inputs" for others, whose runtimes
            keep nothing.
        target: the runtimes to lower the graph for, as in `lower`.
        rules: your own rules, if any.

    Raises:
        UsageError: a name is unknown, a value does not fit, nothing is trained, or the
            target does not support the form of the state.
        NnefGradError: a loss or an optimizer has a mistake, or does not fit the model; an
            operation has no derivative.
    """
    form = _form(state, target)
    clipping = Clipping(
        _positive("the largest value", clip_value),
        _positive("the largest norm", clip_norm),
    )
    rate = _positive("the learning rate", learning_rate)
    _refuse_count(accumulate)
    rules = rules if rules is not None else Rules()
    if isinstance(data, VariableData) and isinstance(model, Graph):
        data = data.of(model)
    given = _given(model, data, train)
    graph = share_labels(given.graph)
    graph = with_padding(graph, padding_rows or {}, rules.opset)
    adapted = with_adapters(graph, adapters or {}, rules.opset)
    graph = adapted.graph
    values, shortened = typed(graph, {} if given.data is None else given.data)
    values |= adapted.data
    statistics = statistics_of(graph)
    recipes = read_losses(graph, loss)
    quantized = _quantized(graph, quantize, rules.opset)
    running = _running(quantized.graph, batch_statistics, given.updates, rules.opset)
    choice = chosen(
        running.graph,
        recipes,
        optimizer,
        train=_trained(train, adapted.labels) if adapters else given.train,
        freeze=freeze,
        learning_rate=rate,
        groups=groups or {},
        data=in_single(values, [np.float16]),
        running=statistics,
    )
    rates = {LEARNING_RATE: choice.needs_learning_rate, LOSS_SCALE: loss_scale}
    _refuse_taken(running.graph, [name for name, is_input in rates.items() if is_input])
    objective = with_losses(
        running.graph,
        recipes,
        penalties(running.graph, choice, l2),
        results=quantized.results,
        kept=[*running.statistics.values()],
        opset=rules.opset,
    )
    backward = differentiate(
        objective.graph,
        wrt=[*choice.recipes],
        outputs=[objective.loss],
        seed="input" if loss_scale else "ones",
        with_outputs=True,
        rules=rules,
    )
    graph = fold_numbers(without_stops(backward.graph), rules.opset)
    moved = [Carried(*pair) for pair in running.statistics.items()]
    names = {graph.tensors[seed]: LOSS_SCALE for seed in backward.seeds.values()}
    if not loss_scale:
        # They are outputs as they are.
        names |= {new: NEW + graph.names[old] for old, new in moved}
    graph = _renamed(graph, names)
    assembly = _Assembly(
        given.graph, objective, choice, clipping, accumulate, loss_scale, rules.opset
    )
    plans = assembly.plans(graph, backward.gradients, moved)
    found = [
        as_step(
            one,
            model=given.graph,
            objective=objective.graph,
            backward=backward,
            data=values,
            form=form,
            target=target,
            recompute=recompute,
        )
        for one in plans
        if one is not None
    ]
    warnings = [
        *shortened,
        *choice.warnings,
        *objective.warnings,
        *backward.warnings,
        *(warning for step in found for warning in step.warnings),
    ]
    if batch_statistics is None and statistics:
        warnings.append(
            "batch normalization uses the statistics of the model, as in evaluation, and"
            " not those of the batch"
        )
    if batch_statistics is not None and not statistics:
        warnings.append("there is no batch normalization with running statistics")
    following = found[1] if len(found) > 1 else None
    first = replace(found[0], data={**found[0].data, **adapted.scales})
    return replace(
        first,
        apply=following,
        accumulate=accumulate,
        trained=tuple(choice.labels.values()),
        stored=data if isinstance(data, VariableData) else None,
        warnings=tuple(warnings),
    )


def _trained(train: str | Sequence[str] | None, adapters: Sequence[str]) -> list[str]:
    """The labels of adapters, and what is trained beside them."""
    others = [train] if isinstance(train, str) else train or ()
    return [*map(escape, adapters), *others]


def _positive(what: str, value: float | None) -> float | None:
    """A number, which may have been given as an integer."""
    if value is not None and not 0 < value <= float_info.max:
        raise UsageError(f"{what} must be a positive number, not {value}")
    return None if value is None else float(value)


def _refuse_count(batches: int) -> None:
    """Raises `UsageError` where the gradients of so many batches cannot be averaged."""
    message = f"gradients of {batches} batches cannot be accumulated"
    if batches < 1:
        raise UsageError(f"{message}: 1 is the least")
    if batches > MOST_BATCHES:
        raise UsageError(f"{message}: {MOST_BATCHES} is the most")


def _renamed(graph: Graph, names: Mapping[Tensor, str]) -> Graph:
    """The graph with other names for some tensors, as far as these are free."""
    known = graph.tensors
    others = {tensor: name for tensor, name in names.items() if name not in known}
    return replace(graph, names={**graph.names, **others})


def _refuse_taken(graph: Graph, names: Sequence[str]) -> None:
    """Raises `UsageError` where the graph has a tensor of the name of an input that the
    step is to have: callers know these inputs by their names.
    """
    for name in names:
        if name in graph.tensors:
            message = f"graph '{graph.name}' has a tensor '{name}'"
            raise UsageError(f"{message}, which an input of the step is called")


def _form(state: Form | None, target: str) -> Form:
    if state not in (None, "variables", "inputs"):
        raise UsageError(f"the state is in 'variables' or 'inputs', not '{state}'")
    if target == "nnef":
        return state or "variables"
    if state == "variables":
        message = f"the runtimes of target '{target}' keep no variables between runs"
        raise UsageError(f"{message}: their state is in inputs")
    return "inputs"


@dataclass(frozen=True)
class _Given:
    """A model, as it was given.

    Attributes:
        graph: the graph, without the outputs that are new values of variables.
        data: the values of its variables, by label.
        train: the variables to train.
        updates: the tensor that is the new value of a variable, by the names of both.
    """

    graph: Graph
    data: Mapping[str, Any] | None
    train: str | Sequence[str] | None
    updates: Mapping[str, str] = field(default_factory=dict)


def _given(
    model: Graph | TorchModel,
    data: Mapping[str, Any] | None,
    train: str | Sequence[str] | None,
) -> _Given:
    if isinstance(model, Graph):
        return _Given(model, data, train)
    trained = model.trainable if train is None else train
    updates = {
        model.buffers[n]: y for n, y in model.updates.items() if n in model.buffers
    }
    names, updated = model.graph.names, {*model.updates.values()}
    outputs = tuple(y for y in model.graph.outputs if names[y] not in updated)
    graph = replace(model.graph, outputs=outputs)
    return _Given(graph, data if data is not None else model.data, trained, updates)


def _quantized(graph: Graph, quantize: bool, opset: OpSet) -> Quantized:
    if quantize:
        return with_quantization(graph, opset)
    return Quantized(replace(graph, quantization={}), {})


def _running(
    graph: Graph, momentum: float | None, updates: Mapping[str, str], opset: OpSet
) -> Running:
    known = graph.tensors
    own = {known[old]: known[new] for old, new in updates.items()}
    if momentum is None:
        return Running(graph, own)
    running = with_batch_statistics(graph, momentum, opset)
    return replace(running, statistics={**own, **running.statistics})


@dataclass(frozen=True)
class _Assembly:
    """Puts gradients and optimizers together."""

    model: Graph
    objective: Objective
    choice: Choice
    clipping: Clipping
    accumulate: int
    loss_scale: bool
    opset: OpSet

    def plans(
        self, graph: Graph, gradients: Mapping[str, str], moved: Sequence[Carried]
    ) -> tuple[Plan, Plan | None]:
        """The step; or one that adds gradients up, and one that uses their sums.

        Args:
            graph: the loss, and the gradients of the variables to train.
            gradients: the names of these gradients, by the names of the variables.
            moved: the running statistics that it computes too.
        """
        draft, tensors = self._draft(graph), graph.tensors
        found: Gradients = {v: tensors[name] for v, name in gradients.items()}
        is_finite = None
        if self.loss_scale:
            scale = tensors[LOSS_SCALE]
            found = divided(draft, found, scale, "unscaled")
            is_finite = finite(draft, found)
        loss = [tensors[self.objective.loss]]
        if self.accumulate == 1:
            carried = [*self._updated(draft, found), *moved]
            name, notes = f"{self.model.name}_step", self._notes("A training step")
            return _plan(draft, loss, (), carried, is_finite, name, notes), None
        sums = self._sums(draft)
        added = [
            Carried(total, draft.emit("add", total, found[name], hint="sum"))
            for name, total in sums.items()
        ]
        trained = [tensors[name] for name in self.choice.recipes]
        name = f"{self.model.name}_accumulate"
        notes = self._notes("The gradients of a batch, added to those of others,")
        carried = [*added, *moved]
        adding = _plan(draft, loss, trained, carried, is_finite, name, notes)
        return adding, self._using(graph)

    def _using(self, graph: Graph) -> Plan:
        """The step that uses the sums of gradients, and sets them to zero."""
        trained = {*self.choice.recipes}
        declared = [
            op for op in variables_of(graph) if graph.names[op.outputs[0]] in trained
        ]
        draft = self._draft(
            Graph(self.model.name, (), (), tuple(declared), graph.names)
        )
        sums = self._sums(draft)
        gradients = divided(draft, sums, float(self.accumulate), "mean")
        zeros = [
            Carried(total, draft.emit("constant", shape=total.shape, value=(0.0,)))
            for total in sums.values()
        ]
        carried = [*self._updated(draft, gradients), *zeros]
        count = self.accumulate
        note = f"A training step of '{self.model.name}' with the gradients of {count} batches."
        return _plan(draft, [], (), carried, None, f"{self.model.name}_apply", [note])

    def _updated(self, draft: Draft, gradients: Gradients) -> list[Carried]:
        """The new values of variables and of the state of optimizers."""
        rate = None
        if self.choice.needs_learning_rate:
            rate = draft.external(LEARNING_RATE, (), before=LOSS_SCALE)
        found = clipped(draft, gradients, self.clipping)
        return update(draft, self.choice, found, rate, self.opset)

    def _sums(self, draft: Draft) -> dict[str, Tensor]:
        """The variables that gradients are added up in."""
        return {
            name: draft.variable(
                f"{name}_gradients",
                draft.tensor(name).shape,
                f"{self.choice.labels[name]}/gradients",
            )
            for name in self.choice.recipes
        }

    def _notes(self, what: str) -> list[str]:
        """The lines at the head of a document with a loss."""
        objective = self.objective
        losses = ", ".join(f"{r} of {y}" for y, r in objective.losses.items())
        optimizers = dict.fromkeys(r.name for r in self.choice.recipes.values())
        how = " and ".join(optimizers)
        targets = objective.targets.items()
        return [
            f"{what} of '{self.model.name}': {losses}, by {how}.",
            *(
                f"  {target}: input, the target of {output}"
                for output, target in targets
            ),
            f"  {objective.loss}: the loss before the step",
        ]

    def _draft(self, graph: Graph) -> Draft:
        recipes = self.choice.recipes.values()
        return Draft(graph, self.opset, recipes, self.model.labels.values())


def _plan(
    draft: Draft,
    reports: Sequence[Tensor],
    read: Sequence[Tensor],
    carried: Sequence[Carried],
    is_finite: Tensor | None,
    name: str,
    notes: Sequence[str],
) -> Plan:
    """The plan of what was emitted: outputs besides new values, variables that another step
    changes, and those that this one does. Where something is not finite, nothing changes.
    """
    emit = draft.emit
    emit.naming = str
    named = []
    for variable, value in carried:
        if is_finite is not None:
            value = emit("select", is_finite, value, variable, hint="kept")
        named.append(Carried(variable, draft.named(value, NEW + emit.names[variable])))
    flags = []
    if is_finite is not None:
        flags = [draft.named(emit("select", is_finite, 1.0, 0.0), "is_finite")]
    outputs = [*reports, *(new for _, new in named), *flags]
    return Plan(
        draft.finished(outputs, name=name, notes=tuple(notes)),
        tuple(read),
        tuple(named),
        (*reports, *flags),
        frozenset(draft.made),
    )
