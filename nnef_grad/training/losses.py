"""The loss of a model: its outputs and their targets, reduced to one number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

from nnef_grad.autodiff.apply_rules import shapes_by_rule
from nnef_grad.base.errors import InvalidGraphError, UsageError
from nnef_grad.graph.ir import Graph, Shape, Tensor, shape_of
from nnef_grad.graph.names import advice_on, step_names
from nnef_grad.language.types import SCALAR, STRING, TensorType
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.tensors import number
from nnef_grad.training.draft import Draft, sources_of
from nnef_grad.training.recipes import (
    LOSS,
    Recipe,
    opset_of,
    read_recipe,
)

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
_INCLUDED = {
    ("softmax_cross_entropy", "softmax"),
    ("softmax_cross_entropy_with_labels", "softmax"),
    ("sigmoid_cross_entropy", "sigmoid"),
}


@dataclass(frozen=True)
class Objective:
    """A graph whose one output is to be made smaller.

    Attributes:
        graph: the graph.
        loss: the name of its output of rank 0.
        losses: the name of the loss of each output that has one.
        targets: the input with the target of each output that has a loss, by the output.
        warnings: what the user should know, a sentence each.
    """

    graph: Graph
    loss: str
    losses: Mapping[str, str]
    targets: Mapping[str, str]
    warnings: tuple[str, ...]


def read_losses(graph: Graph, losses: str | Mapping[str, str]) -> dict[str, Recipe]:
    """The recipe of the loss of each output.

    Args:
        graph: the forward graph.
        losses: the loss of its one scalar output, or of several scalar tensors, by name.

    Raises:
        NnefGradError: a recipe cannot be read, a tensor is unknown or not scalar, or
            there are several outputs and it is not said whose loss this is.
    """
    if isinstance(losses, str):
        outputs = [graph.names[t] for t in graph.outputs if t.dtype == "scalar"]
        if len(outputs) != 1:
            found = f"the scalar outputs {', '.join(outputs)}" if outputs else ""
            message = f"graph '{graph.name}' has {found or 'no scalar output'}"
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
    opset: OpSet,
) -> Objective:
    """The graph with losses.

    Args:
        graph: the forward graph.
        losses: the recipe for the loss of each tensor, by name.
        penalties: for variables, by name, the factor of half the sum of the squares of
            their elements.
        results: the tensor that is used in place of another.
        kept: tensors of the graph that are outputs as well, after the loss.
        opset: the operations of the graph.

    Raises:
        NnefGradError: a loss does not fit its output.
    """
    draft = Draft(graph, opset, losses.values())
    given = {output: draft.tensor(output) for output in losses}
    used = {output: results.get(tensor, tensor) for output, tensor in given.items()}
    losses = {
        output: _settled(recipe, used[output], draft)
        for output, recipe in losses.items()
    }
    for output, recipe in losses.items():
        _refuse_reduction(recipe, used[output], draft)
    targets = {
        output: draft.external(
            f"target_{output}", *_target(recipe, used[output], opset)
        )
        for output, recipe in losses.items()
    }
    warnings = [
        advice
        for output, recipe in losses.items()
        for advice in _advice(recipe, used[output], draft)
    ]
    parts = [
        _loss(draft, *_fused(recipe, used[output], draft), targets[output], output)
        for output, recipe in losses.items()
    ]
    parts += [_penalty(draft, name, by) for name, by in penalties.items()]
    emit = draft.emit
    emit.naming = str
    total = reduce(lambda x, y: emit("add", x, y, hint="loss"), parts)
    loss = draft.named(total, "loss")
    made = draft.finished([loss, *kept])
    return Objective(
        made,
        made.names[loss],
        {output: recipe.name for output, recipe in losses.items()},
        {output: made.names[target] for output, target in targets.items()},
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
    made = draft.emit.producer(output)
    if made is not None and (recipe.name, made.name) in _FUSED:
        axis, *others = made.attributes["axes"]
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
    (_, parameter, *_) = recipe.fragment.parameters
    type_ = parameter.type
    dtype = type_.dtype if isinstance(type_, TensorType) else None
    rule = recipe.library.get(recipe.name + TARGET)
    if rule is None:
        return output.shape, dtype or "scalar"
    known = opset_of([recipe], opset)
    settings = {p.name: recipe.settings[p.name] for p in rule.attributes}
    try:
        shape: Any = shapes_by_rule(rule, known, output.shape, **settings)
    except InvalidGraphError as error:
        error.called_from(recipe.span)
        raise
    return tuple(shape), dtype or "scalar"


def _fused(recipe: Recipe, output: Tensor, draft: Draft) -> tuple[Recipe, Tensor]:
    """A loss and a tensor whose loss it is, in place of those that were given: the loss
    that has the softmax or sigmoid inside which made the output.
    """
    activation, before = _activation(recipe, output, draft)
    fused = _FUSED.get((recipe.name, activation))
    if fused is None or before is None:
        return recipe, output
    return replace(recipe, fragment=recipe.library[fused]), before


def _advice(recipe: Recipe, output: Tensor, draft: Draft) -> Iterator[str]:
    """A warning about a loss that repeats what made the output."""
    activation, before = _activation(recipe, output, draft)
    if before is not None and (recipe.name, activation) in _INCLUDED:
        names = draft.emit.names
        yield (
            f"'{recipe.name}' begins with a {activation}, and '{names[output]}' is the"
            f" result of one: give the loss to '{names[before]}'"
        )


def _activation(
    recipe: Recipe, output: Tensor, draft: Draft
) -> tuple[str, Tensor | None]:
    """The name of the operation that made a tensor, and its operand, if it is a sigmoid,
    or a softmax along the classes. A loss of the user's own knows of neither.
    """
    made = None if recipe.is_own else draft.emit.producer(output)
    is_softmax = made is not None and made.name == "softmax"
    along = (recipe.settings.get(AXIS, 1),)
    if made is None or (is_softmax and made.attributes["axes"] != along):
        return "", None
    return made.name, made.inputs[0] if made.inputs else None


def _loss(
    draft: Draft, recipe: Recipe, output: Tensor, target: Tensor, name: str
) -> Tensor:
    """The loss of an output, a tensor of rank 0."""
    emit = draft.emit
    emit.naming = step_names(f"{{}}_{name}")
    first, second, *others = recipe.fragment.parameters
    values = {first.name: output, second.name: target}
    values |= {p.name: recipe.setting(p) for p in others}
    losses, *counts = recipe.emit(emit, values).values()
    _refuse_results(draft, recipe, output, losses, counts)
    reduction = recipe.settings.get("reduction", "mean")
    is_mean = reduction == "mean" and not counts
    operation, word = ("mean_reduce", "loss") if is_mean else ("sum_reduce", "sum")
    total = draft.reduced(losses, operation, word)
    if reduction == "mean" and counts:
        count = draft.reduced(counts[0], "sum_reduce", "count")
        total = emit("div", total, count, hint="loss")
    if reduction == "batchmean":
        total = emit("div", total, number(emit, output.shape[0]), hint="loss")
    weight = recipe.settings.get("weight", 1.0)
    return emit("mul", total, weight, hint="loss")


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
    emit.naming = step_names(f"{{}}_{name}")
    square = emit("sqr", draft.tensor(name), hint="square")
    total = draft.reduced(square, "sum_reduce", "squares")
    return emit("mul", total, 0.5 * factor, hint="penalty")


def matrices(graph: Graph) -> Iterator[str]:
    """The names of the variables that are filters and matrices, rather than biases,
    scales and offsets: several axes of them are longer than 1, or a product reads them.
    """
    multiplied = {
        operand
        for op in graph.operations
        for parameter, operand in zip(op.definition.operands, op.operands, strict=True)
        if isinstance(operand, Tensor) and parameter.name in _FILTERS.get(op.name, ())
    }
    for variable in graph.variables:
        is_long = prod(variable.shape) > max(variable.shape, default=1)
        if is_long or variable in multiplied:
            yield graph.names[variable]


_FILTERS: dict[str, tuple[str, ...]] = {
    "conv": ("filter",),
    "deconv": ("filter",),
    "linear": ("filter",),
    "matmul": ("A", "B"),
    "separable_conv": ("plane_filter", "point_filter"),
    "separable_deconv": ("plane_filter", "point_filter"),
}
