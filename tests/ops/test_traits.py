"""The facts about operations, held against the standard and against what they compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.checks import document
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.graph.ir import STOP
from nnef_grad.interpreter import step
from nnef_grad.interpreter.execution import collect_feeds
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.language.library import STDLIB
from nnef_grad.ops import SHAPES, elementwise, traits
from nnef_grad.ops.traits import COPYING, MOVING, RESHAPING, STEPS

TABLES = {
    name: value for name, value in vars(traits).items() if isinstance(value, frozenset)
}


@pytest.mark.parametrize("table", TABLES)
def test_the_names_are_those_of_operations(table: str) -> None:
    assert TABLES[table] <= STDLIB.keys() | {STOP}
    assert TABLES[table]


def test_equal_tables_are_one() -> None:
    assert len(set(TABLES.values())) == len(TABLES)


def with_operands(*names: str) -> set[str]:
    """The operations whose operands have these names among them."""
    return {
        operation
        for operation, declared in STDLIB.items()
        if {*names} <= {operand.name for operand in declared.operands}
    }


def test_what_the_declarations_say() -> None:
    assert {name for name, f in STDLIB.items() if not f.operands} == traits.SOURCES
    assert with_operands("bias") == traits.BIASED
    assert with_operands("input", "filter", "bias") == traits.LAYERS
    assert with_operands("rois") == traits.REGIONS
    assert {
        name for name, f in STDLIB.items() if f.operands and not has_scalars(name)
    } == traits.DECISIONS


def has_scalars(name: str) -> bool:
    """Whether a result can be a scalar tensor."""
    types = [str(result.type) for result in STDLIB[name].results]
    return any("<scalar>" in type_ or "<?>" in type_ for type_ in types)


def test_what_the_shape_functions_say() -> None:
    by_elements = {
        name for name, f in SHAPES.items() if f.__module__ == elementwise.__name__
    }
    assert by_elements == traits.ELEMENTWISE


# ---- What they compute ----


def results(model: Model, name: str) -> Iterator[tuple[set[float], set[float]]]:
    """For each use of an operation in a model, the numbers of its operands and of its
    results.
    """
    graph = nnef_grad.loads(model.text)
    values = random_values(graph, 0)
    found = dict(collect_feeds(graph, values.inputs, values.variables))
    for operation in graph.operations:
        found.update(step(operation, found))
        if operation.name == name:
            numbers = (operation.inputs, operation.outputs)
            read, made = ({x for t in ts for x in found[t].flat} for ts in numbers)
            yield read, made


def of(names: frozenset[str]) -> list[Model]:
    """The models of some operations."""
    return [model for model in models() if model.operation in names]


@pytest.mark.parametrize("model", of(MOVING | COPYING), ids=lambda model: model.name)
def test_elements_are_those_of_the_operands(model: Model) -> None:
    for read, made in results(model, model.operation):
        assert made <= read


@pytest.mark.parametrize("model", of(STEPS), ids=lambda model: model.name)
def test_results_of_steps_are_whole_numbers(model: Model) -> None:
    for _, made in results(model, model.operation):
        assert all(number == int(number) for number in made)


def test_elements_of_a_reshaping_stay_in_their_order() -> None:
    graph = nnef_grad.loads(
        document(
            "x = external(shape = [2, 1, 3]);\n"
            "a = squeeze(x, axes = [1]);\n"
            "b = unsqueeze(a, axes = [2]);\n"
            "y = reshape(b, shape = [6]);"
        )
    )
    assert {op.name for op in graph.operations} >= RESHAPING
    x = np.arange(6.0).reshape(2, 1, 3)
    assert list(nnef_grad.evaluate(graph, {"x": x})["y"]) == list(range(6))
