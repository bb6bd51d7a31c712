"""New tensors. Those whose arguments are all known are computed by PyTorch: see reading.py.
What is left has extents with symbols, or is like a tensor of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import converted, is_open, simple
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Tensor


def filled(call: Call, value: Any) -> Any:
    """A value, repeated to the shape of the result."""
    shape, dtype = call.result_shape, call.result_dtype
    if not isinstance(value, Tensor) and is_open(value):
        value = call.whole(*call.scalars(value))
    if isinstance(value, Tensor):
        return call.broadcast(value, shape)
    if not has_symbols(shape):
        return simple(np.full(shape, value))
    number = converted(value, dtype).item()
    return call("constant", dtype=dtype, shape=list(shape), value=[number])


@aten(
    "zeros", "zeros_like", "new_zeros", "empty", "empty_like", "empty_permuted",
    "empty_strided", "new_empty", "new_empty_strided",
)  # fmt: skip
def zeros(call: Call, x: Any, size: Any = None, stride: Any = None) -> Any:
    """Zeros, also where PyTorch leaves open what there is until it is written."""
    return filled(call, 0)


@aten("ones", "ones_like", "new_ones")
def ones(call: Call, x: Any, size: Any = None) -> Any:
    """Ones."""
    return filled(call, 1)


@aten("full", "full_like")
def full(call: Call, x: Any, value: Any) -> Any:
    """A number everywhere."""
    return filled(call, value)


@aten("new_full")
def new_full(call: Call, x: Any, size: Any, value: Any) -> Any:
    """A number everywhere."""
    return filled(call, value)


@aten("scalar_tensor")
def scalar(call: Call, value: Any) -> Any:
    """A number as a tensor without axes."""
    return value


# ---- Numbers in order ----


@aten("arange.default")
def numbers_from_zero(call: Call, end: Any) -> Any:
    """0, 1, ..., end - 1."""
    return numbers(call, 0, end, 1)


@aten("arange.start")
def numbers_from_start(call: Call, start: Any, end: Any) -> Any:
    """start, start + 1, ... before the end."""
    return numbers(call, start, end, 1)


@aten("arange.start_step")
def numbers(call: Call, start: Any, end: Any, step: Any) -> Any:
    """start, start + step, ... before the end."""
    (count,) = call.result_shape
    is_open_count = has_symbols(count)
    made = call.positions(count, 0, 1) if is_open_count else np.arange(count)
    made = made if step == 1 else call("mul", made, step, hint="steps")
    return call.whole(made if start == 0 else call("add", made, start))


@aten("linspace", "logspace")
def spaced(call: Call, start: Any, end: Any, steps: int, base: float = 10.0) -> Any:
    """Numbers at equal distances, or powers of them; PyTorch reads the bounds as numbers
    of Python, without gradients.
    """
    start, end = map(call.stopped, call.scalars(start, end))
    shares = np.linspace(0.0, 1.0, steps)
    made = call.expand("mixed", start, end, shares)
    return call("pow", base, made) if call.packet == "logspace" else made


@aten("eye")
def identity(call: Call, rows: Any, columns: Any = None) -> Any:
    """Ones on the diagonal, and zeros elsewhere."""
    pair = [call.positions(n, axis, 2) for axis, n in enumerate(call.result_shape)]
    return call("eq", *pair)
