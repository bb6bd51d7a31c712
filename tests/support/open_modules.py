"""Modules of PyTorch with strides and windows along open axes, and the sizes that they are
tried at. The first size is the smallest one that a module accepts.

A module is a class, or a function of its inputs without parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as users of PyTorch call it

Sizes = tuple[int, int, int, int]
BATCHES: Sizes = (1, 2, 3, 2)


@dataclass(frozen=True)
class Row:
    """A module and its inputs.

    Attributes:
        create: makes the module.
        shapes: the shape of each input: extents and names of open ones.
        sizes: four numbers for each open extent.
        ways: how it is read.
        torch_from: the first size that the program of torch.export takes, which may
            leave out small ones of its own accord.
    """

    create: Callable[[], Any]
    shapes: tuple[str, ...]
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    ways: tuple[str, ...] = ("onnx", "torch")
    torch_from: int = 0

    def at(self, place: int) -> dict[str, int]:
        """The numbers of the open extents at one of the sizes."""
        return {n: s[place] for n, s in ({"B": BATCHES} | dict(self.sizes)).items()}

    def draw(self, numbers: Mapping[str, int]) -> list[Any]:
        """Inputs of a size."""
        words = (shape.split() for shape in self.shapes)
        return [torch.randn(*(numbers.get(w) or int(w) for w in ws)) for ws in words]

    def open_axes(self) -> list[dict[int, str]]:
        """The names of open extents, by the axes of each input."""
        return [
            {i: w for i, w in enumerate(shape.split()) if not w.isdigit()}
            for shape in self.shapes
        ]


class Function(nn.Module):  # type: ignore[misc]
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Resized(nn.Module):  # type: ignore[misc]
    """An image in the size of another."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: Any, y: Any) -> Any:
        return F.interpolate(x, size=y.shape[2:], mode=self.mode) * y


def of(function: Callable[..., Any], *args: Any, **settings: Any) -> Callable[[], Any]:
    """What makes the module of a function."""
    return lambda: Function(lambda *x: function(*x, *args, **settings))


def along(make: Callable[[], Any], t: Sizes, *, c: int = 4, **how: Any) -> Row:
    return Row(make, (f"B {c} T",), {"T": t}, **how)


def plane(
    make: Callable[[], Any],
    h: Sizes,
    w: Sizes,
    *,
    c: int = 4,
    **how: Any,
) -> Row:
    return Row(make, (f"B {c} H W",), {"H": h, "W": w}, **how)


# ---- Networks ----


class UNet(nn.Module):  # type: ignore[misc]
    """Halves and doubles: both extents must be even."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(depth))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(4, 4, 2, stride=2) for _ in range(depth)
        )
        self.join = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=1) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        kept = []
        for conv in self.down:
            x = torch.relu(conv(x))
            kept.append(x)
            x = F.max_pool2d(x, 2)
        for up, join in zip(self.up, self.join, strict=True):
            x = torch.tanh(join(torch.cat([kept.pop(), up(x)], 1)))
        return x


class PaddedUNet(nn.Module):  # type: ignore[misc]
    """Pads what it has doubled to the extents of what it joins."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ConvTranspose2d(4, 4, 2, 2),
        )

    def forward(self, x: Any) -> Any:
        kept = torch.relu(self.down(x))
        y = self.up(F.max_pool2d(kept, 2))
        high, wide = kept.shape[2] - y.shape[2], kept.shape[3] - y.shape[3]
        return torch.cat([kept, F.pad(y, [0, wide, 0, high])], 1)


class Pyramid(nn.Module):  # type: ignore[misc]
    """Features of two scales, whose sum wants equal extents."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.two = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.side = nn.Conv2d(4, 4, 1)

    def forward(self, x: Any) -> Any:
        one = torch.relu(self.one(x))
        two = torch.relu(self.two(one))
        wide = F.interpolate(two, scale_factor=2.0, mode="nearest")
        return self.side(one) + wide, two


class JoinedPyramid(Pyramid):
    """The same, joined: extents of 1 are not broadcast."""

    def forward(self, x: Any) -> Any:
        one = torch.relu(self.one(x))
        two = F.interpolate(torch.relu(self.two(one)), scale_factor=2.0, mode="nearest")
        return torch.cat([self.side(one), two], 1)


class ResizedPyramid(Pyramid):
    """The same, resized to the extents of what it is added to."""

    def forward(self, x: Any) -> Any:
        one = torch.relu(self.one(x))
        two = torch.relu(self.two(one))
        return self.side(one) + F.interpolate(two, size=one.shape[-2:], mode="nearest")


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(4, 6, 3, 2, 1, bias=False),
            nn.Conv2d(6, 6, 3, 1, 1),
        )
        self.norm, self.side = nn.BatchNorm2d(6), nn.Conv2d(4, 6, 1, 2)

    def forward(self, x: Any) -> Any:
        y = self.two(torch.relu(self.norm(self.one(x))))
        return torch.relu(y + self.side(x))


class Fire(nn.Module):  # type: ignore[misc]
    """The block of SqueezeNet, and the pool after it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.squeeze = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 2, 1)
        self.one, self.three = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(torch.relu(self.stem(x)), 3, 2, ceil_mode=True)
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


class Inception(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.three = nn.Conv2d(4, 2, 1, 2), nn.Conv2d(4, 2, 3, 2, 1)
        self.five, self.pooled = nn.Conv2d(4, 2, 5, 2, 2), nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        pooled = self.pooled(F.max_pool2d(x, 3, 2, 1))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)


class InvertedResidual(nn.Module):  # type: ignore[misc]
    """With a gate of the means over both open axes."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depth = (
            nn.Conv2d(4, 8, 1),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        )
        self.gate, self.project = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        y = F.silu(self.depth(F.relu6(self.expand(x))))
        gate = torch.sigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        return x + self.project(y * gate)


class Flattened(nn.Module):  # type: ignore[misc]
    """Attention over all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.stem = nn.Linear(4, 12), nn.Conv2d(3, 4, 2, stride=2)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        mixed = (q @ k.transpose(1, 2) / 2).softmax(-1) @ v
        return mixed.transpose(1, 2).reshape(x.shape)


class Positions(nn.Module):  # type: ignore[misc]
    """A table of positions, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.qk = nn.Parameter(torch.randn(12, 4)), nn.Linear(4, 8)
        self.register_buffer("mask", torch.ones(12, 12).tril().bool())

    def forward(self, x: Any) -> Any:
        count = x.shape[1]
        x = x + self.table[:count]
        q, k = self.qk(x).chunk(2, -1)
        scores = (q @ k.transpose(1, 2)).masked_fill(
            ~self.mask[:count, :count], float("-inf")
        )
        return scores.softmax(-1) @ x


class Recurrent(nn.Module):  # type: ignore[misc]
    """A recurrent layer over what a convolution with a stride leaves."""

    def __init__(self, kind: type, **settings: Any) -> None:
        super().__init__()
        self.stem = nn.Conv1d(4, 3, 3, stride=2)
        self.body = kind(3, 4, batch_first=True, **settings)

    def forward(self, x: Any) -> Any:
        return self.body(torch.tanh(self.stem(x)).transpose(1, 2))[0]


class AroundItself(nn.Module):  # type: ignore[misc]
    """What is joined with itself, halved and doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: Any) -> Any:
        wide = F.interpolate(self.down(x), scale_factor=2.0, mode="linear")
        return torch.cat([x, wide[..., : x.shape[-1]]], 1)


class Same(nn.Module):  # type: ignore[misc]
    """A convolution with padding computed from the extent, as in TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 3, 5, stride=3)

    def forward(self, x: Any) -> Any:
        count = x.shape[-1]
        missing = max((-(-count // 3) - 1) * 3 + 5 - count, 0)
        return self.conv(F.pad(x, [missing // 2, missing - missing // 2]))


class Multiple(nn.Module):  # type: ignore[misc]
    """Pads to a multiple of 4, and looks at four at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = F.pad(x, [0, -x.shape[-1] % 4])
        return self.mix(x.reshape(x.shape[0], x.shape[1], -1, 4)).flatten(2)


class Windows(nn.Module):  # type: ignore[misc]
    """Attention within windows of 2 by 2, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        batch, high, wide, _ = x.shape
        parts = x.view(batch, high // 2, 2, wide // 2, 2, 4).transpose(2, 3)
        q, k, v = self.qkv(parts.reshape(-1, 4, 4)).chunk(3, -1)
        y = (q @ k.transpose(1, 2)).softmax(-1) @ v
        y = y.view(batch, high // 2, wide // 2, 2, 2, 4).transpose(2, 3)
        return y.reshape(batch, high, wide, 4)


class Normalised(nn.Module):  # type: ignore[misc]
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, stride=2, padding=1), norm

    def forward(self, x: Any) -> Any:
        return self.norm(self.conv(x))


class OverChannels(nn.Module):  # type: ignore[misc]
    """The layer norm of ConvNeXt, and a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(4, 4, 7, padding=3, groups=4), nn.LayerNorm(4)
        self.down = nn.Conv2d(4, 6, 2, stride=2)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.down(x + F.gelu(y))


# ---- Functions ----


def over_all(x: Any) -> Any:
    return F.layer_norm(x, x.shape[1:])


def squared_error(x: Any, y: Any) -> Any:
    return ((x[..., ::2] - y[..., ::2]) ** 2).sum() / x[..., ::2].numel()


def halves(x: Any) -> Any:
    one, two = x.chunk(2, -1)
    return one * two.sin()


def split_in_two(x: Any) -> Any:
    one, two = torch.split(x, x.shape[-1] // 2, -1)
    return one * two.sin()


def pairs(x: Any) -> Any:
    x = x.tanh().transpose(1, 2)
    return x.reshape(x.shape[0], x.shape[1] // 2, 2 * x.shape[2]).sin()


def shifted(x: Any) -> Any:
    count = x.shape[-1]
    return torch.stack([x[..., i : count - 2 + i] for i in range(3)], -1).amax(-1)


def folded(x: Any) -> Any:
    y = F.unfold(x, 3, padding=1, stride=2)
    return F.fold(y.sin(), x.shape[-2:], 3, padding=1, stride=2)


def correlation(x: Any, y: Any) -> Any:
    return torch.einsum("bct,bcs->bts", x, y.tanh())


def both(x: Any) -> Any:
    """Both sums of what a doubled window sees."""
    y = F.avg_pool2d(x, 2, 2, ceil_mode=True)
    return y.sin(), F.interpolate(y, scale_factor=2, mode="nearest")[..., :-1, :-1]


def interleaved(x: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * odd, even - odd], -1).flatten(-2)


# Read in one way alone, as PyTorch does not export it in the other.
ONNX: Any = {"ways": ("onnx",)}
TORCH: Any = {"ways": ("torch",)}
FROM_NEXT: Any = {"torch_from": 1}
ODD, EVEN = (1, 4, 7, 6), (2, 4, 8, 6)
C1, C2, C3 = nn.Conv1d, nn.Conv2d, nn.Conv3d
T1, T2, T3 = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
ROWS: dict[str, Row] = {
    # ---- Convolutions ----
    "conv1d, stride 3": along(lambda: C1(4, 3, 4, 3), (4, 7, 9, 12)),
    "conv1d, dilation": along(lambda: C1(4, 3, 3, 2, 1, 2), (3, 6, 8, 11)),
    "conv1d, stride above size": along(lambda: C1(4, 3, 1, 3), (1, 4, 5, 6)),
    "conv1d, twice": along(
        lambda: nn.Sequential(C1(4, 4, 3, 2, 1), nn.Tanh(), C1(4, 3, 4, 3)),
        (7, 8, 13, 14),
    ),
    "conv2d, groups": plane(lambda: C2(4, 6, 3, 2, 1, groups=2), ODD, (1, 6, 5, 7)),
    "conv2d, mixed": plane(
        lambda: C2(4, 3, (2, 5), (3, 2), (0, 2), (2, 1)), (3, 6, 8, 10), ODD
    ),
    "conv2d, reflect": plane(
        lambda: C2(4, 3, 3, 2, 1, padding_mode="reflect"), (2, 5, 7, 6), (2, 6, 3, 5)
    ),
    "conv2d, circular": plane(
        lambda: C2(4, 3, 3, 2, 1, padding_mode="circular"), (1, 5, 7, 6), (1, 6, 3, 5)
    ),
    "conv2d, same": plane(lambda: C2(4, 3, 4, padding="same"), ODD, (1, 2, 5, 4)),
    "conv3d": Row(
        lambda: C3(2, 3, 2, (1, 2, 2), (0, 0, 1)),
        ("B 2 D H W",),
        {"D": (2, 4, 3, 5), "H": (2, 5, 4, 3), "W": (1, 3, 4, 5)},
    ),
    "conv_transpose1d": along(lambda: T1(4, 3, 3, 2, 1, 1), ODD),
    "conv_transpose1d, large padding": along(lambda: T1(4, 3, 3, 2, 2), (2, 3, 4, 7)),
    "conv_transpose2d": plane(
        lambda: T2(4, 6, 3, (3, 2), 1, (2, 0), groups=2), ODD, (1, 2, 5, 4)
    ),
    "conv_transpose2d, dilation": plane(
        lambda: T2(4, 3, 2, 2, 0, 1, dilation=2), ODD, (1, 3, 2, 5)
    ),
    "conv_transpose3d": Row(
        lambda: T3(2, 2, 2, (2, 1, 2), 0, (1, 0, 0)),
        ("B 2 D H W",),
        {"D": (1, 2, 3, 2), "H": (1, 3, 2, 3), "W": (1, 2, 4, 3)},
    ),
    # ---- Pools ----
    # PyTorch exports it for one extent.
    "max_pool1d": along(of(F.max_pool1d, 3, 2, 1), ODD, **ONNX),
    "max_pool2d, ceil_mode": plane(
        of(F.max_pool2d, 3, 2, ceil_mode=True), (2, 4, 7, 6), (2, 5, 6, 8)
    ),
    "max_pool2d, dilation": plane(
        of(F.max_pool2d, 2, 2, 1, 2), (2, 4, 7, 6), (2, 3, 5, 6)
    ),
    "max_pool3d": Row(
        of(F.max_pool3d, 2, ceil_mode=True),
        ("B 2 D H W",),
        {"D": (1, 2, 3, 4), "H": (1, 3, 4, 5), "W": (1, 4, 3, 6)},
    ),
    "avg_pool1d, ceil_mode": along(of(F.avg_pool1d, 3, 2, 1, ceil_mode=True), ODD),
    "avg_pool2d": plane(of(F.avg_pool2d, 3, 2, 1), ODD, (1, 2, 4, 7)),
    "avg_pool2d, ceil_mode": plane(
        of(F.avg_pool2d, 3, 2, ceil_mode=True), (2, 4, 7, 5), (2, 3, 4, 6)
    ),
    "avg_pool2d, without padding": plane(
        of(F.avg_pool2d, 3, 2, 1, True, False), ODD, (1, 2, 4, 6)
    ),
    "avg_pool3d": Row(
        of(F.avg_pool3d, 2, 1, 1, count_include_pad=False),
        ("B 2 D H W",),
        {"D": (2, 4, 3, 5), "H": (2, 3, 4, 5), "W": (2, 4, 3, 2)},
    ),
    "lp_pool2d": plane(of(F.lp_pool2d, 2, 2, 2), (2, 3, 4, 5), (2, 5, 4, 3)),
    "adaptive_avg_pool2d": plane(of(F.adaptive_avg_pool2d, 1), ODD, (1, 2, 5, 3)),
    "adaptive_max_pool2d": plane(of(F.adaptive_max_pool2d, 1), ODD, (1, 2, 5, 3)),
    # ---- Padding ----
    "pad, constant": along(of(F.pad, (2, 1), value=0.5), ODD),
    "pad, reflect": along(of(F.pad, (2, 1), "reflect"), (3, 4, 6, 7)),
    "pad, replicate": plane(of(F.pad, (2, 1, 0, 3), "replicate"), ODD, (1, 2, 5, 3)),
    "pad, circular": along(of(F.pad, (2, 1), "circular"), (2, 4, 3, 7)),
    "pad, negative": along(of(F.pad, (-1, 2)), (1, 2, 5, 6)),
    "pad, cropped": plane(of(F.pad, (-1, -1, -2, 0)), (3, 4, 6, 5), (3, 5, 4, 7)),
    "same padding": along(Same, ODD),
    "padding to a multiple": along(Multiple, (1, 4, 7, 6)),
    # ---- Resizing ----
    "nearest": plane(of(F.interpolate, scale_factor=2.0), ODD, (1, 2, 5, 3)),
    "bilinear": plane(
        of(F.interpolate, scale_factor=2.0, mode="bilinear", align_corners=False),
        ODD,
        (1, 2, 5, 3),
    ),
    "bilinear, align_corners": plane(
        of(F.interpolate, scale_factor=2.0, mode="bilinear", align_corners=True),
        (2, 4, 7, 6),
        (2, 3, 5, 4),
    ),
    **{
        f"to the size of another, {mode}": Row(
            partial(Resized, mode),
            ("B 4 H W", "B 4 P Q"),
            {
                "H": (2, 4, 7, 5),
                "W": (3, 6, 5, 2),
                "P": (2, 6, 3, 5),
                "Q": (3, 2, 8, 6),
            },
        )
        for mode in ("nearest", "bilinear", "bicubic")
    },
    # From the half of a size torch.export concludes that it is at least 4.
    "halved": plane(
        of(F.interpolate, scale_factor=0.5, mode="bilinear", align_corners=False),
        (2, 4, 7, 6),
        (2, 5, 6, 4),
        **FROM_NEXT,
    ),
    "one and a half": plane(
        of(F.interpolate, scale_factor=1.5, mode="nearest"), (2, 4, 7, 6), (2, 5, 6, 4)
    ),
    "pixel_shuffle": plane(of(F.pixel_shuffle, 2), ODD, (1, 2, 5, 3)),
    "pixel_unshuffle": plane(of(F.pixel_unshuffle, 2), EVEN, (2, 4, 6, 8), **FROM_NEXT),
    "unfold": plane(of(F.unfold, 3, 1, 1, 2), ODD, (1, 3, 5, 4), **FROM_NEXT),
    # In ONNX from operator set 18 on.
    "fold": plane(lambda: Function(folded), ODD, (1, 3, 5, 4), **TORCH, **FROM_NEXT),
    "average, doubled": plane(lambda: Function(both), (1, 4, 7, 6), (1, 5, 4, 7)),
    # ---- Networks ----
    "unet": plane(UNet, (4, 8, 12, 8), (4, 12, 8, 4)),
    "padded unet": plane(PaddedUNet, (2, 5, 7, 6), (2, 6, 3, 5)),
    # From a width of 4 torch.export concludes that it is at most 4.
    "pyramid": plane(Pyramid, (1, 4, 7, 8), (2, 8, 7, 11), **FROM_NEXT),
    "joined pyramid": plane(JoinedPyramid, (3, 4, 7, 8), (3, 8, 7, 11)),
    "residual": plane(Residual, ODD, (1, 6, 5, 7)),
    "fire": plane(Fire, (5, 6, 9, 12), (5, 7, 8, 11), c=3),
    "inception": plane(Inception, ODD, (1, 6, 5, 8)),
    "inverted residual": plane(InvertedResidual, ODD, (1, 6, 5, 8)),
    "attention over pixels": plane(
        Flattened, (2, 5, 4, 7), (2, 4, 6, 5), c=3, **FROM_NEXT
    ),
    "windows": Row(Windows, ("B H W 4",), {"H": EVEN, "W": (2, 6, 4, 2)}),
    "convnext": plane(OverChannels, (2, 3, 5, 6), (2, 5, 4, 7)),
    # ONNX has it for known extents.
    "layer norm": plane(
        lambda: Function(over_all), (1, 2, 5, 4), (2, 3, 4, 7), **TORCH
    ),
    "group norm": plane(
        lambda: Normalised(nn.GroupNorm(2, 4)), (1, 4, 7, 6), (3, 6, 5, 8)
    ),
    "instance norm": plane(
        lambda: Normalised(nn.InstanceNorm2d(4, affine=True)),
        (3, 4, 7, 6),
        (3, 6, 5, 8),
    ),
    "positions and a mask": Row(Positions, ("B T 4",), {"T": (1, 12, 7, 6)}),
    # PyTorch exports loops for one number of steps.
    "lstm": along(lambda: Recurrent(nn.LSTM), (3, 6, 9, 8), **ONNX),
    "gru": along(lambda: Recurrent(nn.GRU, bidirectional=True), (3, 6, 9, 8), **ONNX),
    # ---- Slices and joins ----
    "first": along(of(lambda x: x[:, :, 0].sin()), ODD),
    "last": along(of(lambda x: x[:, :, -1].sin()), ODD),
    "every second": along(of(lambda x: x[..., ::2].sin()), ODD),
    "every second from the second": along(
        of(lambda x: x[..., 1::2].sin()), (2, 3, 5, 6)
    ),
    "without the first": along(of(lambda x: x[..., 1:].sin()), (2, 3, 5, 6)),
    "without both ends": along(of(lambda x: x[..., 1:-2].sin()), (4, 5, 7, 8)),
    "the last three": along(of(lambda x: x[..., -3:].sin()), (1, 3, 6, 4), **FROM_NEXT),
    "differences": along(of(lambda x: (x[..., :-1] - x[..., 1:]) ** 2), (2, 3, 5, 6)),
    "flip": along(of(lambda x: x.flip(-1) * x), ODD),
    "roll": along(of(lambda x: x.roll(1, -1) * x), ODD),
    "cumsum": along(of(lambda x: x.cumsum(-1) * x), ODD),
    "mean": along(of(lambda x: x.mean(-1) * x.amax(-1)), ODD),
    "deviation": along(of(lambda x: x.std(-1)), (2, 3, 5, 6)),
    "logsumexp": along(of(lambda x: x.logsumexp(-1)), ODD),
    "itself, halved and doubled": along(AroundItself, ODD),
    "chunk": along(lambda: Function(halves), EVEN),
    # The half is a number in ONNX.
    "split": along(lambda: Function(split_in_two), EVEN, **TORCH),
    "pairs": along(lambda: Function(pairs), EVEN),
    "interleaved": along(lambda: Function(interleaved), EVEN),
    "flat": along(of(lambda x: (x.view(x.shape[0], -1) ** 2).sin()), ODD),
    "shifted": along(lambda: Function(shifted), (3, 4, 7, 6)),
    # ONNX has it for known extents.
    "tensor unfold": along(
        of(lambda x: x.unfold(-1, 3, 2).sin()), (3, 4, 7, 6), **TORCH
    ),
    "squared error": Row(
        lambda: Function(squared_error), ("B 4 T", "B 4 T"), {"T": ODD}
    ),
    "einsum": Row(
        lambda: Function(correlation), ("B 4 T", "B 4 S"), {"T": ODD, "S": (3, 1, 2, 5)}
    ),
    "broadcast": Row(
        lambda: Function(lambda x, y: x * y.sin()), ("B 1 T", "B 4 T"), {"T": ODD}
    ),
    "sum of two": Row(
        lambda: Function(lambda x, y: (x + y)[..., ::2].sin()),
        ("B 4 T", "B 4 T"),
        {"T": ODD},
    ),
    "sum of two by two names": Row(
        lambda: Function(lambda x, y: torch.cat([x, y], 1)[..., ::2].sin()),
        ("B 4 T", "B 4 S"),
        {"T": ODD, "S": ODD},
    ),
    "joined": Row(
        lambda: Function(lambda x, y: torch.cat([x, y], -1)[..., 1::2].sin()),
        ("B 4 T", "B 4 S"),
        {"T": ODD, "S": (1, 1, 2, 5)},
    ),
}

# Sizes that modules do not take, beside the third ones: as they are too small, odd, or do
# not fit together.
REFUSED_SIZES: dict[str, dict[str, int]] = {
    "conv1d, dilation": {"T": 2},
    "conv1d, twice": {"T": 6},
    "conv_transpose1d, large padding": {"T": 1},
    "pad, reflect": {"T": 2},
    "pixel_unshuffle": {"W": 3},
    "unet": {"H": 10},
    "padded unet": {"W": 1},
    "pyramid": {"H": 6},
    "joined pyramid": {"W": 5},
    "fire": {"H": 4},
    "windows": {"W": 3},
    "chunk": {"T": 5},
    "pairs": {"T": 5},
}
