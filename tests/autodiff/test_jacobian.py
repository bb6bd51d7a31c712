"""Jacobians: against torch, operation by operation, and in their form."""

from __future__ import annotations

from typing import Any

import nnef
import pytest
import torch
from support import reference
from support.checks import close, document

import nnef_grad

F64 = torch.float64


def check_jacobian(
    text: str, high: int = 2, tolerance: float = 1e-9, **options: Any
) -> str:
    """Compares each Jacobian with torch's; returns the emitted text."""
    graph = nnef_grad.loads(text)
    backward = nnef_grad.jacobian(graph, **options)
    emitted = nnef_grad.dumps(backward)
    nnef.parse_string(emitted)
    assert nnef_grad.loads(emitted) == backward.graph
    generator = torch.Generator().manual_seed(0)
    feeds, variables = reference.random_feeds(text, generator, high=high)
    computed = reference.evaluate(emitted, feeds, variables)
    names: Any = options.get("outputs")
    output = names[0] if names else graph.output_names[0]
    shape = graph.tensors[output].shape
    for index in range(torch.Size(shape).numel()):
        seed = torch.zeros(shape, dtype=F64)
        seed.reshape(-1)[index] = 1.0
        targets = list(backward.gradients)
        rows = reference.gradients(text, feeds, variables, targets, {output: seed})
        for (target, name), row in zip(backward.gradients.items(), rows, strict=True):
            found = computed[name]
            assert found.shape == (*shape, *graph.tensors[target].shape), name
            found = found.reshape(-1, *graph.tensors[target].shape)[index]
            close(found, row, tolerance, f"row {index} of {name}\n{emitted}")
    return emitted


MODELS = {
    "mul": ("x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\ny = mul(x, w);", "x, w"),
    "lower rank": ("x = external(shape = [2, 3]);\nw = external(shape = [2]);\ny = div(x, w);", "x, w"),
    "rank 0": ("x = external(shape = []);\nw = external(shape = [2, 3]);\ny = mul(x, w);", "x, w"),
    "scalar output": ("x = external(shape = [2, 3]);\ns = sum_reduce(x, axes = [0, 1]);\nt = squeeze(s, axes = [0, 1]);\ny = sqr(t);", "x"),
    "one output": ("x = external(shape = [2, 3]);\ns = sqr(x);\ny = sum_reduce(s, axes = [0, 1]);", "x"),
    "copy": ("x = external(shape = [2, 3]);\ny = copy(x);", "x"),
    "unused": ("x = external(shape = [2, 3]);\nw = external(shape = [2]);\ny = sin(x);", "x, w"),
    "linear": ("x = external(shape = [2, 3]);\nw = external(shape = [4, 3]);\nb = external(shape = [1, 4]);\ny = linear(x, w, b);", "x, w, b"),
    "matmul": ("x = external(shape = [2, 3, 2]);\nw = external(shape = [1, 3, 4]);\ny = matmul(x, w, transposeA = true);", "x, w"),
    "softmax": ("x = external(shape = [2, 3]);\ny = softmax(x);", "x"),
    "max": ("x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\na = max(x, w);\ny = relu(a);", "x, w"),
    "pow": ("x = external(shape = [2, 3]);\na = exp(x);\nw = external(shape = [2]);\ny = pow(a, w);", "x, w"),
    "sqrt": ("x = external(shape = [2, 3]);\na = exp(x);\ny = sqrt(a);", "x"),
    "moments": ("x = external(shape = [2, 3]);\nm, y = moments(x, axes = [1]);", "x"),
    "max_reduce": ("x = external(shape = [2, 3]);\ny = max_reduce(x, axes = [0]);", "x"),
    "mean_reduce": ("x = external(shape = [2, 3, 2]);\ny = mean_reduce(x, axes = [0, 2]);", "x"),
    "reshape": ("x = external(shape = [2, 3, 2]);\na = reshape(x, shape = [-1, 2], axis_start = 1);\ny = sin(a);", "x"),
    "transpose": ("x = external(shape = [2, 3, 4]);\na = transpose(x, axes = [1, 0]);\ny = sin(a);", "x"),
    "concat": ("x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\ny = concat([x, w, x], axis = 0);", "x, w"),
    "split": ("x = external(shape = [4, 2]);\n[a, b] = split(x, axis = 0, ratios = [1, 3]);\ny = sin(b);", "x"),
    "stack": ("x = external(shape = [2]);\nw = external(shape = [2]);\ny = stack([x, w], axis = 1);", "x, w"),
    "unstack": ("x = external(shape = [3, 2]);\n[a, b, c] = unstack(x, axis = 0);\ny = mul(a, c);", "x"),
    "slice": ("x = external(shape = [5, 4]);\ny = slice(x, axes = [0, 1], begin = [0, 3], end = [5, 0], stride = [2, -1]);", "x"),
    "pad": ("x = external(shape = [1, 2, 3]);\ny = pad(x, padding = [(0, 0), (0, 1), (1, -1)]);", "x"),
    "tile": ("x = external(shape = [2, 1]);\ny = tile(x, repeats = [2, 3]);", "x"),
    "gather": ("x = external(shape = [2, 3]);\ni = external<integer>(shape = [4]);\ny = gather(x, i, axis = 1);", "x, i"),
    "conv": ("x = external(shape = [2, 2, 4]);\nw = external(shape = [3, 2, 2]);\nb = external(shape = [1, 3]);\ny = conv(x, w, b, stride = [2]);", "x, w, b"),
    "groups": ("x = external(shape = [2, 4, 3, 2]);\nw = external(shape = [4, 2, 2, 2]);\ny = conv(x, w, groups = 2, padding = [(0, 1), (0, 0)]);", "x, w"),
    "depthwise": ("x = external(shape = [1, 2, 5]);\nw = external(shape = [4, 1, 2]);\ny = conv(x, w, groups = 0, dilation = [2]);", "x, w"),
    "deconv": ("x = external(shape = [1, 2, 3]);\nw = external(shape = [2, 2, 2]);\ny = deconv(x, w, stride = [2], output_shape = [1, 2, 5]);", "x, w"),
    "deconv groups": ("x = external(shape = [2, 4, 3]);\nw = external(shape = [4, 1, 2]);\ny = deconv(x, w, groups = 2, padding = [(0, 1)]);", "x, w"),
    "box": ("x = external(shape = [1, 2, 4]);\ny = box(x, size = [1, 1, 2], normalize = true, border = 'ignore');", "x"),
    "debox": ("x = external(shape = [1, 2, 2]);\ny = debox(x, size = [1, 1, 2], stride = [1, 1, 2], padding = [(0, 0), (0, 0), (0, 0)]);", "x"),
    "max_pool": ("x = external(shape = [2, 1, 3, 3]);\ny = max_pool(x, size = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);", "x"),
    "norm": ("x = external(shape = [2, 3]);\nm = external(shape = [1, 3]);\ns = external(shape = [1, 3]);\ny = batch_normalization(x, m, 2.0, 0.5, s, epsilon = 0.1);", "x, m, s"),
    "lrn": ("x = external(shape = [1, 4]);\ny = local_response_normalization(x, size = [1, 3], alpha = 0.5, beta = 0.75, bias = 2.0);", "x"),
    "select": ("x = external(shape = [2, 3]);\nc = external<logical>(shape = [2]);\ny = select(c, x, 0.5);", "x, c"),
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_the_jacobian_of(model: str) -> None:
    body, inputs = MODELS[model]
    check_jacobian(document(body, inputs))


@pytest.mark.parametrize(
    "model",
    ["mul", "linear", "softmax", "conv", "groups", "deconv", "sqrt", "max_pool"],
)
def test_the_jacobian_of_a_gradient(model: str) -> None:
    """A Hessian: the Jacobian of the backward graph."""
    body, inputs = MODELS[model]
    text = document(body.replace("y = ", "z = ") + "\ny = sqr(z);", inputs)
    backward = nnef_grad.differentiate(nnef_grad.loads(text), wrt="inputs", seed="ones")
    first = next(iter(backward.gradients.values()))
    check_jacobian(nnef_grad.dumps(backward), outputs=[first])


TWO_OUTPUTS = document(
    "x = external(shape = [2, 3]);\njacobian_x = external(shape = [3, 1]);\nm = matmul(x, jacobian_x);\ny = tanh(m);\nz = sin(x);",
    "x, jacobian_x",
    "y, z",
)


def test_one_of_several_outputs_is_chosen() -> None:
    graph = nnef_grad.loads(TWO_OUTPUTS)
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.jacobian(graph)
    assert (
        caught.value.message
        == "a Jacobian is the derivative of one output: choose one of 'y', 'z'"
    )
    check_jacobian(TWO_OUTPUTS, outputs=["z"], wrt=["x"])
    check_jacobian(TWO_OUTPUTS, outputs=["y"], wrt=["m", "x"])


def test_names_of_the_model_are_left_alone_and_outputs_come_after() -> None:
    graph = nnef_grad.loads(TWO_OUTPUTS)
    backward = nnef_grad.jacobian(graph, outputs=["y"], wrt=["x"], with_outputs=True)
    assert backward.gradients == {"x": "jacobian_x_1"}
    assert backward.seeds == {}
    assert backward.graph.output_names == ("jacobian_x_1", "y", "z")
    assert backward.graph.outputs[0].shape == (2, 1, 2, 3)


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        ("x = external(shape = [2]);\ny = copy(x);", "x", 0),
        ("x = external(shape = []);\ny = sqr(x);", "x", 0),
        ("x = external(shape = [2, 3]);\nw = external(shape = [2]);\ny = add(x, w);", "x, w", 0),
        ("x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\ny = add(x, w);", "x, w", 1),
    ],
)  # fmt: skip
def test_only_a_jacobian_that_there_are_two_of_is_copied(
    body: str, inputs: str, expected: int
) -> None:
    assert check_jacobian(document(body, inputs)).count(" = copy(") == expected


def test_what_is_stopped_is_a_constant() -> None:
    text = document("x = external(shape = [2]);\na = sqr(x);\ny = mul(a, x);")
    graph = nnef_grad.loads(text)
    emitted = nnef_grad.dumps(nnef_grad.jacobian(graph, stop=["a"]))
    (found,) = reference.outputs(
        emitted, {"x": torch.tensor([3.0, 5.0], dtype=F64)}, {}
    )
    assert found.tolist() == [[9.0, 0.0], [0.0, 25.0]]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([101, 100], "'y' has 10100 elements: a Jacobian may have 10000 rows at most"),
        ([5000], "the Jacobian of 'y' with respect to 'w' would have 5000 x 25000000 elements: 100000000 are the most"),
    ],
)  # fmt: skip
def test_a_jacobian_that_no_memory_holds_is_an_error(
    shape: list[int], message: str
) -> None:
    text = document(
        f"x = external(shape = {shape});\nw = external(shape = [5000, 5000]);\n"
        f"s = sum_reduce(w, axes = [0, 1]);\nt = squeeze(s, axes = [0, 1]);\ny = mul(x, t);",
        "x, w",
    )
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.jacobian(nnef_grad.loads(text))
    assert caught.value.message == message
