"""Modules of PyTorch whose batch and length stay open: one backward document for all sizes,
in the runtimes that have symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.architectures.arrival import gradients_by_torch
from support.architectures.catalog import make
from support.torch_modules import networks as nets
from torch import nn
from torch.export import Dim

import nnef_grad
from nnef_grad import interop
from nnef_grad.graph.extents import symbols_of
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets.tensors import DTYPES

SIZES = (3, 5), (2, 6), (5, 3)
B, S = Dim("B", max=64), Dim("S", max=6)
TEXT, IMAGES = ({0: B, 1: S},), ({0: B},)


class Hidden(nn.Module):  # type: ignore[misc]
    """A network of transformers, called with ids alone."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.body, _ = make(name)

    def forward(self, ids: Any) -> Any:
        return self.body(input_ids=ids).last_hidden_state


def ids(batch: int, length: int) -> Any:
    return torch.randint(0, 11, (batch, length))


def images(batch: int, _: int) -> Any:
    return torch.randn(batch, 3, 8, 8)


# How a network is made, what it is given, and what stays open.
NETWORKS: Mapping[str, tuple[Any, Any, Any]] = {
    "gpt": (nets.GPT, ids, TEXT),
    "llama": (nets.Llama, ids, TEXT),
    "vit": (nets.ViT, images, IMAGES),
    "transformers/gpt2": (lambda: Hidden("transformers/gpt2"), ids, TEXT),
    "transformers/llama": (lambda: Hidden("transformers/llama"), ids, TEXT),
}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[Any, Any, Any, Any]:
    """A module, what draws its inputs, its graph, and its backward graph as it is read
    from its text.
    """
    if "/" in request.param:
        pytest.importorskip("transformers")
    create, draw, shapes = NETWORKS[request.param]
    torch.manual_seed(0)
    module = create().eval()
    model = interop.from_torch(module, [draw(*SIZES[0])], dynamic_shapes=shapes)
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    return module, draw, model, backward


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_document_in_the_interpreter(network: Any, size: tuple[int, int]) -> None:
    _compare(network, size, _by_interpreter, 1e-10)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime", "openvino"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_document_in_a_runtime(
    network: Any, size: tuple[int, int], runtime: str
) -> None:
    pytest.importorskip(runtime)
    _compare(network, size, partial(_by_runtime, runtime), 2e-5)


def _by_interpreter(graph: Any, feeds: Any, data: Any) -> Mapping[str, Any]:
    return nnef_grad.evaluate(graph, feeds, data)


def _by_runtime(runtime: str, graph: Any, feeds: Any, data: Any) -> Mapping[str, Any]:
    run = find_runtime(runtime).compile(graph, data)
    arrays = [
        np.asarray(feeds[name], DTYPES[tensor.dtype])
        for name, tensor in zip(graph.input_names, graph.inputs, strict=True)
    ]
    return dict(zip(graph.output_names, run(arrays), strict=True))


def _compare(network: Any, size: tuple[int, int], run: Any, most: float) -> None:
    """The gradients of all parameters beside those of torch."""
    module, draw, model, backward = network
    given = [draw(*size)]
    wanted, cotangents = gradients_by_torch(module, given, torch.float64)
    graph = nnef_grad.loads(nnef_grad.dumps(backward.graph))
    (x,), (seed,) = model.graph.input_names, backward.seeds.values()
    feeds = {x: given[0].numpy(), seed: cotangents[0]}
    feeds = {name: feeds[name] for name in graph.input_names}
    found = run(graph, feeds, model.data)
    gradients = model.gradients_to_torch(
        {name: found[made] for name, made in backward.gradients.items()}
    )
    largest = max(np.abs(array).max() for array in wanted.values())
    for name, gradient in gradients.items():
        error = np.abs(gradient - wanted[name]).max()
        assert error <= most * (np.abs(wanted[name]).max() + largest / 1e3), name
    assert {*gradients} == {*dict(module.named_parameters(remove_duplicate=False))}


class Halved(nn.Module):  # type: ignore[misc]
    """Halves the height and the width, and doubles them, as a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 2, 3, padding=1)
        self.up = nn.ConvTranspose2d(2, 2, 2, 2)
        self.join = nn.Conv2d(4, 1, 1)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.down(x))
        return self.join(torch.cat([x, self.up(nn.functional.max_pool2d(x, 2))], 1))


@pytest.mark.parametrize("runtime", ["interpreter", "tract", "onnxruntime", "openvino"])
def test_extents_that_are_multiples_of_a_dim(runtime: str) -> None:
    if runtime != "interpreter":
        pytest.importorskip(runtime)
    torch.manual_seed(0)
    module, h, w = Halved(), Dim("h", max=64), Dim("w", max=64)
    model = interop.from_torch(
        module, [torch.randn(1, 1, 32, 46)], dynamic_shapes=({2: 16 * h, 3: 4 * w + 2},)
    )
    backward = nnef_grad.differentiate(model.graph, wrt=model.trainable)
    run = _by_interpreter if runtime == "interpreter" else partial(_by_runtime, runtime)
    most = 1e-10 if runtime == "interpreter" else 2e-5

    def draw(*size: int) -> Any:
        return torch.randn(1, 1, *size)

    for size in ((32, 46), (16, 22), (48, 14)):
        _compare((module, draw, model, backward), size, run, most)
    with pytest.raises(nnef_grad.UsageError, match=r"the extent '16\*h' cannot be 24"):
        _by_interpreter(model.graph, {"x": np.ones((1, 1, 24, 22))}, model.data)


class Table(nn.Module):  # type: ignore[misc]
    """A row of a table for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(6, 2, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        return x * self.rows[: x.shape[0]]


@pytest.mark.parametrize("shapes", [{0: Dim.AUTO}, {0: Dim("S", max=6)}], ids=str)
@pytest.mark.parametrize("length", [1, 4, 6])
def test_an_axis_is_at_most_as_long_as_torch_says(shapes: Any, length: int) -> None:
    module = Table()
    given = torch.randn(4, 2, dtype=torch.float64)
    model = interop.from_torch(module, [given], dynamic_shapes=(shapes,))
    backward = nnef_grad.differentiate(model.graph, wrt="all")
    x = torch.randn(length, 2, dtype=torch.float64, requires_grad=True)
    y = module(x)
    seed = torch.randn_like(y)
    wanted = torch.autograd.grad(y, [x, module.rows], seed)
    feeds = {"x": x.detach().numpy(), "grad_output": seed.numpy()}
    rows = {"rows": module.rows.detach().numpy()}
    found = nnef_grad.evaluate(backward, feeds, rows)
    for name, gradient in zip(("grad_x", "grad_rows"), wanted, strict=True):
        np.testing.assert_allclose(found[name], gradient, rtol=1e-12)
    (symbol,) = symbols_of(model.graph.inputs[0].shape)
    assert f"tract_assert {symbol}<=6;" in nnef_grad.dumps(backward)


def test_the_symbol_of_a_dim_that_is_derived() -> None:
    class Halves(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.unflatten(0, (-1, 2))[:, 1]

    given = torch.zeros(4, 2)
    shapes = ({0: 2 * Dim("T", max=6)},)
    model = interop.from_torch(Halves(), [given], dynamic_shapes=shapes)
    ends = model.graph.inputs[0], model.graph.outputs[0]
    assert [str(tensor.shape[0]) for tensor in ends] == ["2*T", "T"]


def test_the_order_of_a_product_of_many_is_that_of_any_size() -> None:
    """The package opt_einsum chooses one by the extents of the example: the batch has as
    many as a matrix has rows.
    """
    pytest.importorskip("opt_einsum")

    class Square(nn.Module):  # type: ignore[misc]
        """Pairs of features of one input."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3, 3))

        def forward(self, x: Any) -> Any:
            return torch.einsum("bi,bj,kij->bk", x, x, self.weight)

    x = torch.randn(3, 3)
    model = interop.from_torch(Square(), [x], dynamic_shapes=({0: B},))
    assert symbols_of(model.graph.inputs[0].shape)
    assert torch.backends.opt_einsum.enabled
