"""Modules of PyTorch: their gradients, under the names that torch has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.runtimes import find_runtime

pytest.importorskip("torch")

import torch
from torch import nn

Given = Sequence[Any] | Mapping[str, Any]


def normal(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


class Tied(nn.Module):  # type: ignore[misc]
    """Two layers of one weight, one of which is transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(3, 4), nn.Linear(3, 4)
        self.decode.weight = self.encode.weight

    def forward(self, x: Any) -> Any:
        return self.decode(torch.tanh(self.encode(x)) @ self.encode.weight)


class Scaled(nn.Module):  # type: ignore[misc]
    """Parameters without axes, one that is not used, one that is frozen, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.shift = nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return torch.exp(x - self.mean) * self.scale * self.frozen + self.shift


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.gru = nn.GRU(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        hidden, _ = self.lstm(x)
        return self.gru(hidden)[0]


class Attentive(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Any, scale: Any) -> Any:
        x = self.words(ids)
        attended, weights = self.attention(x, x, x)
        return {"states": self.norm(attended * scale + x), "weights": weights}


class Turning(nn.Module):  # type: ignore[misc]
    """A buffer that is not stored, and a number that Python reads from a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.angle, self.scale = nn.Parameter(normal(3)), nn.Parameter(normal(1))
        self.register_buffer("frequencies", torch.arange(3.0), persistent=False)

    def forward(self, x: Any) -> Any:
        return x * torch.cos(self.frequencies) * self.angle * self.scale.item()


class Put(nn.Module):  # type: ignore[misc]
    """Elements at positions that are fed, some of which count from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(3, 4, 2))

    def forward(self, rows: Any, columns: Any, x: Any) -> Any:
        made = self.weight * 2
        made[rows, columns] = x
        added = self.weight.index_put((rows, columns), x, accumulate=True)
        return made * added


class Known(nn.Module):  # type: ignore[misc]
    """Results that no input is needed for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(3))
        self.register_buffer("frequencies", torch.arange(3.0), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.frequencies * 2, x * self.weight, self.weight, torch.arange(3)


class Optional(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, y: Any = None, *, power: int = 1) -> Any:
        return (x if y is None else x * y) ** power


class SeveralInputs(nn.Module):  # type: ignore[misc]
    def forward(self, pair: Any, z: Any) -> Any:
        x, y = pair
        return x * y, y - z


MODULES: dict[str, tuple[Any, Given]] = {
    "equal parameters": (
        nn.Sequential(
            nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4)
        ),
        [normal(2, 3)],
    ),
    "tied parameters": (Tied(), [normal(2, 3)]),
    "parameters without axes": (Scaled(), [normal(2, 3)]),
    "normalizations": (
        nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        ),
        [normal(2, 2, 5, 6)],
    ),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.ConvTranspose2d(4, 2, 2, 2), nn.PReLU(2)
        ),
        [normal(2, 4, 5, 6)],
    ),
    "recurrent": (Recurrent(), [normal(2, 3, 3)]),
    "attentive": (Attentive(), [torch.tensor([[1, 4, 2], [0, 6, 1]]), normal(1)]),
    "positions that are fed": (Put(), [torch.tensor([0, -1]), torch.tensor([2, -2]), normal(2, 2)]),
    "values that Python reads": (Turning(), [normal(2, 3)]),
    "arguments by name": (Optional(), {"y": normal(2, 3), "x": normal(2, 3)}),
    "arguments that are no tensors": (Optional(), {"x": normal(2), "power": 3}),
    "nested arguments": (SeveralInputs(), [(normal(2), normal(2)), normal(2)]),
}  # fmt: skip


def exported(module: Any, given: Given) -> interop.TorchModel:
    return interop.from_torch(module.eval(), given)


def floating(value: Any) -> Any:
    """Tensors of double precision, in place of those of single precision."""
    if isinstance(value, tuple):
        return tuple(map(floating, value))
    is_scalar = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_scalar else value


def gradients_by_torch(
    module: Any, given: Given, seeds: Sequence[Any]
) -> dict[str, Any]:
    """The gradients of parameters, by name; tied ones have one."""
    named = {n: p for n, p in module.named_parameters() if p.requires_grad}
    module.double()
    try:
        if isinstance(given, Mapping):
            result = module(**{k: floating(v) for k, v in given.items()})
        else:
            result = module(*map(floating, given))
        tensors = torch.utils._pytree.tree_leaves(result)
        found = torch.autograd.grad(
            tensors, list(named.values()), list(map(torch.from_numpy, seeds)), allow_unused=True
        ) if named else []  # fmt: skip
    finally:
        module.float()
    return {n: g.numpy() for n, g in zip(named, found, strict=True) if g is not None}


@pytest.mark.parametrize("name", MODULES)
def test_the_gradients_are_those_of_torch(name: str) -> None:
    module, given = MODULES[name]
    model = exported(module, given)
    if not model.trainable:
        assert not list(module.parameters())
        return
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    draw = np.random.default_rng(1)
    seeds = [draw.standard_normal(t.shape) for t in model.graph.outputs]
    leaves = torch.utils._pytree.tree_leaves(given)
    pairs = zip(model.graph.input_names, leaves, strict=True)
    fed = {name: leaf.numpy() for name, leaf in pairs}
    names = [backward.seeds[name] for name in model.graph.output_names]
    feeds = {**fed, **dict(zip(names, seeds, strict=True))}
    found = nnef_grad.evaluate(backward.graph, feeds, variables=model.data)
    named = {v: found[gradient] for v, gradient in backward.gradients.items()}
    gradients = model.gradients_to_torch(named)
    expected = gradients_by_torch(module, given, seeds)
    assert gradients.keys() >= expected.keys()
    for parameter, gradient in expected.items():
        assert gradients[parameter].shape == gradient.shape
        np.testing.assert_allclose(gradients[parameter], gradient, rtol=1e-6, atol=1e-9)


def test_the_names_are_those_of_torch() -> None:
    model = exported(*MODULES["normalizations"])
    assert model.parameters == {
        name: name.replace(".", "_", 1) if name[0].isalpha() else f"_{name.replace('.', '_')}"
        for name, _ in MODULES["normalizations"][0].named_parameters()
    }  # fmt: skip
    statistics = {"1.running_mean", "1.running_var", "4.running_mean", "4.running_var"}
    assert model.buffers.keys() == statistics
    assert set(model.trainable) == set(model.parameters.values())
    assert model.graph.input_names == ("input",)
    assert model.graph.output_names == ("output",)


def test_what_is_trained() -> None:
    model = exported(*MODULES["parameters without axes"])
    assert model.trainable == ("scale", "shift")
    assert model.parameters.keys() == {"scale", "shift", "frozen"}
    assert model.buffers == {"mean": "mean"}


def test_a_large_tensor_that_is_no_state_is_a_constant() -> None:
    """Its data are stored, and nothing trains it."""

    class Scaled(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.randn(120, 110), persistent=False)
            self.weight = nn.Parameter(torch.randn(110))

        def forward(self, x: Any) -> Any:
            return x @ self.turn * self.weight

    model = interop.from_torch(Scaled(), (torch.randn(2, 120),))
    assert len(model.data) == 2
    for wrt in ("all", "variables"):
        gradients = nnef_grad.differentiate(model.graph, wrt=wrt).gradients
        assert {*gradients} - {"x"} == {"weight"}


def test_a_tied_parameter_has_one_variable() -> None:
    model = exported(*MODULES["tied parameters"])
    assert model.parameters["encode.weight"] == model.parameters["decode.weight"]


@pytest.mark.parametrize("name", MODULES)
def test_the_data_are_the_values_of_the_module(name: str) -> None:
    module, given = MODULES[name]
    model = exported(module, given)
    there = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers()),
    }
    labels = model.graph.labels
    for parameter, variable in {**model.parameters, **model.buffers}.items():
        expected = there[parameter].detach().numpy()
        found = model.data[labels[variable]].reshape(model.shapes[parameter])
        np.testing.assert_array_equal(found, expected)


class Fails(nn.Module):  # type: ignore[misc]
    """Fails while it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: Any) -> Any:
        raise ValueError(f"no number but {self.weight[0]}")


@pytest.mark.parametrize("module", [Fails(), nn.LayerNorm(2)])
def test_the_module_stays_as_it_is(module: Any) -> None:
    before = [p.detach().clone() for p in module.parameters()]
    places = [p.data_ptr() for p in module.parameters()]
    try:
        interop.from_torch(module, [normal(2)])
    except nnef_grad.UnsupportedError:
        assert isinstance(module, Fails)
    for parameter, value, place in zip(
        module.parameters(), before, places, strict=True
    ):
        assert torch.equal(parameter, value)
        assert parameter.data_ptr() == place


def test_results_that_are_known() -> None:
    module, x = Known(), normal(2, 3)
    model = exported(module, [x])
    found = nnef_grad.evaluate(model.graph, {"x": x.numpy()}, variables=model.data)
    assert tuple(found) == model.graph.output_names
    for value, expected in zip(found.values(), module(x), strict=True):
        np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-6)


class Clipped(torch.autograd.Function):  # type: ignore[misc]
    """A function with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy.clamp(-1, 1)


class Own(nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return Clipped.apply(super().forward(x))


def test_derivatives_of_the_module_are_named() -> None:
    with pytest.raises(
        nnef_grad.UnsupportedError, match="'Clipped' is not known to be linear"
    ):
        exported(Own(3, 2), [normal(2, 3)])
    module = Own(3, 2).eval()
    graph = interop.from_torch(module, [normal(2, 3)], allow_own_backward=True).graph
    assert [warning.message for warning in graph.warnings] == [
        "the forward computation of 'Clipped' is differentiated, not its backward function,"
        " as if nothing in it stopped gradients"
    ]
    assert not exported(nn.Linear(3, 2), [normal(2, 3)]).graph.warnings


def test_other_precisions_are_converted() -> None:
    module = nn.Linear(3, 2).double()
    model = interop.from_torch(module, [normal(2, 3).double()])
    assert {array.dtype for array in model.data.values()} == {np.dtype(np.float32)}
    (warning,) = model.graph.warnings
    assert warning.message == "torch.float64 becomes single precision in the graph"


def test_a_tensor_that_is_given_twice_is_two_inputs() -> None:
    class Difference(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x - 2 * y

    example = normal(2, 3)
    model = interop.from_torch(Difference(), [example, example])
    assert model.graph.input_names == ("x", "y")
    x, y = np.ones((2, 3)), np.full((2, 3), 3.0)
    found = nnef_grad.evaluate(model.graph, {"x": x, "y": y})
    np.testing.assert_array_equal(found["output"], x - 2 * y)


def test_a_buffer_that_is_assigned_to_itself_has_no_new_value() -> None:
    class Placed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3))
            self.table = torch.arange(3.0)

        def forward(self, x: Any) -> Any:
            self.scale: Any = self.scale.to(x.device)
            self.table = self.table.to(x.device)
            return x * self.scale + self.table

    model = interop.from_torch(Placed(), [normal(2, 3)])
    assert model.graph.output_names == ("output",)
    assert not model.updates


def test_another_batch() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2))
    model = interop.from_torch(module, [normal(2, 2, 4, 4)], batch=5)
    assert [t.shape for t in (*model.graph.inputs, *model.graph.outputs)] == [
        (5, 2, 4, 4),
        (5, 2),
    ]


def test_places_beyond_the_whole_numbers_of_single_precision() -> None:
    class Chosen(nn.Module):  # type: ignore[misc]
        def forward(self, table: Any, rows: Any, columns: Any) -> Any:
            return table[rows, columns]

    table = torch.arange(4097.0).expand(4097, 4097).sin()
    given = [table, torch.tensor([4096, 4000]), torch.tensor([[-3], [4093]])]
    model = interop.from_torch(Chosen(), given)
    run = find_runtime("numpy").compile(model.graph)
    (found,) = run([x.numpy() for x in given])
    np.testing.assert_array_equal(found, Chosen()(*given))


REFUSED: list[tuple[Any, Given, str]] = [
    (nn.Linear(3, 4), [normal(2, 5)], "torch cannot export the module: .*same reduction dim"),
    (nn.Linear(3, 4), [3], "there is no tensor among the example inputs"),
    (nn.Linear(3, 4), {"y": normal(2, 3)}, "the example inputs do not fit 'forward': "),
    (nn.Linear(3, 4), [normal(3), normal(3)], "the example inputs do not fit 'forward': "),
]  # fmt: skip


@pytest.mark.parametrize(("module", "given", "message"), REFUSED)
def test_what_is_refused(module: Any, given: Given, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError, match=message):
        interop.from_torch(module, given)
