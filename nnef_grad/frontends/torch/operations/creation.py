"""New tensors. Those whose arguments are all known are computed by PyTorch: see reading.py.
What is left has extents with symbols, or is like a tensor of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.values import converted, is_open, simple
from nnef_grad.graph.extents import as_number, has_symbols
from nnef_grad.graph.ir import Tensor

# Also where PyTorch leaves open what there is until it is written.
_ZEROS = (
    "zeros", "zeros_like", "new_zeros", "empty", "empty_like", "empty_permuted",
    "empty_strided", "new_empty", "new_empty_strided",
)  # fmt: skip
_ONES = ("ones", "ones_like", "new_ones")


@aten(*_ZEROS, *_ONES, "full", "full_like", "new_full")
def filled(call: Call, *_: Any) -> Any:
    """A number everywhere."""
    shape, dtype = call.result_shape, call.result_dtype
    value = call.args.get("fill_value", int(call.packet in _ONES))
    if not isinstance(value, Tensor) and is_open(value):
        value = call.whole(*call.scalars(value))
    if isinstance(value, Tensor):
        return call.broadcast(value, shape)
    if not has_symbols(shape):
        return simple(np.full(shape, value))
    number = converted(value, dtype).item()
    return call("constant", dtype=dtype, shape=list(shape), value=[number])


@aten("scalar_tensor")
def _scalar(call: Call, value: Any) -> Any:
    return value


# ---- Numbers in order ----


@aten("arange")
def numbers(call: Call, *_: Any) -> Any:
    """start, start + step, ... before the end."""
    start, step = call.args.get("start", 0), call.args.get("step", 1)
    (count,) = call.result_shape
    is_open_count = has_symbols(count)
    y = call.positions(count, 0, 1) if is_open_count else np.arange(as_number(count))
    y = y if step == 1 else call("mul", y, step, hint="steps")
    return call.whole(y if start == 0 else call("add", y, start))


@aten("linspace", "logspace")
def spaced(call: Call, start: Any, end: Any, steps: int, base: float = 10.0) -> Any:
    """Numbers at equal distances, or powers of them; the bounds have no gradients."""
    start, end = map(call.stopped, call.scalars(start, end))
    shares = np.linspace(0.0, 1.0, steps)
    y = call.expand("mixed", start, end, shares)
    return call("pow", base, y) if call.packet == "logspace" else y


@aten("eye")
def _identity(call: Call, rows: Any, columns: Any = None) -> Any:
    pair = [call.positions(n, axis, 2) for axis, n in enumerate(call.result_shape)]
    return call("eq", *pair)
