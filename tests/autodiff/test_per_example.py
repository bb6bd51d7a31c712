"""Derivatives for each example: against torch.func, a loop over examples, differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NoDerivativeError, UsageError
from nnef_grad.graph.extents import as_numbers
from nnef_grad.runtimes import find_runtime

pytest.importorskip("torch")

import torch
from support import per_example as modules
from support.checks import document
from torch import nn
from torch.export import Dim

# What torch.func says of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
]
OPEN = {"dynamic_shapes": ({0: Dim("n", max=1024)},)}
SIZES = pytest.mark.parametrize("sizes", [{}, OPEN], ids=["closed", "open"])
# Without a rule for many values in torch.func, whose result has another shape.
NO_JACOBIAN = {"prelu", "recurrent"}
# Without forward mode in torch, or of whole numbers.
NO_HESSIAN = {*NO_JACOBIAN, "attention", "patches", "words alone"}


OPENED = ["linear over steps", "strided conv", "group norm", "time first", "joined"]


def each_way(names: Iterable[str]) -> pytest.MarkDecorator:
    """All modules with as many examples as they have, and some with an open number."""
    pairs = [*((n, {}) for n in sorted(names)), *((n, OPEN) for n in OPENED)]
    ids = [f"{name}-{'open' if sizes else 'closed'}" for name, sizes in pairs]
    return pytest.mark.parametrize(("name", "sizes"), pairs, ids=ids)


class Model:
    """A module, its graph, and what is found and wanted of it at its examples."""

    def __init__(self, name: str, **sizes: Any) -> None:
        self.module, self.x = modules.made(name)
        self.exported = interop.from_torch(self.module, [self.x], **sizes)
        self.graph = self.exported.graph
        (self.input,), (self.output,) = self.graph.input_names, self.graph.output_names

    def results(self, backward: nnef_grad.Backward, **feeds: Any) -> dict[str, Any]:
        """The derivatives, by torch's names of parameters."""
        fed = {self.input: self.x.numpy(), **feeds}
        data = self.exported.data
        found = nnef_grad.evaluate(backward, fed, variables=data)
        names = {**self.exported.parameters, "x": self.input}
        pairs = ((name, backward.gradients.get(x)) for name, x in names.items())
        return {name: found[result] for name, result in pairs if result}


def compare(found: dict[str, Any], wanted: Any) -> None:
    """To 1e-12; a variable may have more axes of extent 1 than a parameter."""
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        want = expected.detach().numpy()
        assert len(found[name]) == len(want)
        error = np.abs(found[name].reshape(want.shape) - want).max()
        assert error <= 1e-12 * max(1.0, np.abs(want).max()), name


@SIZES
@pytest.mark.parametrize("name", modules.MODULES)
def test_gradients(name: str, sizes: Any) -> None:
    model = Model(name, **sizes)
    cotangents = modules.normal(*model.module(model.x).shape, seed=2)
    backward = nnef_grad.differentiate(model.graph, per_example=True)
    seed = {backward.seeds[model.output]: cotangents.numpy()}
    wanted = modules.gradients(model.module, model.x, cotangents)
    compare(model.results(backward, **seed), wanted)
    if not sizes:
        assert nnef_grad.loads(nnef_grad.dumps(backward)) == backward.graph
        summed = nnef_grad.differentiate(model.graph)
        costs = (
            nnef_grad.statistics(b.graph).multiply_adds for b in (backward, summed)
        )
        each, together = costs
        assert each <= 1.1 * together


@each_way({*modules.MODULES} - NO_JACOBIAN)
def test_jacobians(name: str, sizes: Any) -> None:
    model = Model(name, **sizes)
    backward = nnef_grad.jacobian(model.graph, per_example=True)
    found = model.results(backward)
    compare(found, modules.jacobians(model.module, model.x))
    one = model.module(model.x).shape[1:]
    shapes = model.exported.shapes
    for parameter, shape in shapes.items():
        if parameter in found:
            size = 3 * int(np.prod(one)) * prod(as_numbers(shape))
            assert found[parameter].size == size


@each_way({*modules.MODULES} - NO_HESSIAN)
def test_hessians(name: str, sizes: Any) -> None:
    model = Model(name, **sizes)
    backward = nnef_grad.hessian(model.graph, wrt=model.input, per_example=True)
    found = model.results(backward)
    assert found["x"].shape == (*model.x.shape, *model.x.shape[1:])
    compare(found, {"x": modules.hessians(model.module, model.x)})


# ---- Traces ----


def field(module: Any, x: Any, sizes: Any) -> tuple[interop.TorchModel, str]:
    model = interop.from_torch(module, [x], **sizes)
    return model, model.graph.input_names[0]


@SIZES
def test_laplacians_and_divergences(sizes: Any) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 4)
    module, x = nn.Sequential(*layers).float().double(), modules.normal(3, 4)
    model, name = field(module, x, sizes)
    hessian = torch.func.vmap(torch.func.hessian(module))(x)
    jacobian = torch.func.vmap(torch.func.jacrev(module))(x)
    wanted = {
        nnef_grad.laplacian: torch.einsum("noii->no", hessian),
        nnef_grad.divergence: torch.einsum("nii->n", jacobian),
    }
    for derive, expected in wanted.items():
        backward = derive(model.graph)
        assert backward.outputs == model.graph.output_names
        found = nnef_grad.evaluate(backward, {name: x.numpy()}, variables=model.data)
        compare({"x": found[backward.gradients[name]]}, {"x": expected})


def test_the_laplacian_of_images() -> None:
    module, x = modules.made("batch norm")
    model, name = field(module, x, {})
    backward = nnef_grad.laplacian(model.graph)
    hessian = torch.func.vmap(torch.func.hessian(lambda e: module(e[None])[0]))(x)
    size = x[0].numel()
    rows = hessian.reshape(*module(x).shape, size, size)
    found = nnef_grad.evaluate(backward, {name: x.numpy()}, variables=model.data)
    wanted = {"x": torch.einsum("...ii->...", rows)}
    compare({"x": found[backward.gradients[name]]}, wanted)


def test_a_laplacian_is_less_than_a_hessian() -> None:
    """No more than a constant holds as many elements as the matrices do."""
    body = "x = external(shape = [4, 50]);\nw = variable(shape = [50, 8], label = 'w');\nh = tanh(matmul(x, w));\ny = sum_reduce(sqr(h), axes = [1]);"
    graph = nnef_grad.loads(document(body))
    trace = nnef_grad.laplacian(graph)
    large = [
        op.name for op in trace.graph.operations for t in op.outputs
        if np.prod(as_numbers(t.shape)) >= 4 * 50 * 50
    ]  # fmt: skip
    assert large == ["tile"]


@pytest.mark.parametrize(
    ("derive", "body", "message"),
    [
        (nnef_grad.laplacian, "y = softmax(x, axes = [0]);", "the examples of the batch meet in 'softmax', which makes 'y': none has derivatives of its own"),
        (nnef_grad.divergence, "y = sum_reduce(x, axes = [1]);", "a divergence is that of a field: 'y' and 'x' must have one shape, not [3, 1] and [3, 2]"),
        (nnef_grad.divergence, "u = external(shape = [3, 2]);\ny = mul(x, u);", "a divergence is that of one tensor: name one of 'x', 'u'"),
    ],
)  # fmt: skip
def test_traces_that_are_refused(derive: Any, body: str, message: str) -> None:
    inputs = "x, u" if "u = " in body else "x"
    text = document("x = external(shape = [3, 2]);\n" + body, inputs)
    with pytest.raises((NoDerivativeError, UsageError)) as caught:
        derive(nnef_grad.loads(text))
    assert caught.value.message == message


def test_a_straight_line_has_no_laplacian() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [3, 2]);\ny = mul(x, 2.0);"))
    found = nnef_grad.evaluate(nnef_grad.laplacian(graph), {"x": np.ones((3, 2))})
    assert found["laplacian_x"].shape == (3, 2)
    assert not found["laplacian_x"].any()


@pytest.mark.parametrize("derive", [nnef_grad.laplacian, nnef_grad.divergence])
def test_traces_are_those_of_examples(derive: Any) -> None:
    graph = nnef_grad.loads(document("x = external(shape = [3, 2]);\ny = sqr(x);"))
    with pytest.raises(UsageError, match="is one for each example of a batch"):
        derive(graph, per_example=False)


# ---- Of what is shared ----


@pytest.mark.parametrize("name", ["mlp", "conv", "layer norm", "fourier", "softmax"])
def test_hessians_with_respect_to_what_is_shared(name: str) -> None:
    model = Model(name)
    parameters, one = modules.of_each(model.module, model.x)
    for parameter, variable in model.exported.parameters.items():
        if parameters[parameter].numel() > 30:
            continue
        backward = nnef_grad.hessian(model.graph, wrt=variable, per_example=True)

        def total(value: Any, x: Any, name: str = parameter) -> Any:
            return one({**parameters, name: value}, x).sum()

        hessian = torch.func.vmap(torch.func.hessian(total), in_dims=(None, 0))
        wanted = hessian(parameters[parameter], model.x)
        compare(model.results(backward), {parameter: wanted})


@SIZES
@pytest.mark.parametrize("name", ["mlp", "strided conv", "group norm", "outer"])
def test_products(name: str, sizes: Any) -> None:
    """Of Hessians and of Jacobians, with vectors for each example."""
    model = Model(name, **sizes)
    parameters, one = modules.of_each(model.module, model.x)
    names = model.exported.parameters
    wrt = [*names.values()]
    vectors = {
        p: modules.normal(3, *v.shape, seed=i)
        for i, (p, v) in enumerate(parameters.items(), start=3)
    }

    def vary(function: Any) -> Any:
        def one_example(x: Any, v: Any) -> Any:
            return torch.func.jvp(lambda p: function(p, x), (parameters,), (v,))[1]

        return torch.func.vmap(one_example)(model.x, vectors)

    gradient = torch.func.grad(lambda p, x: one(p, x).sum())
    for derive, function in ((nnef_grad.hvp, gradient), (nnef_grad.jvp, one)):
        backward = derive(model.graph, wrt=wrt, per_example=True)
        tensors = backward.graph.tensors
        feeds = {}
        for parameter, variable in names.items():
            seed = backward.seeds[variable]
            shape = (3, *tensors[seed].shape[1:])
            feeds[seed] = vectors[parameter].numpy().reshape(shape)
        wanted = vary(function)
        if derive is nnef_grad.hvp:
            compare(model.results(backward, **feeds), wanted)
            continue
        fed = {model.input: model.x.numpy(), **feeds}
        found = nnef_grad.evaluate(backward, fed, variables=model.exported.data)
        compare({"y": found[backward.gradients[model.output]]}, {"y": wanted})


@pytest.mark.parametrize(
    "name", ["tied", "strided conv", "patches", "time first", "recurrent", "prelu"]
)
@pytest.mark.parametrize("derive", [nnef_grad.differentiate, nnef_grad.jacobian])
def test_central_differences_agree(name: str, derive: Any) -> None:
    model = Model(name)
    backward = derive(model.graph, per_example=True)
    checked = nnef_grad.check(model.graph, backward, variables=model.exported.data)
    assert checked.passed
    assert {g.verdict for g in checked.gradients} <= {"ok", "zero everywhere here"}


def test_central_differences_tell_examples_apart() -> None:
    """The gradients of two examples change places: their sum is the same."""
    graph = nnef_grad.loads(document(X + "y = sin(a);"))
    backward = nnef_grad.differentiate(graph, wrt=["w"], per_example=True)
    (gradient,) = backward.graph.outputs
    text = nnef_grad.dumps(backward).replace(" grad_w = ", " each = ")
    turned = "[p, q, r] = split(each, axis = 0, ratios = [1, 1, 1]);\ngrad_w = concat([q, p, r], axis = 0);"
    wrong = nnef_grad.loads(f"{text.rstrip()[:-1]}{turned}\n}}")
    assert wrong.outputs[0].shape == gradient.shape
    assert nnef_grad.check(graph, backward).passed
    assert not nnef_grad.check(graph, replace(backward, graph=wrong)).passed


# ---- A loop over examples, in graphs ----


def gradients_one_by_one(
    graph: nnef_grad.Graph,
    backward: nnef_grad.Backward,
    feeds: Any,
    data: Any,
    seeds: Any,
) -> dict[str, Any]:
    """For each example, the gradients of the sum, with cotangents of zero elsewhere."""
    plain = nnef_grad.differentiate(graph, wrt=[*backward.gradients])
    rows = []
    for index in range(len(next(iter(seeds.values())))):
        alone = {}
        for output, seed in seeds.items():
            alone[plain.seeds[output]] = np.zeros_like(seed)
            alone[plain.seeds[output]][index] = seed[index]
        found = nnef_grad.evaluate(plain, {**feeds, **alone}, variables=data)
        rows.append({x: found[d] for x, d in plain.gradients.items()})
    return {x: np.stack([row[x] for row in rows]) for x in plain.gradients}


GRAPHS = {
    "shared operands everywhere": "x = external(shape = [3, 2]);\n"
        "w = variable(shape = [1, 2], label = 'w');\nv = variable(shape = [], label = 'v');\n"
        "p = gt(x, 0.5);\na = select(p, w, v);\nb = concat([a, x], axis = 1);\nc = pow(b, v);\ny = mul(c, v);",
    "what is never chosen": "x = external(shape = [3, 2]);\nw = variable(shape = [1, 2], label = 'w');\na = select(false, w, x);\ny = mul(a, w);",
    "quantization": "x = external(shape = [3, 2]);\na = variable(shape = [1, 2], label = 'a');\n"
        "b = variable(shape = [1, 2], label = 'b');\n"
        "y = min_max_linear_quantize(x, a, b, bits = 4, signed = true, symmetric = false);",
    "rows and columns": "x = external(shape = [3, 2]);\nw = variable(shape = [4, 2], label = 'w');\na = matmul(w, x, transposeB = true);\nb = transpose(a, axes = [1, 0]);\ny = sin(b);",
    "gathered": "i = external<integer>(shape = [3, 2]);\nw = variable(shape = [4, 2], label = 'w');\na = gather(w, i, axis = 1);\nb = transpose(a, axes = [1, 0, 2]);\ny = sqr(b);",
    "repeated for each": "x = external(shape = [3, 2, 2]);\nw = variable(shape = [1, 1, 2], label = 'w');\nv = exp(w);\nt = tile(v, repeats = [3, 2, 1]);\ns = sin(t);\ny = concat([x, s], axis = 1);",
    "a constant for each": "x = external(shape = [3, 2]);\nc = constant(shape = [3, 1], value = [0.5, 1.0, 2.0]);\nw = variable(shape = [1, 2], label = 'w');\na = mul(w, c);\ny = add(a, x);",
    "several times": "x = external(shape = [3, 2]);\nw = variable(shape = [1, 1, 4], label = 'w');\n"
        "t = tile(x, repeats = [2, 1]);\na = unsqueeze(t, axes = [2]);\nb = mul(a, w);\n"
        "c = reshape(b, shape = [2, 3, 8]);\ny = transpose(c, axes = [1, 0, 2]);",
    "deconv": "x = external(shape = [3, 2, 3]);\nw = variable(shape = [2, 2, 2], label = 'w');\na = sin(x);\ny = deconv(a, w, stride = [2], output_shape = [3, 2, 5]);",
    "other inputs": "x = external(shape = [3, 2]);\nu = external(shape = [3, 1]);\nw = variable(shape = [1, 2], label = 'w');\na = div(x, exp(u));\ny = mul(a, w);",
    "what is not differentiated": "x = external(shape = [3, 2]);\n"
        "w = variable(shape = [1, 2], label = 'w');\nm = argmax_reduce(x, axes = [1]);\n"
        "c = gather(w, squeeze(m, axes = [1]), axis = 1);\nd = transpose(c, axes = [1, 0]);\ny = mul(d, x);",
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_a_loop_over_examples(name: str) -> None:
    body = GRAPHS[name]
    inputs = ", ".join(w for w in ("x", "i", "u") if f"{w} = external" in body)
    graph = nnef_grad.loads(document(body, inputs))
    backward = nnef_grad.differentiate(graph, per_example=True)
    generator = np.random.default_rng(0)
    feeds: dict[str, Any] = {
        n: generator.integers(0, 2, t.shape)
        if t.dtype == "integer"
        else generator.uniform(0.1, 0.9, t.shape)
        for n, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    data = {
        label: generator.uniform(0.1, 0.9, graph.tensors[n].shape)
        for n, label in graph.labels.items()
    }
    seeds = {"y": generator.standard_normal(graph.tensors["y"].shape)}
    fed = {**feeds, **{backward.seeds[y]: seed for y, seed in seeds.items()}}
    found = nnef_grad.evaluate(backward, fed, variables=data)
    wanted = gradients_one_by_one(graph, backward, feeds, data, seeds)
    for tensor, gradient in backward.gradients.items():
        rows = wanted[tensor]
        if tensor in feeds:
            # The others do not move.
            own = np.stack([row[index] for index, row in enumerate(rows)])
            assert np.count_nonzero(rows) == np.count_nonzero(own)
            rows = own
        assert np.allclose(found[gradient], rows, rtol=1e-12, atol=1e-12), tensor


# ---- Where examples meet ----

X = "x = external(shape = [3, 2]);\nw = variable(shape = [1, 2], label = 'w');\na = mul(x, w);\n"
IMAGES = "x = external(shape = [3, 2, 4]);\nw = variable(shape = [2, 2, 1], label = 'w');\na = conv(x, w);\n"
MEET = "the examples of the batch meet in '{}', which makes '{}': none has derivatives of its own"
REFUSED = {
    "a loss": (X + "s = sum_reduce(a, axes = [0]);\ny = mul(a, s);", MEET.format("sum_reduce", "s")),
    "batch statistics": (IMAGES + "m, v = moments(a, axes = [0, 2]);\ny = batch_normalization(a, m, v, 0.0, 1.0, epsilon = 0.1);", MEET.format("moments", "m")),
    "softmax over the batch": (X + "y = softmax(a, axes = [0]);", MEET.format("softmax", "y")),
    "the largest of the batch": (X + "m = argmax_reduce(a, axes = [0]);\nf = cast<scalar>(m);\ny = mul(f, a);", MEET.format("argmax_reduce", "m")),
    "the next one": (X + "l = slice(a, axes = [0], begin = [1], end = [3]);\n"
        "f = slice(a, axes = [0], begin = [0], end = [1]);\nb = concat([l, f], axis = 0);\ny = mul(a, b);",
        MEET.format("slice", "l")),
    "all pairs": (X + "g = matmul(a, a, transposeB = true);\ny = sin(g);", MEET.format("matmul", "g")),
    "all pairs by broadcast": (X + "t = transpose(a, axes = [1, 0]);\nu = unsqueeze(t, axes = [0]);\n"
        "v = unsqueeze(a, axes = [2]);\nb = unsqueeze(v, axes = [3]);\nz = unsqueeze(u, axes = [3]);\n"
        "y = add(b, z);", MEET.format("add", "y")),
    "a window": ("x = external(shape = [3, 2]);\ny = box(x, size = [3, 1]);", MEET.format("box", "y")),
    "padding": (X + "b = pad(a, padding = [(1, 0), (0, 0)], border = 'replicate');\ny = slice(b, axes = [0], begin = [0], end = [3]);", MEET.format("pad", "b")),
    "mixed by a reshape": ("x = external(shape = [3, 2]);\nr = reshape(x, shape = [2, 3]);\n"
        "t = transpose(r, axes = [1, 0]);\ny = sin(t);",
        "'reshape', which makes 'r', is not known to keep the examples of the batch apart"),
    "a variable for each": ("x = external(shape = [3, 2]);\nw = variable(shape = [3, 2], label = 'w');\n"
        "y = mul(x, w);",
        "'w' has items for the examples of the batch, and its gradient cannot be taken for each"),
    "a part of a variable for each": ("x = external(shape = [3, 2]);\n"
        "w = variable(shape = [5, 2], label = 'w');\n[v, u] = split(w, axis = 0, ratios = [2, 3]);\n"
        "y = mul(x, u);",
        "'v' has items for the examples of the batch, and its gradient cannot be taken for each"),
    "a total": (X + "y = sum_reduce(a, axes = [0, 1]);", MEET.format("sum_reduce", "y")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_examples_that_meet_are_an_error(name: str) -> None:
    body, message = REFUSED[name]
    graph = nnef_grad.loads(document(body))
    with pytest.raises(NoDerivativeError) as caught:
        nnef_grad.differentiate(graph, per_example=True)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "derive",
    [
        nnef_grad.jacobian,
        nnef_grad.jvp,
        nnef_grad.hvp,
        nnef_grad.hessian,
        nnef_grad.saliency,
    ],
)
def test_other_derivatives_are_refused_alike(derive: Any) -> None:
    body, message = REFUSED["a loss"]
    with pytest.raises(NoDerivativeError) as caught:
        derive(nnef_grad.loads(document(body)), wrt=["x"], per_example=True)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("body", "inputs", "message"),
    [
        ("x = external(shape = [3, 2]);\nu = external(shape = [1, 2]);\ny = mul(x, u);", "x, u", "axis 0 of 'x', of shape [3, 2], and axis 0 of 'u', of shape [1, 2], do not count the same examples"),
        ("x = external(shape = []);\ny = sin(x);", "x", "axis 0 of 'x', of shape [], should count examples, and is not there"),
        ("x = external(shape = [3, 2]);\ny = transpose(x, axes = [1, 0]);", "x", "axis 0 of the output 'y', of shape [2, 3], does not count examples"),
        ("x = external(shape = [3, 2]);\nw = variable(shape = [2], label = 'w');\ny = sin(w);", "x", "axis 0 of the output 'y', of shape [2], does not count examples"),
    ],
)  # fmt: skip
def test_axis_0_counts_examples(body: str, inputs: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        nnef_grad.differentiate(
            nnef_grad.loads(document(body, inputs)), per_example=True
        )
    assert caught.value.message == message


def test_what_no_output_depends_on_may_meet() -> None:
    text = document(
        X + "y = sin(a);\nloss = mean_reduce(a, axes = [0, 1]);", outputs="y, loss"
    )
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(
        graph, outputs=["y"], per_example=True, with_outputs=True
    )
    assert backward.graph.output_names == ("grad_x", "grad_w", "y", "loss")


def test_a_rule_of_the_user_that_joins_examples_is_an_error() -> None:
    graph = nnef_grad.loads(document(X + "y = sin(a);"))
    apart, joined = nnef_grad.Rules(), nnef_grad.Rules()

    @apart.vjp("sin")
    def of_itself(emit: Any, op: Any, dy: Any) -> Any:
        return [emit("mul", dy, 2.0)]

    @joined.vjp("sin")
    def of_all(emit: Any, op: Any, dy: Any) -> Any:
        return [emit("sub", dy, emit("mean_reduce", dy, axes=[0]))]

    differentiate = partial(nnef_grad.differentiate, graph, per_example=True)
    assert differentiate(rules=apart).gradients == {"x": "grad_x", "w": "grad_w"}
    with pytest.raises(NoDerivativeError, match="meet in 'mean_reduce'"):
        differentiate(rules=joined)


def test_one_example_has_an_axis_too() -> None:
    text = document(X.replace("[3, 2]", "[1, 2]") + "y = sin(a);")
    backward = nnef_grad.differentiate(nnef_grad.loads(text), per_example=True)
    shapes = [x.shape for x in backward.graph.outputs]
    assert shapes == [(1, 2), (1, 1, 2)]


def test_what_comes_out_can_be_differentiated_again() -> None:
    graph = nnef_grad.loads(document(X + "y = sin(a);"))
    first = nnef_grad.differentiate(graph, per_example=True, seed="ones")
    second = nnef_grad.differentiate(first.graph, wrt=["w"])
    assert nnef_grad.check(first.graph, second).passed


def test_what_is_stopped_passes_no_gradient() -> None:
    graph = nnef_grad.loads(document(X + "b = mul(a, w);\ny = sin(b);"))
    backward = nnef_grad.differentiate(graph, stop=["a"], per_example=True)
    assert nnef_grad.check(graph, backward).passed


# ---- Runtimes ----


@pytest.mark.parametrize(
    ("runtime", "sizes"),
    [("onnxruntime", {}), ("onnxruntime", OPEN), ("openvino", {}), ("tract", {})],
)
@pytest.mark.parametrize("name", ["strided conv", "patches"])
def test_in_a_runtime(name: str, runtime: str, sizes: Any) -> None:
    pytest.importorskip(runtime)
    model = Model(name, **sizes)
    backward = nnef_grad.differentiate(model.graph, per_example=True)
    cotangents = modules.normal(*model.module(model.x).shape, seed=2)
    feeds = {
        model.input: model.x.numpy(),
        backward.seeds[model.output]: cotangents.numpy(),
    }
    data = model.exported.data
    wanted = nnef_grad.evaluate(backward, feeds, variables=data)
    run = find_runtime(runtime).compile(backward.graph, data)
    arrays = [feeds[name].astype(np.float32) for name in backward.graph.input_names]
    names = backward.graph.output_names
    for result, found in zip(names, run(arrays), strict=True):
        assert np.allclose(found, wanted[result], atol=1e-5), result
