"""Functions of torch that its exporter refuses or gets wrong: their values and gradients in
the graphs, next to torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad import interop

pytest.importorskip("torch")
pytest.importorskip("onnx", reason="torch exports modules by the package onnx")

import torch
from torch import nn
from torch.nn import functional


class Scaled(nn.Module):  # type: ignore[misc]
    """A function of a parameter, and of further arguments."""

    def __init__(self, function: Callable[..., Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.function = function
        self.weight = nn.Parameter(torch.randn(shape, generator=draw))

    def forward(self, scale: Any) -> Any:
        return self.function(self.weight * scale)


def attention(x: Any) -> Any:
    query, key, value = x[:, :4], x[:, 4:6], x[:, 6:]
    attend = functional.scaled_dot_product_attention
    return attend(query, key, value, is_causal=True, enable_gqa=True)


def rotated(x: Any) -> Any:
    """With frequencies that are repeated, as rotary embeddings are."""
    places = torch.arange(x.shape[1])[None, None, :].float()
    frequencies = torch.tensor([1.0, 0.5])[None, :, None].expand(places.shape[0], -1, 1)
    angles = (frequencies @ places).transpose(1, 2)
    return x * angles.repeat_interleave(2, dim=-1).cos()


class Tokens(nn.Module):  # type: ignore[misc]
    """Words after tokens, of which there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(1, 0, 4))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        tokens = self.tokens.expand(x.shape[0], -1, -1)
        joined = self.layer(torch.cat([tokens, x], 1))
        return joined.view(joined.shape[0], joined.shape[1], 2, 2)


def pool(kind: str, rank: int) -> Callable[..., Any]:
    """A pool of three windows along each axis."""
    function = getattr(functional, f"adaptive_{kind}_pool{rank}d")
    return lambda x: function(x, 3)


SIZES = [(5,), (5, 4), (3, 4, 5)]
FUNCTIONS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (lambda x: x.permute(0, -1, -2, 1), (2, 3, 4, 5)),
    (lambda x: torch.permute(x, dims=(0, -1, -2, 1)), (2, 3, 4, 5)),
    (lambda x: x.mT @ x, (2, 3, 4)),
    (lambda x: x.movedim(-1, 0), (2, 3, 4)),
    (lambda x: torch.moveaxis(x, (-1, -2), (0, 1)), (2, 3, 4)),
    (lambda x: torch.tensor_split(x, (1, 3), dim=-1)[1].transpose(-2, -1), (2, 3, 4)),
    (lambda x: torch.cat(x.tensor_split(3)[::-1]), (5, 2)),
    (lambda x: x.tensor_split(sections=2, dim=1)[1], (2, 5)),
    (lambda x: x.unfold(-2, 2, 1), (2, 5, 3)),
    (lambda x: x.unfold(dimension=1, size=3, step=2), (2, 6, 3)),
    (lambda x: x.permute(1, 0, 2).as_strided((2, 3), (1, 4)), (2, 3, 4)),
    (lambda x: x.transpose(0, 1).reshape(4, 6).as_strided((3, 2, 6), (6, 3, 1), 0), (6, 2, 2)),
    (lambda x: x.repeat_interleave(2, dim=-1), (2, 3)),
    (lambda x: torch.repeat_interleave(x, 3, 0), (2, 3)),
    (lambda x: x.repeat_interleave(2), (2, 3)),
    (lambda x: x.repeat_interleave(2, dim=-2)[None].transpose(-2, -1), (2, 3, 4)),
    (lambda x: x.repeat_interleave(torch.tensor([1, 2]), dim=-2)[None].transpose(-2, -1), (3, 2, 4)),
    (rotated, (2, 3, 4)),
    (attention, (2, 8, 3, 4)),
    (lambda x: torch.cat([x[:, :1], x[:, :0], x], 1), (2, 3)),
    (lambda x: torch.concat([x[:, :0], x, x], dim=1), (2, 3)),
    *((pool("avg", len(extents)), (2, 2, *extents)) for extents in SIZES),
    *((pool("max", len(extents)), (2, 2, *extents)) for extents in SIZES),
    (lambda x: nn.AdaptiveAvgPool2d((7, None))(x), (2, 2, 1, 3)),
    (lambda x: nn.AdaptiveMaxPool2d(2)(x), (2, 2, 4, 6)),
    (lambda x: functional.max_pool1d(functional.pad(x, (1, 2), value=-torch.inf), 3), (1, 2, 6)),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(FUNCTIONS)))
def test_the_values_and_the_gradients_are_those_of_torch(place: int) -> None:
    module = Scaled(*FUNCTIONS[place])
    scale = torch.tensor([0.5])
    model = interop.from_torch(module, [scale])
    backward = nnef_grad.differentiate(
        model.graph, wrt=model.trainable, with_outputs=True
    )
    expected = module.double()(scale.double())
    seed = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    feeds = {"scale": scale.numpy(), backward.seeds["output"]: seed.numpy()}
    found = nnef_grad.evaluate(backward.graph, feeds, variables=model.data)
    (gradient,) = torch.autograd.grad(expected, [module.weight], [seed.double()])
    made = found[backward.gradients["weight"]], found["output"]
    for value, wanted in zip(made, (gradient, expected.detach()), strict=True):
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-7)


def test_tokens_of_which_there_are_none() -> None:
    module, x = Tokens(), torch.ones(2, 3, 4)
    model = interop.from_torch(module, [x])
    found = nnef_grad.evaluate(model.graph, {"x": x.numpy()}, variables=model.data)
    np.testing.assert_allclose(
        found["output"], module(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_elements_that_an_operand_does_not_have() -> None:
    module = Scaled(lambda x: x[1:].as_strided((2, 2), (1, 1), 0), (3, 2))
    with pytest.raises(nnef_grad.UnsupportedError, match=r"does not have; at .*\.py:"):
        interop.from_torch(module, [torch.ones(1)])


@pytest.mark.parametrize("detached", [lambda x: x.detach(), lambda x: x.data])
def test_a_tensor_that_is_detached(detached: Callable[..., Any]) -> None:
    module = Scaled(lambda x: x * detached(x), (3,))
    line = inspect.getsourcelines(detached)[1]
    with pytest.raises(
        nnef_grad.UnsupportedError, match=f"detached at .*\\.py:{line}: leave it out"
    ):
        interop.from_torch(module, [torch.ones(1)])


def test_what_has_no_gradient_may_be_detached() -> None:
    module = Scaled(torch.exp, (3,)).requires_grad_(False)
    module.function = lambda x: x * x.detach()
    model = interop.from_torch(module, [torch.ones(1)])
    assert model.trainable == ()


def test_the_line_that_is_not_exported() -> None:
    module = Scaled(lambda x: torch.fft.fft(x).real, (3,))
    line = inspect.getsourcelines(module.function)[1]
    message = f"'aten::fft_fft' .* is not supported; at .*replacements\\.py:{line}$"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_torch(module, [torch.ones(1)])
