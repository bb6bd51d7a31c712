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
