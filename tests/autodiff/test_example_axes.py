"""Examples that other axes count than 0, and inputs that they share: against torch.func, whose
in_dims and out_dims say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad.base.errors import NoDerivativeError, UsageError
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import TARGETS, lower

pytest.importorskip("torch")

import torch
from support.checks import document
from torch.func import grad, hessian, jacrev, jvp, vmap

# What torch.func says of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),
]
N = 3
AXES = {"x": 1, "u": None, "y": 2}
# The axes of inputs, of the variable and of the result, for torch.
IN, OUT = {"x": 1, "z": 0, "u": None, "w": None}, 2
BODY = """x = external(shape = [2, n, 4]);
z = external(shape = [n, 3]);
u = external(shape = [1, 3]);
w = variable(shape = [8, 3], label = 'w');
t = transpose(x, axes = [1, 0, 2]);
r = reshape(t, shape = [0, 8]);
m = matmul(tanh(r), w);
s = sin(mul(m, add(z, u)));
y = transpose(unsqueeze(s, axes = [1]), axes = [2, 1, 0]);"""
SIZES = pytest.mark.parametrize("size", [f"{N}", "n"], ids=["closed", "open"])


def model(size: str) -> nnef_grad.Graph:
    text = document(
        BODY.replace("[n,", f"[{size},").replace(" n,", f" {size},"), "x, z, u"
    )
    opened = text.replace(";", ";\nextension tract_symbol n;", 1)
    return nnef_grad.loads(opened if size == "n" else text)


def one(x: Any, z: Any, u: Any, w: Any) -> Any:
    """The result for one example."""
    return torch.sin((torch.tanh(x.reshape(8)) @ w) * (z + u[0]))[:, None]


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(
        np.random.default_rng([seed, *shape]).standard_normal(shape)
    )


POINT = {"x": drawn(2, N, 4), "z": drawn(N, 3), "u": drawn(1, 3), "w": drawn(8, 3)}


def each(function: Any, *others: Any, dims: Any = 0, out: Any = 0) -> Any:
    """A function of one example, and of further arguments, for each."""
    more = dims if isinstance(dims, tuple) else (dims,) * len(others)
    mapped = vmap(function, in_dims=(*IN.values(), *more), out_dims=out)
    return mapped(*POINT.values(), *others)


def found(
    backward: nnef_grad.Backward, feeds: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    arrays = {name: value.numpy() for name, value in {**POINT, **(feeds or {})}.items()}
    data = {"w": arrays.pop("w")}
    values = nnef_grad.evaluate(backward, arrays, variables=data)
    return {x: values[name] for x, name in backward.gradients.items()}


def compare(have: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    assert have.keys() == want.keys()
    for name, value in want.items():
        assert have[name].shape == value.shape, name
        assert np.allclose(have[name], value.numpy(), rtol=1e-12, atol=1e-12), name


def by_name(values: Any, own: int = 0) -> dict[str, Any]:
    """Gradients by name, whose first axis counts examples, as their tensors have them."""
    axes = {"x": own, "z": 0, "u": 0, "w": 0}
    pairs = zip(axes, values, strict=True)
    return {name: torch.movedim(value, 0, axes[name]) for name, value in pairs}


ALL = (0, 1, 2, 3)


@SIZES
def test_gradients(size: str) -> None:
    graph, dy = model(size), drawn(3, 1, N, seed=1)
    backward = nnef_grad.differentiate(graph, per_example=AXES)
    have = found(backward, {backward.seeds["y"]: dy})

    def weighted(x: Any, z: Any, u: Any, w: Any, dy: Any) -> Any:
        return (one(x, z, u, w) * dy).sum()

    compare(have, by_name(each(grad(weighted, ALL), dy, dims=OUT), own=1))
    assert [backward.axis(name) for name in "xzuwy"] == [1, 0, 0, 0, 2]
    if size != "n":
        assert nnef_grad.check(graph, backward).passed


@SIZES
def test_jacobians_and_hessians(size: str) -> None:
    graph = model(size)
    backward = nnef_grad.jacobian(graph, per_example=AXES)
    compare(found(backward), by_name(each(jacrev(one, ALL))))
    if size != "n":
        assert nnef_grad.check(graph, backward).passed
    for index, name in enumerate(IN):
        bent = nnef_grad.hessian(graph, wrt=name, per_example=AXES)
        want = each(hessian(lambda *v: one(*v).sum(), index))
        compare(found(bent), {name: want})


@SIZES
@pytest.mark.parametrize("name", "xuw")
def test_products(size: str, name: str) -> None:
    graph, index = model(size), [*IN].index(name)
    shape = POINT[name].shape
    vector = drawn(*(shape if name == "x" else (N, *shape)), seed=2)

    def moved(function: Any) -> Any:
        def along(*values: Any) -> Any:
            *point, v = values

            def of_one(value: Any) -> Any:
                return function(*point[:index], value, *point[index + 1 :])

            return jvp(of_one, (point[index],), (v,))[1]

        return along

    own = 1 if name == "x" else 0
    tangent = nnef_grad.jvp(graph, wrt=name, per_example=AXES)
    want = each(moved(one), vector, dims=own, out=OUT)
    compare(found(tangent, {tangent.seeds[name]: vector}), {"y": want})
    product = nnef_grad.hvp(graph, wrt=[name], per_example=AXES)
    slope = grad(lambda *v: one(*v).sum(), index)
    want = each(moved(slope), vector, dims=own, out=own)
    compare(found(product, {product.seeds[name]: vector}), {name: want})


@SIZES
def test_saliency(size: str) -> None:
    backward = nnef_grad.saliency(model(size), wrt=["x", "u"], per_example=AXES)
    x, u = each(grad(lambda *v: one(*v).max(), (0, 2)))
    # The two rows of an example are its channels.
    want = {"x": torch.movedim(x.abs(), 0, 1).amax(0, keepdim=True), "u": u.abs()}
    compare(found(backward), want)


@SIZES
def test_laplacians_and_divergences(size: str) -> None:
    backward = nnef_grad.laplacian(model(size), wrt="x", per_example=AXES)
    bent = each(hessian(one))
    want = torch.einsum("noaijij->noa", bent)
    compare(found(backward), {"x": torch.movedim(want, 0, OUT)})
    text = f"x = external(shape = [2, {size}]);\ny = mul(x, sin(sum_reduce(x, axes = [0])));"
    text = document(text).replace(";", ";\nextension tract_symbol n;", 1)
    graph, x = nnef_grad.loads(text), drawn(2, N)
    field = nnef_grad.divergence(graph, per_example={"x": 1, "y": 1})
    have = nnef_grad.evaluate(field, {"x": x.numpy()})["divergence_x"]
    slopes = vmap(jacrev(lambda v: v * v.sum().sin()), in_dims=1)(x)
    assert np.allclose(have, torch.einsum("nii->n", slopes).numpy(), rtol=1e-12)


@SIZES
def test_what_comes_out_can_be_differentiated_again(size: str) -> None:
    first = nnef_grad.differentiate(
        model(size), per_example=AXES, wrt=["x", "w"], seed="ones"
    )
    outputs = [first.gradients["x"]]
    second = nnef_grad.jacobian(
        first.graph, wrt=["x"], outputs=outputs, per_example=first.axes
    )
    compare(found(second), {"x": each(hessian(lambda *v: one(*v).sum()))})


@SIZES
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tract"])
@pytest.mark.parametrize(
    "derive", [nnef_grad.jacobian, nnef_grad.saliency, nnef_grad.hvp]
)
def test_in_a_runtime(derive: Any, runtime: str, size: str) -> None:
    pytest.importorskip(runtime)
    backward = derive(model(size), wrt=["x", "w"], per_example=AXES)
    vectors = {
        backward.seeds[n]: drawn(*s)
        for n, s in {"x": (2, N, 4), "w": (N, 8, 3)}.items()
        if n in backward.seeds
    }
    fed = {name: v.numpy() for name, v in {**POINT, **vectors}.items()}
    data = {"w": fed.pop("w")}
    want = nnef_grad.evaluate(backward, fed, variables=data)
    run = find_runtime(runtime).compile(backward.graph, data)
    arrays = [fed[name].astype(np.float32) for name in backward.graph.input_names]
    for value, name in zip(run(arrays), backward.graph.output_names, strict=True):
        assert np.allclose(value, want[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("name", ["t", "r", "m"])
def test_tensors_in_between(name: str) -> None:
    """Their examples are found: here along axis 0, and in a batch of columns along axis 1."""
    graph = model(f"{N}")
    backward = nnef_grad.jacobian(graph, wrt=[name], per_example=AXES)
    shape = backward.graph.outputs[0].shape
    assert shape == (N, 3, 1, *graph.tensors[name].shape[1:])
    assert nnef_grad.check(graph, backward, variables={"w": POINT["w"].numpy()}).passed


@pytest.mark.parametrize(
    ("derive", "message"),
    [
        (nnef_grad.jacobian, "the examples of 'r' have no axis to themselves: they have no Jacobian with respect to it"),
        (nnef_grad.hessian, "axis 0 of the output 'grad_r', of shape [6], does not count examples"),
    ],
)  # fmt: skip
def test_examples_without_an_axis_to_themselves(derive: Any, message: str) -> None:
    text = document(
        "x = external(shape = [3, 2]);\nr = reshape(x, shape = [6]);\nq = sqr(r);\ny = reshape(q, shape = [3, 2]);"
    )
    with pytest.raises(UsageError) as caught:
        derive(nnef_grad.loads(text), wrt=["r"], per_example=True)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"x": 3}, "'x', of shape [2, 3, 4], has no axis 3"),
        ({"x": -1}, "'x', of shape [2, 3, 4], has no axis -1"),
        ({"x": True}, "a mapping of an integer or None, and not dict of bool"),
        ({"q": 1}, "the graph has no input or output 'q'"),
        ({"y": None}, "'y' is an output, and examples share inputs only"),
        ({"x": 1}, "axis 0 of 'u', of shape [1, 3], do not count the same examples"),
        ({"x": None, "z": None, "u": None}, "no input has an axis that counts examples"),
        ({"x": 1, "u": None}, "axis 0 of the output 'y', of shape [3, 1, 3], does not count examples"),
        ({"x": 1, "u": None, "z": 1, "y": 2}, "'mul'"),
    ],
)  # fmt: skip
def test_axes_that_are_refused(axes: Any, message: str) -> None:
    with pytest.raises((UsageError, NoDerivativeError)) as caught:
        nnef_grad.differentiate(model(f"{N}"), per_example=axes)
    assert message in caught.value.message


def test_one_example() -> None:
    backward = nnef_grad.jacobian(model("1"), per_example=AXES)
    shapes = {x: backward.graph.tensors[d].shape for x, d in backward.gradients.items()}
    one_shape = {"x": (2, 4), "z": (3,), "u": (1, 3), "w": (8, 3)}
    assert shapes == {name: (1, 3, 1, *shape) for name, shape in one_shape.items()}


DERIVATIVES: dict[str, Any] = {
    "gradient": nnef_grad.differentiate,
    **{
        name: getattr(nnef_grad, name)
        for name in ("jacobian", "hessian", "jvp", "hvp", "saliency", "laplacian")
    },
}
# Those that have no open extents, or none in all that is needed here.
CLOSED = ("khronos", "portable", "tract-standard")


@SIZES
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_targets(name: str, target: str, size: str) -> None:
    """What is lowered computes the same, as our interpreter evaluates it."""
    backward = DERIVATIVES[name](model(size), wrt=["x"], per_example=AXES)
    if size == "n" and target in CLOSED:
        with pytest.raises(nnef_grad.NnefGradError, match="'n'"):
            lower(backward.graph, target)
        return
    shapes = {"x": (2, N, 4), "y": (3, 1, N)}
    seeds = {seed: drawn(*shapes[x]).numpy() for x, seed in backward.seeds.items()}
    fed = {**{x: value.numpy() for x, value in POINT.items()}, **seeds}
    data = {"w": fed.pop("w")}
    lowered = lower(backward.graph, target)
    want = nnef_grad.evaluate(backward, fed, variables=data)
    have = nnef_grad.evaluate(lowered.graph, fed, variables={**data, **lowered.data})
    for result in backward.gradients.values():
        assert np.allclose(have[result], want[result], rtol=1e-9, atol=1e-9)
