"""Tangents, products with Hessians, Hessians, saliency and gradient penalties, against torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nnef
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support import reference
from support.checks import document
from support.operation_models import Model, models
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import nnef_grad
from nnef_grad import Backward, Graph
from nnef_grad.commandline.cli import main

Values = dict[str, torch.Tensor]

LAYERS = """
version 1.0;
graph layers( x, t ) -> ( y )
{
    x = external(shape = [2, 3, 6, 6]);
    t = external(shape = [2, 1]);
    w = variable(shape = [4, 3, 3, 3], label = 'w');
    b = variable(shape = [1, 4], label = 'b');
    v = variable(shape = [5, 4], label = 'v');
    a = conv(x, w, b, padding = [(1, 1), (1, 1)]);
    h = tanh(a);
    p = max_pool(h, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore', padding = []);
    m = mean_reduce(p, axes = [2, 3]);
    s = squeeze(m, axes = [2, 3]);
    k = mul(s, t);
    l = linear(k, v);
    y = softmax(l);
}
"""
NORMED = """
version 1.0;
graph normed( x ) -> ( y )
{
    x = external(shape = [3, 4]);
    w = variable(shape = [4, 4], label = 'w');
    h = linear(x, w);
    m, d = moments(h, axes = [1]);
    c = sub(h, m);
    e = add(d, 0.001);
    r = rsqrt(e);
    n = mul(c, r);
    g = gelu(n);
    y = mul(g, h);
}
"""
# The gradients depend on no bias.
LINEAR = """
version 1.0;
graph linear_layer( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'w');
    b = variable(shape = [1, 4], label = 'b');
    y = linear(x, w, b);
}
"""
NETS = {"layers": LAYERS, "normed": NORMED, "linear": LINEAR}


def drawn(text: str, seed: int = 0) -> tuple[Values, Values]:
    """Values for inputs and variables."""
    feeds, variables = reference.random_feeds(text, torch.Generator().manual_seed(seed))
    return feeds, variables


def function_of(
    graph: Graph, text: str, moving: list[str], feeds: Values, variables: Values
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The outputs of a graph as a function of some of its inputs and variables."""
    labels = graph.labels

    def function(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(moving, values, strict=True))
        fed = {n: given.get(n, x) for n, x in feeds.items()}
        of_label = {labels[n]: x for n, x in given.items() if n in labels}
        tensors = reference.evaluate(text, fed, {**variables, **of_label})
        return tuple(
            tensors[name]
            for name, y in zip(graph.output_names, graph.outputs, strict=True)
            if y.dtype == "scalar"
        )

    return function


def values_of(
    graph: Graph, names: list[str], feeds: Values, variables: Values
) -> tuple[torch.Tensor, ...]:
    return tuple(feeds[n] if n in feeds else variables[graph.labels[n]] for n in names)


def like(values: tuple[torch.Tensor, ...], seed: int = 1) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in values
    )


def emitted(made: Backward, graph: Graph) -> str:
    """The text of a derivative, which others can read."""
    text = nnef_grad.dumps(made)
    nnef.parse_string(text)
    assert nnef_grad.loads(text) == made.graph
    assert set(made.graph.input_names) <= {*graph.input_names, *made.seeds.values()}
    return text


def computed(
    made: Backward,
    text: str,
    feeds: Values,
    variables: Values,
    seeds: Mapping[str, Any],
) -> Values:
    return reference.evaluate(text, {**feeds, **seeds}, variables)


# ---- Forward mode ----


@pytest.mark.parametrize("model", models(), ids=[model.name for model in models()])
def test_the_tangents_of_an_operation(model: Model) -> None:
    graph = nnef_grad.loads(model.text)
    try:
        made = nnef_grad.jvp(graph, wrt="all", with_outputs=True)
    except (nnef_grad.NoDerivativeError, nnef_grad.UsageError):
        pytest.skip("it has no derivative")
    check_tangents(graph, model.text, made)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("wrt", ["all", "inputs", "variables"])
def test_the_tangents_of_a_network(name: str, wrt: str) -> None:
    graph = nnef_grad.loads(NETS[name])
    made = nnef_grad.jvp(graph, wrt=wrt)
    check_tangents(graph, NETS[name], made)
    assert not re.search(r"\bgrad_", nnef_grad.dumps(made))


def check_tangents(graph: Graph, text: str, made: Backward) -> None:
    feeds, variables = drawn(text)
    moving = list(made.seeds)
    values = values_of(graph, moving, feeds, variables)
    vectors = like(values)
    function = function_of(graph, text, moving, feeds, variables)
    _, expected = torch.autograd.functional.jvp(function, values, vectors)
    seeds = dict(zip(made.seeds.values(), vectors, strict=True))
    found = computed(made, emitted(made, graph), feeds, variables, seeds)
    for (y, name), wanted in zip(made.gradients.items(), expected, strict=True):
        in_domain = ~found[y].isnan() if y in found else slice(None)
        torch.testing.assert_close(
            found[name][in_domain], wanted[in_domain], rtol=1e-9, atol=1e-9
        )


def test_an_output_that_nothing_moves() -> None:
    graph = nnef_grad.loads(NORMED.replace("( y )", "( y, w )"))
    made = nnef_grad.jvp(graph, wrt="x")
    assert made.gradients == {"y": "tangent_y", "w": "tangent_w"}
    assert "tangent_w = constant(shape = [4, 4], value = [0.0]);" in nnef_grad.dumps(
        made
    )


def test_tangents_beside_outputs_under_names_that_are_taken() -> None:
    text = NORMED.replace(" h ", " tangent_y ").replace("h,", "tangent_y,")
    text = text.replace(", h)", ", tangent_y)")
    made = nnef_grad.jvp(nnef_grad.loads(text), with_outputs=True)
    assert made.graph.output_names == ("tangent_y_1", "y")
    assert made.gradients == {"y": "tangent_y_1"}


# The same networks as a user of torch writes them.
def layers(x: Any, t: Any, w: Any, b: Any, v: Any) -> Any:
    h = torch.tanh(functional.conv2d(x, w, b[0], padding=1))
    k = functional.max_pool2d(h, 2).mean((2, 3)) * t
    return torch.softmax(functional.linear(k, v), 1)


def normed(x: Any, w: Any) -> Any:
    h = functional.linear(x, w)
    return functional.gelu(functional.layer_norm(h, (4,), eps=0.001)) * h


# Calls that compute nothing.
BOOKKEEPING = re.compile(
    r"<built-in function getitem>|aten\."
    r"(is_same_size|_has_same_storage|alias|view|_to_copy|expand|detach|t\.|transpose"
    r"|_efficientzero|empty|new_empty|zeros|ones)"
)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("function", [layers, normed])
def test_tangents_need_few_operations(function: Callable[..., Any]) -> None:
    text = NETS[function.__name__]
    graph = nnef_grad.loads(text)
    made = nnef_grad.jvp(graph, wrt="inputs")
    feeds, variables = drawn(text)
    moving = tuple(feeds.values())
    fixed = tuple(variables[label] for label in variables)
    traced = make_fx(
        lambda *x: torch.func.jvp(lambda *moved: function(*moved, *fixed), x, moving)
    )(*moving)
    calls = [str(n.target) for n in traced.graph.nodes if n.op == "call_function"]
    computing = [name for name in calls if not BOOKKEEPING.match(name)]
    own = [op for op in made.graph.operations if op.inputs]
    assert len(own) <= 1.5 * len(computing), Counter(computing)


# ---- Second order ----


def total(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    return lambda *values: sum(y.sum() for y in function(*values))


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("wrt", ["all", "x"])
def test_products_with_the_hessian(name: str, wrt: str) -> None:
    text = NETS[name].replace("y = softmax(l)", "q = softmax(l);\n    y = sqr(q)")
    graph = nnef_grad.loads(text)
    made = nnef_grad.hvp(graph, wrt=wrt)
    feeds, variables = drawn(text)
    moving = list(made.seeds)
    values = values_of(graph, moving, feeds, variables)
    vectors = like(values)
    function = total(function_of(graph, text, moving, feeds, variables))
    _, expected = torch.autograd.functional.vhp(function, values, vectors)
    seeds = dict(zip(made.seeds.values(), vectors, strict=True))
    found = computed(made, emitted(made, graph), feeds, variables, seeds)
    for x, wanted in zip(moving, expected, strict=True):
        assert made.gradients[x] == f"hvp_{x}"
        torch.testing.assert_close(found[f"hvp_{x}"], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("x", ["x", "w"])
def test_hessians(x: str) -> None:
    graph = nnef_grad.loads(NORMED)
    made = nnef_grad.hessian(graph, wrt=x)
    feeds, variables = drawn(NORMED)
    (value,) = values_of(graph, [x], feeds, variables)
    function = total(function_of(graph, NORMED, [x], feeds, variables))
    expected = torch.autograd.functional.hessian(function, value)
    found = computed(made, emitted(made, graph), feeds, variables, {})
    torch.testing.assert_close(found[f"hessian_{x}"], expected, rtol=1e-9, atol=1e-12)


def test_a_hessian_is_that_of_one_tensor() -> None:
    with pytest.raises(nnef_grad.UsageError, match="name one of 'x', 'w'"):
        nnef_grad.hessian(nnef_grad.loads(NORMED))


def test_the_hessian_of_what_the_gradients_do_not_depend_on() -> None:
    graph = nnef_grad.loads(LINEAR)
    for made in (nnef_grad.hessian(graph, wrt="b"), nnef_grad.hvp(graph, wrt="b")):
        assert "constant(shape" in emitted(made, graph)
    assert nnef_grad.hvp(graph, wrt="x", stop=["y"]).gradients == {"x": "hvp_x"}


def test_the_hessian_of_one_of_several_results() -> None:
    """What makes the others is there in another form."""
    text = "x = external(shape = [2]);\n[s, t] = copy_n(x, times = 2);\ny = tanh(s);"
    graph = nnef_grad.loads(document(text))
    product = nnef_grad.hvp(graph, wrt=["x", "t"])
    assert "hvp_t = constant(shape = [2], value = [0.0]);" in str(product.graph)


# Statements with c, and the product with the Hessian for x and c of the sum of y.
OF_CONSTANTS: Mapping[str, Callable[..., Any]] = {
    "c = copy(3.0); a = mul(x, c); y = mul(a, c);": (
        lambda x, c, v, w: (2 * c * w * np.ones(3), np.sum(2 * x * w + 2 * c * v))
    ),
    "c = add(1.0, 0.0); a = mul(x, c); y = sqr(a);": (
        lambda x, c, v, w: (
            2 * c * c * v + 4 * x * c * w,
            np.sum(4 * c * x * v + 2 * x * x * w),
        )
    ),
    "c = constant(shape = [3], value = [3.0]); y = mul(x, c);": lambda x, c, v, w: (
        w,
        v,
    ),
}


@pytest.mark.parametrize("statements", OF_CONSTANTS)
def test_gradients_depend_on_numbers_of_the_graph(statements: str) -> None:
    """They have their gradients like any other tensor."""
    graph = nnef_grad.loads(document(f"x = external(shape = [3]);\n{statements}"))
    product = nnef_grad.hvp(graph, wrt=["x", "c"])
    x, v = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.25, -3.0])
    w = np.full(graph.tensors["c"].shape, 0.75)
    fed = {"x": x, "vector_x": v, "vector_c": w}
    function, c = OF_CONSTANTS[statements], 1.0 if "1.0" in statements else 3.0
    values = nnef_grad.evaluate(product.graph, fed)
    for name, expected in zip(("hvp_x", "hvp_c"), function(x, c, v, w), strict=True):
        np.testing.assert_allclose(values[name], expected)


def test_numbers_of_a_derivative_are_no_constants_of_the_graph() -> None:
    """Otherwise the zeros of grad_z would move with c."""
    graph = nnef_grad.loads(
        """
        version 1.0;
        graph net( x, z ) -> ( y )
        {
            x = external(shape = [3]);
            z = external(shape = [3]);
            c = constant(shape = [3], value = [0.0]);
            f = floor(z);
            p = mul(x, c);
            y = add(p, f);
        }
        """
    )
    first = nnef_grad.differentiate(graph).graph
    second = nnef_grad.differentiate(first, wrt=["c"], outputs=["grad_z"])
    assert second.warnings == (
        "'c' does not influence 'grad_z': its gradient is zeros",
    )


# ---- Functions of gradients ----


def test_saliency() -> None:
    graph = nnef_grad.loads(LAYERS.replace("y = softmax(l)", "y = copy(l)"))
    made = nnef_grad.saliency(graph, wrt="inputs")
    feeds, variables = drawn(LAYERS)
    function = function_of(graph, nnef_grad.dumps(graph), ["x", "t"], feeds, variables)
    values = [feeds[n].requires_grad_() for n in ("x", "t")]
    (y,) = function(*values)
    by_x, by_t = torch.autograd.grad(y.max(1).values.sum(), values)
    found = computed(made, emitted(made, graph), feeds, variables, {})
    torch.testing.assert_close(found["saliency_x"], by_x.abs().amax(1, keepdim=True))
    torch.testing.assert_close(found["saliency_t"], by_t.abs())


def test_a_gradient_penalty_and_its_gradient() -> None:
    graph = nnef_grad.loads(NORMED)
    made = nnef_grad.gradient_penalty(graph)
    text = emitted(made, graph)
    feeds, variables = drawn(NORMED)
    w = variables["w"].requires_grad_()
    x = feeds["x"].requires_grad_()
    (y,) = function_of(graph, NORMED, ["x"], feeds, variables)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    wanted = ((gradient.norm(dim=1) - 1.0) ** 2).mean()
    found = computed(made, text, feeds, variables, {})
    torch.testing.assert_close(found["penalty_x"].sum(), wanted)
    (by_w,) = torch.autograd.grad(wanted, w)
    again = nnef_grad.differentiate(made.graph, wrt="w", seed="ones")
    twice = reference.evaluate(nnef_grad.dumps(again), feeds, variables)
    torch.testing.assert_close(twice["grad_w"], by_w)


def test_the_norm_of_a_gradient_penalty() -> None:
    graph = nnef_grad.loads(NORMED)
    whole, half = (nnef_grad.gradient_penalty(graph, norm=n) for n in (2, 2.0))
    assert str(whole) == str(half)
    with pytest.raises(nnef_grad.UsageError, match="finite number, and not nan"):
        nnef_grad.gradient_penalty(graph, norm=float("nan"))
    with pytest.raises(nnef_grad.UsageError, match="finite number, and not 100"):
        nnef_grad.gradient_penalty(graph, norm=10**400)


# ---- The command line ----


@pytest.mark.parametrize(
    ("option", "output"),
    [
        ("--jvp", "tangent_y"),
        ("--hvp", "hvp_x"),
        ("--hessian", "hessian_x"),
        ("--saliency", "saliency_x"),
        ("--gradient-penalty", "penalty_x"),
    ],
)
def test_each_is_an_option(tmp_path: Path, option: str, output: str) -> None:
    (tmp_path / "net.nnef").write_text(NORMED)
    out = tmp_path / "out.nnef"
    words = [option, "--wrt", "x", "-o", str(out), str(tmp_path / "net.nnef")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert nnef_grad.load(out).output_names == (output,)
    assert ", 1 output" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--jvp --check", "only gradients and Jacobians are compared"),
        ("--hvp --with-outputs", "--hvp returns no other outputs"),
        ("--hessian --seed ones", "--hessian takes no seed"),
        ("--hessian", "a Hessian is that of one tensor"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "net.nnef").write_text(NORMED)
    words = [*options.split(), str(tmp_path / "net.nnef")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert message in result.stderr


# ---- Loops ----


@pytest.mark.parametrize("unroll", [0, 100])
def test_derivatives_through_a_loop(unroll: int) -> None:
    """By central differences of the values, and of the gradients."""
    text = """version 1.0;
extension tract_registry tract_core;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
fragment cell( x: tensor<scalar>, h: tensor<scalar>, w: tensor<scalar> )
-> ( y: tensor<scalar> )
{
    s = squeeze(x, axes = [0]);
    y = tanh(matmul(s, w) + h);
}
graph net( x, h, w ) -> ( y )
{
    x = tract_core_external(shape = [7, 2, 3], datum_type = 'f32');
    h = tract_core_external(shape = [2, 3], datum_type = 'f32');
    w = tract_core_external(shape = [3, 3], datum_type = 'f32');
    y = tract_core_scan(body = 'cell', scan = [('x', x, 0, 1)], full = [('w', w)],
        state = [('h', h, 'y')], output = [('y', 'last', 0, 1)]);
}
"""
    graph = nnef_grad.loads(text, unroll=unroll)
    random = np.random.default_rng(0)
    point = {
        n: random.standard_normal(t.shape)
        for n, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    vectors = {n: random.standard_normal(x.shape) for n, x in point.items()}
    ahead, behind = (
        {n: x + step * vectors[n] for n, x in point.items()} for step in (1e-6, -1e-6)
    )

    def slope(made: Graph | Backward, name: str) -> Any:
        above, below = (nnef_grad.evaluate(made, p)[name] for p in (ahead, behind))
        return (above - below) / 2e-6

    made = nnef_grad.jvp(graph)
    fed = {**point, **{made.seeds[n]: v for n, v in vectors.items()}}
    found = nnef_grad.evaluate(made, fed)["tangent_y"]
    np.testing.assert_allclose(found, slope(graph, "y"), rtol=1e-6, atol=1e-8)
    gradient = nnef_grad.differentiate(graph, seed="ones")
    product = nnef_grad.hvp(graph)
    fed = {**point, **{product.seeds[n]: v for n, v in vectors.items()}}
    results = nnef_grad.evaluate(product, fed)
    for n in point:
        wanted = slope(gradient, gradient.gradients[n])
        np.testing.assert_allclose(results[f"hvp_{n}"], wanted, rtol=1e-6, atol=1e-7)
