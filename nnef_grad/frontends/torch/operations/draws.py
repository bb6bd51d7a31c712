"""Random numbers: what is drawn is an input of the graph, whose distribution is known. One that
data decides is made of what is drawn; as in torch, no gradient flows through it to the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.frontends.expansions.orders import largest
from nnef_grad.frontends.torch.call import Call, draws
from nnef_grad.frontends.torch.model import Drawn
from nnef_grad.frontends.values import shape_of


def drawn(
    call: Call,
    distribution: str,
    *parameters: Any,
    shape: Sequence[Any] | None = None,
    dtype: str = "scalar",
    name: str = "",
) -> Any:
    """An input for random numbers, of the shape of the result."""
    is_own = call.args.get("generator") is not None
    call.require(not is_own, "a generator of its own is not supported: leave it out")
    extents = tuple(call.result_shape if shape is None else shape)
    called = name or call.hint.replace("_functional", "")
    return call.reading.draw(called, Drawn(extents, distribution, parameters, dtype))


def kept(call: Call, shape: Sequence[Any], share: float, value: float) -> Any:
    """An input for what is kept: `value` for a share of the elements, and 0 for others."""
    return drawn(call, "kept", share, value, shape=shape, name=f"{call.hint}_kept")


# ---- Numbers that are known say how they are distributed ----


@draws("rand", "rand_like")
def _unit(call: Call, *_: Any) -> Any:
    """From 0 to 1, without 1."""
    return drawn(call, "uniform", 0.0, 1.0)


@draws("randn", "randn_like")
def _standard(call: Call, *_: Any) -> Any:
    return drawn(call, "normal", 0.0, 1.0)


# What their parameters are called in the schemas.
_PARAMETERS = {
    "uniform": ("from", "to"),
    "normal": ("mean", "std"),
    "log_normal": ("mean", "std"),
    "cauchy": ("median", "sigma"),
    "exponential": ("lambd",),
    "geometric": ("p",),
}


@draws(
    "uniform", "normal_functional", "normal.float_float", "log_normal", "cauchy",
    "exponential", "geometric",
)  # fmt: skip
def _as_told(call: Call, *_: Any) -> Any:
    """The value written into a tensor, which gives the shape alone."""
    name = call.packet.removesuffix("_functional")
    return drawn(call, name, *(call.args[n] for n in _PARAMETERS[name]))


@draws("randint", "randint_like")
def _whole_numbers(call: Call, *_: Any) -> Any:
    """From the least number to the one before the end."""
    bounds = (call.args.get("low", 0), call.args["high"])
    call.known(bounds, "the bounds of what is drawn")
    return drawn(call, "integers", *bounds, dtype=call.result_dtype)


@draws("randperm")
def _permutation(call: Call, n: Any) -> Any:
    return drawn(call, "permutation", dtype=call.result_dtype)


@draws("bernoulli.p")
def _coins(call: Call, x: Any, p: float = 0.5) -> Any:
    """Ones with a probability that is known, and zeros."""
    return kept(call, shape_of(x), p, 1.0)


# ---- Data says so ----


@draws("bernoulli.default", "bernoulli.Tensor")
def _coins_of_data(call: Call, x: Any, *_: Any) -> Any:
    """Ones where a number from 0 to 1 is less than the probability."""
    p = call.args.get("p", x)
    share = drawn(call, "uniform", 0.0, 1.0, name=f"{call.hint}_share")
    is_one = call("lt", *call.aligned(share, call.stopped(p)), hint="is_one")
    return call.typed(is_one, call.result_dtype)


@draws("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def _normal(call: Call, mean: Any, std: Any) -> Any:
    """mean + std z, for normal z."""
    z = drawn(call, "normal", 0.0, 1.0, name=f"{call.hint}_standard")
    y = call("mul", *call.aligned(z, call.stopped(std)), hint="scaled")
    return call("add", *call.aligned(y, call.stopped(mean)))


@draws("multinomial")
def _categories(call: Call, p: Any, count: int, replacement: bool = False) -> Any:
    """Places where p / E is largest, for exponential E: with replacement, for other E each
    time.
    """
    shape = shape_of(p)
    is_each = replacement and count > 1
    times = (*shape[:-1], count, shape[-1]) if is_each else shape
    if is_each:
        p = call.reshaped(p, [*shape[:-1], 1, shape[-1]], "weights")
    e = drawn(call, "exponential", 1.0, shape=times, name=f"{call.hint}_exponential")
    ratio = call("div", call.stopped(p), e, hint="ratio")
    _, places = largest(call, ratio, 1 if is_each else count, -1, True)
    return call.reshaped(places, call.result_shape) if is_each else places
