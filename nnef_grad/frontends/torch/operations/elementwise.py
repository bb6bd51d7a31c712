"""Element by element, with the conventions of PyTorch where a derivative is a choice."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.torch.call import Call, aten

# Operations of NNEF that are those of PyTorch.
_SAME = {
    "abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh",
    "atan": "atan", "atanh": "atanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh",
    "exp": "exp", "floor": "floor", "log": "log", "log2": "log2", "neg": "neg",
    "reciprocal": "rcp", "relu": "relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid",
    "sign": "sign", "silu": "silu", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt",
    "square": "sqr", "tan": "tan", "tanh": "tanh",
}  # fmt: skip


@aten(*_SAME)
def same(call: Call, x: Any) -> Any:
    """An operation that the standard has."""
    return call(_SAME[call.node.target.overloadpacket.__name__], x)


_BINARY = {"add": "add", "sub": "sub", "mul": "mul"}


@aten("add", "sub")
def added(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x + alpha y, or x - alpha y."""
    name = call.node.target.overloadpacket.__name__
    x, y = call.aligned(x, y)
    return call(name, x, y if alpha == 1 else call("mul", y, alpha, hint="part"))


@aten("mul")
def product(call: Call, x: Any, y: Any) -> Any:
    """x y."""
    return call("mul", *call.aligned(x, y))
