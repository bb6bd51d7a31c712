"""A graph is what its text says: whatever is made of a graph in memory is made of the graph
that its text is read as, letter by letter but for comments. Documents of tract are written for
tract, and only compute the same: see frontends/test_written_again.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.all_models import all_models
from support.checks import document

import nnef_grad
from nnef_grad import Graph, NnefGradError
from nnef_grad.graph.loops import with_bodies
from nnef_grad.graph.printer import statements
from nnef_grad.targets import TARGETS, lower
from nnef_grad.training import training_step

MODELS = all_models()
RUNTIMES = [target for target in TARGETS if target != "nnef"]
every_model = pytest.mark.parametrize("name", MODELS)


def read_again(graph: Graph) -> Graph:
    return nnef_grad.loads(nnef_grad.dumps(replace(graph, dialect="")), unroll=0)


def without_origins(graph: Graph) -> Graph:
    """The graph without what is said to be the heading of a comment."""
    operations = tuple([replace(op, origin=None) for op in graph.operations])
    return replace(with_bodies(graph, without_origins), operations=operations)


others = pytest.mark.parametrize("other", [read_again, without_origins])


def gradients(graph: Graph) -> Graph:
    return nnef_grad.differentiate(graph).graph


def lowered(graph: Graph, target: str) -> Iterator[str]:
    """The text for a target, and the constants that became variables."""
    found = lower(graph, target)
    yield from statements(found.graph)
    yield from (f"{label}: {array.tolist()}" for label, array in found.data.items())


def outcome(make: Callable[..., Any], *arguments: Any) -> list[str]:
    """What is made, as lines; or what is wrong, wherever that is."""
    try:
        made = make(*arguments)
        return statements(made) if isinstance(made, Graph) else [*made]
    except NnefGradError as error:
        return re.findall(r"error: (.*)", str(error)) or [str(error)]


def readable(name: str) -> Graph:
    path = name.removeprefix("published-")
    try:
        return MODELS[name]()
    except NnefGradError as error:
        pytest.skip(f"{path} is not read as it is: {error.message}")


def derivative(name: str) -> Graph:
    graph = readable(name)
    try:
        return gradients(graph)
    except NnefGradError as error:
        pytest.skip(f"it has no derivative: {error.message}")


@others
@every_model
def test_derivatives(name: str, other: Callable[[Graph], Graph]) -> None:
    graph = readable(name)
    assert outcome(gradients, other(graph)) == outcome(gradients, graph)
    backward = derivative(name)
    found, wanted = (outcome(gradients, g) for g in (other(backward), backward))
    assert found == wanted


@others
@every_model
def test_targets(name: str, other: Callable[[Graph], Graph]) -> None:
    backward = derivative(name)
    again = other(backward)
    for target in RUNTIMES:
        found, wanted = (outcome(lowered, g, target) for g in (again, backward))
        assert found == wanted, target


def trained(graph: Graph) -> Graph:
    (y,) = graph.output_names
    return training_step(
        graph, loss={y: "mean_squared_error"}, optimizer="adam", learning_rate=0.1
    ).graph


@others
@every_model
def test_training_steps(name: str, other: Callable[[Graph], Graph]) -> None:
    graph = readable(name)
    if len(graph.outputs) > 1 or not graph.variables:
        pytest.skip("it has several outputs, or nothing to train")
    wanted = outcome(trained, graph)
    assert outcome(trained, other(graph)) == wanted
    if len(wanted) > 1:
        step = trained(graph)
        for target in RUNTIMES:
            found = outcome(lowered, other(step), target)
            assert found == outcome(lowered, step, target), target


def test_a_step_is_made_of_a_model() -> None:
    """What is compared above are steps, and not messages."""
    assert len(outcome(trained, MODELS["sample-mlp"]())) > 10


# ---- Rules of the user's ----

GATHER = document(
    """
    t = external(shape = [4, 2]);
    i = external<integer>(shape = [3]);
    y = gather(t, i);
    """,
    "t, i",
)


def halved() -> nnef_grad.Rules:
    """Rules with a gradient of gather that is no sum of rows: half of all of them."""
    rules = nnef_grad.Rules()

    @rules.vjp("gather")
    def gather_vjp(emit: Any, op: Any, dy: Any) -> list[Any]:
        half = emit("constant", shape=[3, 4], value=[0.5])
        return [emit("matmul", half, dy, transposeA=True), None]

    return rules


@pytest.mark.parametrize("target", RUNTIMES)
def test_a_product_is_what_its_operands_say(target: str) -> None:
    rules, inputs = halved(), {"grad_y": np.arange(6.0).reshape(3, 2)}
    backward = nnef_grad.differentiate(nnef_grad.loads(GATHER), rules=rules, wrt=["t"])
    whole = {**inputs, "t": np.zeros((4, 2)), "i": np.array([0, 1, 1])}
    wanted = nnef_grad.evaluate(backward.graph, whole)["grad_t"]
    assert (wanted == [[3.0, 4.5]] * 4).all()
    found = lower(backward.graph, target)
    computed = nnef_grad.evaluate(found.graph, whole, found.data)
    np.testing.assert_allclose(computed["grad_t"], wanted)


OWN = """
fragment tanh_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )
-> ( dx: tensor<scalar> )
{
    turned = transpose(dy, axes = [1, 0]);
    back = transpose(turned, axes = [1, 0]);
    chosen = select(y > 0.5, back, 0.0);
    tripled = chosen * 3.0;
    dx = 2.0 * tripled;
}
"""
NET = document(
    """
    x = external(shape = [2, 3]);
    w = external(shape = [2]);
    h = mul(x, w);
    g = tanh(h);
    m = gt(g, 0.0);
    r = select(m, g, 0.0);
    y = transpose(r, axes = [1, 0]);
    """,
    "x, w",
)


def in_python() -> nnef_grad.Rules:
    rules = nnef_grad.Rules()

    @rules.vjp("tanh")
    def tanh_vjp(emit: Any, op: Any, dy: Any) -> list[Any]:
        back = emit("transpose", emit("transpose", dy, axes=[1, 0]), axes=[1, 0])
        return [emit("mul", emit("mul", 3.0, back), 2.0)]

    return rules


@others
@pytest.mark.parametrize("rules", [lambda: nnef_grad.loads_rules(OWN), in_python])
def test_rules_of_the_users(
    rules: Callable[[], nnef_grad.Rules], other: Callable[[Graph], Graph]
) -> None:
    graph, own = nnef_grad.loads(NET), rules()
    backward = nnef_grad.differentiate(graph, rules=own).graph

    def again(graph: Graph) -> Graph:
        return nnef_grad.differentiate(graph, rules=own).graph

    assert outcome(again, other(backward)) == outcome(again, backward)
    for target in RUNTIMES:
        found = outcome(lowered, other(backward), target)
        assert found == outcome(lowered, backward, target), target


def test_with_data_in_a_folder(tmp_path: Path) -> None:
    graph = nnef_grad.load(Path(__file__).parents[1] / "samples" / "mlp.nnef")
    backward = gradients(graph)
    data = {
        op.attributes["label"]: np.ones(op.outputs[0].shape, np.float32)
        for op in backward.operations
        if op.name == "variable"
    }
    nnef_grad.save(backward, tmp_path / "model", data=data)
    stored = nnef_grad.load(tmp_path / "model")
    assert outcome(gradients, stored) == outcome(gradients, backward)
    for target in RUNTIMES:
        found = outcome(lowered, stored, target)
        assert found == outcome(lowered, backward, target), target
