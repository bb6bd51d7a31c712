"""The loss of a model: its outputs and their targets, reduced to one number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

from nnef_grad.autodiff.rules import shapes_by_rule
from nnef_grad.base.errors import InvalidGraphError, UsageError
from nnef_grad.graph.extents import Dimension
from nnef_grad.graph.ir import Graph, Shape, Tensor, shape_of
from nnef_grad.graph.names import advice_on, with_suffix
from nnef_grad.language.types import SCALAR, STRING, TensorType
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import number
from nnef_grad.training.draft import Draft, sources_of
from nnef_grad.training.recipes import LOSS, Recipe, read_recipe

# The settings that every loss has, and what they are if they are not given.
FURTHER = {"reduction": STRING, "weight": SCALAR}
AXIS, CLASSES = "axis", "classes"
REDUCTIONS = ("mean", "sum", "batchmean")
TARGET = "_target"
# Losses of what these compute that have an exact form without them, which never overflows:
# the loss, the operation, the other loss.
_FUSED = {
    ("categorical_cross_entropy", "softmax"): "softmax_cross_entropy",
    ("binary_cross_entropy", "sigmoid"): "sigmoid_cross_entropy",
}
# Losses that compute the operation themselves.
_INCLUDED = {(loss, operation) for (_, operation), loss in _FUSED.items()}
_INCLUDED.add(("softmax_cross_entropy_with_labels", "softmax"))


@dataclass(frozen=True)
class Objective:
    """A graph whose first output is to be made smaller.

    Attributes:
        loss: the name of this output of rank 0.
        differentiated: the output whose gradients are wanted: this one, or the losses of
            the examples.
        divisor: what the sum of the gradients of examples is divided by.
        losses: the loss of each output that has one.
        targets: the input with the target of each.
    """

    graph: Graph
    loss: str
    differentiated: str
    divisor: Dimension
    losses: Mapping[str, str]
    targets: Mapping[str, str]
    warnings: tuple[str, ...]


def read_losses(graph: Graph, losses: str | Mapping[str, str]) -> dict[str, Recipe]:
    """The recipe of the loss of each output: of the one scalar output of the graph, or of
    several scalar tensors, by name.
    """
    if isinstance(losses, str):
        outputs = [graph.names[t] for t in graph.outputs if t.dtype == "scalar"]
        if len(outputs) != 1:
            what = f"the scalar outputs {', '.join(outputs)}" if outputs else ""
            message = f"graph '{graph.name}' has {what or 'no scalar output'}"
            raise UsageError(f"{message}: say which tensor has the loss")
        losses = {outputs[0]: losses}
    tensors = graph.tensors
    for name in losses:
        if name not in tensors:
            advice = advice_on(graph, name, list(tensors))
            raise UsageError(f"the graph has no tensor '{name}'{advice}")
        if tensors[name].dtype != "scalar":
            raise UsageError(f"'{name}' is {tensors[name].dtype}: it has no loss")
    return {output: read_recipe(text, LOSS, FURTHER) for output, text in losses.items()}


def with_losses(
    graph: Graph,
    losses: Mapping[str, Recipe],
    penalties: Mapping[str, float],
    *,
    results: Mapping[Tensor, Tensor],
    kept: Sequence[Tensor] = (),
    per_example: bool = False,
    opset: OpSet,
) -> Objective:
    """The graph with the losses of tensors by name.

    Args:
        penalties: for variables, by name, the factor of half the sum of the squares of
            their elements.
        results: the tensor that is used in place of another.
        kept: tensors of the graph that are outputs as well, after the loss.
        per_example: whether each example has a loss of its own, as in a batch of one.
    """
    averages = _averages(losses.values()) if per_example else False
    draft = Draft(graph, opset)
    targets, warnings, parts = dict[str, Tensor](), list[str](), list[Tensor]()
    for name, recipe in losses.items():
        output = results.get(draft.tensor(name), draft.tensor(name))
        settled = _settled(recipe, output, draft)
        _refuse_reduction(settled, output, draft)
        target = _target(settled, output, draft.emit.opset)
        targets[name] = draft.external(f"target_{name}", *target)
        subject, warning = _subject(settled, output, draft)
        warnings += warning
        with draft.emit.calling(with_suffix(name)):
            parts.append(_loss(draft, *subject, targets[name], int(per_example)))
    parts += [_penalty(draft, name, by) for name, by in penalties.items()]
    emit = draft.emit
    total = reduce(lambda x, y: emit("add", x, y, hint="loss"), parts)
    each = [draft.named(total, "loss_per_example")] if per_example else []
    divisor = total.shape[0] if averages and total.rank else 1
    if per_example:
        reduction = "mean_reduce" if averages else "sum_reduce"
        total = draft.reduced(total, reduction, "loss")
    loss = draft.named(total, "loss")
    whole = draft.finished([loss, *each, *kept])
    (differentiated,) = each or [loss]
    return Objective(
        whole,
        whole.names[loss],
        whole.names[differentiated],
        divisor,
        {output: recipe.name for output, recipe in losses.items()},
        {output: whole.names[target] for output, target in targets.items()},
        tuple(warnings),
    )


# ---- One loss ----


def _settled(recipe: Recipe, output: Tensor, draft: Draft) -> Recipe:
    """The recipe with the settings that follow from its output, if it has them: the axis
    that classes lie along, and how many there are.
    """
    names = {p.name for p in recipe.fragment.parameters}
    settings = dict(recipe.settings)
    if names.isdisjoint((AXIS, CLASSES)):
        return recipe
    axis = _axis(recipe, output, draft) if AXIS in names else 1
    if not 0 <= axis < output.rank:
        name, shape = draft.emit.names[output], list(output.shape)
        message = f"'{recipe.name}' is along axis {axis} of '{name}'"
        raise UsageError(f"{message}, whose shape is {shape}", recipe.span)
    if AXIS in names:
        settings[AXIS] = axis
    if CLASSES in names:
        settings.setdefault(CLASSES, output.shape[axis])
    return replace(recipe, settings=settings)


def _axis(recipe: Recipe, output: Tensor, draft: Draft) -> int:
    """The axis that is meant: as it was given, or that of the softmax before. Of three axes
    images without height have classes along the second, and texts along the third.
    """
    axis = recipe.settings.get(AXIS)
    if axis is not None:
        return int(axis + output.rank if -output.rank <= axis < 0 else axis)
    producer = draft.emit.producer(output)
    if producer is not None and (recipe.name, producer.name) in _FUSED:
        axis, *others = producer.attributes["axes"]
        if not others:
            return int(axis)
    (parameter,) = (p for p in recipe.fragment.parameters if p.name == AXIS)
    if output.rank == 3 and not recipe.is_own:
        name, shape = draft.emit.names[output], list(output.shape)
        message = f"'{recipe.name}' of '{name}', of shape {shape}, may be along axis 1"
        advice = f"or 2: write {recipe.name}(axis = 1) or {recipe.name}(axis = 2)"
        raise UsageError(f"{message} {advice}", recipe.span)
    return int(recipe.setting(parameter))


def _target(recipe: Recipe, output: Tensor, opset: OpSet) -> tuple[Shape, str]:
    """The shape and the data type of the target of an output."""
    type_ = recipe.fragment.parameters[1].type
    dtype = (type_.dtype if isinstance(type_, TensorType) else None) or SCALAR.dtype
    rule = recipe.library.get(recipe.name + TARGET)
    if rule is None:
        return output.shape, dtype
    settings = {p.name: recipe.settings[p.name] for p in rule.attributes}
    extended = opset.extended(recipe.library.values())
    try:
        shape: Any = shapes_by_rule(rule, extended, output.shape, **settings)
    except InvalidGraphError as error:
        error.called_from(recipe.span)
        raise
    return tuple(shape), dtype


def _subject(
    recipe: Recipe, output: Tensor, draft: Draft
) -> tuple[tuple[Recipe, Tensor], list[str]]:
    """The loss that has the softmax or sigmoid inside which made an output, and the operand
    of that, in place of those that were given; or these, and a warning if they repeat it.
    A loss of the user's own knows of neither.
    """
    producer = None if recipe.is_own else draft.emit.producer(output)
    if producer is None or not producer.inputs:
        return (recipe, output), []
    before, key = producer.inputs[0], (recipe.name, producer.name)
    along = (recipe.settings.get(AXIS, 1),)
    if producer.name == "softmax" and producer.attributes["axes"] != along:
        return (recipe, output), []
    if key in _FUSED:
        return (replace(recipe, fragment=recipe.library[_FUSED[key]]), before), []
    names = draft.emit.names
    warning = (
        f"'{recipe.name}' begins with a {producer.name}, and '{names[output]}' is the"
        f" result of one: give the loss to '{names[before]}'"
    )
    return (recipe, output), [warning] if key in _INCLUDED else []


def _loss(
    draft: Draft,
    recipe: Recipe,
    output: Tensor,
    target: Tensor,
    first_axis: int,
) -> Tensor:
    """The loss of an output, a reduction of the axes from the first one on."""
    emit = draft.emit
    first, second, *others = recipe.fragment.parameters
    values = {first.name: output, second.name: target}
    values |= {p.name: recipe.setting(p) for p in others}
    losses, *counts = recipe.emit(emit, values).values()
    _refuse_results(draft, recipe, output, losses, counts)
    reduction = recipe.settings.get("reduction", "mean")
    is_mean = reduction == "mean" and not counts
    operation, word = ("mean_reduce", "loss") if is_mean else ("sum_reduce", "sum")
    total = draft.reduced(losses, operation, word, first_axis)
    if reduction == "mean" and counts:
        count = draft.reduced(counts[0], "sum_reduce", "count", first_axis)
        if first_axis:
            # An example of which nothing counts has no loss, and spoils no others.
            is_counted = emit("gt", count, 0.0, hint="is_counted")
            count = emit("select", is_counted, count, 1.0, hint="divisor")
        total = emit("div", total, count, hint="loss")
    if reduction == "batchmean" and not first_axis:
        total = emit("div", total, number(emit, output.shape[0]), hint="loss")
    weight = recipe.settings.get("weight", 1.0)
    return emit("mul", total, weight, hint="loss")


def _averages(recipes: Iterable[Recipe]) -> bool:
    """Whether the losses of examples are averaged, rather than added up."""
    reductions = {recipe.settings.get("reduction", "mean") for recipe in recipes}
    if reductions > {"sum"}:
        message = "the losses of an example are all added up over the batch, or none"
        raise UsageError(f"{message}: give all of them the reduction 'sum'")
    return reductions != {"sum"}


def _refuse_reduction(recipe: Recipe, output: Tensor, draft: Draft) -> None:
    """Raises `UsageError` where a reduction is unknown, or needs an axis."""
    reduction = recipe.settings.get("reduction", "mean")
    if reduction not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        message = f"'{reduction}' is not a reduction: there are {known}"
        raise UsageError(message, recipe.span)
    if reduction == "batchmean" and not output.shape:
        message = "'batchmean' divides by the extent of axis 0"
        name = draft.emit.names[output]
        raise UsageError(f"{message}, and '{name}' has no axes", recipe.span)


def _refuse_results(
    draft: Draft, recipe: Recipe, output: Tensor, losses: Any, counts: Sequence[Any]
) -> None:
    """Raises `UsageError` where results of the user's own loss are not what they must be."""
    span, name = recipe.fragment.span, recipe.name
    if output not in sources_of(draft.emit.operations, losses):
        raise UsageError(f"'{name}' does not depend on its output", span)
    for count in counts:
        if shape_of(count) != losses.shape:
            shapes = f"{list(shape_of(count))}, and the losses {list(losses.shape)}"
            message = f"the counts of '{name}' have the shape {shapes}"
            raise UsageError(message, span)


# ---- Penalties ----


def _penalty(draft: Draft, name: str, factor: float) -> Tensor:
    """Half the sum of the squares of the elements of a variable, times a factor: its
    gradient is the variable times the factor.
    """
    emit = draft.emit
    with emit.calling(with_suffix(name)):
        square = emit("sqr", draft.tensor(name), hint="square")
        total = draft.reduced(square, "sum_reduce", "squares")
        return emit("mul", total, 0.5 * factor, hint="penalty")


def matrices(graph: Graph) -> Iterator[str]:
    """The names of the variables that are filters and matrices, rather than biases,
    scales and offsets: several axes of them are longer than 1, or a product reads them.
    """
    multiplied = {
        operation.operands[place]
        for operation in graph.operations
        for place in _FILTERS.get(operation.name, ())
    }
    for variable in graph.variables:
        is_long = prod(variable.shape) > max(variable.shape, default=1)
        if is_long or variable in multiplied:
            yield graph.names[variable]


# The places of the operands that are filters or matrices.
_FILTERS = {
    "conv": (1,),
    "deconv": (1,),
    "linear": (1,),
    "matmul": (0, 1),
    "separable_conv": (1, 2),
    "separable_deconv": (1, 2),
}
