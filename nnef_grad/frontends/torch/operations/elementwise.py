"""Element by element, with the conventions of PyTorch where a derivative is a choice:
arithmetic, functions, comparisons, logic, choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

import numpy as np

from nnef_grad.emit.zeros import HELD
from nnef_grad.frontends.expansions.branches import branch_results
from nnef_grad.frontends.torch.call import FORMULAS, Call, aten, higher
from nnef_grad.frontends.torch.internals import slope_at_tie
from nnef_grad.frontends.torch.operations.draws import drawn
from nnef_grad.frontends.values import dtype_of, is_known, is_open, shape_of
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.types import LARGEST

# ---- What passes a tensor on ----


@aten(
    "alias", "nnef_grad.variable", "clone", "conj_physical", "contiguous", "lift_fresh", "lift_fresh_copy",
    "positive", "resolve_conj", "resolve_neg",
)  # fmt: skip
def itself(call: Call, x: Any) -> Any:
    """The tensor itself: where it lies in memory is no matter of the graph."""
    return x


@aten("to", "_to_copy", "type_as", "float", "double", "half", "int", "long", "bool")
def _converted(call: Call, x: Any) -> Any:
    return call.typed(x, call.result_dtype)


@aten("detach", "detach_", "nnef_grad.stop_gradient")
def _detach(call: Call, x: Any) -> Any:
    return call.stopped(x)


@aten("nnef_grad.held")
def _hold(call: Call, x: Any) -> Any:
    """By a stop of its own, whatever else stops gradients to it."""
    if not isinstance(x, Tensor):
        return x
    reading = call.reading
    return reading.emitter.emit_named(reading.supply.fresh(HELD), "copy", x=x)


@aten("item", "_local_scalar_dense")
def item(call: Call, x: Any) -> Any:
    """A number that Python reads: a tensor without axes, and without gradients."""
    return call.stopped(call.reshaped(x, []))


# ---- Functions that are operations of the standard, or formulas ----

# Operations of NNEF that are those of PyTorch.
_SAME = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log",
    "log2", "neg", "relu", "rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "sqrt", "tan",
    "tanh",
)  # fmt: skip
_RENAMED = {"reciprocal": "rcp", "sgn": "sign", "square": "sqr"}

# Operators of integers that are formulas by other names.
_OPERATORS = {"__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}


def operands(call: Call, *values: Any, dtype: str | None = None) -> list[Any]:
    """Operands with a data type, or else that of the result, and with as many axes."""
    if call.result_dtype == "integer":
        known = [x for x in values if is_known(x) and not is_open(x)]
        for value in known:
            call.require_exact(np.max(np.abs(value), initial=0))
    wanted = dtype or call.result_dtype
    return call.aligned(*(call.typed(x, wanted) for x in values))


@aten(*_SAME, *_RENAMED)
def same(call: Call, x: Any) -> Any:
    """An operation that the standard has."""
    return call.whole(call(_RENAMED.get(call.packet, call.packet), x))


@aten(*FORMULAS, *_OPERATORS)
def formula(call: Call, *arguments: Any) -> Any:
    """A formula, for tensors with one number of axes; what is None has its default."""
    fragment = FORMULAS[_OPERATORS.get(call.packet, call.packet)]
    pairs = zip(fragment.parameters, arguments, strict=False)
    values = {p.name: x for p, x in pairs if x is not None}
    names = [p.name for p in fragment.operands]
    scalars = operands(call, *map(values.get, names), dtype="scalar")
    values.update(zip(names, scalars, strict=True))
    return call.whole(call.reading.body(fragment, values, call.hint, call.span))


# ---- Arithmetic ----

# What sums and products of truth values are.
_LOGIC = {"add": "or", "mul": "and"}


@aten("add", "sub", "mul")
def arithmetic(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    """x + alpha y, x - alpha y, or x y."""
    x, y = call.aligned(*(call.typed(value, call.result_dtype) for value in (x, y)))
    if call.result_dtype == "logical":
        return call(_LOGIC[call.packet], x, y if alpha else False)
    return call(call.packet, x, y if alpha == 1 else call("mul", y, alpha, hint="part"))


_POWERS = {2: "sqr", 0.5: "sqrt", -0.5: "rsqrt", -1: "rcp", -2: "rsqr"}


@aten("pow", "float_power")
def _power(call: Call, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)) and y in _POWERS:
        return call(_POWERS[y], call.typed(x, call.result_dtype))
    result = call("pow", *operands(call, x, y, dtype="scalar"))
    is_whole = call.result_dtype == "integer"
    return call.whole(call("round", result)) if is_whole else result


_ROUNDINGS = {"trunc": "towards_zero", "fix": "towards_zero", "round": "round_even"}


@aten("floor", "ceil", *_ROUNDINGS)
def rounded(call: Call, x: Any, decimals: int = 0) -> Any:
    """The next whole number, or the nearest with so many decimals; halves become even."""
    if dtype_of(x) == "integer":
        return x
    if call.packet not in _ROUNDINGS:
        return call(call.packet, x)
    factor, (there, back) = 10.0 ** abs(decimals), ("mul", "div")
    if decimals < 0:
        there, back = back, there
    scaled = call(there, x, factor) if decimals else x
    y = call.expand(_ROUNDINGS[call.packet], scaled)
    return call(back, y, factor) if decimals else y


# ---- Bounds ----


@aten("clamp", "clip")
def clamped(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """x between bounds; its derivative at one is that of the torch that is installed."""
    bounds = [pair for pair in (("max", low), ("min", high)) if pair[1] is not None]
    y, *values = operands(call, x, *(bound for _, bound in bounds))
    for (name, _), bound in zip(bounds, values, strict=True):
        y = _bounded(call, name, y, bound)
    return y


def _bounded(call: Call, name: str, x: Any, bound: Any) -> Any:
    """The extremum of x and a bound: at a tie, the gradient is that of the last of two."""
    is_tensor = call.overload == "Tensor"
    slope = slope_at_tie(f"clamp to a {'tensor' if is_tensor else 'number'}")
    if call.result_dtype != "scalar" or slope == 1.0:
        return call(name, bound, x)
    return call.expand(_OF_TIES[name], x, bound) if is_tensor else call(name, x, bound)


_OF_TIES = {"max": "larger", "min": "smaller"}


@aten("maximum", "minimum", "max.other", "min.other")
def extremum(call: Call, x: Any, y: Any) -> Any:
    """The larger or the smaller number; both have half of the gradient at a tie."""
    name, pair = call.packet[:3], operands(call, x, y)
    is_scalar = call.result_dtype == "scalar"
    return call.expand(_OF_TIES[name], *pair) if is_scalar else call(name, *pair)


@aten("fmax", "fmin")
def _extremum_of_numbers(call: Call, x: Any, y: Any) -> Any:
    """The same of what are numbers; at a tie, as in the torch that is installed."""
    pair = operands(call, x, y, dtype="scalar")
    z = call.expand(f"{_OF_TIES[call.packet[1:]]}_number", *pair)
    return z if slope_at_tie("fmax") == 1.0 else call.expand("halved", *pair, z)


@aten("bitwise_not")
def complement(call: Call, x: Any) -> Any:
    """Whether it is false; -x - 1 for integers."""
    if call.result_dtype == "logical":
        return call("not", x)
    return call.whole(call("sub", -1.0, *operands(call, x, dtype="scalar")))


# ---- Activations whose slopes are not numbers ----


@aten("prelu", "_prelu_kernel")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    """x, or slope x where it is not positive; a slope for each channel has axis 1."""
    rank, own_rank = len(shape_of(x)), len(shape_of(slope))
    if own_rank == 1 and rank != 1:
        slope = call.reshaped(slope, [1, *shape_of(slope)][:rank], "slope")
    return call.expand("sloped", x, slope)


@aten("rrelu")
def rrelu(call: Call, x: Any, low: Any, high: Any, training: bool) -> Any:
    """x, or a slope times x: in training one that is drawn, in evaluation the mean one."""
    slope = (low + high) / 2
    if training:
        slope = drawn(call, "uniform", low, high, name=f"{call.hint}_slope")
    return call.expand("sloped", x, slope)


# ---- Comparisons ----
#
# NNEF cannot write what is infinite: the largest number stands for it, and what is as large
# as that counts as infinite.

# Equal to what is infinite is what is as large; and where that is not written, what is larger.
_AT_INFINITY = {
    ("eq", True): "ge", ("eq", False): "le", ("ne", True): "lt", ("ne", False): "gt",
}  # fmt: skip
_BEYOND = {"ge": "gt", "gt": "ge", "le": "lt", "lt": "le"}


@aten("eq", "ne", "lt", "le", "gt", "ge")
def _compared(call: Call, x: Any, y: Any) -> Any:
    if isinstance(y, float) and isinf(y):
        return _at_infinity(call, call.packet, x, y > 0)
    return call(call.packet, *call.aligned(x, y))


def _at_infinity(call: Call, name: str, x: Any, is_positive: bool) -> Any:
    """A comparison with what is infinite."""
    name = _AT_INFINITY.get((name, is_positive), name)
    if name in ("le", "gt") if is_positive else name in ("ge", "lt"):
        # Nothing is larger.
        return call(name, x, x)
    is_written = call.has_infinity(call.node.all_input_nodes)
    most = LARGEST if is_positive else -LARGEST
    return call(name if is_written else _BEYOND[name], x, most)


@aten("isinf", "isfinite", "isposinf", "isneginf")
def _infinite(call: Call, x: Any) -> Any:
    """Whether elements are infinite, or are not."""
    (x,), kind = call.scalars(x), call.packet
    if kind in ("isinf", "isfinite"):
        x = call("abs", x, hint="size")
    name = "ne" if kind == "isfinite" else "eq"
    return _at_infinity(call, name, x, kind != "isneginf")


# ---- Logic ----

_LOGICAL = {
    "logical_and": "and", "bitwise_and": "and", "__and__": "and",
    "logical_or": "or", "bitwise_or": "or", "__or__": "or",
    "logical_xor": "ne", "bitwise_xor": "ne", "__xor__": "ne",
}  # fmt: skip


def is_bit(call: Call, x: Any) -> bool:
    """Whether integers are 0 or 1, as of truth values."""
    if not isinstance(x, Tensor):
        return bool(np.isin(x, (0, 1)).all())
    bounds = call.reading.range_of(x)
    return x.dtype == "integer" and bounds.lower >= 0 and bounds.upper <= 1


@aten(*_LOGICAL)
def logic(call: Call, x: Any, y: Any) -> Any:
    """The logic of truth values; numbers are true unless they are zero."""
    is_known = call.result_dtype == "logical" or all(is_bit(call, z) for z in (x, y))
    call.require(is_known, "bits of integers are not in NNEF: use arithmetic")
    x, y = (call.typed(value, "logical") for value in (x, y))
    truth = call(_LOGICAL[call.packet], *call.aligned(x, y))
    return call.typed(truth, call.result_dtype)


@aten("logical_not")
def _negation(call: Call, x: Any) -> Any:
    return call("not", call.typed(x, "logical"))


# ---- What is no number, or infinite ----


@aten("nan_to_num")
def numbers_only(
    call: Call, x: Any, nan: Any = None, above: Any = None, below: Any = None
) -> Any:
    """x, with numbers in the place of what is none or is infinite."""
    _refuse_infinite(call)
    if dtype_of(x) != "scalar":
        return x
    pairs = zip((nan, above, below), (0.0, np.inf, -np.inf), strict=True)
    values = [default if value is None else value for value, default in pairs]
    return call.expand("numbers_only", x, *call.scalars(*values))


def _refuse_infinite(call: Call) -> None:
    """Refuses to look for what is no number where infinity was written: the largest number
    stands for it, and the softmax of a row of these is one.
    """
    if call.has_infinity([call.node]):
        advice = "use torch.where for completely masked rows"
        call.refuse(f"infinity is the largest number here: {advice}")


@aten("isnan")
def is_no_number(call: Call, x: Any) -> Any:
    """Whether elements are no numbers."""
    _refuse_infinite(call)
    return call.expand("is_no_number", *call.scalars(x))


# ---- Choices ----


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _choice(call: Call, condition: Any, x: Any, y: Any) -> Any:
    x, y = (call.typed(value, call.result_dtype) for value in (x, y))
    condition = call.typed(condition, "logical")
    if isinstance(condition, bool):
        return call.broadcast(x if condition else y, call.result_shape)
    return call("select", *call.aligned(condition, x, y))


@aten("masked_fill")
def _filled(call: Call, x: Any, mask: Any, value: Any) -> Any:
    return _choice(call, mask, value, x)


@higher("cond")
def branches(
    call: Call, condition: Any, then: Any, otherwise: Any, operands: Sequence[Any]
) -> Any:
    """Both branches, and a choice of each result; no gradient reaches the other branch."""
    if is_known(condition):
        return call.reading.run(then if condition else otherwise, operands)
    results = [call.reading.run(branch, operands) for branch in (then, otherwise)]
    if isinstance(results[0], (list, tuple)):
        return branch_results(call, condition, *results)
    (y,) = branch_results(call, condition, *([x] for x in results))
    return y


@aten("bucketize")
def bucket(call: Call, x: Any, bounds: Any, out_int32: bool, right: bool) -> Any:
    """How many of the bounds are less than x, or not greater."""
    return _count(call, call("unsqueeze", x, axes=[len(shape_of(x))]), bounds, right)


@aten("searchsorted")
def place(call: Call, row: Any, x: Any, out_int32: bool, right: bool, side: Any) -> Any:
    """Where x would be put into a sorted row; rows have all but the last axis of x."""
    rank = len(shape_of(row))
    wide = call("unsqueeze", x, hint="wide", axes=[len(shape_of(x))])
    if rank > 1:
        row = call("unsqueeze", row, hint="row", axes=[rank - 1])
    return _count(call, wide, row, right or side == "right")


def _count(call: Call, x: Any, row: Any, right: bool) -> Any:
    """How many elements along the last axis of a row are less than x, or not greater."""
    last = len(shape_of(x)) - 1
    row, x = call.aligned(row, x)
    hits = call("le" if right else "lt", row, x, hint="hits")
    count = call("sum_reduce", call.typed(hits, "scalar"), hint="count", axes=[last])
    return call.whole(call("squeeze", count, axes=[last]))
