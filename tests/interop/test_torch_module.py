"""An NNEF model as a module of PyTorch: it trains as a module that is written in torch."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnef_grad

pytest.importorskip("torch")

import torch
from torch import nn
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from nnef_grad import interop
from nnef_grad.autodiff.split import FREE
from nnef_grad.runtimes.torch.programs import Program
from nnef_grad.torch import Module

NEEDS = {
    "khronos": (),
    "numpy": (),
    "onnxruntime": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "openvino"),
    "tract": ("tract",),
}
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}

PERCEPTRON = """
version 1.0;
# The comment of the author.
graph net( x ) -> ( y )
{
    x = external(shape = [4, 3]);
    weight1 = variable(shape = [5, 3], label = 'layer.0/weight');
    bias1 = variable(shape = [1, 5], label = 'layer.0/bias');
    weight2 = variable(shape = [2, 5], label = 'layer.1.weight');
    y = linear(tanh(linear(x, weight1, bias1)), weight2, 0.0);
}
"""
EXTENSION = "extension KHR_enable_operator_expressions;\n"
PERCEPTRON = PERCEPTRON.replace("# The", f"{EXTENSION}# The")
CONVOLUTIONAL = """
version 1.0;
graph net( image ) -> ( scores, means )
{
    image = external(shape = [2, 3, 8, 8]);
    kernel = variable(shape = [4, 3, 3, 3], label = 'kernel');
    bias = variable(shape = [1, 4], label = 'bias');
    mean = variable(shape = [1, 4], label = 'norm/mean');
    variance = variable(shape = [1, 4], label = 'norm/variance');
    offset = variable(shape = [1, 4], label = 'norm/offset');
    scale = variable(shape = [1, 4], label = 'norm/scale');
    features = conv(image, kernel, bias, padding = [(1, 1), (1, 1)]);
    normal = batch_normalization(features, mean, variance, offset, scale, epsilon = 0.001);
    active = relu(normal);
    pooled = max_pool(active, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore');
    scores = softmax(pooled);
    means = mean_reduce(pooled, axes = [2, 3]);
}
"""
Parameters = Mapping[str, torch.Tensor]


def perceptron(x: torch.Tensor, held: Parameters) -> tuple[torch.Tensor, ...]:
    hidden = torch.tanh(x @ held["layer.0/weight"].T + held["layer.0/bias"])
    return (hidden @ held["layer.1.weight"].T,)


def convolutional(image: torch.Tensor, held: Parameters) -> tuple[torch.Tensor, ...]:
    features = nn.functional.conv2d(image, held["kernel"], held["bias"][0], padding=1)
    columns = {label: value.reshape(1, -1, 1, 1) for label, value in held.items()}
    deviation = (columns["norm/variance"] + 0.001).sqrt()
    normal = (features - columns["norm/mean"]) / deviation
    active = torch.relu(normal * columns["norm/scale"] + columns["norm/offset"])
    pooled = nn.functional.max_pool2d(active, 2)
    return pooled.softmax(1), pooled.mean((2, 3), keepdim=True)


class Example(NamedTuple):
    """A model, the same in torch, and the shape of its input."""

    text: str
    peer: Callable[[torch.Tensor, Parameters], tuple[torch.Tensor, ...]]
    shape: tuple[int, ...]

    def module(self, runtime: str, **options: Any) -> Module:
        for package in NEEDS[runtime]:
            pytest.importorskip(package)
        return Module(nnef_grad.loads(self.text), runtime, data=self.data(), **options)

    def data(self) -> dict[str, np.ndarray[Any, Any]]:
        generator = np.random.default_rng(5)
        return {
            str(op.attributes["label"]): generator.uniform(0.2, 1.2, t.shape) - shift
            for op in nnef_grad.loads(self.text).operations
            if op.name == "variable"
            for t in op.outputs
            for shift in [0.0 if "variance" in str(op.attributes["label"]) else 0.7]
        }


EXAMPLES = {
    "perceptron": Example(PERCEPTRON, perceptron, (4, 3)),
    "convolutional": Example(CONVOLUTIONAL, convolutional, (2, 3, 8, 8)),
}
SMALL = EXAMPLES["perceptron"]
runtimes = pytest.mark.parametrize("runtime", NEEDS)
examples = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


def held_by(module: Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers in double precision, as leaves that require gradients."""
    return {
        label: value.detach().double().requires_grad_()
        for label, value in module.state_dict().items()
    }


def tuple_of(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


# ---- Gradients ----


@runtimes
@examples
def test_gradients_are_those_of_torch(example: Example, runtime: str) -> None:
    module = example.module(runtime)
    for batch in (example.shape[0], 1, 5):
        torch.manual_seed(batch)
        x = torch.randn(batch, *example.shape[1:], requires_grad=True)
        outputs = tuple_of(module(x))
        seeds = [torch.randn(y.shape) for y in outputs]
        found = grad(outputs, [x, *module.parameters()], seeds)

        held, exact = held_by(module), x.detach().double().requires_grad_()
        expected = example.peer(exact, held)
        for output, wanted in zip(outputs, expected, strict=True):
            torch.testing.assert_close(output.double(), wanted, **TOLERANCE)
        names = [name for name, _ in module.named_parameters()]
        leaves = [exact, *(held[name] for name in names)]
        gradients = grad(expected, leaves, [seed.double() for seed in seeds])
        for one, wanted in zip(found, gradients, strict=True):
            torch.testing.assert_close(one.double(), wanted, **TOLERANCE)


@runtimes
def test_second_derivatives_are_those_of_torch(runtime: str) -> None:
    module = SMALL.module(runtime)
    torch.manual_seed(0)
    x = torch.randn(SMALL.shape, requires_grad=True)

    def penalty(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        (slope,) = grad((y**3).sum(), x, create_graph=True)
        return (slope**2).sum()

    named = dict(module.named_parameters())
    found = grad(penalty(module(x), x), list(named.values()))
    held, exact = held_by(module), x.detach().double().requires_grad_()
    (y,) = SMALL.peer(exact, held)
    expected = grad(penalty(y, exact), [held[name] for name in named])
    for one, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), wanted, **TOLERANCE)


@examples
def test_gradients_of_some_outputs(example: Example) -> None:
    module = example.module("numpy").double()
    x = torch.randn(example.shape, dtype=torch.float64)
    leaves = held_by(module)
    for index in range(len(tuple_of(module(x)))):
        found = grad(tuple_of(module(x))[index].sin().sum(), [*module.parameters()])
        (expected,) = [example.peer(x, leaves)[index]]
        wanted = grad(expected.sin().sum(), [*leaves.values()], allow_unused=True)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@examples
@pytest.mark.parametrize("runtime", ["numpy", "khronos"])
def test_gradcheck_in_double_precision(example: Example, runtime: str) -> None:
    module = example.module(runtime).double()
    torch.manual_seed(0)
    x = torch.randn(example.shape, dtype=torch.float64, requires_grad=True)

    def function(x: torch.Tensor, *values: torch.Tensor) -> Any:
        named = zip(dict(module.named_parameters()), values, strict=True)
        return torch.func.functional_call(module, dict(named), x)

    values = [p.detach().requires_grad_() for p in module.parameters()]
    assert gradcheck(function, (x, *values), fast_mode=True)
    assert gradgradcheck(function, (x, *values), fast_mode=True)


@pytest.mark.filterwarnings("ignore:.*double precision:UserWarning")
@pytest.mark.parametrize("runtime", ["onnxruntime", "tract"])
def test_gradcheck_in_single_precision(runtime: str) -> None:
    module = SMALL.module(runtime)
    torch.manual_seed(0)
    x = torch.randn(SMALL.shape, requires_grad=True)
    assert gradcheck(module, x, eps=1e-2, atol=1e-2, rtol=1e-2)


def test_gradients_by_functions() -> None:
    module = SMALL.module("numpy")
    x = torch.ones(SMALL.shape)

    def loss(values: Any) -> Any:
        return torch.func.functional_call(module, values, x).square().sum()

    found = torch.func.grad(loss)(dict(module.named_parameters()))
    module(x).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert torch.equal(found[name], parameter.grad)


# ---- What is computed, and what is kept ----


def program_of(module: Module) -> Program:
    (program,) = module._programs.values()
    return program


@runtimes
@examples
def test_nothing_is_computed_twice(example: Example, runtime: str) -> None:
    module = example.module(runtime)
    x = torch.ones(example.shape)
    sum(y.sum() for y in tuple_of(module(x))).backward()
    program = program_of(module)
    # Neither the graph alone nor its whole backward graph were compiled.
    assert "run" not in vars(program)
    assert not program._gradients
    (halves,) = program._halves.values()
    assert halves is not None
    forward = {op.name for op in program.graph.operations} - FREE - {"max_pool"}
    own = {op.name for op in halves._backward.operations if op.origin is None}
    assert own.isdisjoint(forward)


def test_what_is_saved_is_freed() -> None:
    module = SMALL.module("numpy")
    y = module(torch.ones(SMALL.shape))
    saved = y.grad_fn.saved_tensors
    assert [tuple(value.shape) for value in saved[-1:]] == [(4, 5)]
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        _ = y.grad_fn.saved_tensors
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()


def test_a_gradient_to_be_differentiated_is_a_function_of_the_inputs() -> None:
    module = SMALL.module("numpy").double()
    x = torch.randn(SMALL.shape, dtype=torch.float64, requires_grad=True)
    y = module(x)
    (plain,) = grad(y.sum(), x, retain_graph=True)
    assert not plain.requires_grad
    (kept,) = grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(kept, plain)
    assert any(value is x for value in kept.grad_fn.saved_tensors)


def test_a_result_that_is_changed_before_it_is_needed() -> None:
    text = """
    version 1.0;
    graph net( x ) -> ( y ) { x = external(shape = [2, 3]); y = tanh(x); }
    """
    module = Module(nnef_grad.loads(text), "numpy", data={})
    y = module(torch.ones(2, 3, requires_grad=True))
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_outputs_without_gradients() -> None:
    text = """
    version 1.0;
    graph net( x ) -> ( places )
    {
        x = external(shape = [2, 3]);
        places = argmax_reduce(x, axes = [1]);
    }
    """
    module = Module(nnef_grad.loads(text), "numpy", data={})
    places = module(torch.tensor([[1.0, 3.0, 2.0], [4.0, 0.0, 1.0]]).requires_grad_())
    assert places.tolist() == [[1], [0]]
    assert not places.requires_grad


def test_an_operation_without_derivative_counts_where_it_is_asked_for() -> None:
    text = """
    version 1.0;
    graph net( x ) -> ( y )
    {
        x = external(shape = [1, 1, 1]);
        y = multilinear_upsample(x, factor = [60000]);
    }
    """
    module = Module(nnef_grad.loads(text), "numpy", data={})
    y = module(torch.ones(1, 1, 1, requires_grad=True))
    assert torch.equal(y, torch.ones(1, 1, 60000))
    refused("has no derivative", y.sum().backward)


# ---- What requires gradients ----


def test_only_what_is_required_is_computed() -> None:
    module = SMALL.module("numpy")
    module.get_parameter("layer.0/weight").requires_grad_(False)
    x = torch.ones(SMALL.shape)
    module(x).sum().backward()
    assert x.grad is None
    assert [p.grad is None for p in module.parameters()].count(True) == 1
    ((wrt, halves),) = program_of(module)._halves.items()
    assert wrt == ("bias1", "weight2")
    assert halves is not None
    assert len(halves._backward.outputs) == 2


def test_without_gradients() -> None:
    module = SMALL.module("numpy")
    with torch.no_grad():
        assert not module(torch.ones(SMALL.shape)).requires_grad
    module.requires_grad_(False)
    assert not module(torch.ones(SMALL.shape)).requires_grad


@runtimes
def test_what_is_not_contiguous(runtime: str) -> None:
    module = SMALL.module(runtime)
    x = torch.randn(3, 4).T
    held = {label: value.detach() for label, value in held_by(module).items()}
    (expected,) = SMALL.peer(x.double(), held)
    torch.testing.assert_close(module(x).double(), expected, **TOLERANCE)


@runtimes
def test_a_checkpointed_module(runtime: str) -> None:
    module = SMALL.module(runtime)
    x = torch.ones(SMALL.shape, requires_grad=True)
    plain = grad(module(x).sum(), x)
    assert torch.equal(
        *plain, *grad(checkpoint(module, x, use_reentrant=False).sum(), x)
    )


# ---- Training ----


@runtimes
def test_training_is_that_of_torch(runtime: str) -> None:
    module = SMALL.module(runtime)
    held = {label: value.float().detach() for label, value in held_by(module).items()}
    leaves = {label: value.requires_grad_() for label, value in held.items()}
    runs: list[tuple[Callable[..., Any], list[torch.Tensor]]] = [
        (module, list(module.parameters())),
        (lambda x: SMALL.peer(x, leaves)[0], [leaves[n] for n in module.state_dict()]),
    ]
    for model, parameters in runs:
        optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        generator = torch.Generator().manual_seed(0)
        for _ in range(6):
            x = torch.randn(SMALL.shape, generator=generator)
            optimizer.zero_grad()
            (model(x) - x[:, :2]).square().sum().backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
    for label, value in module.state_dict().items():
        torch.testing.assert_close(value, held[label].detach(), **TOLERANCE)


# ---- State ----


def test_names_are_labels() -> None:
    module = SMALL.module("numpy")
    labels = {"layer.0/weight", "layer.0/bias", "layer.1.weight"}
    assert {name for name, _ in module.named_parameters()} == labels
    assert set(module.state_dict()) == labels


def test_the_state_goes_round() -> None:
    module, other = SMALL.module("numpy"), SMALL.module("numpy")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    x = torch.ones(SMALL.shape)
    before = other(x)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), module(x))
    assert not torch.equal(other(x), before)


def test_copies_are_apart() -> None:
    module, x = SMALL.module("numpy"), torch.ones(SMALL.shape)
    expected = module(x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), expected)
        with torch.no_grad():
            other.get_parameter("layer.1.weight").zero_()
        assert not other(x).any()
    assert torch.equal(module(x), expected)


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    module = EXAMPLES["convolutional"].module("numpy", buffers=["norm/mean"])
    module.save(tmp_path / "first")
    (tmp_path / "first" / "graph.nnef").write_text(CONVOLUTIONAL, "utf-8")
    (tmp_path / "first" / "graph.quant").write_text(
        '"image": zero_point_linear_quantize(zero_point = 0, scale = 1.0, bits = 8,'
        " signed = false, symmetric = false);\n"
    )
    module = Module(tmp_path / "first", "numpy", buffers=["norm/mean"])
    with torch.no_grad():
        module.get_parameter("norm/scale").mul_(2)
    module.save(tmp_path / "second.tgz")
    module.save(tmp_path / "third")
    for name in ("graph.nnef", "graph.quant"):
        texts = [(tmp_path / f / name).read_text("utf-8") for f in ("first", "third")]
        assert texts[0] == texts[1]
    x = torch.randn(2, 3, 8, 8)
    for saved in ("second.tgz", "third"):
        again = Module(tmp_path / saved, "numpy")
        for found, wanted in zip(again(x), module(x), strict=True):
            assert torch.equal(found, wanted)
    with pytest.raises(nnef_grad.UsageError, match="exists"):
        module.save(tmp_path / "third")
    with pytest.raises(nnef_grad.UsageError, match="cannot hold data"):
        module.save(tmp_path / "graph.nnef")


def test_the_text_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    nnef_grad.save(nnef_grad.loads(PERCEPTRON), folder, data=SMALL.data())
    (folder / "graph.nnef").write_text(PERCEPTRON, "utf-8")
    Module(folder, "numpy").save(tmp_path / "again")
    assert (tmp_path / "again" / "graph.nnef").read_text("utf-8") == PERCEPTRON


# ---- Buffers, types, inputs ----

TYPED = """
version 1.0;
graph net( x, flags ) -> ( y, places )
{
    x = external(shape = [2, 3]);
    flags = external<logical>(shape = [2, 3]);
    table = variable(shape = [4, 3], label = 'table');
    rows = variable<integer>(shape = [2], label = 'rows');
    chosen = gather(table, rows, axis = 0);
    scaled = mul(x, chosen);
    y = select(flags, scaled, x);
    places = argmax_reduce(y, axes = [1]);
}
"""


@runtimes
def test_tensors_of_other_types(runtime: str) -> None:
    for package in NEEDS[runtime]:
        pytest.importorskip(package)
    table = np.arange(12.0, dtype=np.float32).reshape(4, 3) % 5
    data = {"table": table, "rows": np.array([3, 1])}
    module = Module(nnef_grad.loads(TYPED), runtime, data=data)
    assert [name for name, _ in module.named_buffers()] == ["rows"]
    x = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 4.0, 2.0]], requires_grad=True)
    flags = torch.tensor([[True, False, True], [False, True, True]])
    y, places = module(flags=flags, x=x)
    chosen = torch.from_numpy(table)[[3, 1]]
    assert torch.equal(y, torch.where(flags, x * chosen, x))
    assert torch.equal(places, y.argmax(1, keepdim=True))
    assert places.dtype == torch.int64
    assert not places.requires_grad
    y.sum().backward()
    assert torch.equal(x.grad, torch.where(flags, chosen, torch.ones(2, 3)))
    expected = torch.zeros(4, 3)
    expected[[3, 1]] = torch.where(flags, x, torch.zeros(2, 3)).detach()
    assert torch.equal(module.table.grad, expected)


@runtimes
def test_outputs_that_are_variables(runtime: str) -> None:
    for package in NEEDS[runtime]:
        pytest.importorskip(package)
    text = """
    version 1.0;
    graph net( x ) -> ( y, w, updated )
    {
        x = external(shape = [2, 3]);
        w = variable(shape = [1, 3], label = 'w');
        y = mul(x, w);
        doubled = mul(w, 2.0);
        updated = update(w, doubled);
    }
    """
    module = Module(nnef_grad.loads(text), runtime, data={"w": np.full([1, 3], 4.0)})
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y, w, updated = module(x)
    assert torch.equal(y, 4 * x)
    assert torch.equal(w, module.w)
    assert torch.equal(updated, 2 * module.w)
    (y.sum() + 3 * w.sum() + updated.sum()).backward()
    assert torch.equal(module.w.grad, x.sum(0, keepdim=True) + 5)


def test_variables_of_one_label_are_one_parameter() -> None:
    text = """
    version 1.0;
    graph net( x ) -> ( y )
    {
        x = external(shape = [2, 3]);
        once = variable(shape = [1, 3], label = 'w');
        again = variable(shape = [1, 3], label = 'W');
        scaled = mul(x, once);
        y = mul(scaled, again);
    }
    """
    data = {"w": np.full([1, 3], 4.0)}
    module = Module(nnef_grad.loads(text), "numpy", data=data)
    assert list(module.state_dict()) == ["w"]
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    module(x).sum().backward()
    assert torch.equal(module.w.grad, 2 * 4 * x.sum(0, keepdim=True))


# In tract, a gather is a product, and such an index chooses nothing.
@pytest.mark.parametrize("runtime", ["numpy", "onnxruntime"])
def test_an_index_out_of_range(runtime: str) -> None:
    for package in NEEDS[runtime]:
        pytest.importorskip(package)
    data = {"table": np.ones([4, 3]), "rows": np.array([3, 9])}
    module = Module(nnef_grad.loads(TYPED), runtime, data=data)
    x = torch.ones(2, 3)
    refused("gather: .*|cannot run .net.: .*", module, x, x.bool())


def test_buffers_are_no_parameters() -> None:
    constants = ["norm/mean", "norm/variance"]
    module = EXAMPLES["convolutional"].module("numpy", buffers=constants)
    assert [name for name, _ in module.named_buffers()] == constants
    assert not set(constants) & {name for name, _ in module.named_parameters()}


def test_a_module_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    peer = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    peer[0].bias.requires_grad_(False)
    x = torch.randn(5, 3)
    model = interop.from_torch(peer, [x])
    module = Module(model, "numpy")
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    variables = {label: name for name, label in model.graph.labels.items()}
    assert {variables[label] for label in trained} == set(model.trainable)
    torch.testing.assert_close(module(x), peer(x), **TOLERANCE)
    module(x).square().sum().backward()
    peer(x).square().sum().backward()
    gradients = {
        variables[label]: parameter.grad.numpy()
        for label, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    expected = {n: p.grad for n, p in peer.named_parameters() if p.grad is not None}
    found = model.gradients_to_torch(gradients)
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        torch.testing.assert_close(torch.from_numpy(found[name]), wanted, **TOLERANCE)


# ---- Mistakes ----


def refused(
    message: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> None:
    with pytest.raises(nnef_grad.NnefGradError, match=message):
        function(*args, **kwargs)


def test_models_that_are_refused() -> None:
    graph, data = nnef_grad.loads(PERCEPTRON), SMALL.data()
    refused("runtime is one of .*'onxruntime'", Module, graph, "onxruntime", data=data)
    refused("'layer.0/bias'.* has no data", Module, graph, "numpy")
    wrong = {**data, "layer.0/bias": np.ones([1, 4])}
    refused("data of shape", Module, graph, "numpy", data=wrong)
    unknown = {"data": data, "buffers": ["layer.0/bia"]}
    refused("did you mean 'layer.0/bias'", Module, graph, "numpy", **unknown)
    refused("nowhere", Module, "nowhere", "numpy")
    for limit in (0, -1.0, float("nan")):
        limited = {"data": data, "recompute": limit}
        refused("limit of memory is positive", Module, graph, "numpy", **limited)


@pytest.mark.parametrize("label", ["forward", "training", "a", "layer..b", "half.c"])
def test_labels_that_are_no_names(label: str) -> None:
    text = PERCEPTRON.replace("layer.1.weight", label).replace("layer.0/bias", "a.b")
    data = {"a.b": np.ones([1, 5]), label: np.ones([2, 5])}
    data["layer.0/weight"] = np.ones([5, 3])
    message = "cannot be the name of a parameter"
    refused(message, Module, nnef_grad.loads(text), "numpy", data=data)


def test_data_for_a_model_that_has_its_own(tmp_path: Path) -> None:
    SMALL.module("numpy").save(tmp_path / "model")
    message = "has its own data"
    refused(message, Module, tmp_path / "model", "numpy", data=SMALL.data())


def test_inputs_that_are_refused() -> None:
    module, x = SMALL.module("numpy"), torch.ones(SMALL.shape)
    refused("input 'x' must be torch.float32, and is torch.float64", module, x.double())
    refused("must be torch.float32, and is torch.int64", module, x.long())
    refused("must be a plain tensor, and is ndarray", module, x.numpy())
    refused("must be a plain tensor, and is NoneType", module, None)
    refused("must be a plain tensor, and is a sparse tensor", module, x.to_sparse())
    refused("plain tensor, and is Elsewhere", module, x.as_subclass(Elsewhere))
    refused("on the CPU, and is on meta", module, x.to("meta"))
    refused("rank", module, x[0])
    refused("linear: .*", module, torch.ones(4, 2))
    refused("the model has 1 inputs, and 2 are given", module, x, x)
    refused("the inputs 'x' are missing", module)
    refused("no input 'y'", module, y=x)
    refused("'x' is given twice", module, x, x=x)


class Elsewhere(torch.Tensor):  # type: ignore[misc]
    """As the tensors of several processes, whose memory is not all here."""


def test_parameters_that_were_replaced(tmp_path: Path) -> None:
    module, x = SMALL.module("onnxruntime"), torch.ones(SMALL.shape)
    name = "layer.0/bias"
    holder = module.get_submodule("layer")
    holder.register_parameter("0/bias", nn.Parameter(torch.ones(5)))
    refused(f"'{name}' must have the shape .1, 5., and not .5.", module, x)
    refused(f"'{name}' .* shape .5.", module.save, tmp_path / "model")
    elsewhere = nn.Parameter(torch.ones(1, 5).as_subclass(Elsewhere))
    holder.register_parameter("0/bias", elsewhere)
    refused(f"'{name}' must be a plain tensor", module, x)
    refused(f"'{name}' must be a plain tensor", module.save, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_precision_that_the_runtime_does_not_have() -> None:
    module = SMALL.module("numpy").half()
    refused("computes in float32 and", module, torch.ones(SMALL.shape))


def test_a_runtime_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "nnef_grad.runtimes.find_spec",
        lambda name: None if name == "onnxruntime" else find(name),
    )
    message = "needs onnxruntime: pip install onnxruntime"
    refused(message, Module, nnef_grad.loads(PERCEPTRON), data=SMALL.data())


def test_torch_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("nnef_grad.torch", "nnef_grad.runtimes.torch")
    for name in [n for n in sys.modules if n.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(nnef_grad.UsageError, match="needs torch: pip install"):
        importlib.import_module("nnef_grad.torch")
