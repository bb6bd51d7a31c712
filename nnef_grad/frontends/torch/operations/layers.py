"""Layers of networks, and the products that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf, prod, sqrt
from typing import Any

import numpy as np
import torch

from nnef_grad.frontends.expansions import products as expansion
from nnef_grad.frontends.expansions.loops import (
    Cell,
    Weights,
    part,
    scan_along,
    with_one_bias,
)
from nnef_grad.frontends.expansions.products import contract, linear, matmul
from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.draws import kept
from nnef_grad.frontends.torch.operations.shapes import part_between, rows
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.types import LARGEST

# ---- Products of matrices ----


aten("linear")(linear)
aten("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner.vector")(matmul)


@aten("_grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_product(call: Call, x: Any, w: Any, ends: Any = None) -> Any:
    """Rows times the matrix of their group, which end one after the other: those of experts.
    Each is multiplied with all matrices, of which it keeps one product.
    """
    is_plain = (len(shape_of(x)), len(shape_of(w))) == (2, 3) and ends is not None
    call.require(is_plain, "groups of rows with a matrix each are read, and no others")
    (ends,) = call.scalars(ends)
    count, rows = shape_of(w)[0], shape_of(x)[0]
    end = call.reshaped(ends, [count, 1, 1], "end")
    before = call("pad", end, padding=[(1, 0), (0, 0), (0, 0)], hint="before")
    begin = call.piece(before, 0, 0, count)
    place = call.positions(rows, 1, 3)
    is_within = call("le", begin, place), call("lt", place, end)
    is_own = call("and", *is_within, hint="is_own")
    products = matmul(call, call("unsqueeze", x, axes=[0], hint="rows"), w)
    own = call("select", is_own, products, 0.0, hint="own")
    return call("squeeze", call("sum_reduce", own, axes=[0], hint="sum"), axes=[0])


@aten("addmm", "addmv", "baddbmm", "addbmm")
def added(call: Call, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta x + alpha a b; of `addbmm` the products of all batches are added."""
    y = matmul(call, a, b)
    if call.packet == "addbmm":
        y = call("squeeze", call("sum_reduce", y, axes=[0]), axes=[0])
    if call.result_dtype == "integer":
        alpha, beta = int(alpha), int(beta)
    y = y if alpha == 1 else call("mul", y, float(alpha))
    if beta == 0:
        return y
    x = x if beta == 1 else call("mul", x, float(beta))
    return call("add", *call.aligned(x, y))


@aten("einsum")
def _einsum(call: Call, equation: str, operands: Sequence[Any]) -> Any:
    return contract(call, operands, equation)


@aten("bilinear")
def _bilinear(call: Call, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    result = contract(call, [x, weight, y], "...i,oij,...j->...o")
    return result if bias is None else call("add", *call.aligned(result, bias))


# ---- Normalizations ----


def _rows(call: Call, *values: Any) -> list[Any]:
    """Vectors of channels as rows, whose axis is the second."""
    return [call("unsqueeze", x, axes=[0], hint="row") for x in values]


def _normalized(
    call: Call, x: Any, moments: Sequence[Any], weight: Any, bias: Any
) -> Any:
    offset = 0.0 if bias is None else _rows(call, bias)[0]
    scale = 1.0 if weight is None else _rows(call, weight)[0]
    epsilon = call.args.get("eps", call.args.get("epsilon"))
    return call("batch_normalization", x, *moments, offset, scale, epsilon=epsilon)


@aten(
    "batch_norm", "cudnn_batch_norm", "native_batch_norm",
    "_native_batch_norm_legit_no_training", "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_functional",
)  # fmt: skip
def batch_norm(call: Call, x: Any, weight: Any, bias: Any, *_: Any) -> Any:
    """Normalization of each channel, by what is known of it or by the batch."""
    running = [call.args.get(name) for name in ("running_mean", "running_var")]
    if call.args.get("training", False) or running[0] is None:
        axes = [axis for axis in range(len(shape_of(x))) if axis != 1]
        moments = call("moments", x, axes=axes)
        y = _normalized(call, x, moments, weight, bias)
        if call.packet.endswith("_functional"):
            running = _moved(call, x, running, moments)
    else:
        y = _normalized(call, x, _rows(call, *running), weight, bias)
    return y if call.packet == "batch_norm" else call.alone(y, None, None, *running)


def _moved(
    call: Call, x: Any, running: Sequence[Any], moments: Sequence[Any]
) -> list[Any]:
    """The running moments, moved towards the batch's, with an estimate of the variance."""
    (mean, variance), shape = moments, shape_of(x)
    momentum, size = call.args["momentum"], prod(shape) // shape[1]
    unbiased = call("mul", variance, call.ratio(size, size - 1), hint="unbiased")
    moved = []
    for old, new in zip(running, (mean, unbiased), strict=True):
        moment = call.reshaped(new, [shape[1]], "moment")
        moved.append(call.stopped(call.expand("moved", old, moment, momentum=momentum)))
    return moved


@aten("instance_norm")
def _instance_norm(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any
) -> Any:
    if not call.args["use_input_stats"]:
        return _normalized(call, x, _rows(call, mean, variance), weight, bias)
    moments = call("moments", x, axes=list(range(2, len(shape_of(x)))))
    return _normalized(call, x, moments, weight, bias)


@aten("layer_norm", "native_layer_norm")
def _layer_norm(
    call: Call, x: Any, extents: Sequence[Any], weight: Any, bias: Any, epsilon: float
) -> Any:
    rank = len(shape_of(x))
    axes = list(range(rank - len(extents), rank))
    mean, variance = call("moments", x, axes=axes)
    y = call.expand("normalized", x, mean, variance, epsilon=epsilon)
    rows = (v if v is None else call.of_rank(v, rank) for v in (weight, bias))
    y = _affine(call, y, *rows)
    return call.alone(y) if "native" in call.name else y


def _affine(call: Call, y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else call("mul", y, weight, hint="scaled")
    return y if bias is None else call("add", y, bias)


@aten("native_group_norm")
def group_norm(call: Call, x: Any, weight: Any, bias: Any, *sizes: Any) -> list[Any]:
    """Normalization of each group of channels of each item of the batch."""
    *_, groups, epsilon = sizes
    shape = shape_of(x)
    parts = call.reshaped(x, [shape[0], groups, prod(shape[1:]) // groups], "groups")
    mean, variance = call("moments", parts, axes=[2])
    normal = call.expand("normalized", parts, mean, variance, epsilon=epsilon)
    y = call.reshaped(normal, shape)
    rows = (None if v is None else _rows(call, v)[0] for v in (weight, bias))
    return call.alone(_affine(call, y, *rows))


# ---- Dropout: its mask is an input of the graph ----


# The least value of selu, negated: what alpha dropout puts in the place of an element.
_ALPHA = 1.7580993408473766


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(call: Call, x: Any, p: float, is_training: bool) -> Any:
    """Each element, or each channel of each item of the batch, times 0 or 1 / (1 - p). In
    alpha dropout the least value of selu is in its place, and all is scaled and moved so
    that mean and variance stay.
    """
    if not is_training or p == 0:
        return x
    if p == 1:
        return call("mul", x, 0.0)
    is_alpha, shape = "alpha" in call.name, shape_of(x)
    if "feature" in call.name:
        shape = (*shape[:2], *(1 for _ in shape[2:]))
    mask = kept(call, shape, 1.0 - p, 1.0 if is_alpha else 1.0 / (1.0 - p))
    if not is_alpha:
        return call("mul", x, mask)
    scale = 1.0 / sqrt((_ALPHA**2 * p + 1.0) * (1.0 - p))
    return call.expand("self_normalizing", x, mask, _ALPHA, scale=scale, p=p)


@aten("native_dropout")
def native_dropout(call: Call, x: Any, p: float, is_training: bool | None) -> list[Any]:
    """The same, and what is kept."""
    if is_training is False or p in (0, 1):
        every = call.broadcast(is_training is False or p == 0, shape_of(x))
        return [dropout(call, x, p, is_training is not False), every]
    mask = kept(call, shape_of(x), 1.0 - p, 1.0 / (1.0 - p))
    return [call("mul", x, mask), call("gt", mask, 0.0, hint="is_kept")]


# ---- Attention ----


@aten(
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
def attention(call: Call, q: Any, k: Any, v: Any, *_: Any) -> Any:
    """softmax(q k^T scale + mask) v, where some weights may be dropped. A row that sees
    nothing is zero. The weights are not returned.
    """
    mask, is_causal, scale = map(call.args.get, ("attn_mask", "is_causal", "scale"))
    is_free = call.args.get("dropout_mask") is None
    call.require(is_free, "a mask for dropout is not supported")
    if call.args.get("enable_gqa", False):
        k, v = (expansion.shared(call, x, shape_of(q)[-3]) for x in (k, v))
    q, k, v = call.aligned(q, k, v)
    rank = len(shape_of(q))
    factor = 1.0 / sqrt(shape_of(q)[-1]) if scale is None else float(scale)
    if is_causal:
        call.require(mask is None, "a causal one has no mask")
        mask = expansion.causal(call, shape_of(q)[-2], shape_of(k)[-2], rank)
    # Infinity is known as long as the mask is as it was given.
    sees = True if mask is None or is_causal else _sees(call, mask)
    if sees is not True and dtype_of(mask) == "scalar":
        # The softmax of a row of negative infinity is no number.
        mask = call("select", sees, mask, 0.0, hint="mask")
    seen = False if mask is None else call.of_rank(mask, rank)
    weights = expansion.weights(call, q, k, seen, factor)
    y = call("matmul", dropout(call, weights, call.args["dropout_p"], True), v)
    if sees is not True:
        y = call("select", call.of_rank(sees, rank), y, 0.0)
    return y if isinstance(call.fake, torch.Tensor) else call.alone(y)


def _sees(call: Call, mask: Any) -> Any:
    """Which rows see anything; True if all do. Numbers are added: a row that has nothing
    but negative infinity sees nothing. The largest number stands for it in a graph.
    """
    last = len(shape_of(mask)) - 1
    is_logical = dtype_of(mask) == "logical"
    if is_known(mask):
        array = np.asarray(mask) if is_logical else np.asarray(mask) > -inf
        sees = array.any(axis=last, keepdims=True)
        return True if sees.all() else sees
    if is_logical:
        return call("any_reduce", mask, hint="sees", axes=[last])
    nodes = [call.node.kwargs.get(name) for name in ("attn_mask", "attn_bias")]
    is_written = call.has_infinity([*call.node.args[3:4], *nodes])
    most = call("max_reduce", mask, hint="most", axes=[last])
    return call("gt" if is_written else "ge", most, -LARGEST, hint="sees")


# ---- Rows of tables at indices ----


_SCALED = "scale_grad_by_freq = True is not supported: scale the gradients yourself"


@aten("embedding")
def embedding(call: Call, weight: Any, numbers: Any, padding: int = -1, *_: Any) -> Any:
    """The rows at indices; no gradient reaches the one for padding."""
    call.require(not call.args["scale_grad_by_freq"], _SCALED)
    vectors = rows(call, weight, numbers, 0)
    if padding < 0:
        return vectors
    is_padding = call("eq", numbers, padding, hint="padding")
    column = call("unsqueeze", is_padding, axes=[len(shape_of(numbers))])
    return call("select", column, call.stopped(vectors), vectors)


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: Call, weight: Any, numbers: Any, offsets: Any, *_: Any) -> Any:
    """The rows of each bag, reduced. A bag is what follows an offset."""
    padding, factors = map(call.args.get, ("padding_idx", "per_sample_weights"))
    call.require(not call.args["scale_grad_by_freq"], _SCALED)
    # -1 is the last row, but none in what PyTorch makes of the operation.
    is_none = padding is None or (padding < 0 and call.packet != "embedding_bag")
    call.require(is_none, "padding_idx is not supported: use embedding, and a sum")
    result = rows(call, weight, numbers, 0)
    if factors is not None:
        column = call("unsqueeze", factors, hint="factors", axes=[1])
        result = call("mul", result, column, hint="rows")
    # The other results are for PyTorch's own derivative.
    return call.alone(_of_bags(call, result, numbers, offsets))


def _of_bags(call: Call, found: Any, numbers: Any, offsets: Any) -> Any:
    """The rows of each bag, reduced. Bags of one length are rows of a matrix."""
    mode, has_end = call.args["mode"], call.args["include_last_offset"]
    total = shape_of(numbers)[0]
    count, width = call.result_shapes[0]
    if isinstance(offsets, Tensor):
        # What PyTorch gives for a matrix of indices whose number of rows is open.
        is_even = str(call.node.args[2].target) == "aten.arange.start_step"
        call.require(is_even and not has_end, "the offsets must be known")
        lengths = {total // count}
    else:
        ends = [*np.asarray(offsets).tolist(), *([] if has_end else [total])]
        lengths = {end - begin for begin, end in pairwise(ends)}
        found = part_between(call, found, 0, 0, ends[-1])
    if len(lengths) == 1 and lengths != {0}:
        bags = call.reshaped(found, [count, *lengths, width], "bags")
        return _reduced(call, bags, mode)
    parts = []
    for begin, end in pairwise(ends):
        # A bag without rows is zero.
        part = part_between(call, found, 0, begin, end)
        bag = call("unsqueeze", part, hint="bag", axes=[0]) if begin < end else None
        parts.append(np.zeros((1, width)) if bag is None else _reduced(call, bag, mode))
    return call("concat", parts, axis=0)


_SUM, _MEAN, _MAX = range(3)


def _reduced(call: Call, bags: Any, mode: int) -> Any:
    """Sums, means or maxima of bags: of equal ones the first has all the gradient."""
    if mode == _MAX:
        size = [1, shape_of(bags)[1], 1]
        y = call("max_pool", bags, size=size, padding=[(0, 0)] * 3, border="ignore")
    else:
        y = call("sum_reduce", bags, axes=[1], normalize=mode == _MEAN)
    return call("squeeze", y, axes=[1])


# ---- Recurrent layers; PyTorch decomposes single steps of them ----


def _lstm(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
    h, c = states
    sums = call("add", x, linear(call, h, weights.of_state, weights.state_bias))
    h, c = call.expand("lstm_step", sums, c)
    if weights.projection is not None:
        h = linear(call, h, weights.projection, None)
    return [h, c]


def _gru(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
    (h,) = states
    own = linear(call, h, weights.of_state, weights.state_bias)
    return [call.expand("gru_step", x, own, h)]


def _rnn(name: str) -> Cell:
    def step(call: Call, states: list[Any], x: Any, weights: Weights) -> list[Any]:
        own = linear(call, states[0], weights.of_state, weights.state_bias)
        return [call(name, call("add", x, own, hint="sums"))]

    return step


_CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn("tanh"),
    "rnn_relu": _rnn("relu"),
}


@aten(*(f"{name}.input" for name in _CELLS))
def layers(
    call: Call, x: Any, states: Any, parameters: Sequence[Any], *_: Any
) -> list[Any]:
    """Several layers, each of one direction or of two."""
    cell, args = _CELLS[call.packet], call.args
    states = [states] if not isinstance(states, (list, tuple)) else states
    axis, count = 1 if args["batch_first"] else 0, args["num_layers"]
    directions = [False, True] if args["bidirectional"] else [False]
    groups = _groups(parameters, args["has_biases"], count * len(directions))
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(count):
        results = []
        for place, is_back in enumerate(directions, layer * len(directions)):
            first, weights = [part(call, s, 0, place) for s in states], next(groups)
            if cell is not _gru:
                weights = with_one_bias(call, weights)
            rows, ends = scan_along(
                call, cell, x, axis, first, weights, is_back=is_back
            )
            results.append(rows)
            for result, end in zip(last, ends, strict=True):
                result.append(call("unsqueeze", end, axes=[0]))
        x = call.joined(results, 2)
        if layer < count - 1:
            x = dropout(call, x, args["dropout"], args["train"])
    return [x, *(call.joined(ends, 0) for ends in last)]


def _groups(
    parameters: Sequence[Any], has_biases: bool, count: int
) -> Iterator[Weights]:
    """The parameters of each layer and direction."""
    size = len(parameters) // count
    for place in range(count):
        own = parameters[place * size : (place + 1) * size]
        biases = own[2:4] if has_biases else [None, None]
        rest = own[4:] if has_biases else own[2:]
        yield Weights(*own[:2], *biases, *rest)
