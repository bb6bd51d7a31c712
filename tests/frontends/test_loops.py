"""Loops that stay loops: what they compute and their derivatives are those of their steps,
in the interpreter and in tract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support import recurrent
from support.dialect_models import (
    Array,
    Model,
    backward_in_tract,
    models,
    stored_values,
)
from support.runtimes import Stored, compare, needs, run

import nnef_grad
from nnef_grad.autodiff.loops import LoopBuilder
from nnef_grad.commandline.cli import main
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.loops import loops_in
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets.tensors import DTYPES

LOOPS = [model for model in models() if "tract_core_scan(" in model.text]
every_loop = pytest.mark.parametrize("model", LOOPS, ids=[m.name for m in LOOPS])


def feeds(graph: Graph, model: Model, seed: int = 1) -> dict[str, Array]:
    """The inputs of a model, and random cotangents."""
    given, random = model.inputs(), np.random.default_rng(seed)
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {n: given.get(n, random.standard_normal(t.shape)) for n, t in pairs}


def both(model: Model, folder: Path) -> tuple[Graph, Graph]:
    """The graph with a loop, and with its steps."""
    path = model.write(folder / "model")
    loop, steps = nnef_grad.load(path, unroll=0), nnef_grad.load(path)
    assert "tract_core_scan" in nnef_grad.dumps(loop)
    assert "tract_core_scan" not in nnef_grad.dumps(steps)
    return loop, steps


def values(graph: Graph, model: Model, folder: Path) -> dict[str, Array]:
    data = stored_values(graph, folder / "model")
    return nnef_grad.evaluate(graph, feeds(graph, model), data)


def assert_alike(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 1e-11, 1e-12, err_msg=name)


@every_loop
def test_it_computes_what_its_steps_do(model: Model, tmp_path: Path) -> None:
    loop, steps = both(model, tmp_path)
    assert_alike(values(loop, model, tmp_path), values(steps, model, tmp_path))


@every_loop
def test_its_gradients_are_those_of_its_steps(model: Model, tmp_path: Path) -> None:
    loop, steps = both(model, tmp_path)
    tensors = [t for t in (*loop.inputs, *loop.variables) if t.dtype == "scalar"]
    names = [loop.names[t] for t in tensors]
    for wrt in (names, *([name] for name in names)):
        made = nnef_grad.differentiate(loop, wrt=wrt).graph
        wanted = nnef_grad.differentiate(steps, wrt=wrt).graph
        assert_alike(values(made, model, tmp_path), values(wanted, model, tmp_path))


@every_loop
def test_gradients_of_its_gradients(model: Model, tmp_path: Path) -> None:
    loop, steps = both(model, tmp_path)
    twice = [
        nnef_grad.differentiate(nnef_grad.differentiate(graph).graph).graph
        for graph in (loop, steps)
    ]
    assert "tract_core_scan" in nnef_grad.dumps(twice[0])
    found, wanted = (values(graph, model, tmp_path) for graph in twice)
    assert_alike(found, wanted)


@every_loop
def test_gradients_are_central_differences(model: Model, tmp_path: Path) -> None:
    loop, _ = both(model, tmp_path)
    backward = nnef_grad.differentiate(loop)
    data = stored_values(loop, tmp_path / "model")
    checked = nnef_grad.check(loop, backward, variables=data)
    assert checked.passed, checked.conclusion


@every_loop
def test_the_text_is_read_again(model: Model, tmp_path: Path) -> None:
    loop, _ = both(model, tmp_path)
    for graph in (loop, nnef_grad.differentiate(loop).graph):
        text = nnef_grad.dumps(graph)
        again = nnef_grad.loads(text, unroll=0)
        assert_alike(values(again, model, tmp_path), values(graph, model, tmp_path))
        # Constants of the standard become arrays of tract, which have other names.
        for _ in range(2):
            text = nnef_grad.dumps(again)
            again = nnef_grad.loads(text, unroll=0)
        assert nnef_grad.dumps(again) == text


@every_loop
def test_forward_in_tract(model: Model, tmp_path: Path) -> None:
    needs("tract")
    loop, _ = both(model, tmp_path)
    lowered = nnef_grad.lower(loop, "tract")
    data = {**stored_values(loop, tmp_path / "model"), **lowered.data}
    nnef_grad.save(lowered.graph, tmp_path / "lowered/", data=data)
    tensors = lowered.graph.tensors
    given = {
        n: a.astype("f4") if tensors[n].dtype == "scalar" else a
        for n, a in model.inputs().items()
    }
    (outcome,) = run("tract", [Stored(tmp_path / "lowered", given)])
    verdict = compare(outcome, values(loop, model, tmp_path), 1e-5)
    assert verdict.word == "ok", verdict.detail


@every_loop
def test_gradients_in_tract(model: Model, tmp_path: Path) -> None:
    loop, _ = both(model, tmp_path)
    verdict = backward_in_tract(
        loop, tmp_path / "model", model.inputs(), tmp_path, tolerance=1e-5
    )
    assert verdict.word == "ok", verdict.detail


@every_loop
def test_gradients_in_onnx_runtime(model: Model, tmp_path: Path) -> None:
    """As Scan, of orders one and two."""
    needs("onnx")
    loop, _ = both(model, tmp_path)
    data = stored_values(loop, tmp_path / "model")
    first = nnef_grad.differentiate(loop).graph
    for graph in (first, nnef_grad.differentiate(first).graph):
        assert any(op.name == "<loop>" for op in graph.operations)
        fed = feeds(graph, model)
        arrays = [
            np.asarray(fed[name], DTYPES[tensor.dtype])
            for name, tensor in zip(graph.input_names, graph.inputs, strict=True)
        ]
        found = find_runtime("onnxruntime").compile(graph, data)(arrays)
        wanted = nnef_grad.evaluate(graph, fed, data)
        for name, array in zip(graph.output_names, found, strict=True):
            scale = np.abs(wanted[name]).max(initial=1.0)
            np.testing.assert_allclose(array / scale, wanted[name] / scale, 0, 2e-5)


@every_loop
def test_without_loops(model: Model, tmp_path: Path) -> None:
    """Targets that have no loops get the steps."""
    loop, _ = both(model, tmp_path)
    backward = nnef_grad.differentiate(loop).graph
    for target in ("nnef", "portable", "khronos"):
        lowered = nnef_grad.lower(backward, target)
        text = nnef_grad.dumps(lowered.graph)
        nnef_grad.loads(text, dialect="nnef")


@every_loop
def test_two_halves(model: Model, tmp_path: Path) -> None:
    """Split, they compute what one graph does, and the second has the second loop only."""
    loop, _ = both(model, tmp_path)
    backward = nnef_grad.differentiate(loop)
    halves = nnef_grad.split(loop, backward)
    fed = feeds(backward.graph, model)
    data = stored_values(loop, tmp_path / "model")
    own = {name: fed[name] for name in halves.forward.input_names}
    saved = nnef_grad.evaluate(halves.forward, own, data)
    given = {name: (fed | saved)[name] for name in halves.backward.input_names}
    found = nnef_grad.evaluate(halves.backward, given, data)
    assert_alike(found, nnef_grad.evaluate(backward, fed, data))


@every_loop
def test_jacobians(model: Model, tmp_path: Path) -> None:
    loop, steps = both(model, tmp_path)
    found, wanted = (
        values(nnef_grad.jacobian(graph).graph, model, tmp_path)
        for graph in (loop, steps)
    )
    assert_alike(found, wanted)


# ---- What is said of loops ----

LONG = """version 1.0;
extension tract_registry tract_core;

fragment cell( a: tensor<scalar>, b: tensor<scalar> ) -> ( c: tensor<scalar>, n: tensor<scalar> )
{
    c = tanh(a + b);
    n = exp(a);
}

graph net( x, h ) -> ( y )
{
    x = external(shape = [1001, 3]);
    h = external(shape = [1, 3]);
    y, z = tract_core_scan(body = 'cell', scan = [('a', x, 0, 1)], full = [], state = [('b', h, 'c')],
        output = [('c', 'last', 0, 1), ('n', 'full', 0, 1)]);
}
"""


def test_a_loop_costs_what_its_steps_do(tmp_path: Path) -> None:
    (model,) = (model for model in LOOPS if model.name == "scan_cell")
    loop, steps = map(nnef_grad.statistics, both(model, tmp_path))
    assert loop.multiply_adds == steps.multiply_adds
    assert not loop.uncounted


def test_what_no_result_needs_is_left_out() -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(LONG), wrt=["h"])
    forward, back = loops_in(backward.graph)
    names = [{op.name for op in loop.body.operations} for loop in (forward, back)]
    assert "exp" not in names[0]
    assert [back.body.names[t] for t in back.made] == ["grad_b"]


def test_a_state_that_is_an_input_and_is_collected() -> None:
    """Its copy is one: its gradient counts once."""
    text = LONG.replace("c = tanh(a + b)", "c = a").replace("exp(a)", "exp(b)")
    text = text.replace("y, z = ", "y, w, z = ").replace("1001", "6")
    text = text.replace("-> ( y )", "-> ( y, w, z )")
    text = text.replace("1), ('n'", "1), ('c', 'full', 0, 1), ('n'")
    loop, steps = (
        nnef_grad.differentiate(nnef_grad.loads(text, unroll=most)).graph
        for most in (0, 6)
    )
    random = np.random.default_rng(0)
    pairs = zip(loop.input_names, loop.inputs, strict=True)
    fed = {name: random.standard_normal(t.shape) for name, t in pairs}
    assert_alike(nnef_grad.evaluate(loop, fed), nnef_grad.evaluate(steps, fed))


def test_a_loop_without_derivative_has_none() -> None:
    """Gradients reach the loop, and no state or input of it moves what they come from."""
    text = LONG.replace("c = tanh(a + b)", "c = floor(a + b)").replace("1001", "6")
    backward = nnef_grad.differentiate(nnef_grad.loads(text, unroll=0), wrt=["x"])
    assert "'x' does not influence 'y': its gradient is zeros" in backward.warnings


def test_the_target_that_has_loops_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "long.nnef"
    path.write_text(LONG, "utf-8")
    run_cli = partial(CliRunner().invoke, main)
    words = [str(path), "-o", str(tmp_path / "out")]
    result = run_cli([*words, "--target", "tract"])
    assert result.exit_code == 0, result.stderr
    made = (tmp_path / "out" / "graph.nnef").read_text("utf-8")
    # The forward loop, the comment that names it, its derivative.
    assert made.count("tract_core_scan(") == 3
    for target in ("nnef", "portable"):
        result = run_cli([*words, "--force", "--target", target])
        assert result.exit_code == 2
        assert "'<loop>' of more than 1,000 steps" in result.stderr
        assert "read it with --unroll N" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-> ( c", "-> ( m: tensor<scalar>, c", "result 'm' is not assigned"),
        ("('b', h, 'c')", "('b', h, 'd')", "the body has no result 'd'"),
        ("('b', h, 'c')", "('d', h, 'c')", "the body 'cell' needs 'b'"),
        (
            "[('b', h, 'c')]",
            "[('b', h, 'c'), ('d', h, 'n')]",
            "the body 'cell' has no parameter 'd'",
        ),
        (
            "[('b', h, 'c')]",
            "[('b', h, 'n'), ('a', h, 'c')]",
            "the body 'cell' gets 'a' twice",
        ),
        (
            "shape = [1, 3]",
            "shape = [1, 1]",
            "state 'b' of type scalar and shape [1, 1] becomes 'c' of type scalar and shape",
        ),
        ("n = exp(a)", "n = exp(a, a)", "too many arguments"),
        ("'full', 0", "'full', 2", "there is no axis 2, the rank is 2"),
        ("('b', h, 'c')", "('b', 3, 'c')", "carries and scans tensors, and 3 is none"),
        (
            "h = external(shape = [1, 3]);",
            "h = external(shape = []); h = external(shape = [1, 3]);",
            "'h' has a value before it is an external",
        ),
    ],
)
def test_what_is_no_loop(old: str, new: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        nnef_grad.loads(LONG.replace(old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize("results", [("n", "c"), ("c", "c")])
def test_states_are_in_the_order_of_results(results: tuple[str, str]) -> None:
    one, other = results
    text = LONG.replace("b: tensor<scalar> )", "b: tensor<scalar>, d: tensor<scalar> )")
    states = f"[('b', h, '{one}'), ('d', h, '{other}')]"
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(text.replace("[('b', h, 'c')]", states))
    message = "the results that become states must differ, and be in their order"
    assert message in str(caught.value)


def test_a_loop_in_a_loop_must_begin_anew() -> None:
    (model,) = (model for model in LOOPS if model.name == "scan_nested")
    text = model.text.replace(", reset_every_turn = true", "")
    for unroll in (0, 1000):
        with pytest.raises(nnef_grad.InvalidGraphError) as caught:
            nnef_grad.loads(text, unroll=unroll)
        assert "it keeps its states from turn to turn" in str(caught.value)


def test_a_mark_in_a_loop_in_a_loop_is_lowered() -> None:
    (model,) = (model for model in LOOPS if model.name == "scan_nested")
    marked = "stop_gradient = copy(a * b); c = stop_gradient + a;"
    text = model.text.replace("c = tanh(a * b + 0.5);", marked)
    for target in ("tract", "onnx"):
        graph = nnef_grad.loads(text, unroll=0)
        lowered = nnef_grad.dumps(nnef_grad.lower(graph, target).graph)
        assert "body = 'inner'" in lowered
        assert "copy(" not in lowered


def test_parts_from_both_ends_are_no_loop_in_tract() -> None:
    text = LONG.replace("1001", "6").replace("('c', 'last'", "('c', 'full'")
    for direction, is_loop in ((1, True), (-1, False)):
        other = text.replace("('n', 'full', 0, 1)", f"('n', 'full', 0, {direction})")
        graph = nnef_grad.loads(other, unroll=0)
        graph = replace(graph, outputs=(*graph.outputs, graph.tensors["z"]))
        made = nnef_grad.dumps(nnef_grad.lower(graph, "tract").graph)
        assert ("tract_core_scan(" in made) == is_loop


# ---- Against torch ----

NETWORKS = [
    (kind, layers, ways)
    for kind in ("RNN", "GRU", "LSTM")
    for layers, ways in ((1, 1), (2, 1), (2, 2))
]


def network(
    kind: str, layers: int, ways: int
) -> tuple[str, dict[str, Array], dict[str, Array], dict[str, Array]]:
    """A recurrent network: the text, the data, the inputs with a random cotangent, and the
    gradients by torch.
    """
    shape, hidden = (6, 2, 3), 4
    text, names = recurrent.document(kind, shape, hidden, layers, ways)
    theirs = recurrent.module(kind, shape[2], hidden, layers, ways)
    parameters = dict(theirs.named_parameters())
    gates = recurrent.GATES[kind]
    random = np.random.default_rng(0)
    x = torch.tensor(random.standard_normal(shape), requires_grad=True)
    y, _ = theirs(x)
    cotangent = random.standard_normal(tuple(y.shape))
    y.backward(torch.tensor(cotangent))
    data, wanted = {}, {"grad_x": x.grad.numpy()}
    for name in names:
        parameter = parameters[name.rpartition("_")[0]]
        data[name] = recurrent.gate(parameter, name, gates)
        wanted[f"grad_{name}"] = recurrent.gate(parameter.grad, name, gates)
    return text, data, {"x": x.detach().numpy(), "grad_y": cotangent}, wanted


@pytest.mark.parametrize(("kind", "layers", "ways"), NETWORKS)
def test_a_recurrent_network(kind: str, layers: int, ways: int, tmp_path: Path) -> None:
    text, data, fed, wanted = network(kind, layers, ways)
    loop = nnef_grad.loads(text, unroll=1)
    backward = nnef_grad.differentiate(loop).graph
    assert_alike(nnef_grad.evaluate(backward, fed, data), wanted)
    needs("tract")
    lowered = nnef_grad.lower(backward, "tract")
    scans = [op for op in lowered.graph.operations if op.name == "<loop>"]
    assert len(scans) == 2 * layers * ways
    stored = {**data, **lowered.data}
    stored = {label: np.asarray(a, np.float32) for label, a in stored.items()}
    nnef_grad.save(lowered.graph, tmp_path / "model/", data=stored)
    single = {name: a.astype("f4") for name, a in fed.items()}
    (outcome,) = run("tract", [Stored(tmp_path / "model", single)])
    verdict = compare(outcome, wanted, 1e-5)
    assert verdict.word == "ok", verdict.detail


def test_an_error_in_the_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    text, data, fed, wanted = network("GRU", 1, 1)
    right = LoopBuilder.sum

    def wrong(draft: LoopBuilder, tensor: Tensor, sources: Sequence[Tensor]) -> None:
        right(draft, tensor, [draft.emit("mul", source, 1.001) for source in sources])

    monkeypatch.setattr(LoopBuilder, "sum", wrong)
    backward = nnef_grad.differentiate(nnef_grad.loads(text, unroll=1)).graph
    with pytest.raises(AssertionError):
        assert_alike(nnef_grad.evaluate(backward, fed, data), wanted)
