"""Complex numbers. What is linear is done to both parts, a product to each pair of them; the
others are formulas. Gradients are those of torch, which has a pair of parts for a number, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod, sqrt
from typing import Any

import numpy as np
import torch

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.products import matmul
from nnef_grad.frontends.expansions.spectra import waves
from nnef_grad.frontends.torch.call import (
    COMPLEX,
    OPERATIONS,
    Call,
    aten,
    complexes,
    function_in,
)
from nnef_grad.frontends.torch.complexes import (
    PARTS,
    Complex,
    complex_of,
    is_complex,
    of_parts,
    real,
)
from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import as_numbers, has_symbols

_NOT_READ = "it is not read for complex numbers: compute with their parts, torch.view_as_real(x)"


def with_parts(call: Call, args: Sequence[Any], kwargs: Any) -> Any:
    """The result of an operation that has complex operands, or is complex."""
    function = function_in(call.node.target, COMPLEX)
    if function is None:
        call.refuse(_NOT_READ)
    call.hint = call.hint.lstrip("_")
    return call.run(function, args, kwargs)


def _conversion(*names: str) -> Callable[..., Any]:
    """Enters what makes complex numbers of real ones, or the other way, or neither."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        aten(*names)(function)
        complexes(*names)(function)
        return function

    return enter


def _again(call: Call, name: str, args: dict[str, Any]) -> Any:
    """The result of the operation for real operands."""
    own = Call(call.reading, call.node, f"{call.hint}_{name}", call.span)
    own.fake = pytree.tree_map_only(torch.Tensor, real, call.fake)
    function = function_in(call.node.target, OPERATIONS)
    if function is None:
        call.refuse(_NOT_READ)
    return own.run(function, (), args)


def _zeros(call: Call, shape: Any) -> Any:
    if not has_symbols(shape):
        return np.zeros(shape)
    return call("constant", dtype="scalar", shape=list(shape), value=[0.0])


def _part(call: Call, x: Any, place: int) -> Any:
    """The real or the imaginary part of a value, also of a real one."""
    value = complex_of(x)
    part = value.parts[place]
    return _zeros(call, value.shape) if part is None else part


# ---- To both parts ----

# Operands that are values where others are complex; those of other operations are indices.
_VALUES = {
    "cat": ("tensors",),
    "stack": ("tensors",),
    "where": ("self", "other"),
    "masked_fill": ("value",),
    "constant_pad_nd": ("value",),
    "pad": ("value",),
    "index_put": ("values",),
    "slice_scatter": ("src",),
    "copy": ("src",),
}
_MOVES = (
    "nnef_grad.stop_gradient", "_pad_circular", "_reshape_alias", "_unsafe_view", "alias",
    "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "chunk",
    "clone", "contiguous", "cumsum", "detach", "diagonal", "expand", "expand_as",
    "flatten", "flip", "gather", "hsplit", "index", "index_select", "lift_fresh_copy",
    "mean", "moveaxis", "movedim", "mT", "narrow", "neg", "numpy_T", "permute", "ravel",
    "reflection_pad1d", "reflection_pad2d", "repeat", "repeat_interleave",
    "replication_pad1d", "replication_pad2d", "reshape", "reshape_as", "select", "slice",
    "split", "split_with_sizes", "squeeze", "sum", "swapaxes", "swapdims", "t",
    "take_along_dim", "tensor_split", "tile", "transpose", "unbind", "unflatten",
    "unfold", "unsqueeze", "view", "view_as", "vsplit", "zeros_like",
)  # fmt: skip


@complexes(*_VALUES, *_MOVES)
def _each(call: Call, *_: Any) -> Any:
    """To each part what is done to real numbers."""
    if not is_complex(call.fake):
        # What is written into a tensor of real numbers.
        return _done_to(call, 0)
    both = [_done_to(call, place) for place in range(2)]
    if isinstance(call.fake, (list, tuple)):
        several = [[None] * len(call.fake) if x is None else x for x in both]
        return [of_parts(pair) for pair in zip(*several, strict=True)]
    return of_parts(both)


def _done_to(call: Call, place: int) -> Any:
    """What becomes of a part; None, if it is zero in all values."""
    names, parts = _VALUES.get(call.packet, ()), list[Any]()

    def chosen(name: str, x: Any) -> Any:
        if not is_complex(x) and (name not in names or x is None):
            return x
        parts.append(complex_of(x).parts[place])
        return _part(call, x, place)

    args = {
        name: pytree.tree_map(lambda x, own=name: chosen(own, x), value)
        for name, value in call.args.items()
    }
    is_zero = all(part is None for part in parts)
    return None if is_zero else _again(call, PARTS[place], args)


@complexes("add", "sub")
def _sum(call: Call, x: Any, y: Any, alpha: Any = 1) -> Any:
    return of_parts([_sum_of(call, place, x, y) for place in range(2)])


def _sum_of(call: Call, place: int, x: Any, y: Any) -> Any:
    """A part of the sum: of one alone, where the other one has none."""
    a, b = (complex_of(v).parts[place] for v in (x, y))
    if a is None and b is None:
        return None
    if b is None:
        return call.broadcast(a, call.result_shape)
    a = 0.0 if a is None else a
    return _again(call, PARTS[place], {**call.args, "self": a, "other": b})


# ---- Products ----


def _multiplied(
    call: Call, operands: Sequence[Any], times: Callable[[str, Sequence[Any]], Any]
) -> Complex:
    """The sum of the products of parts; `times` makes one, of a name."""
    terms: tuple[list[Any], list[Any]] = ([], [])
    for places in product(range(2), repeat=len(operands)):
        parts = [complex_of(x).parts[n] for x, n in zip(operands, places, strict=True)]
        if all(part is not None for part in parts):
            # i to the number of imaginary parts.
            turns = sum(places) % 4
            made = times("_".join(PARTS[n] for n in places), parts)
            terms[turns % 2].append((made, turns >= 2))
    return of_parts([_total(call, *pair) for pair in zip(terms, PARTS, strict=True)])


def _total(call: Call, terms: Sequence[tuple[Any, bool]], name: str) -> Any:
    """The sum of terms, of which some are subtracted."""
    total = None
    for term, is_negative in terms:
        if total is not None:
            total = call("sub" if is_negative else "add", total, term, hint=name)
        else:
            total = call("neg", term, hint=name) if is_negative else term
    return total


@complexes(
    "mul", "matmul", "mm", "bmm", "mv", "dot", "einsum", "linear", "conv1d", "conv2d",
    "conv3d", "convolution",
)  # fmt: skip
def _product(call: Call, *_: Any) -> Any:
    """An operation that is linear in each of its operands, and then a bias."""
    args = {name: x for name, x in call.args.items() if name != "bias"}
    leaves, spec = pytree.tree_flatten(args)
    places = [n for n, x in enumerate(leaves) if is_complex(x)]

    def times(name: str, parts: Sequence[Any]) -> Any:
        given = dict(zip(places, parts, strict=True))
        chosen = [given.get(n, x) for n, x in enumerate(leaves)]
        return _again(call, name, pytree.tree_unflatten(chosen, spec))

    y = _multiplied(call, [leaves[n] for n in places], times)
    bias = call.args.get("bias")
    return y if bias is None else _with_bias(call, y, bias)


def _with_bias(call: Call, y: Complex, bias: Any) -> Complex:
    """Of a convolution it is along the channels."""
    rank = 1 if call.packet == "linear" else len(y.shape) - 1
    parts = []
    for name, own, more in zip(PARTS, y.parts, complex_of(bias).parts, strict=True):
        if own is not None and more is not None:
            row = call.reshaped(more, [*shape_of(more), *[1] * (rank - 1)], "bias")
            own = call("add", *call.aligned(own, row), hint=f"{name}_biased")
        parts.append(
            own if more is None or own is not None else call.broadcast(more, y.shape)
        )
    return of_parts(parts)


def _times(call: Call, x: Any, y: Any, hint: str) -> Complex:
    def times(name: str, parts: Sequence[Any]) -> Any:
        return call("mul", *call.aligned(*parts), hint=f"{hint}_{name}")

    return _multiplied(call, [x, y], times)


def _scaled(call: Call, x: Any, function: Callable[[str, Any], Any]) -> Complex:
    pairs = zip(PARTS, complex_of(x).parts, strict=True)
    return of_parts(
        [part if part is None else function(*p) for p in pairs for part in p[1:]]
    )


@complexes("div")
def _quotient(call: Call, x: Any, y: Any, *_: Any) -> Any:
    """x / y; for complex y that of x times its conjugate, and the square of its size."""
    if is_complex(y):
        x = _times(call, x, _conjugate(call, y), "product")
        y = _squared_size(call, y)
    return _scaled(
        call, x, lambda name, part: call("div", *call.aligned(part, y), hint=name)
    )


@complexes("reciprocal")
def _reciprocal(call: Call, x: Any) -> Any:
    return _quotient(call, 1.0, x)


@complexes("pow.Tensor_Scalar", "square")
def _power(call: Call, x: Any, exponent: Any = 2) -> Any:
    """A product of several factors."""
    call.require(
        exponent in range(1, 9), "the exponent must be a whole number from 1 to 8"
    )
    y: Any = complex_of(x)
    for count in range(1, int(exponent)):
        y = _times(call, y, x, f"power_{count + 1}")
    return y


# ---- Parts ----


@_conversion("real", "imag")
def _part_of(call: Call, x: Any) -> Any:
    return _part(call, x, PARTS.index(call.packet))


@_conversion("view_as_real")
def _pair(call: Call, x: Any) -> Any:
    """The parts along a new last axis."""
    parts = [_part(call, x, place) for place in range(2)]
    return call("stack", parts, axis=len(complex_of(x).shape))


@_conversion("view_as_complex")
def _of_pair(call: Call, x: Any) -> Any:
    return call.reading.of_pairs(x, call.hint)


@_conversion("complex")
def _of_two(call: Call, real: Any, imag: Any) -> Any:
    return of_parts([call.broadcast(x, call.result_shape) for x in (real, imag)])


@complexes("to", "_to_copy", "type_as")
def _cast(call: Call, x: Any, *_: Any) -> Any:
    return complex_of(x) if is_complex(call.fake) else _part(call, x, 0)


@complexes("conj", "_conj", "conj_physical", "_conj_physical")
def _conjugate(call: Call, x: Any) -> Any:
    real, imag = complex_of(x).parts
    return of_parts([real, None if imag is None else call("neg", imag, hint="imag")])


@complexes("mH", "matrix_H", "adjoint")
def _adjoint(call: Call, x: Any) -> Any:
    """The conjugate, with its last two axes exchanged."""
    rank = len(complex_of(x).shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    real, imag = complex_of(_conjugate(call, x)).parts
    parts = (x if x is None else call.transposed(x, order) for x in (real, imag))
    return of_parts([*parts])


@complexes("resolve_conj", "resolve_neg")
def _same(call: Call, x: Any) -> Any:
    return x


# ---- Sizes and angles ----


def _squared_size(call: Call, x: Any) -> Any:
    parts = [part for part in complex_of(x).parts if part is not None]
    first, *others = [call("sqr", part, hint="squared") for part in parts]
    return call("add", first, *others, hint="squared_size") if others else first


@complexes("abs")
def _size(call: Call, x: Any) -> Any:
    real, imag = complex_of(x).parts
    if real is None or imag is None:
        return call("abs", imag if real is None else real)
    return call.expand("modulus", real, imag)


@complexes("linalg_vector_norm", "norm")
def _norm(call: Call, x: Any, *_: Any) -> Any:
    return _again(call, "size", {**call.args, "self": _size(call, x)})


@_conversion("angle")
def _angle(call: Call, x: Any) -> Any:
    return call.expand("atan2", _part(call, x, 1), _part(call, x, 0))


@_conversion("polar")
def _of_angle(call: Call, size: Any, angle: Any) -> Any:
    return _turned(call, size, angle)


def _turned(call: Call, size: Any, angle: Any) -> Complex:
    """The number of a size and an angle."""
    sides = [call(name, angle) for name in ("cos", "sin")]
    pairs = zip(PARTS, sides, strict=True)
    return of_parts(
        [call("mul", *call.aligned(size, x), hint=name) for name, x in pairs]
    )


@complexes("sqrt")
def _root(call: Call, x: Any) -> Any:
    """That of the right half plane: of the size, and half of the angle."""
    angle = call("mul", _angle(call, x), 0.5, hint="half_angle")
    return _turned(call, call("sqrt", _size(call, x), hint="size"), angle)


@complexes("exp")
def _exponential(call: Call, x: Any) -> Any:
    real, imag = complex_of(x).parts
    size = 1.0 if real is None else call("exp", real, hint="size")
    return of_parts([size, None]) if imag is None else _turned(call, size, imag)


@complexes("log")
def _logarithm(call: Call, x: Any) -> Any:
    size = call("log", _size(call, x), hint="real")
    return of_parts([size, _angle(call, x)])


# ---- Spectra ----

# A matrix of as many rows and columns has 64 MiB.
_MOST = 4096
# By what they are divided, for the codes of torch.
_DIVISORS: tuple[Callable[[int], float], ...] = (lambda n: 1.0, sqrt, float)


@_conversion("_fft_r2c", "_fft_c2c")
def _spectrum(call: Call, x: Any, axes: Sequence[int], code: int, option: bool) -> Any:
    """Frequencies along axes; of real numbers the first half along the last axis, if wished."""
    is_real, shape = call.packet == "_fft_r2c", complex_of(x).shape
    along, sizes = _axes(call, axes, shape)
    count = sizes[-1] // 2 + 1 if is_real and option else sizes[-1]
    sign = 1.0 if is_real or option else -1.0
    table = waves(sizes[-1], count, 2, sign) / _DIVISORS[code](prod(sizes))
    y = _along(call, complex_of(x), along[-1], table)
    for axis, size in zip(along[:-1], sizes, strict=False):
        y = _along(call, y, axis, waves(size, size, 2, sign))
    return y


@_conversion("_fft_c2r")
def _signal(call: Call, x: Any, axes: Sequence[int], code: int, size: int) -> Any:
    """Real numbers, of the first half of their frequencies along the last of the axes."""
    y = complex_of(x)
    along, sizes = _axes(call, axes, y.shape)
    for axis, own in zip(along[:-1], sizes, strict=False):
        y = _along(call, y, axis, waves(own, own, 2, -1.0))
    numbers = np.arange(sizes[-1])
    is_end = (numbers == 0) | (2 * numbers == size)
    # All but the ends stand for their conjugates, too.
    times = np.where(is_end, 1.0, 2.0) / _DIVISORS[code](prod((*sizes[:-1], size)))
    table = waves(size, size, 2, -1.0)[:, : sizes[-1], :1] * times[:, None, None]
    return _part(call, _along(call, y, along[-1], table), 0)


def _axes(
    call: Call, axes: Sequence[int], shape: Any
) -> tuple[list[int], Sequence[int]]:
    """The axes as numbers that are not negative, and their extents."""
    along = [call.axis(axis, len(shape)) for axis in axes]
    call.require_known(*(shape[axis] for axis in along))
    sizes = as_numbers([shape[axis] for axis in along])
    most = f"a transform is a product with a matrix: of at most {_MOST} numbers"
    call.require(max(sizes) <= _MOST, most)
    return along, sizes


def _along(call: Call, x: Complex, axis: int, table: Array) -> Complex:
    """The sums along an axis that a table [2, size, 1 or 2, count] has for both parts, or for
    the real part alone.
    """
    *_, made, count = table.shape
    order = [a for a in range(len(x.shape)) if a != axis]
    order.append(axis)
    places = [n for n in range(2) if x.parts[n] is not None]
    rows = [call.transposed(x.parts[n], order, f"{PARTS[n]}_rows") for n in places]
    flat = (
        call("concat", rows, hint="rows", axis=len(order) - 1) if rows[1:] else rows[0]
    )
    matrix = table[places].reshape(-1, made * count)
    call.reading.spend(matrix.size)
    # Of the sine of a half turn.
    matrix = np.where(np.abs(matrix) < _LEAST, 0.0, matrix)
    y = matmul(call, flat, call.constant(matrix, "scalar"))
    sums = call("split", y, axis=len(order) - 1, ratios=[1] * made) if made > 1 else [y]
    back = [order.index(a) for a in range(len(order))]
    for name, part in zip(PARTS, sums, strict=False):
        call.reading.emitter.set_hint(part, f"{call.hint}_{name}")
    return of_parts([call.transposed(part, back) for part in sums])


# Less than this, a cosine or sine is zero but for rounding.
_LEAST = 1e-15
