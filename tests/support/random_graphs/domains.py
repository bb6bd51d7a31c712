"""Where the operations have a derivative that can be compared.

Domains keep away from edges and poles. A condition keeps what an operation computes
inside away from them. A decision is what must not depend on a small change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import oracle

Guard = Callable[[Any, Any], Any]


class Domain(NamedTuple):
    """Where operands lie, literals inside, and functions that lead there."""

    holds: Callable[[Tensor], Tensor]
    literals: tuple[float, ...]
    guards: tuple[Guard, ...]


def chain(*steps: Any) -> Guard:
    """Operations one after the other. `("mul", 0.9)` stands for `mul(0.9, x)`."""

    def guard(draw: Any, x: Any) -> Any:
        for operation, *operands in steps:
            x = draw.emit(operation, *operands, x)
        return x

    return guard


_ABOVE_ZERO = (
    chain(("exp",)),
    chain(("tanh",), ("add", 1.5)),
    chain(("sqr",), ("add", 0.5)),
    chain(("sigmoid",), ("add", 0.25)),
    chain(("softplus",), ("add", 0.2)),
    chain(("cosh",)),
)

DOMAINS = {
    "all": Domain(lambda x: x == x, (0.5,), (chain(("copy",)),)),
    "positive": Domain(lambda x: x > 0.1, (0.5, 1.0, 2.0), _ABOVE_ZERO),
    "nonzero": Domain(
        lambda x: x.abs() > 0.1,
        (0.5, -1.0, 2.0),
        (*_ABOVE_ZERO, chain(("tanh",), ("sub", 1.5)), chain(("exp",), ("neg",))),
    ),
    "inside": Domain(
        lambda x: x.abs() < 0.95,
        (0.5, -0.25, 0.0),
        (chain(("tanh",), ("mul", 0.9)), chain(("sin",), ("mul", 0.8))),
    ),
    "above": Domain(
        lambda x: x > 1.05,
        (1.5, 2.0, 3.0),
        (chain(("exp",), ("add", 1.1)), chain(("tanh",), ("add", 2.5))),
    ),
    "small": Domain(
        lambda x: x.abs() < 3.5,
        (0.5, -1.0, 2.0),
        (chain(("tanh",)), chain(("sin",)), chain(("atan",)), chain(("mul", 0.05))),
    ),
}  # fmt: skip

# The domains of the operands, where one is needed.
OPERANDS = {
    **dict.fromkeys(["log", "log2", "sqrt", "rsqrt"], ("positive",)),
    **dict.fromkeys(["rcp", "rsqr"], ("nonzero",)),
    **dict.fromkeys(["tan", "asin", "acos", "atanh"], ("inside",)),
    **dict.fromkeys(["exp", "sinh", "cosh"], ("small",)),
    "acosh": ("above",),
    "div": ("all", "nonzero"),
    "pow": ("positive", "small"),
}


# ---- What an operation computes inside ----


def _one(operation: str, *operands: Any, **attributes: Any) -> Tensor:
    with torch.no_grad():
        return oracle.apply(operation, operands, attributes)[0]


def _inside(domain: str, index: int = 0) -> Callable[..., bool]:
    def condition(*operands: Any, **attributes: Any) -> bool:
        operand = torch.as_tensor(operands[index], dtype=torch.float64)
        return bool(DOMAINS[domain].holds(operand).all())

    return condition


def _power(x: Any, y: Any) -> bool:
    """Negative bases want a literal for an exponent, and an integer."""
    if isinstance(y, float) and y.is_integer():
        return y in (2.0, 3.0) or _inside("nonzero")(x)
    return _inside("positive")(x)


def _rms(x: Tensor, **attributes: Any) -> bool:
    return bool((_one("avg_pool", x.square(), **attributes) > 0.01).all())


def _variance(x: Tensor, size: Any) -> Tensor:
    return _one("box", x.square(), size=size, normalize=True)


def _spread(x: Tensor, size: Any, bias: float = 0.0, epsilon: float = 0.0) -> bool:
    variance = _variance(x, size)
    deviation = variance.sqrt() + bias
    return bool((variance > 0.01).all()) and max(float(deviation.min()), epsilon) > 0.1


def _centered(x: Tensor, size: Any) -> Tensor:
    return _one("local_mean_normalization", x, size=size)


def _norm(power: int, x: Tensor, axes: Any) -> Tensor:
    return _one("sum_reduce", x.abs() ** power, axes=axes) ** (1.0 / power)


def _long(
    power: int, x: Tensor, axes: Any, bias: float = 0.0, epsilon: float = 0.0
) -> bool:
    return bool((_norm(power, x, axes) > 0.1).all())


CONDITIONS: dict[str, Callable[..., bool]] = {
    **{
        name: _inside(domain, index)
        for name, domains in OPERANDS.items()
        for index, domain in enumerate(domains)
        if domain not in ("all", "small")
    },
    "pow": _power,
    "rms_pool": _rms,
    "local_variance_normalization": _spread,
    "local_contrast_normalization": lambda x, size, **a: _spread(_centered(x, size), size, **a),
    "l1_normalization": partial(_long, 1),
    "l2_normalization": partial(_long, 2),
    "batch_normalization": lambda x, m, v, o, s, epsilon: _inside("positive", 2)(x, m, v),
    "logarithmic_quantize": _inside("nonzero"),
}  # fmt: skip


# ---- What an operation decides ----


def _same(operation: str) -> Callable[..., list[Tensor]]:
    """Another operation of the same arguments tells the decisions."""
    return lambda *operands, **attributes: [_one(operation, *operands, **attributes)]


def _extremum(operation: str) -> Callable[..., list[Tensor]]:
    """Which element it is; without axes there is none to choose."""
    return lambda x, axes: [_one(operation, x, axes=axes)] if axes else []


def _above_epsilon(
    deviation: Callable[..., Tensor],
) -> Callable[..., list[Tensor]]:
    def decide(
        x: Tensor, *, bias: float = 0.0, epsilon: float = 0.0, **rest: Any
    ) -> list[Tensor]:
        return [deviation(x, **rest) + bias > epsilon]

    return decide


def _clamped(x: Any, a: Any, b: Any) -> list[Tensor]:
    return [_one("gt", x, b), _one("gt", _one("min", x, b), a)]


def _align_points(x: Any, rois: Any, index: Any, **attributes: Any) -> list[Tensor]:
    """Which of the points of a cell is the largest."""
    size, rate = attributes["output_size"], attributes["sampling_rate"]
    method = attributes.get("resize_method", "symmetric")
    fine = [n * r for n, r in zip(size, rate, strict=True)]
    points = _one("roi_resample", x, rois, index, output_size=fine, method=method)
    window = [1, 1, *rate]
    return [_one("argmax_pool", points, size=window, stride=window)]


# ---- Quantization: the derivative goes straight through the rounding ----


def _steps(bits: int, signed: bool = False, symmetric: bool = False) -> int:
    return (1 << bits) - 1 - int(signed and symmetric)


def _halves_up(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5)


def _min_max_smooth(x: Any, low: Any, high: Any, **attributes: Any) -> Tensor:
    return _one("clamp", x, low, high)


def _min_max_decides(x: Any, low: Any, high: Any, **attributes: Any) -> list[Tensor]:
    clamped = _one("clamp", x, low, high)
    share = _one("div", _one("sub", clamped, low), _one("sub", high, low))
    return [*_clamped(x, low, high), _halves_up(share * _steps(**attributes))]


def _bounds(bits: int, signed: bool, symmetric: bool) -> tuple[float, float]:
    if not signed:
        return 0.0, 2.0**bits - 1.0
    high = 2.0 ** (bits - 1) - 1.0
    return (-high if symmetric else -high - 1.0), high


def _zero_point_parts(x: Any, zero: Any, scale: Any) -> tuple[Tensor, Tensor]:
    zero = torch.as_tensor(zero, dtype=torch.float64)
    return _one("div", x, scale), zero


def _zero_point_smooth(x: Any, zero: Any, scale: Any, **attributes: Any) -> Tensor:
    ratio, zero = _zero_point_parts(x, zero, scale)
    stored = _one("clamp", _one("add", ratio, zero), *_bounds(**attributes))
    return _one("mul", _one("sub", stored, zero), scale)


def _zero_point_decides(
    x: Any, zero: Any, scale: Any, **attributes: Any
) -> list[Tensor]:
    ratio, zero = _zero_point_parts(x, zero, scale)
    rounded = _one("add", _halves_up(ratio), zero)
    return [rounded, *_clamped(rounded, *_bounds(**attributes))]


def _exponent(x: Any, high: Any, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    highest = torch.as_tensor(high, dtype=torch.float64).log2().ceil()
    return x.abs().log2(), highest - _steps(bits), highest


def _logarithmic_smooth(x: Any, high: Any, bits: int) -> Tensor:
    return x.sign() * 2.0 ** _one("clamp", *_exponent(x, high, bits))


def _logarithmic_decides(x: Any, high: Any, bits: int) -> list[Tensor]:
    exponent, low, highest = _exponent(x, high, bits)
    rounded = _halves_up(_one("clamp", exponent, low, highest))
    return [x.sign(), highest, rounded, *_clamped(exponent, low, highest)]


_SIGNS = ["relu", "abs", "leaky_relu", "elu", "selu", "prelu"]
_ROUNDED = ["floor", "ceil", "round", "sign"]

DECISIONS: dict[str, Callable[..., list[Tensor]]] = {
    **dict.fromkeys(_SIGNS, lambda x, *rest, **a: [_one("sign", x)]),
    **{name: _same(name) for name in _ROUNDED},
    "max": _same("gt"),
    "min": _same("lt"),
    "clamp": _clamped,
    "max_reduce": _extremum("argmax_reduce"),
    "min_reduce": _extremum("argmin_reduce"),
    "max_pool": _same("argmax_pool"),
    "max_pool_with_index": _same("argmax_pool"),
    "local_variance_normalization": _above_epsilon(lambda x, size: _variance(x, size).sqrt()),
    "local_contrast_normalization": _above_epsilon(lambda x, size: _variance(_centered(x, size), size).sqrt()),
    "l1_normalization": lambda x, **a: [x.sign(), *_above_epsilon(partial(_norm, 1))(x, **a)],
    "l2_normalization": _above_epsilon(partial(_norm, 2)),
    "max_roi_align": _align_points,
    "avg_roi_pool": lambda x, rois, index, **a: [_halves_up(rois)],
    "max_roi_pool": lambda x, rois, index, **a: [_halves_up(rois)],
    "min_max_linear_quantize": _min_max_decides,
    "linear_quantize": _min_max_decides,
    "zero_point_linear_quantize": _zero_point_decides,
    "logarithmic_quantize": _logarithmic_decides,
}  # fmt: skip

SMOOTH: dict[str, Callable[..., Tensor]] = {
    "min_max_linear_quantize": _min_max_smooth,
    "linear_quantize": _min_max_smooth,
    "zero_point_linear_quantize": _zero_point_smooth,
    "logarithmic_quantize": _logarithmic_smooth,
}

# Their results do not move, and are allowed not to.
FLAT = frozenset([*_ROUNDED, *SMOOTH, "cast"])
