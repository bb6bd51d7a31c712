"""Operations that pass a tensor on: copies, conversions, stops of gradients."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.torch.call import Call, aten


@aten("alias", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")
def same(call: Call, x: Any) -> Any:
    """The tensor itself: where it lies in memory is no matter of the graph."""
    return x


@aten("to", "_to_copy", "type_as", "float", "double", "half", "int", "long", "bool")
def converted(call: Call, x: Any) -> Any:
    """A conversion: the data type is that of the result in PyTorch."""
    return call.typed(x, call.result_dtype)


@aten("detach", "detach_")
def detach(call: Call, x: Any) -> Any:
    """The tensor, which no gradient flows through."""
    return call.stopped(x)


@aten("item", "_local_scalar_dense")
def item(call: Call, x: Any) -> Any:
    """A number that Python reads: a tensor without axes, and without gradients."""
    return call.stopped(call.reshaped(x, []))
