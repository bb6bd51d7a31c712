"""What is returned cannot be changed where the next compilation would see it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pytest
from support.symbolic_models import MODELS as OPEN
from support.symbolic_models import document

import nnef_grad
from nnef_grad.training import training_step

TEXT = """\
version 1.0;

extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;

fragment twice( x: tensor<scalar> ) -> ( y: tensor<scalar> )
{
    y = x * 2.0;
}

graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'w');
    t = constant(shape = [2, 4], value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    h = softmax(linear(x, w, 0.0), axes = [1]);
    y = sum_reduce(twice(h) * t, axes = [0]);
}
"""


def step(text: str, **settings: Any) -> Any:
    data = {"w": np.ones((4, 3), np.float32)}
    return training_step(
        nnef_grad.loads(text),
        loss="huber",
        optimizer="adam(amsgrad=true)",
        learning_rate=0.1,
        data=data,
        **settings,
    )


MADE: Mapping[str, Any] = {
    "graph": lambda: nnef_grad.loads(TEXT),
    "backward": lambda: nnef_grad.differentiate(nnef_grad.loads(TEXT)),
    "second order": lambda: nnef_grad.differentiate(
        nnef_grad.differentiate(nnef_grad.loads(TEXT), wrt=["x"]).graph
    ),
    "tract": lambda: nnef_grad.lower(nnef_grad.loads(TEXT), "tract"),
    "onnx": lambda: nnef_grad.lower(
        nnef_grad.differentiate(nnef_grad.loads(TEXT)).graph, "onnx"
    ),
    "symbols": lambda: nnef_grad.differentiate(nnef_grad.loads(document(OPEN["rows"]))),
    "step": lambda: step(TEXT),
    "step for tract": lambda: step(TEXT, target="tract", accumulate=2),
    "values": lambda: nnef_grad.evaluate(
        nnef_grad.loads(TEXT), {"x": np.ones((2, 3))}, {"w": np.ones((4, 3))}
    ),
}

_ATOMS = (
    str, bytes, int, float, complex, bool, type(None), type, range, slice,
    FunctionType, BuiltinFunctionType, MethodType, ModuleType, np.dtype, np.generic,
)  # fmt: skip


def parts(value: Any) -> list[Any]:
    """What an object holds, but for what it has to itself: memories of what is the same for
    all.
    """
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
    names = [*slots, *getattr(value, "__dict__", {})]
    return [getattr(value, n, None) for n in names if not n.startswith("_")]


def reached(value: Any) -> Iterator[Any]:
    """All objects that one leads to, itself among them."""
    known: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in known or isinstance(one, _ATOMS):
            continue
        known[id(one)] = one
        waiting += [] if isinstance(one, np.ndarray) else parts(one)
    return iter(known.values())


def can_be_changed(value: Any) -> bool:
    """Whether an assignment changes the object."""
    if isinstance(value, np.ndarray):
        return bool(value.flags.writeable)
    if isinstance(value, (list, set)):
        return True
    if isinstance(value, dict):
        try:
            value.update()
        except TypeError:
            return False
        return True
    slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
    if is_dataclass(value) or slots:
        name = fields(value)[0].name if is_dataclass(value) else slots[0]
        try:
            setattr(value, name, getattr(value, name))
        except (AttributeError, TypeError):
            return False
        return True
    return hasattr(value, "__dict__") and not isinstance(value, (tuple, frozenset))


@pytest.mark.parametrize("what", MADE)
def test_nothing_that_can_be_changed_is_in_two_results(what: str) -> None:
    first, second = MADE[what](), MADE[what]()
    theirs = {id(x) for x in reached(second)}
    shared = [x for x in reached(first) if id(x) in theirs and can_be_changed(x)]
    assert [type(x) for x in shared] == []


def test_what_users_try() -> None:
    graph = nnef_grad.loads(TEXT)
    operation = graph.operations[-1]
    with pytest.raises(TypeError, match="change a copy of it"):
        operation.attributes["axes"] = (1,)
    with pytest.raises(TypeError, match="change a copy of it"):
        graph.names.update({graph.inputs[0]: "z"})  # type: ignore[attr-defined]
    for thing, name in ((operation, "operands"), (operation.definition, "name"),
                        (graph.inputs[0], "shape"), (graph, "outputs")):  # fmt: skip
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, None)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_the_same_graph(again: Any) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT))
    assert nnef_grad.dumps(again(backward.graph)) == nnef_grad.dumps(backward.graph)


def test_arrays_that_are_returned_are_the_callers() -> None:
    """Changing the results of a run changes no later one."""
    graph = nnef_grad.loads(
        "version 1.0;\ngraph g( x ) -> ( y, z )\n{\n    x = external(shape = [2]);\n"
        "    y = copy(x);\n    z = constant(shape = [2], value = [1.0, 2.0]);\n}\n"
    )
    x = np.zeros(2)
    for _ in range(2):
        found = nnef_grad.evaluate(graph, {"x": x})
        assert [*found["z"]] == [1.0, 2.0]
        for array in found.values():
            array += 5.0
    assert [*x] == [0.0, 0.0]
