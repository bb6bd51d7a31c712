"""Split derivatives: together the halves compute what the whole does, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import torch_memory
from support.checks import document
from support.networks import network
from support.operation_models import Model, models
from support.random_graphs.generate import make_graph

import nnef_grad
from nnef_grad.autodiff.split import FREE, Split
from nnef_grad.autodiff.statistics import SplitCosts, split_costs
from nnef_grad.emit.quantization import read_quantization
from nnef_grad.interpreter.random_values import Values, random_values
from nnef_grad.ops.costs import multiply_adds

Arrays = Mapping[str, np.ndarray[Any, Any]]
SAMPLES = ("convnet", "mlp", "residual")


def check_split(
    graph: nnef_grad.Graph,
    backward: nnef_grad.Backward,
    values: Values,
    rules: nnef_grad.Rules | None = None,
) -> Split:
    """Compares the results of the halves with those of the graphs that they are made of."""
    halves = nnef_grad.split(graph, backward)
    drawn = random_values(backward.graph, seed=2)
    fed = {**drawn.inputs, **values.inputs}

    def run(part: nnef_grad.Graph, fed: Arrays) -> Arrays:
        given = {name: fed[name] for name in part.input_names}
        return nnef_grad.evaluate(part, given, values.variables, rules=rules)

    first = run(halves.forward, fed)
    kept = {name: first[name] for name in halves.saved}
    found = {**first, **run(halves.backward, {**fed, **kept})}
    expected = {**run(graph, fed), **run(backward.graph, fed)}
    assert found.keys() == expected.keys() | kept.keys()
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-9, atol=1e-12)
    check_structure(graph, backward, halves)
    return halves


def check_structure(
    graph: nnef_grad.Graph, backward: nnef_grad.Backward, halves: Split
) -> None:
    outputs = graph.output_names
    further = [name for name in halves.saved if name not in outputs]
    assert halves.forward.output_names == (*outputs, *further)
    assert halves.forward.inputs == graph.inputs
    assert halves.backward.output_names == (*backward.gradients.values(),)
    inputs = halves.backward.input_names
    needed = [name for name in backward.graph.input_names if name in inputs]
    assert inputs == (*halves.saved, *needed)
    assert set(backward.seeds.values()) <= set(needed)
    made = {op.outputs for op in graph.operations}
    for op in halves.backward.operations:
        is_index = any(tensor.dtype == "integer" for tensor in op.outputs)
        assert op.outputs not in made or op.name in FREE or is_index
    if not backward.seeds:
        assert {op.outputs for op in halves.forward.operations} <= made
    for half in (halves.forward, halves.backward):
        # What is printed is read again as it is.
        assert nnef_grad.loads(nnef_grad.dumps(half)) == half


# ---- The same numbers ----


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation(model: Model) -> None:
    graph = nnef_grad.loads(model.text)
    values = random_values(graph, seed=1)
    try:
        backward = nnef_grad.differentiate(graph)
    except nnef_grad.NnefGradError:
        pytest.skip("no derivative")
    check_split(graph, backward, values)
    fed = {**random_values(backward.graph, seed=2).inputs, **values.inputs}
    twice = nnef_grad.differentiate(backward.graph)
    check_split(backward.graph, twice, Values(fed, values.variables))


@pytest.mark.parametrize("number", range(30))
def test_random_graphs(number: int) -> None:
    drawn = make_graph(11, number)
    graph = nnef_grad.loads(drawn.text)
    values = Values(
        {name: value.numpy() for name, value in drawn.feeds.items()},
        {label: value.numpy() for label, value in drawn.variables.items()},
    )
    check_split(graph, nnef_grad.differentiate(graph, **drawn.options), values)


@pytest.mark.parametrize(
    "options",
    [
        {"wrt": "inputs"},
        {"wrt": ["weight1", "hidden"]},
        {"stop": ["hidden"]},
        {"seed": "ones"},
        {"with_outputs": True},
        {"seed": "ones", "with_outputs": True},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    graph = nnef_grad.load("samples/mlp.nnef")
    backward = nnef_grad.differentiate(graph, **options)
    check_split(graph, backward, random_values(graph, seed=1))


def test_jacobians() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2, 3]); y = tanh(x);"))
    values = random_values(graph, seed=1)
    halves = check_split(graph, nnef_grad.jacobian(graph), values)
    assert halves.saved == ("y",)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_take_as_much_as_one_pass_forward_and_backward(name: str) -> None:
    graph = nnef_grad.load(f"samples/{name}.nnef")
    for _ in range(2):
        backward = nnef_grad.differentiate(graph)
        halves = check_split(graph, backward, random_values(graph, seed=1))
        whole = nnef_grad.differentiate(graph, with_outputs=True)
        assert count(halves.forward) + count(halves.backward) == count(whole.graph)
        graph = backward.graph


def count(graph: nnef_grad.Graph) -> int:
    return sum(map(multiply_adds, graph.operations))


# ---- What is saved ----

X = "x = external(shape = [4, 6]); t = sin(x);"
BODIES = {
    # What the operands of products are, if they are not there anyway.
    "y = mul(x, x);": (),
    "y = mul(t, x);": ("t",),
    # The result, where the derivative is made of it.
    "y = tanh(x);": ("y",),
    "h = tanh(x); y = mul(h, t);": ("t", "h"),
    # What is only moved is moved again.
    "r = reshape(x, shape = [24]); y = sqr(r);": (),
    "r = transpose(t, axes = [1, 0]); y = sqr(r);": ("t",),
    "c = copy(t); r = unsqueeze(c, axes = [0]); y = mul(r, r);": ("t",),
    # So is what is added and multiplied, in place of two tensors; one is not made again.
    "a = add(t, x); m = mul(a, a); e = exp(m); y = mul(e, mul(a, m));": ("a", "e"),
    "a = sub(t, 1.0); y = sqr(a);": ("a",),
    # Constants are there.
    "c = constant(shape = [4, 6], value = [2.0]); y = mul(c, t);": (),
    # A mask is smaller than what it is made of, unless that is needed in any case.
    "h = relu(t); y = add(h, x);": ("mask_h",),
    "h = relu(t); y = mul(h, x);": ("h",),
    # The smaller operand of a sum.
    "s = sum_reduce(t, axes = [0]); y = sqr(s);": ("s",),
    # Indices are made again, also those of the forward graph.
    "y = max_pool(t, size = [2, 2], stride = [2, 2]);": ("t",),
    "g, i = max_pool_with_index(t, size = [2, 2], stride = [2, 2]);"
    " y = desample(g, i, size = [2, 2], stride = [2, 2]);": ("t",),
}


@pytest.mark.parametrize("body", BODIES)
def test_what_is_saved(body: str) -> None:
    graph = nnef_grad.loads(document(f"{X} {body}"))
    values = random_values(graph, seed=1)
    halves = check_split(graph, nnef_grad.differentiate(graph), values)
    outputs = graph.output_names
    named = (n if n in outputs else f"saved_{n}" for n in BODIES[body])
    assert halves.saved == (*named,)


@pytest.mark.parametrize(
    "name", ["alexnet", "vgg", pytest.param("resnet", marks=pytest.mark.thorough)]
)
def test_torch_saves_no_less(name: str) -> None:
    graph = nnef_grad.loads(network(name, 1, 224))
    backward = nnef_grad.differentiate(graph)
    saved = split_costs(nnef_grad.split(graph, backward)).saved_bytes
    assert saved <= torch_memory.saved_bytes(graph, backward.gradients)


TEXT = """version 1.0;

graph net( x, w ) -> ( y )
{
    x = external(shape = [4, 6]);
    w = external(shape = [6, 6]);
    t = matmul(x, w);
    h = relu(t);
    y = add(h, x);
}
"""
FORWARD = """version 1.0;

# 'net', with what its gradients need.
#   saved_mask_h: saved
graph net( x, w ) -> ( y, saved_mask_h )
{
    x = external(shape = [4, 6]);
    w = external(shape = [6, 6]);
    t = matmul(x, w);
    h = relu(t);
    y = add(h, x);

    # h = relu(t)
    saved_mask_h = gt(h, 0.0);
}
"""
BACKWARD = """version 1.0;

# The backward graph of 'net'.
#   grad_y: input, the gradient of y
#   grad_w: the gradient with respect to w
#   saved_mask_h: input, saved
graph net_backward( saved_mask_h, x, grad_y ) -> ( grad_w )
{
    saved_mask_h = external<logical>(shape = [4, 6]);
    x = external(shape = [4, 6]);
    grad_y = external(shape = [4, 6]);

    # h = relu(t)
    grad_t = select(saved_mask_h, grad_y, 0.0);

    # t = matmul(x, w)
    grad_w = matmul(x, grad_t, transposeA = true);
}
"""


def test_the_texts_of_the_halves() -> None:
    graph = nnef_grad.loads(TEXT)
    halves = nnef_grad.split(graph, nnef_grad.differentiate(graph, wrt=["w"]))
    assert nnef_grad.dumps(halves.forward) == FORWARD
    assert nnef_grad.dumps(halves.backward) == BACKWARD


def test_without_seeds_everything_added_runs_backward() -> None:
    """What is a gradient cannot be told from what is not."""
    graph = nnef_grad.loads(TEXT)
    backward = nnef_grad.differentiate(graph, wrt=["w"], seed="ones")
    halves = check_split(graph, backward, random_values(graph, seed=1))
    assert halves.saved == ("saved_h",)


def test_what_is_saved_has_a_name_of_its_own() -> None:
    """Names that are taken get a number, and outputs keep theirs."""
    body = f"{X} saved_t = mul(t, x); y = tanh(saved_t);"
    graph = nnef_grad.loads(document(body, outputs="y"))
    values = random_values(graph, seed=1)
    halves = check_split(graph, nnef_grad.differentiate(graph), values)
    assert halves.saved == ("saved_t_1", "y")
    assert halves.forward.output_names == ("y", "saved_t_1")


def test_what_halves_cost_together() -> None:
    """Of 4 x 6 elements: t, h and y of 96 bytes each, a mask of 24."""
    graph = nnef_grad.loads(TEXT)
    halves = nnef_grad.split(graph, nnef_grad.differentiate(graph, wrt=["w"]))
    # Forward: h and y, with the mask at the end. Backward: the mask, grad_t and grad_w.
    assert split_costs(halves) == SplitCosts(24, 24 + 96 + 144 - 24, 0)


def test_what_the_second_half_computes_again_is_counted() -> None:
    graph = nnef_grad.loads(
        document(f"{X} u = matmul(t, x, transposeB = true); y = neg(u);")
    )
    product = graph.operations[-2]
    whole = replace(graph, outputs=(*product.outputs, *graph.outputs))
    halves = Split(whole, graph, ())
    assert split_costs(halves).multiply_adds_added == 4 * 4 * 6


def test_quantization_stays_with_the_tensors() -> None:
    graph = nnef_grad.loads(TEXT)
    entry = "linear_quantize(min = 0.0, max = 1.0, bits = 8);"
    text = "".join(f'"{name}": {entry}\n' for name in ("x", "t", "y"))
    entries = read_quantization(nnef_grad.Source("graph.quant", text), graph)
    graph = replace(graph, quantization=entries)
    halves = nnef_grad.split(graph, nnef_grad.differentiate(graph))
    assert [*halves.forward.quantization] == ["x", "t", "y"]
    assert [*halves.backward.quantization] == ["x"]


def test_the_quantization_of_what_is_saved_is_under_its_new_name() -> None:
    graph = nnef_grad.loads(document(f"{X} y = mul(t, x);"))
    text = '"t": linear_quantize(min = 0.0, max = 1.0, bits = 8);'
    entries = read_quantization(nnef_grad.Source("graph.quant", text), graph)
    graph = replace(graph, quantization=entries)
    halves = nnef_grad.split(graph, nnef_grad.differentiate(graph))
    for half in (halves.forward, halves.backward):
        assert [(n, q.tensor) for n, q in half.quantization.items()] == [
            ("saved_t", "saved_t")
        ]


def test_the_backward_graph_of_another_graph() -> None:
    graph, other = nnef_grad.loads(TEXT), nnef_grad.load("samples/mlp.nnef")
    larger = nnef_grad.loads(TEXT.replace("[4, 6]", "[5, 6]"))
    backward = nnef_grad.differentiate(graph)
    for wrong in (other, larger):
        with pytest.raises(nnef_grad.UsageError, match="'net_backward' is not derived"):
            nnef_grad.split(wrong, backward)
