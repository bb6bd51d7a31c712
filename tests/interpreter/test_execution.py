"""Whole graphs, operations of one's own, one operation at a time, and what is wrong
with inputs and data.
"""

from __future__ import annotations

import math
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from support import reference
from support.checks import document
from support.evaluations import (
    INF,
    NAN,
    ROOT,
    Array,
    Shape,
    close,
    feeds,
    model,
    run,
)
from support.networks import network

import nnef_grad
from nnef_grad.interpreter import EVALUATIONS, evaluate, execute, step

# ---- Graphs ----

NETWORK = """
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'Layer/Weight');
    b = variable(shape = [1, 4], label = 'layer/bias');
    h = linear(x, w, b);
    y = relu(h);
"""


def network_data() -> tuple[dict[str, Array], dict[str, Array]]:
    draw = np.random.default_rng(0)
    variables = {
        "layer/weight": draw.standard_normal((4, 3)),
        "LAYER/BIAS": draw.standard_normal((1, 4)),
    }
    return {"x": draw.standard_normal((2, 3))}, variables


def test_variables_are_found_by_label_in_upper_and_lower_case() -> None:
    inputs, variables = network_data()
    spare = {**variables, "of/another/graph": np.zeros(7)}
    outputs = evaluate(nnef_grad.loads(document(NETWORK)), inputs, spare)
    weight, bias = variables.values()
    assert list(outputs) == ["y"]
    close(outputs["y"], np.maximum(inputs["x"] @ weight.T + bias, 0.0))


def test_variables_of_one_label_share_their_data() -> None:
    text = """
    x = external(shape = [2]);
    v = variable(shape = [2], label = 'a/B');
    w = variable(shape = [2], label = 'A/b');
    s = add(v, w);
    y = add(x, s);
    """
    outputs = evaluate(nnef_grad.loads(document(text)), {"x": [0.0, 1.0]}, {"a/b": [1.0, 2.0]})  # fmt: skip
    assert outputs["y"].tolist() == [2.0, 5.0]


def test_update_returns_the_new_value_and_the_variable_keeps_the_old_one() -> None:
    text = """
    x = external(shape = [2]);
    v = variable(shape = [2], label = 'v');
    s = add(v, x);
    u = update(v, s);
    y = copy(v);
    """
    graph = nnef_grad.loads(document(text, outputs="u, y"))
    outputs = evaluate(graph, {"x": [1.0, 2.0]}, {"v": [10.0, 20.0]})
    assert outputs["u"].tolist() == [11.0, 22.0]
    assert outputs["y"].tolist() == [10.0, 20.0]


def test_outputs_share_no_memory_with_what_was_fed() -> None:
    text = document(
        "    x = external(shape = [2, 3]);\n    y = transpose(x, axes = [1, 0]);"
    )
    x = np.zeros((2, 3))
    (y,) = evaluate(nnef_grad.loads(text), {"x": x}).values()
    y += 1.0
    assert not x.any()


def test_lists_and_other_precisions_do() -> None:
    graph = nnef_grad.loads(model("y = add(x, w)", x=[2], w=[]))
    for x in (
        [1, 2],
        [1.0, 2.0],
        np.array([1, 2], np.float16),
        np.array([1, 2], np.uint8),
    ):
        (y,) = evaluate(graph, {"x": x, "w": 0.5}).values()
        assert y.dtype == np.float64
        assert y.tolist() == [1.5, 2.5]


def test_what_nobody_reads_any_more_is_released() -> None:
    seen: list[weakref.ref[Array]] = []

    def swish(x: Array, beta: float) -> Array:
        assert all(array() is None for array in seen)
        seen.append(weakref.ref(x))
        return np.asarray(x * EVALUATIONS["sigmoid"](beta * x))

    evaluate(own_graph("h1 = swish(x); h2 = swish(h1); h3 = swish(h2); y = swish(h3);"), {"x": [1.0, 2.0]}, rules=own_rules(swish))  # fmt: skip
    assert len(seen) == 4


@pytest.mark.parametrize(
    "sample", ["linear", "broadcast", "mlp", "convnet", "residual"]
)
def test_backward_graphs(sample: str) -> None:
    graph = nnef_grad.load(ROOT / "samples" / f"{sample}.nnef")
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    text = nnef_grad.dumps(nnef_grad.loads(nnef_grad.dumps(graph)))
    generator = torch.Generator().manual_seed(1)
    fed, variables = reference.random_feeds(text, generator)
    variables = {label: value.abs() + 0.1 for label, value in variables.items()}
    forward = reference.evaluate(text, fed, variables)
    seeds = {name: torch.randn(forward[name].shape, generator=generator, dtype=torch.float64) for name in backward.seeds}  # fmt: skip
    expected = reference.gradients(
        text, fed, variables, list(backward.gradients), seeds
    )

    grads = {backward.seeds[name]: seed for name, seed in seeds.items()}
    outputs = evaluate(backward, {k: v.numpy() for k, v in {**fed, **grads}.items()}, {k: v.numpy() for k, v in variables.items()})  # fmt: skip
    for name, gradient in zip(backward.gradients.values(), expected, strict=True):
        close(outputs[name], gradient.numpy(), 1e-10)
    for name in seeds:
        close(outputs[name], forward[name].numpy())


def test_a_network() -> None:
    text = network("resnet", 1, 64)
    fed, variables = reference.random_feeds(text, torch.Generator().manual_seed(0))
    for label, value in variables.items():
        scale = math.sqrt(2.0 / value[0].numel())
        variables[label] = value * scale if value.dim() == 4 else value.abs() + 0.5
    (expected,) = reference.outputs(text, fed, variables)
    inputs = {name: value.numpy() for name, value in fed.items()}
    data = {label: value.numpy() for label, value in variables.items()}
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-4)):
        (found,) = evaluate(nnef_grad.loads(text), inputs, data, dtype=dtype).values()
        assert found.dtype == dtype
        close(found, expected.numpy(), tolerance)


# ---- Operations of one's own ----

OWN = """
fragment swish( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> );
fragment swish_shape( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> )
{ y = copy(x); }
"""


def own_graph(body: str = "y = swish(x, beta = 2.0);") -> nnef_grad.Graph:
    declaration = OWN.strip().splitlines()[0]
    header = (
        f"version 1.0;\nextension KHR_enable_fragment_definitions;\n{declaration}\n"
    )
    text = f"{header}graph net( x ) -> ( y )\n{{\n    x = external(shape = [2]);\n    {body}\n}}\n"
    return nnef_grad.loads(text, rules=nnef_grad.loads_rules(OWN))


def own_rules(swish: Any) -> nnef_grad.Rules:
    rules = nnef_grad.Rules()
    rules.evaluation("swish")(swish)
    return rules


def test_an_evaluation_of_ones_own() -> None:
    def swish(x: Array, beta: float) -> Array:
        return x / (1.0 + np.exp(-beta * x))

    outputs = evaluate(own_graph(), {"x": [1.0, 2.0]}, rules=own_rules(swish))
    np.testing.assert_allclose(outputs["y"], [1 / (1 + math.exp(-2)), 2 / (1 + math.exp(-4))])  # fmt: skip


def test_without_an_evaluation_it_is_an_error() -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(own_graph(), {"x": [1.0, 2.0]})
    assert caught.value.message.startswith("'swish' has no evaluation: give it a body")
    assert caught.value.span is not None
    assert caught.value.span.text == "swish"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0, 2.0, 3.0], "the evaluation of 'swish' gives an array of shape [3] for 'y', whose shape is [2]"),
        (0.0, "the evaluation of 'swish' gives an array of shape [] for 'y', whose shape is [2]"),
    ],
)  # fmt: skip
def test_an_evaluation_that_does_not_fit(result: Any, message: str) -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(own_graph(), {"x": [1.0, 2.0]}, rules=own_rules(lambda x, beta: result))  # fmt: skip
    assert caught.value.message == message


# ---- One operation at a time ----


def test_execute_and_step() -> None:
    graph = nnef_grad.loads(model("y, z = moments(x, axes = [0])", x=[2]))
    external, moments = graph.operations
    x = np.array([1.0, 3.0], np.float32)
    (fed,) = execute(external, [x])
    assert isinstance(fed, np.ndarray)
    assert fed.dtype == np.float64
    assert np.array_equal(execute(moments, [fed]), [[2.0], [1.0]])
    (given,) = graph.inputs
    tensors = step(external, {given: x}, np.float32)
    assert tensors[given] is x
    found = step(moments, tensors, np.float32)
    assert {t: value.tolist() for t, value in found.items()} == {
        graph.tensors["y"]: [2.0],
        graph.tensors["z"]: [1.0],
    }


def test_execute_takes_and_gives_arrays_of_tensors() -> None:
    concat = nnef_grad.loads(model("y = concat([x, w], axis = 0)", x=[1], w=[2]))
    (y,) = execute(concat.operations[-1], [(np.zeros(1), np.ones(2))])
    assert np.array_equal(y, [0.0, 1.0, 1.0])
    unstack = nnef_grad.loads(model("[y, z] = unstack(x, axis = 0)", x=[2]))
    ((y, z),) = execute(unstack.operations[-1], [np.array([1.0, 2.0])])
    assert (y, z) == (1.0, 2.0)


def test_an_evaluation_of_the_standard_gives_the_inferred_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(EVALUATIONS, "relu", lambda x: x[:1])
    with pytest.raises(AssertionError, match="gives an array of shape"):
        run("y = relu(x)", {"x": [1.0, 2.0]}, x=[2])


def test_the_compiler_does_without_numpy() -> None:
    program = (
        "import sys, nnef_grad; text = sys.argv[1]\n"
        "nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text)))\n"
        "assert 'numpy' not in sys.modules"
    )
    text = model("y = relu(x)", x=[2])
    done = subprocess.run(
        [sys.executable, "-c", program, text], capture_output=True, text=True, check=False, cwd=ROOT
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ---- Errors ----


def messages(error: nnef_grad.NnefGradError) -> list[str]:
    return [problem.message for problem in error.problems]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, "input 'x' of type scalar and shape [2, 3] has no data"),
        ({"x": np.zeros((3, 2))}, "input 'x' of type scalar and shape [2, 3] is given data of shape [3, 2]"),
        ({"x": 1.0}, "input 'x' of type scalar and shape [2, 3] is given data of shape []"),
        ({"x": np.zeros((2, 3), np.bool_)}, "input 'x' of type scalar and shape [2, 3] is given data of type bool"),
        ({"x": np.zeros((2, 3), np.complex128)}, "input 'x' of type scalar and shape [2, 3] is given data of type complex128"),
        ({"x": np.full((2, 3), None)}, "input 'x' of type scalar and shape [2, 3] is given data of type object"),
        ({"x": np.zeros((2, 3)), "xx": 1.0}, "the graph has no input 'xx'"),
        ({"x": np.zeros((2, 3)), "w": 1.0}, "the graph has no input 'w'"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(inputs: Any, expected: str) -> None:
    _, variables = network_data()
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(nnef_grad.loads(document(NETWORK)), inputs, variables)
    assert messages(caught.value) == [expected]


def test_everything_that_is_wrong_is_told() -> None:
    graph = nnef_grad.loads(document(NETWORK))
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(graph, {"X": 0.0}, {"layer/bias": [1, 2, 3, 4]})
    assert messages(caught.value) == [
        "the graph has no input 'X'",
        "input 'x' of type scalar and shape [2, 3] has no data",
        "variable 'Layer/Weight' of type scalar and shape [4, 3] has no data",
        "variable 'layer/bias' of type scalar and shape [1, 4] is given data of shape [4]",
    ]
    spans = [problem.span for problem in caught.value.problems]
    assert [span.text for span in spans if span] == ["external", "variable", "variable"]


def test_data_that_are_no_array() -> None:
    graph = nnef_grad.loads(model("y = relu(x)", x=[2]))
    with pytest.raises(nnef_grad.UsageError, match="are not an array"):
        evaluate(graph, {"x": [[1.0], [1.0, 2.0]]})


@pytest.mark.parametrize(
    ("data", "expected"),
    [(1.5, "float64"), (True, "bool"), (np.uint64(1), "uint64")],
)
def test_integers_are_never_made_of_other_types(data: Any, expected: str) -> None:
    graph = nnef_grad.loads(model("y = cast<scalar>(i)", i=[]))
    with pytest.raises(nnef_grad.UsageError, match=f"is given data of type {expected}"):
        evaluate(graph, {"i": data})


def test_two_variables_of_one_label() -> None:
    graph = nnef_grad.loads(document(NETWORK))
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(graph, {}, {"a/B": 0.0, "A/b": 0.0})
    assert caught.value.message == "there are two variables with the label 'a/b'"


@pytest.mark.parametrize("dtype", [np.float16, "int64", None, "nonsense"])
def test_scalars_are_of_single_or_double_precision(dtype: Any) -> None:
    graph = nnef_grad.loads(model("y = relu(x)", x=[2]))
    with pytest.raises(
        nnef_grad.UsageError, match="'dtype' must be float32 or float64"
    ):
        evaluate(graph, {"x": [1.0, 2.0]}, dtype=dtype)


@pytest.mark.parametrize(
    ("operation", "shapes", "data", "expected"),
    [
        ("gather(x, i)", {"x": [3], "i": [2]}, {"i": [0, 3]}, "gather: the items of 'indices' must be in 0..2, the positions on axis 0"),
        ("gather(x, i)", {"x": [3], "i": [2]}, {"i": [0, -1]}, "gather: the items of 'indices' must be in 0..2, the positions on axis 0"),
        ("sample(x, i, size = [2])", {"x": [3], "i": [3]}, {"i": [0, 1, 2]}, "sample: the items of 'index' must be in 0..1, the elements of a window"),
        ("cast<integer>(x)", {"x": [2]}, {"x": [1.0, NAN]}, "cast: only numbers below 2^63 can be cast to integers"),
        ("cast<integer>(x)", {"x": [2]}, {"x": [1.0, 1e19]}, "cast: only numbers below 2^63 can be cast to integers"),
        ("max_roi_pool(x, r, i, output_size = [2])", {"x": [2, 1, 3], "r": [1, 2], "i": [1]}, {"i": [2]}, "max_roi_pool: the items of 'batch_index' must be in 0..1"),
        ("roi_resample(x, r, i, output_size = [2])", {"x": [2, 1, 3], "r": [1, 2], "i": [1]}, {"r": [[0.0, INF]]}, "roi_resample: the items of 'rois' must be finite"),
    ],
)  # fmt: skip
def test_values_that_have_no_result(
    operation: str, shapes: dict[str, Shape], data: dict[str, Any], expected: str
) -> None:
    text = model(f"y = {operation}", **shapes)
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(nnef_grad.loads(text), {**feeds(text), **data})
    assert caught.value.message == expected
    assert caught.value.span is not None
    assert caught.value.span.text == operation.split("(")[0].split("<")[0]


def test_what_is_below_all_integers_is_cast_to_the_least() -> None:
    graph = nnef_grad.loads(model("y = cast<integer>(x)", x=[2]))
    found = evaluate(graph, {"x": [-INF, -1e30]})["y"]
    assert found.tolist() == [-(2**63)] * 2


@pytest.mark.parametrize(
    ("operation", "extent"),
    [
        ("pad(x, padding = [(3, 0)], border = 'reflect')", 3),
        ("pad(x, padding = [(0, 4)], border = 'reflect-even')", 3),
        ("max_pool(x, size = [3], border = 'reflect')", 1),
    ],
)
def test_there_is_one_reflection_on_each_side(operation: str, extent: int) -> None:
    text = model(f"y = {operation}", x=[extent])
    with pytest.raises(nnef_grad.NnefGradError, match="border 'reflect"):
        evaluate(nnef_grad.loads(text), feeds(text))


def test_an_index_that_desample_does_not_have_puts_nothing_anywhere() -> None:
    fed = {"x": [1.0, 2.0], "i": [1, 5]}
    (y,) = run("y = desample(x, i, size = [2], stride = [2])", fed, x=[2], i=[2])
    assert y.tolist() == [0.0, 1.0, 0.0, 0.0]
