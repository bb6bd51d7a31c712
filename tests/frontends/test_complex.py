"""Complex numbers inside of a module, beside torch in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, fft, nn
from torch.nn import functional

import nnef_grad
from nnef_grad.frontends.torch import reading as _reading  # noqa: F401
from nnef_grad.frontends.torch.call import COMPLEX, OPERATIONS
from nnef_grad.frontends.torch.operations import complexes
from nnef_grad.interop import from_torch

parts = torch.view_as_real


class Module(nn.Module):  # type: ignore[misc]
    """A function of a scaled input, with complex numbers at hand."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.scale, self.other = (nn.Parameter(torch.randn(4)) for _ in range(2))
        self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.cfloat))
        self.number = nn.Parameter(torch.tensor(1 + 2j))
        self.register_buffer("row", torch.randn(4, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x * self.scale)


def z(net: Any, x: Tensor) -> Tensor:
    return torch.complex(x, x.flip(-1) * net.other)


def rotated(net: Any, x: Tensor) -> Tensor:
    """As positions are encoded."""
    angles = torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.01]))
    turns = torch.polar(torch.ones_like(angles), angles)
    return parts(torch.view_as_complex(x.reshape(3, 2, 2)) * turns).flatten(1)


def filtered(net: Any, x: Tensor) -> Tensor:
    """A layer of a Fourier neural operator."""
    modes = torch.einsum("bm,mo->bo", fft.rfft(x), net.weight[:3])
    return fft.irfft(modes, n=5)


def written(net: Any, x: Tensor) -> Tensor:
    y = torch.zeros(3, 4, dtype=torch.cfloat)
    y[:, 1:3] = z(net, x)[:, :2]
    return parts(y * net.number)


def spectrogram(net: Any, x: Tensor) -> Tensor:
    window = torch.hann_window(4)
    return torch.stft(x.reshape(12), 4, 2, window=window, return_complex=True)


def there_and_back(net: Any, x: Tensor) -> Tensor:
    return torch.istft(spectrogram(net, x) * 1j, 4, 2, window=torch.hann_window(4))


def convolved(net: Any, x: Tensor) -> Tensor:
    filters, bias = net.weight.reshape(2, 3, 2), net.row[:2]
    return parts(functional.conv1d(z(net, x)[None], filters, bias))


def states(net: Any, x: Tensor) -> Tensor:
    """The kernel of a diagonal state space."""
    decay = torch.complex(-net.scale.exp(), net.other)
    powers = (decay[:, None] * torch.arange(5)).exp()
    return x @ (net.row[:, None] * powers).real * 2


RIGHT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "rotary positions": rotated,
    "Fourier operator": filtered,
    "state space": states,
    "spectrogram": lambda net, x: spectrogram(net, x).abs(),
    "inverse spectrogram": there_and_back,
    "written": written,
    "convolution": convolved,
    "linear": lambda net, x: parts(
        functional.linear(z(net, x), net.weight.T, net.row[:3])
    ),
    "linear of real numbers": lambda net, x: parts(
        functional.linear(x.to(torch.cfloat), net.weight.T, net.row[:3])
    ),
    "abs": lambda net, x: z(net, x).abs(),
    "abs at zero": lambda net, x: torch.complex(x * 0, x * 0).abs() + x,
    "square of abs": lambda net, x: (z(net, x).abs() ** 2).sum(),
    "angle": lambda net, x: z(net, x).angle(),
    "angle of real numbers": lambda net, x: torch.angle(x) * x,
    "real": lambda net, x: (z(net, x) * 1j).real,
    "imag": lambda net, x: (z(net, x) ** 3).imag,
    "conj": lambda net, x: parts(z(net, x) * z(net, x).conj() * net.row),
    "sum": lambda net, x: parts(z(net, x) + x - 1j),
    "scaled sum": lambda net, x: parts(torch.add(x, z(net, x), alpha=2)),
    "difference": lambda net, x: parts(x - z(net, x)),
    "number less": lambda net, x: parts(1 - z(net, x)),
    "number": lambda net, x: parts(z(net, x) * net.number),
    "quotient": lambda net, x: parts(z(net, x) / net.row),
    "quotient by real numbers": lambda net, x: parts(z(net, x) / (x.abs() + 1)),
    "quotient of a number": lambda net, x: parts(1 / (z(net, x) + 3)),
    "reciprocal": lambda net, x: parts((z(net, x) + 3).reciprocal()),
    "exp": lambda net, x: parts(z(net, x).exp()),
    "exp of imaginary numbers": lambda net, x: parts(torch.exp(1j * x)),
    "log": lambda net, x: parts((z(net, x) + 3).log()),
    "sqrt": lambda net, x: parts(z(net, x).sqrt()),
    "matmul": lambda net, x: parts(z(net, x) @ net.weight),
    "three operands": lambda net, x: parts(
        torch.einsum("bi,bj,i->bj", z(net, x), z(net, x), net.row)
    ),
    "outer": lambda net, x: parts(torch.outer(z(net, x)[0], net.row)),
    "norm": lambda net, x: torch.linalg.vector_norm(z(net, x)),
    "cat": lambda net, x: parts(torch.cat([z(net, x), x], 1)),
    "stack": lambda net, x: parts(torch.stack([x, z(net, x)])),
    "where": lambda net, x: parts(torch.where(x > 0, z(net, x), 1)),
    "masked_fill": lambda net, x: parts(z(net, x).masked_fill(x > 0, 2)),
    "pad": lambda net, x: parts(functional.pad(z(net, x), (1, 1), value=3.0)),
    "mean": lambda net, x: parts(z(net, x).mean()),
    "chunk": lambda net, x: parts(z(net, x).chunk(2, 1)[1]),
    "index": lambda net, x: parts(z(net, x)[:, [0, 2]]),
    "shapes": lambda net, x: parts(z(net, x).t().reshape(2, 6).unsqueeze(0)),
    "adjoint": lambda net, x: parts(net.weight.mH @ z(net, x).mH),
    "zero": lambda net, x: parts(x * 0j + z(net, x)),
    "written into real numbers": lambda net, x: torch.zeros(3, 4).copy_(z(net, x)) * x,
    "without gradients": lambda net, x: parts(z(net, x).detach() * x),
    "power of a fraction": lambda net, x: parts(z(net, x) ** 2.0),
    "real ones in shapes": lambda net, x: parts(
        x.to(torch.cfloat).reshape(2, 6).chunk(2)[1] * net.number
    ),
    "roll": lambda net, x: parts(z(net, x).roll(1, 1)),
    "cumsum": lambda net, x: parts(z(net, x).cumsum(1)),
    "random": lambda net, x: parts(z(net, x) * torch.rand_like(x)),
    "fft": lambda net, x: parts(fft.fft(x)),
    "fft along rows": lambda net, x: parts(fft.fft(z(net, x), dim=0, norm="ortho")),
    "ifft": lambda net, x: parts(fft.ifft(z(net, x))),
    "rfft of 7": lambda net, x: parts(fft.rfft(x, n=7, norm="forward")),
    "irfft of 5": lambda net, x: fft.irfft(z(net, x), n=5),
    "irfft of 6": lambda net, x: fft.irfft(z(net, x), norm="ortho"),
    "hfft": lambda net, x: fft.hfft(z(net, x)),
    "fft2": lambda net, x: fft.fft2(x).real,
    "rfft2": lambda net, x: parts(fft.rfft2(x, norm="ortho")),
    "irfft2": lambda net, x: fft.irfft2(z(net, x), s=(3, 5)),
    "fftn": lambda net, x: fft.fftn(z(net, x)).abs(),
    "fftshift": lambda net, x: parts(fft.fftshift(fft.fft(x))),
}
REFUSED: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "an output": (z, r"the output 'output' is complex: torch.view_as_real\(y\)"),
    "a function": (lambda net, x: z(net, x).tanh().abs(), "compute with their parts"),
    "a power": (lambda net, x: (z(net, x) ** 0.5).abs(), "a whole number from 1 to 8"),
    "a long transform": (
        lambda net, x: fft.rfft(torch.ones(5000) * x[0, 0]).abs(),
        "of at most 4096 numbers",
    ),
    "a branch": (
        lambda net, x: (
            torch.cond(x.sum() > 0, lambda y: y * 1j, lambda y: y * 2j, (x,)).imag
        ),
        "branches and loops take no complex numbers",
    ),
    "around a derivative": (
        lambda net, x: torch.func.grad(lambda y: (y * z(net, x)).imag.sum())(x),
        "a derivative has complex numbers around it",
    ),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", RIGHT)
def test_torch_has_the_same(name: str) -> None:
    compare(Module(RIGHT[name]), (torch.randn(3, 4),), (torch.randn(3, 4),))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function), (torch.randn(3, 4),))
    torch._dynamo.reset()


def test_a_complex_input_is_refused() -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match="give the parts"):
        from_torch(Module(lambda net, x: x.real), (torch.randn(4, dtype=torch.cfloat),))


def test_a_derivative_goes_through_complex_numbers() -> None:
    def force(net: Any, x: Tensor) -> Tensor:
        return torch.func.grad(lambda y: (fft.fft(y * y).abs() ** 2).sum())(x)

    compare(Module(force), (torch.randn(3, 4),), (torch.randn(3, 4),))


def test_a_part_that_is_zero_is_left_out() -> None:
    module = Module(lambda net, x: x.to(torch.cfloat).reshape(2, 6).neg().real)
    model = from_torch(module, (torch.randn(3, 4),))
    assert [op.name for op in model.graph.operations[2:]] == ["mul", "reshape", "neg"]


def test_open_extents() -> None:
    shapes = ({0: torch.export.Dim("n", min=2)},)
    module, given = Module(filtered), (torch.randn(3, 4),)
    compare(module, given, (torch.randn(5, 4),), dynamic_shapes=shapes)


def test_a_parameter_has_its_parts_along_a_last_axis() -> None:
    model = from_torch(Module(filtered), (torch.randn(3, 4),))
    assert model.shapes["weight"] == (4, 3, 2)
    assert model.data["weight"].shape == (4, 3, 2)


def test_what_is_linear_is_read_of_real_numbers() -> None:
    """What has no function for real numbers is decomposed, also for complex ones."""
    linear = {complexes._each, complexes._product, complexes._sum, complexes._norm}
    names = {*OPERATIONS, *(name.partition(".")[0] for name in OPERATIONS)}
    assert [n for n, f in COMPLEX.items() if f in linear and n not in names] == []
