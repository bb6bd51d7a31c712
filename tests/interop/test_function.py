"""One call: a model of any kind as a function of arrays with names, against autograd."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad.runtimes import RUNTIMES, fastest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TEXT = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [3, 4]);
    w = variable(shape = [2, 4], label = 'layer/w');
    y = matmul(x, w, transposeB = true);
}
"""
RANDOM = np.random.default_rng(3)
X, W, SEED = (RANDOM.standard_normal(shape) for shape in ((3, 4), (2, 4), (3, 2)))
EXACT: dict[str, Any] = {"runtime": "numpy"}


def check(found: nnef_grad.Results, w: str = "w", tolerance: float = 1e-12) -> None:
    """The product and its gradients."""
    close: dict[str, Any] = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(found.outputs["y"], X @ W.T, **close)
    np.testing.assert_allclose(found.gradients["x"], SEED @ W, **close)
    np.testing.assert_allclose(found.gradients[w], SEED.T @ X, **close)


def written(folder: Path, name: str) -> None:
    """The model under a name in a folder."""
    graph = nnef_grad.loads(TEXT)
    if name.endswith(".onnx"):
        nnef_grad.interop.to_onnx(graph, folder / name, {"layer/w": W})
    else:
        nnef_grad.save(graph, folder / name, data={"layer/w": W})


@pytest.mark.parametrize("name", ["model.onnx", "model", "model.tgz"])
def test_a_bare_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, name)
    # Files hold single precision.
    function = nnef_grad.function(name, **EXACT)
    check(function(X, seed=SEED), tolerance=1e-6)
    check(function(x=X, seed={"y": SEED}), tolerance=1e-6)


@pytest.mark.parametrize("per_example", [False, True])
def test_gradients_have_the_shapes_of_the_file(
    per_example: bool, tmp_path: Path
) -> None:
    """A bias is a vector there, and a row in the graph."""
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 4] x) => (float[3, 2] y) { y = Gemm <transB = 1> (x, w, b) }"""
    model = onnx.parser.parse_model(text)
    for name, array in {"w": W, "b": np.ones(2)}.items():
        initializer = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(initializer)
    onnx.save(model, tmp_path / "m.onnx")
    function = nnef_grad.function(tmp_path / "m.onnx", per_example=per_example, **EXACT)
    gradients = function(X, seed=SEED).gradients
    wanted = SEED if per_example else SEED.sum(0)
    np.testing.assert_allclose(gradients["b"], wanted, rtol=1e-12)
    assert gradients["w"].shape == ((3, 2, 4) if per_example else (2, 4))


def test_a_text_without_data(tmp_path: Path) -> None:
    (tmp_path / "net.nnef").write_text(TEXT)
    for model in (tmp_path / "net.nnef", TEXT, nnef_grad.loads(TEXT)):
        with pytest.raises(
            nnef_grad.UsageError, match=r"'layer/w': function\(load\(text\), data="
        ):
            nnef_grad.function(model, **EXACT)


def test_a_graph_and_what_is_made_of_it() -> None:
    graph, data = nnef_grad.loads(TEXT), {"layer/w": W}
    check(nnef_grad.function(graph, data=data, **EXACT)(X, seed=SEED))
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    check(nnef_grad.function(backward, data=data, **EXACT)(X, seed=SEED))
    with pytest.raises(nnef_grad.UsageError, match="a Backward is differentiated"):
        nnef_grad.function(backward, wrt=["x"], data=data)


def test_a_text_has_no_data() -> None:
    text = TEXT.replace(
        "w = variable(shape = [2, 4], label = 'layer/w')", "w = [[1.0]]"
    )
    text = text.replace("[[1.0]]", "copy(x)")
    found = nnef_grad.function(text, **EXACT)(X, seed=1)
    (x,) = [torch.tensor(X, requires_grad=True)]
    (x @ x.T).sum().backward()
    np.testing.assert_allclose(found.gradients["x"], x.grad, rtol=1e-12)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_module_and_its_names(runtime: str) -> None:
    pytest.importorskip(
        {"khronos": "nnef_tools", "fastest": "onnx"}.get(runtime, runtime)
    )
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh())
    x, seed = torch.randn(3, 4), torch.randn(3, 5)
    function = nnef_grad.function(module, example_inputs=[x], runtime=runtime)
    for _ in range(2):  # the second time in what was the fastest
        found = function(x, seed=seed)
    output = module(x.requires_grad_())
    output.backward(seed)
    wanted = {"input": x.grad, **{n: p.grad for n, p in module.named_parameters()}}
    assert found.gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert isinstance(found.gradients[name], torch.Tensor)
        torch.testing.assert_close(
            found.gradients[name], gradient, rtol=1e-4, atol=1e-5
        )
    torch.testing.assert_close(found.outputs["output"], output.detach())


def test_a_scalar_output_needs_no_seed() -> None:
    module, x = torch.nn.Linear(4, 1), torch.randn(1, 4)
    found = nnef_grad.function(module, wrt="weight", example_inputs=[x])(x)
    torch.testing.assert_close(found.gradients["weight"], x)
    assert [*found.gradients] == ["weight"]


class Turned(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x.T


def test_other_derivatives() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Tanh()).double()
    x, v = torch.randn(2, 3, 4, dtype=torch.float64)
    settings: dict[str, Any] = {"example_inputs": [x], **EXACT}

    def derived(derivative: str, **more: Any) -> nnef_grad.Function:
        return nnef_grad.function(module, derivative, **settings, **more)  # type: ignore[arg-type]

    found = derived("jacobian", wrt="input", per_example=True)(x).gradients["input"]
    wanted = torch.func.vmap(torch.func.jacrev(module))(x)
    torch.testing.assert_close(found, wanted)
    columns = torch.nn.Sequential(Turned(), module, Turned())
    axes = {"input": 1, "output": 1}
    turned = nnef_grad.function(
        columns,
        "jacobian",
        wrt="input",
        per_example=axes,
        example_inputs=[x.T],
        **EXACT,
    )
    torch.testing.assert_close(turned(x.T).gradients["input"], wanted)
    outputs, tangents = derived("jvp")(x, seed=v)
    wanted = torch.autograd.functional.jvp(module, x, v)
    torch.testing.assert_close((outputs["output"], tangents["output"]), wanted)
    assert derived("hvp", wrt="0.weight").seeds == ("0.weight",)
    plain = nnef_grad.function(module, None, **settings)(x)
    torch.testing.assert_close(plain.outputs["output"], module(x).detach())
    assert not plain.gradients


def test_open_sizes() -> None:
    module, batch = torch.nn.Linear(4, 2), torch.export.Dim("batch")
    model = nnef_grad.interop.from_torch(
        module, [torch.randn(3, 4)], dynamic_shapes=({0: batch},)
    )
    function = nnef_grad.function(model)
    for count in (1, 5):
        x = torch.randn(count, 4)
        found = function(x, seed=1).gradients
        torch.testing.assert_close(found["bias"], torch.full((2,), float(count)))
        torch.testing.assert_close(found["weight"], x.sum(0).expand(2, 4))


def test_masks_are_drawn() -> None:
    module, x = torch.nn.Dropout(0.5).train(), torch.ones(64, 64)
    function = nnef_grad.function(module, example_inputs=[x])
    outputs, gradients = function(x, seed=1)
    assert {*outputs["output"].unique().tolist()} == {0.0, 2.0}
    torch.testing.assert_close(gradients["input"], outputs["output"])
    with pytest.raises(nnef_grad.UsageError, match="the inputs 'input' are missing"):
        function(seed=1)


def test_what_an_editor_and_print_show() -> None:
    function = nnef_grad.function(nnef_grad.loads(TEXT), data={"layer/w": W})
    assert str(inspect.signature(function)) == "(x, *, seed=None)"
    assert repr(function).startswith(
        "<function(x: [3, 4]) in fastest: gradients of y in"
    )
    found = function(X, seed=1)
    assert repr(found) == "<outputs: y [3, 2]; gradients: x [3, 4], w [2, 4]>"
    assert " in fastest" not in repr(function)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f(X), r"'y' has the shape \[3, 2\] and needs a seed: seed=1 for"),
        (
            lambda f: f(X, seed=X),
            r"the seed of 'y' has the shape \[3, 2\], and not \[3, 4",
        ),
        (lambda f: f(X, seed={"z": 1}), "there is no seed for 'z'"),
        (
            lambda f: f(X[:2], seed=1),
            r"input 'x' has the shape \[3, 4\], and not \[2, 4\]",
        ),
        (lambda f: f(X, X, seed=1), "the model has 1 inputs, and 2 are given"),
        (lambda f: f(X, x=X, seed=1), "input 'x' is given twice"),
        (lambda f: f(seed=1), "the inputs 'x' are missing"),
        (lambda f: f(X, xx=X, seed=1), "the model has no input 'xx'"),
    ],
)
def test_mistakes_in_a_call(call: Any, message: str) -> None:
    function = nnef_grad.function(nnef_grad.loads(TEXT), data={"layer/w": W}, **EXACT)
    with pytest.raises(nnef_grad.UsageError, match=message):
        call(function)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"derivative": "jacobien"}, "the derivative is one of gradient, jacobian"),
        ({"wrt": ["W"]}, "the graph has no tensor 'W'"),
        ({"runtime": "onnx"}, "the runtime is one of onnxruntime"),
        (
            {"derivative": "gradient_penalty", "per_example": True},
            "has no 'per_example'",
        ),
    ],
)
def test_mistakes_in_what_is_asked_for(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(nnef_grad.UsageError, match=message):
        nnef_grad.function(nnef_grad.loads(TEXT), data={"layer/w": W}, **settings)


def test_other_results_are_said_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    compiled = fastest._compiled

    def planted(*args: Any) -> Any:
        runs = compiled(*args)
        right = runs["openvino"]
        return {**runs, "openvino": lambda inputs: [1.01 * x for x in right(inputs)]}

    monkeypatch.setattr(fastest, "_compiled", planted)
    function = nnef_grad.function(nnef_grad.loads(TEXT), data={"layer/w": W})
    with pytest.warns(UserWarning, match="openvino computes other results than onnx"):
        check(function(X, seed=SEED), tolerance=1e-5)
    assert " in onnxruntime" in repr(function)
