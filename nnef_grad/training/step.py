"""Training steps: the gradients of a loss, and what an optimizer makes of them, in one
document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from sys import float_info
from typing import Any

import numpy as np

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.stops import without_stops
from nnef_grad.ops.registry import OpSet
from nnef_grad.runtimes import in_single
from nnef_grad.storage.data import VariableData
from nnef_grad.training.adapters import Adapters, with_adapters
from nnef_grad.training.choice import Choice, Groups, chosen, penalties, share_labels
from nnef_grad.training.draft import Draft
from nnef_grad.training.forms import Form, Step, in_form, typed
from nnef_grad.training.gradients import (
    Clipping,
    Gradients,
    clipped,
    finite,
    of_each,
)
from nnef_grad.training.losses import Objective, read_losses, with_losses
from nnef_grad.training.optimizers import update
from nnef_grad.training.preparation import (
    statistics_of,
    with_batch_statistics,
    with_padding,
    with_quantization,
)
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
    opset = rules.opset
    own, initial, trainable, updates = _parts(model)
    if isinstance(data, VariableData) and own is model:
        data = data.of(own)
    # The forward graph, as it is differentiated.
    graph = with_padding(share_labels(own), padding_rows or {}, opset)
    graph, factors, scales = with_adapters(graph, adapters or {}, opset)
    values, warnings = typed(graph, initial if data is None else data)
    values |= factors
    if adapters:
        others = [train] if isinstance(train, str) else train or ()
        train = [*map(escape, factors), *others]
    statistics = statistics_of(graph)
    recipes = read_losses(graph, loss)
    quantized: Mapping[Tensor, Tensor] = {}
    if quantize:
        graph, quantized = with_quantization(graph, opset)
    graph = replace(graph, quantization={})
    tensors = graph.tensors
    moved = {tensors[old]: tensors[new] for old, new in updates.items()}
    if batch_statistics is not None:
        graph, running = with_batch_statistics(graph, batch_statistics, opset)
        moved |= running
    choice = chosen(
        graph,
        recipes,
        optimizer,
        train=trainable if train is None else train,
        freeze=freeze,
        learning_rate=rate,
        groups=groups or {},
        data=in_single(values, [np.float16]),
        running=statistics,
    )
    rates = {LEARNING_RATE: choice.needs_learning_rate, LOSS_SCALE: loss_scale}
    for name in (name for name in rates if rates[name] and name in graph.tensors):
        # Callers know these inputs by their names.
        message = f"graph '{graph.name}' has a tensor '{name}'"
        raise UsageError(f"{message}, which an input of the step is called")
    objective = with_losses(
        graph,
        recipes,
        penalties(graph, choice, l2),
        results=quantized,
        kept=[*moved.values()],
        opset=opset,
    )
    backward = differentiate(
        objective.graph,
        wrt=[*choice.recipes],
        outputs=[objective.loss],
        seed="input" if loss_scale else "ones",
        with_outputs=True,
        rules=rules,
    )
    graph = without_stops(backward.graph)
    tensors = graph.tensors
    names = {tensors[seed]: LOSS_SCALE for seed in backward.seeds.values()}
    if not loss_scale:
        # They are outputs as they are.
        names |= {new: NEW + graph.names[old] for old, new in moved.items()}
    free = {t: name for t, name in names.items() if name not in tensors}
    graph = replace(graph, names={**graph.names, **free})
    assembly = _Assembly(
        own, objective, backward, choice, clipping, accumulate, loss_scale, opset
    )
    first, *further = (
        in_form(step, values, form, target, recompute)
        for step in assembly.steps(graph, moved)
    )
    warnings += [*choice.warnings, *objective.warnings, *backward.warnings]
    warnings += [warning for step in (first, *further) for warning in step.warnings]
    if batch_statistics is None and statistics:
        warnings.append(
            "batch normalization uses the statistics of the model, as in evaluation, and"
            " not those of the batch"
        )
    if batch_statistics is not None and not statistics:
        warnings.append("there is no batch normalization with running statistics")
    return replace(
        first,
        data={**first.data, **scales},
        apply=further[0] if further else None,
        accumulate=accumulate,
        trained=tuple(choice.labels.values()),
        stored=data if isinstance(data, VariableData) else None,
        warnings=tuple(warnings),
    )


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

    model: Graph
    objective: Objective
    backward: Backward
    choice: Choice
    clipping: Clipping
    accumulate: int
    loss_scale: bool
    opset: OpSet

    def steps(self, graph: Graph, moved: Mapping[Tensor, Tensor]) -> list[Step]:
        """The step; or one that adds gradients up, and one that uses their sums. The graph
        has the gradients, and moves running statistics.
        """
        labels, tensors = self.model.labels.values(), graph.tensors
        draft = Draft(graph, self.opset, labels)
        gradients = self.backward.gradients.items()
        parts: Gradients = {v: tensors[name] for v, name in gradients}
        is_finite = None
        if self.loss_scale:
            scale = tensors[LOSS_SCALE]
            parts = of_each(draft, parts, "div", scale, word="unscaled")
            is_finite = finite(draft, parts)
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

    def _using(self, graph: Graph) -> Step:
        """The step that uses the sums of gradients, and sets them to zero."""
        tensors = graph.tensors
        trained = {tensors[name] for name in self.choice.recipes}
        declared = tuple(op for op in graph.operations if op.outputs[0] in trained)
        part = Graph(self.model.name, (), (), declared, graph.names)
        draft = Draft(part, self.opset, self.model.labels.values())
        sums, count = self._sums(draft), self.accumulate
        gradients = of_each(draft, sums, "div", float(count), word="mean")
        zeros = {
            total: draft.emit("constant", shape=total.shape, value=(0.0,))
            for total in sums.values()
        }
        carried = {**self._updated(draft, gradients), **zeros}
        note = f"A training step of '{self.model.name}' with the gradients of {count} batches."
        return self._step(draft, "apply", [note], carried)

    def _updated(self, draft: Draft, gradients: Gradients) -> dict[Tensor, Tensor]:
        """The new values of variables and of the state of optimizers."""
        rate = None
        if self.choice.needs_learning_rate:
            rate = draft.external(LEARNING_RATE, (), before=LOSS_SCALE)
        bounded = clipped(draft, gradients, self.clipping)
        return update(draft, self.choice, bounded, rate)

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
        emit.naming = str
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
        )
