"""Which variables are trained, and how each of them is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from itertools import chain
from math import prod
from sys import float_info
from typing import Any, Union

import numpy as np

from nnef_grad.base.errors import UsageError, listed, suggestion
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.printer import print_value
from nnef_grad.graph.rewriting import with_others_read
from nnef_grad.language.labels import is_constant, label_key
from nnef_grad.language.types import SCALAR
from nnef_grad.ops.traits import MOVING
from nnef_grad.training.buffers import buffers
from nnef_grad.training.draft import sources_of
from nnef_grad.training.losses import matrices
from nnef_grad.training.recipes import (
    FACTOR,
    LEARNING_RATE,
    OPTIMIZER,
    Recipe,
    read_recipe,
    with_settings,
)

# Settings of an optimizer, by the labels or names of variables, with wildcards.
Groups = Mapping[str, Union[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Choice:
    """The variables that are trained: the optimizer and the label of each, by its name;
    whether an optimizer has been given no learning rate; warnings.
    """

    recipes: Mapping[str, Recipe]
    labels: Mapping[str, str]
    needs_learning_rate: bool
    warnings: tuple[str, ...]


def share_labels(graph: Graph) -> Graph:
    """The graph with one variable for those that share their data, by their label."""
    first: dict[str, Tensor] = {}
    labels = zip(graph.variables, graph.labels.values(), strict=True)
    shared = {t: first.setdefault(label_key(label), t) for t, label in labels}
    others: dict[Tensor, Any] = {t: x for t, x in shared.items() if t is not x}
    return with_others_read(graph, others)


def chosen(
    graph: Graph,
    losses: Iterable[str],
    optimizer: str,
    *,
    train: str | Sequence[str] | None,
    freeze: str | Sequence[str],
    learning_rate: float | None,
    groups: Groups,
    data: Mapping[str, Any],
    running: Collection[Tensor] = (),
) -> Choice:
    """The variables to train; see `training_step` for the arguments.

    Args:
        graph: the forward graph, in which labels are unique.
        losses: the tensors that have a loss.
        data: the values of variables, by label, as far as they are known.
        running: the variables that are running statistics, which no gradient trains.
    """
    labels, tensors = graph.labels, graph.tensors
    sources = sources_of(graph.operations, *(tensors[name] for name in losses))
    own = {n: tensors[n] for n in labels if tensors[n] not in running}
    scalars = [name for name, tensor in own.items() if tensor.dtype == SCALAR.dtype]
    reached = {name for name in scalars if own[name] in sources}
    # A target, or the reader of a file, has made variables of them.
    constants = {name for name in scalars if is_constant(labels[name])}
    kinds = buffers(graph, data) if train is None else {}
    others = constants.union(kinds)
    picked = {*labels} - others if train is None else {*matching(train, labels)}
    wanted = [name for name in scalars if name in picked]
    frozen = {*matching(freeze, labels)}
    names = [name for name in wanted if name in reached and name not in frozen]
    if not names:
        message = f"nothing is left to train in graph '{graph.name}'"
        why = _why(wanted, frozen) if picked or train is None else "none is named"
        raise UsageError(f"{message}: {why}")
    fixed = constants & reached
    stay = [name for name in scalars if name in fixed]
    untrained = reached - frozen - fixed
    left = {name: kind for name, kind in kinds.items() if name in untrained}
    unreached = [name for name in wanted if name not in reached and train is not None]
    base = read_recipe(optimizer, OPTIMIZER)
    if learning_rate is not None:
        base = replace(base, settings={LEARNING_RATE: learning_rate, **base.settings})
    trained = {name: labels[name] for name in names}
    recipes = _by_group(dict.fromkeys(names, base), trained, groups)
    warnings = (
        *(f"the loss does not depend on '{labels[n]}'" for n in unreached),
        *(f"'{labels[n]}' is a constant, and stays as it is" for n in stay),
        *_left(left, labels),
        *_merged(recipes, labels),
        *_written_out(graph),
    )
    needs_rate = any(
        p.name == LEARNING_RATE and p.name not in recipe.settings
        for recipe in recipes.values()
        for p in recipe.fragment.parameters
    )
    return Choice(recipes, trained, needs_rate, warnings)


def _written_out(graph: Graph) -> Iterator[str]:
    """A warning about what looks like a bias, in a document of tract, and is numbers."""
    made = DefUse(graph).producers
    found = [
        graph.names[op.outputs[0]]
        for op in graph.operations
        if graph.dialect and _adds_numbers(op, made)
    ]
    if found:
        how = f"tract has written biases of up to {_MOST_WRITTEN} numbers so"
        where = "its option nnef-extern-all-constants makes variables of them"
        yield f"the numbers that {listed(found)} adds are not trained: {how}, and {where}"


# tract writes what has more elements to a file.
_MOST_WRITTEN = 8
_PRODUCTS = {"linear", "matmul", "conv", "deconv"}


def _adds_numbers(operation: Operation, made: Mapping[Tensor, Operation]) -> bool:
    """Whether an operation adds numbers of the document to a product."""
    if operation.name in _PRODUCTS:
        return any(_is_written(x, made) for x in operation.operands[2:])
    if operation.name != "add":
        return False
    x, y = operation.operands
    return any(
        _is_written(numbers, made) and _is_product(other, made)
        for numbers, other in ((x, y), (y, x))
    )


def _is_product(operand: Operand, made: Mapping[Tensor, Operation]) -> bool:
    while isinstance(operand, Tensor) and made[operand].name in MOVING:
        operand = made[operand].operands[0]
    return isinstance(operand, Tensor) and made[operand].name in _PRODUCTS


def _is_written(operand: Operand, made: Mapping[Tensor, Operation]) -> bool:
    """Whether an operand is a few numbers, some of them not zero."""
    while isinstance(operand, Tensor) and made[operand].name in MOVING:
        operand = made[operand].operands[0]
    if not isinstance(operand, Tensor):
        return operand not in (0.0, ())
    constant = made[operand]
    is_small = constant.name == "constant" and prod(operand.shape) <= _MOST_WRITTEN
    return is_small and any(constant.attributes["value"])


def _merged(recipes: Mapping[str, Recipe], labels: Mapping[str, str]) -> Iterator[str]:
    """A warning about biases of recurrent layers that torch-to-nnef adds up."""
    merged = [
        labels[name]
        for name, recipe in recipes.items()
        if _OF_TWO.search(labels[name]) and FACTOR not in recipe.settings
    ]
    if merged:
        them = "is the sum" if len(merged) == 1 else "are each the sum"
        how = f"a {FACTOR} of 2.0 moves it as far as both"
        yield f"{listed(merged)} {them} of two biases of PyTorch: {how}"


# How it labels them: of an LSTM, of a GRU, of others.
_OF_TWO = re.compile(r"\.l\d+(_back)?_b_([ifgo]|[rz]|ih_hh)$")


def _left(kinds: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[str]:
    """A warning for each kind of variable that is no parameter."""
    for kind in dict.fromkeys(kinds.values()):
        left = [labels[name] for name, what in kinds.items() if what == kind]
        them = "it is" if len(left) == 1 else "they are"
        yield f"not trained: {listed(left)}, {kind}; {them} trained only if named"


def penalties(
    graph: Graph, choice: Choice, l2: float | Mapping[str, float]
) -> dict[str, float]:
    """The factor of the squares of each variable that has one; see `training_step`."""
    factors = l2.values() if isinstance(l2, Mapping) else [l2]
    for factor in factors:
        if not 0 <= factor <= float_info.max:
            raise UsageError(f"the factor of squares cannot be {factor}")
    if isinstance(l2, Mapping):
        return {
            name: float(factor)
            for pattern, factor in l2.items()
            for name in matching([pattern], choice.labels, _TRAINED)
        }
    names = matrices(graph) if l2 else ()
    return {name: float(l2) for name in names if name in choice.recipes}


def _why(wanted: Sequence[str], frozen: set[str]) -> str:
    if not wanted:
        return "it has no scalar variable to train"
    if frozen.issuperset(wanted):
        return "all variables are frozen"
    return "the loss depends on no variable that is trained"


_TRAINED = "variable that is trained"
_WILDCARDS = frozenset("*?[")


def matching(
    patterns: str | Sequence[str], labels: Mapping[str, str], what: str = "variable"
) -> Iterator[str]:
    """The names of the variables whose label or name fits one of several patterns."""
    labels = {name: label for name, label in labels.items() if not is_constant(label)}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        is_plain = _WILDCARDS.isdisjoint(pattern)
        fits = pattern.__eq__ if is_plain else re.compile(translate(pattern)).match
        names = [n for n, label in labels.items() if fits(label) or fits(n)]
        if not names:
            # Or of modules: `layer1/*` in labels of NNEF, `head.*` in those of PyTorch.
            ends = chain(*(re.finditer("[/.]", label) for label in labels.values()))
            modules = dict.fromkeys(f"{end.string[: end.end()]}*" for end in ends)
            near = suggestion(pattern, [*labels.values(), *modules])
            raise UsageError(f"no {what} has the label or name '{pattern}'{near}")
        yield from names


def _by_group(
    recipes: dict[str, Recipe], labels: Mapping[str, str], groups: Groups
) -> dict[str, Recipe]:
    """The recipes, with the settings of groups."""
    for pattern, settings in groups.items():
        if not isinstance(settings, str):
            pairs = ((n, _plain(value)) for n, value in settings.items())
            settings = ", ".join(f"{n} = {print_value(SCALAR, x)}" for n, x in pairs)
        for name in matching([pattern], labels, _TRAINED):
            recipes[name] = with_settings(recipes[name], settings)
    return recipes


def _plain(value: Any) -> Any:
    """A value, or the number of Python that one of numpy is: it is printed otherwise."""
    return value.item() if isinstance(value, np.generic) else value
