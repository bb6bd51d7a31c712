"""Training steps: the gradients of a loss, and what an optimizer makes of them, in one
document.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from typing import Any

import numpy as np

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.choices import Loss, Optimizer, Target
from nnef_grad.base.errors import UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.zeros import without_zeros
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.stops import without_stops
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import number
from nnef_grad.runtimes import in_single
from nnef_grad.storage.data import VariableData
from nnef_grad.training.adapters import Adapters, with_adapters
from nnef_grad.training.choice import Choice, Groups, chosen, penalties, share_labels
from nnef_grad.training.draft import Draft
from nnef_grad.training.forms import Form, Step, in_form, typed
from nnef_grad.training.gradients import (
    Clipping,
    Gradients,
    Privacy,
    clipped,
    clipped_per_example,
    finite,
    noisy,
    of_each,
    positive,
    privacy_of,
    refuse_count,
)
from nnef_grad.training.losses import Objective, read_losses, with_losses
from nnef_grad.training.optimizers import update
from nnef_grad.training.preparation import (
    statistics_of,
    with_batch_statistics,
    with_padding,
    with_quantization,
)
from nnef_grad.training.recipes import LEARNING_RATE, LOSS_SCALE, NEW


@public
@collector_paused()
def training_step(
    model: Graph | TorchModel,
    *,
    loss: Loss | Mapping[str, Loss],
    optimizer: Optimizer,
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
    clip_per_example: float | None = None,
    noise: float | None = None,
    accumulate: int = 1,
    loss_scale: bool = False,
    batch_statistics: float | None = None,
    quantize: bool = False,
    recompute: float | None = None,
    state: Form | None = None,
    target: Target = "nnef",
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
        clip_per_example: the largest norm of the gradients of each example together, for
            private training (DP-SGD), before they are added up.
        noise: the standard deviation of the noise that is added to this sum, divided by
            `clip_per_example`. It is drawn outside: the step has an input of standard
            normal numbers for each trained variable; see `training.draw_noise`.
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
        positive("the largest value", clip_value),
        positive("the largest norm", clip_norm),
    )
    rate = positive("the learning rate", learning_rate)
    refuse_count(accumulate)
    privacy = privacy_of(clip_per_example, noise, bool(l2), loss_scale)
    rules = rules if rules is not None else Rules()
    forward = _prepared(model, data, padding_rows or {}, adapters or {}, rules.opset)
    # Before others are added to the outputs.
    recipes = read_losses(forward.graph, loss)
    forward = forward.quantized() if quantize else forward
    forward = replace(forward, graph=replace(forward.graph, quantization={}))
    if batch_statistics is not None:
        forward = forward.with_moments(batch_statistics)
    choice = chosen(
        forward.graph,
        recipes,
        optimizer,
        train=forward.trained(train),
        freeze=freeze,
        learning_rate=rate,
        groups=groups or {},
        data=in_single(forward.values, [np.float16]),
        running=forward.statistics,
    )
    inputs = {LEARNING_RATE: choice.needs_learning_rate, LOSS_SCALE: loss_scale}
    _refuse_names(forward.graph, [name for name in inputs if inputs[name]])
    objective = with_losses(
        forward.graph,
        recipes,
        penalties(forward.graph, choice, l2),
        results=forward.results,
        kept=[*forward.moved.values()],
        per_example=privacy is not None,
        opset=rules.opset,
    )
    backward = differentiate(
        objective.graph,
        wrt=[*choice.recipes],
        outputs=[objective.differentiated],
        seed="input" if loss_scale else "ones",
        with_outputs=True,
        per_example=privacy is not None,
        rules=rules,
    )
    if accumulate > 1 and has_symbols(objective.divisor):
        message = "gradients of several batches of examples are averaged if the batch"
        raise UsageError(f"{message} has a number of them, and not {objective.divisor}")
    assembly = _Assembly(
        forward, objective, backward, choice, clipping, privacy, accumulate, loss_scale
    )
    first, *further = (
        in_form(step, forward.values, form, target, recompute)
        for step in assembly.steps()
    )
    warnings = [*forward.warnings, *choice.warnings, *objective.warnings]
    warnings += backward.warnings
    warnings += [warning for step in (first, *further) for warning in step.warnings]
    if batch_statistics is None and forward.statistics:
        warnings.append(
            "batch normalization uses the statistics of the model, as in evaluation, and"
            " not those of the batch"
        )
    if batch_statistics is not None and not forward.statistics:
        warnings.append("there is no batch normalization with running statistics")
    return replace(
        first,
        data={**first.data, **forward.scales},
        apply=further[0] if further else None,
        accumulate=accumulate,
        trained=tuple(choice.labels.values()),
        stored=forward.stored,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Forward:
    """The forward graph, as it is differentiated."""

    # That of the user, and the same with adapters and what else a step changes.
    model: Graph
    graph: Graph
    # The values of variables by label, and where they are stored.
    values: Mapping[str, Any]
    stored: VariableData | None
    # The variables of adapters by label, and their factors, which a step only stores.
    factors: Mapping[str, Any]
    scales: Mapping[str, Any]
    # The variables that the model says are to be trained, if it does.
    trainable: Sequence[str] | None
    # The running statistics of batch normalizations.
    statistics: Collection[Tensor]
    # The new values of variables that are moved, but not trained.
    moved: Mapping[Tensor, Tensor]
    opset: OpSet
    warnings: Sequence[Any]
    # The quantized tensors in place of others.
    results: Mapping[Tensor, Tensor] = field(default_factory=dict)

    def trained(self, train: str | Sequence[str] | None) -> str | Sequence[str] | None:
        """The variables to train, if any are named: with adapters, theirs and others."""
        if not self.factors:
            return self.trainable if train is None else train
        others = [train] if isinstance(train, str) else train or ()
        return [*map(escape, self.factors), *others]

    def quantized(self) -> _Forward:
        """The same with quantized tensors, where there is quantization info."""
        graph, results = with_quantization(self.graph, self.opset)
        return replace(self, graph=graph, results=results)

    def with_moments(self, momentum: float) -> _Forward:
        """The same with the moments of the batch, towards which running ones move."""
        graph, running = with_batch_statistics(self.graph, momentum, self.opset)
        return replace(self, graph=graph, moved={**self.moved, **running})


def _prepared(
    model: Graph | TorchModel,
    data: Mapping[str, Any] | None,
    padding_rows: Mapping[str, int],
    adapters: Adapters,
    opset: OpSet,
) -> _Forward:
    """The forward graph, with adapters and rows for padding."""
    own, initial, trainable, updates = _parts(model)
    if isinstance(data, VariableData) and own is model:
        data = data.of(own)
    graph = with_padding(share_labels(own), padding_rows, opset)
    graph, factors, scales = with_adapters(graph, adapters, opset)
    values, warnings = typed(graph, initial if data is None else data)
    tensors, values = graph.tensors, {**values, **factors}
    stored = data if isinstance(data, VariableData) else None
    moved = {tensors[old]: tensors[new] for old, new in updates.items()}
    return _Forward(
        model=own, graph=graph, values=values, stored=stored, factors=factors,
        scales=scales, trainable=trainable, statistics=statistics_of(graph),
        moved=moved, opset=opset, warnings=warnings,
    )  # fmt: skip


def _refuse_names(graph: Graph, inputs: Iterable[str]) -> None:
    """Raises `UsageError` if tensors have the names by which callers know inputs."""
    for name in filter(graph.tensors.__contains__, inputs):
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


def _parts(
    model: Graph | TorchModel,
) -> tuple[Graph, Mapping[str, Any], Sequence[str] | None, Mapping[str, str]]:
    """The graph of a model, without the outputs that are new values of variables; its
    data; the variables to train, if it says so; and the tensor that is the new value of a
    variable, by the names of both.
    """
    if isinstance(model, Graph):
        return model, {}, None, {}
    graph, buffers = model.graph, model.buffers
    updates = {buffers[n]: y for n, y in model.updates.items() if n in buffers}
    names, updated = graph.names, {*model.updates.values()}
    outputs = tuple(y for y in graph.outputs if names[y] not in updated)
    graph = replace(graph, outputs=outputs)
    return graph, model.data, model.trainable, updates


@dataclass(frozen=True)
class _Assembly:
    """Puts gradients and optimizers together."""

    forward: _Forward
    objective: Objective
    backward: Backward
    choice: Choice
    clipping: Clipping
    privacy: Privacy | None
    accumulate: int
    loss_scale: bool

    @property
    def model(self) -> Graph:
        """The graph of the user."""
        return self.forward.model

    def _graph(self) -> Graph:
        """The graph with the gradients; where a name is free, inputs and new values have
        those by which callers know them.
        """
        graph = without_stops(without_zeros(self.backward.graph))
        moved = self.forward.moved
        tensors = graph.tensors
        names = {tensors[seed]: LOSS_SCALE for seed in self.backward.seeds.values()}
        if not self.loss_scale:
            # They are outputs as they are.
            names |= {new: NEW + graph.names[old] for old, new in moved.items()}
        free = {t: name for t, name in names.items() if name not in tensors}
        return replace(graph, names={**graph.names, **free})

    def steps(self) -> list[Step]:
        """The step; or one that adds gradients up, and one that uses their sums. They move
        running statistics.
        """
        graph, moved = self._graph(), self.forward.moved
        tensors, draft = graph.tensors, self._draft(graph)
        gradients = self.backward.gradients.items()
        parts: Gradients = {v: tensors[name] for v, name in gradients}
        is_finite = None
        if self.loss_scale:
            scale = tensors[LOSS_SCALE]
            parts = of_each(draft, parts, "div", scale, word="unscaled")
            is_finite = finite(draft, parts)
        if self.privacy is not None:
            parts = clipped_per_example(draft, parts, self.privacy.norm)
        reports = [tensors[self.objective.loss]]
        if self.accumulate == 1:
            carried = {**self._updated(draft, parts), **moved}
            notes = self._notes("A training step")
            return [self._step(draft, "step", notes, carried, reports, is_finite)]
        added = {
            total: draft.emit("add", total, parts[name], hint="sum")
            for name, total in self._sums(draft).items()
        }
        carried, trained = {**added, **moved}, [tensors[v] for v in self.choice.recipes]
        notes = self._notes("The gradients of a batch, added to those of others,")
        how = "accumulate", notes, carried, reports, is_finite, trained
        return [self._step(draft, *how), self._using(graph)]

    def _draft(self, graph: Graph) -> Draft:
        return Draft(graph, self.forward.opset, self.model.labels.values())

    def _using(self, graph: Graph) -> Step:
        """The step that uses the sums of gradients, and sets them to zero."""
        tensors = graph.tensors
        trained = {tensors[name] for name in self.choice.recipes}
        declared = tuple(op for op in graph.operations if op.outputs[0] in trained)
        part = Graph(self.model.name, (), (), declared, graph.names)
        draft = self._draft(part)
        sums, count = self._sums(draft), self.accumulate
        zeros = {
            total: draft.emit("constant", shape=total.shape, value=(0.0,))
            for total in sums.values()
        }
        carried = {**self._updated(draft, sums), **zeros}
        note = f"A training step of '{self.model.name}' with the gradients of {count} batches."
        return self._step(draft, "apply", [note], carried)

    def _updated(self, draft: Draft, gradients: Gradients) -> dict[Tensor, Tensor]:
        """The new values of variables and of the state of optimizers."""
        rate = None
        if self.choice.needs_learning_rate:
            rate = draft.external(LEARNING_RATE, (), before=LOSS_SCALE)
        averaged = self._averaged(draft, gradients)
        bounded = clipped(draft, averaged, self.clipping)
        return update(draft, self.choice, bounded, rate)

    def _averaged(self, draft: Draft, sums: Gradients) -> Gradients:
        """The mean gradients of batches, or of examples with noise."""
        if self.privacy is not None and self.privacy.noise is not None:
            deviation = self.privacy.norm * self.privacy.noise
            sums = noisy(draft, sums, deviation)
        count = self.accumulate * self.objective.divisor
        if count == 1:
            return sums
        return of_each(draft, sums, "div", number(draft.emit, count), word="mean")

    def _sums(self, draft: Draft) -> dict[str, Tensor]:
        """The variables that gradients are added up in."""
        return {
            name: draft.variable(
                f"{name}_gradients", draft.tensor(name).shape, f"{label}/gradients"
            )
            for name, label in self.choice.labels.items()
        }

    def _notes(self, what: str) -> list[str]:
        """The lines at the head of a document with a loss."""
        objective = self.objective
        losses = ", ".join(f"{r} of {y}" for y, r in objective.losses.items())
        optimizers = dict.fromkeys(r.name for r in self.choice.recipes.values())
        targets = objective.targets.items()
        return [
            f"{what} of '{self.model.name}': {losses}, by {' and '.join(optimizers)}.",
            *(f"  {x}: input, the target of {output}" for output, x in targets),
            f"  {objective.loss}: the loss before the step",
        ]

    def _step(
        self,
        draft: Draft,
        ending: str,
        notes: Sequence[str],
        carried: Mapping[Tensor, Tensor],
        reports: Sequence[Tensor] = (),
        is_finite: Tensor | None = None,
        read: Sequence[Tensor] = (),
    ) -> Step:
        """The step that was emitted, with its state in variables: their new values, outputs
        besides these, and variables that another step changes. Where something is not
        finite, nothing changes.
        """
        emit = draft.emit
        values = {}
        for variable, value in carried.items():
            if is_finite is not None:
                value = emit("select", is_finite, value, variable, hint="kept")
            values[variable] = draft.named(value, NEW + emit.names[variable])
        if is_finite is not None:
            flag = draft.named(emit("select", is_finite, 1.0, 0.0), "is_finite")
            reports = [*reports, flag]
        updated = {v: draft.updated(v, value) for v, value in values.items()}
        name = f"{self.model.name}_{ending}"
        outputs = [*reports, *updated.values()]
        graph = draft.finished(outputs, name=name, notes=tuple(notes))
        # A graph has an output: where there is nothing to report, what becomes of variables.
        state = {*draft.state}
        trained = (y for variable, y in updated.items() if variable not in state)
        graph = replace(graph, outputs=tuple(reports or trained))
        names, labels = graph.names, graph.labels
        return Step(
            graph,
            graph.input_names,
            graph.output_names,
            {names[variable]: names[y] for variable, y in updated.items()},
            {},
            {
                names[variable]: labels[names[variable]]
                for variable in (*read, *updated)
            },
            self.model,
            self.objective.graph,
            self.backward,
            noise=tuple(names[x] for x in draft.noise),
        )
