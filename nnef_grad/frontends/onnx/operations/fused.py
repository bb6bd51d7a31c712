"""Operators of ONNX Runtime, which its optimizers put in the place of several nodes; what they
compute is that of these nodes, by the schemas of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from nnef_grad.frontends.expansions.products import causal, linear, masked, shared
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.onnx.operations.elementwise import applied
from nnef_grad.frontends.values import shape_of

DOMAIN = "com.microsoft"


def microsoft(*kinds: str) -> Callable[..., Any]:
    """A decorator that enters what reads operators of ONNX Runtime."""
    return onnx_op(*(f"{DOMAIN}.{kind}" for kind in kinds))


def sum_of(node: Node, *parts: Any) -> Any:
    """The sum of those that are there."""
    total, *others = (x for x in parts if x is not None)
    for x in others:
        total = node("add", *node.aligned(total, x), hint="sum")
    return total


# ---- Products and convolutions ----


@microsoft("FusedMatMul", "TransposeMatMul")
def _product(node: Node, a: Any, b: Any) -> Any:
    flips: dict[str, Any] = {}
    for side in "AB":
        is_plain = not node.get(f"transBatch{side}", 0)
        node.require(is_plain, "axes of the batch must not be transposed")
        flips[f"transpose{side}"] = bool(node.get(f"trans{side}", 0))
    product = node("matmul", *node.aligned(a, b), **flips)
    alpha = node.get("alpha", 1.0)
    return product if alpha == 1.0 else node("mul", product, float(alpha))


@microsoft("FusedGemm")
def _gemm(node: Node, *operands: Any) -> Any:
    names = ("alpha", "beta", "gamma")
    numbers = [node.get(f"activation_{name}", None) for name in names]
    return _activated(node, node.other("Gemm", *operands), numbers)


@microsoft("FusedConv")
def _conv(node: Node, x: Any, w: Any, b: Any = None, z: Any = None) -> Any:
    y = sum_of(node, node.other("Conv", x, w, b), z)
    return _activated(node, y, node.get("activation_params", []))


# The settings of activations, in the order of their numbers.
_SETTINGS: dict[str, tuple[str, ...]] = {
    "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",),
    "Relu": (), "Sigmoid": (), "Tanh": (),
}  # fmt: skip


def _activated(node: Node, x: Any, numbers: Sequence[float | None]) -> Any:
    kind = node.get("activation", "")
    node.require(not kind or kind in _SETTINGS, f"there is no activation '{kind}' here")
    pairs = zip(_SETTINGS.get(kind, ()), numbers, strict=False)
    settings = {name: value for name, value in pairs if value is not None}
    if kind == "Clip":
        return node.other("Clip", x, attributes=settings)
    return applied(node, kind, x, settings) if kind else x


# ---- Functions of each element ----


@microsoft("Gelu", "BiasGelu")
def _gelu(node: Node, *parts: Any) -> Any:
    return node("gelu", sum_of(node, *parts))


@microsoft("FastGelu")
def _fast_gelu(node: Node, x: Any, bias: Any = None) -> Any:
    return node.expand("gelu_by_tanh", sum_of(node, x, bias))


@microsoft("QuickGelu")
def _quick_gelu(node: Node, x: Any) -> Any:
    return node.expand("Swish", x, alpha=float(node.get("alpha", 1.702)))


@microsoft("BiasAdd")
def _bias(node: Node, *parts: Any) -> Any:
    return sum_of(node, *parts)


@microsoft("BiasSoftmax")
def _softmax(node: Node, x: Any, bias: Any) -> Any:
    axes = list(range(node.along(1, x), len(shape_of(x))))
    return node("softmax", sum_of(node, x, bias), axes=axes)


# ---- Normalizations ----


def _normalized(
    node: Node, x: Any, gamma: Any, beta: Any = None, *, is_rms: bool = False
) -> Any:
    node.require(not any(map(node.uses, (1, 2))), "moments must not be used")
    rank = len(shape_of(x))
    epsilon = 1e-6 if is_rms else 1e-12
    settings: Any = {"axes": [rank - 1], "epsilon": node.get("epsilon", epsilon)}
    scale = node.of_rank(gamma, rank)
    if is_rms:
        return node.expand("rms_normalization", x, scale, **settings)
    offset = 0.0 if beta is None else node.of_rank(beta, rank)
    return node.expand("layer_normalization", x, scale, offset, **settings)


@microsoft("SkipLayerNormalization")
def _skip(
    node: Node, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None
) -> list[Any]:
    total = sum_of(node, x, skip, bias)
    return [_normalized(node, total, gamma, beta), None, None, total]


@microsoft("SkipSimplifiedLayerNormalization")
def _simple_skip(
    node: Node, x: Any, skip: Any, gamma: Any, bias: Any = None
) -> list[Any]:
    total = sum_of(node, x, skip, bias)
    return [_normalized(node, total, gamma, is_rms=True), None, None, total]


@microsoft("EmbedLayerNormalization")
def _embedded(node: Node, ids: Any, segments: Any, *rest: Any) -> list[Any]:
    """The rows of tables for words, places and segments, added and normalized."""
    words, places, table, gamma, beta = rest[:5]
    mask, numbers = node.operand(7), node.operand(8)
    row = node.other("Gather", words, ids)
    if numbers is None:
        length = shape_of(ids)[1]
        own = node("unsqueeze", node.piece(places, 0, 0, length, "places"), axes=[0])
    else:
        own = node.other("Gather", places, numbers)
    kind = None if segments is None else node.other("Gather", table, segments)
    total = sum_of(node, row, own, kind)
    count = None
    if node.uses(1):
        node.require(mask is not None, "the lengths need a mask")
        count = node.other("ReduceSum", mask, attributes={"axes": [1], "keepdims": 0})
    y = node.expand(
        "layer_normalization",
        *(total, node.of_rank(gamma, 3), node.of_rank(beta, 3)),
        axes=[2],
        epsilon=node.get("epsilon", 1e-12),
    )
    return [y, count, total]


# ---- Attention ----

_PAST = "a cache of earlier steps is not supported"


def _heads(node: Node, x: Any, count: int) -> Any:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, size = shape_of(x)
    node.require(size % count == 0, f"{size} columns are not {count} heads")
    apart = node.reshaped(x, [batch, length, count, size // count], "apart")
    return node.transposed(apart, [0, 2, 1, 3], "heads")


def _attended(node: Node, q: Any, k: Any, v: Any, masks: Sequence[Any]) -> Any:
    """softmax(q k^T scale + masks) v, of heads, which are joined."""
    batch, heads, rows, size = shape_of(q)
    scale = node.get("scale", 0.0) or 1.0 / sqrt(size)
    products = node("matmul", q, k, hint="products", transposeB=True)
    scores = node("mul", products, float(scale), hint="scores")
    if cap := node.get("softcap", 0.0):
        small = node("tanh", node("div", scores, cap, hint="small"), hint="capped")
        scores = node("mul", small, float(cap), hint="scores")
    for mask in masks:
        scores = masked(node, scores, mask)
    shares = node("softmax", scores, hint="weights", axes=[3])
    y = node.transposed(node("matmul", shares, v, hint="mixed"), [0, 2, 1, 3], "apart")
    return node.reshaped(y, [batch, rows, heads * shape_of(v)[3]])


def _padding(node: Node, mask: Any, columns: Any) -> list[Any]:
    """The summand for a mask of keys: of [batch] lengths, or of truth values."""
    if mask is None:
        return []
    rank, numbers = len(shape_of(mask)), node.scalars(mask)
    node.require(rank in (1, 2, 3), "the mask must be of rank 1, 2 or 3")
    if rank == 1:
        lengths = node("unsqueeze", numbers, axes=[1, 2, 3], hint="lengths")
        is_seen = node("lt", node.positions(columns, 3, 4), lengths, hint="seen")
    else:
        wide = node(
            "unsqueeze", numbers, axes=[1, 2] if rank == 2 else [1], hint="wide"
        )
        is_seen = node("gt", wide, 0.0, hint="seen")
    far = float(node.get("mask_filter_value", -10000.0))
    return [node("select", is_seen, 0.0, far, hint="mask")]


def _order(node: Node, rows: Any, columns: Any, default: int = 0) -> list[Any]:
    """The mask of what comes later, if it is not seen."""
    is_causal = node.get("unidirectional", default)
    return [causal(node, rows, columns, 4)] if is_causal else []


@microsoft("Attention")
def _self_attention(node: Node, x: Any, weights: Any, bias: Any = None, *_: Any) -> Any:
    """Attention of a sequence to itself; the columns of the weights are those of q, k, v."""
    node.require(node.operand(4) is None and not node.uses(1), _PAST)
    node.require(not node.get("do_rotary", 0), "do_rotary must be 0")
    projected = node("matmul", x, node.of_rank(weights, 3), hint="projected")
    return attention_of(node, sum_of(node, projected, bias), node.operand(3))


def attention_of(node: Node, projected: Any, mask: Any) -> Any:
    """Attention of q, k, v that are side by side."""
    length, width = shape_of(projected)[1:]
    sizes = list(node.get("qkv_hidden_sizes", [width // 3] * 3))
    parts = node("split", projected, axis=2, ratios=sizes)
    q, k, v = (_heads(node, x, node.get("num_heads", 1)) for x in parts)
    added = node.operand(5) if node.kind == f"{DOMAIN}.Attention" else None
    masks = [*_padding(node, mask, length), *_order(node, length, length)]
    return _attended(node, q, k, v, [*masks, *([] if added is None else [added])])


@microsoft("MultiHeadAttention")
def _attention(node: Node, q: Any, k: Any = None, v: Any = None, *_: Any) -> list[Any]:
    node.require(all(node.operand(i) is None for i in (6, 7)), _PAST)
    is_apart = k is not None and v is not None and len(shape_of(q)) == 3
    node.require(is_apart, "query, key and value must be apart")
    operands, count = [q, k, v], node.get("num_heads", 1)
    if (bias := node.operand(3)) is not None:
        sizes = [shape_of(x)[2] for x in operands]
        rows = node("split", bias, axis=0, ratios=sizes)
        operands = [sum_of(node, *pair) for pair in zip(operands, rows, strict=True)]
    q, k, v = (_heads(node, x, count) if len(shape_of(x)) == 3 else x for x in operands)
    rows, columns = shape_of(q)[2], shape_of(k)[2]
    added = node.operand(5)
    masks = [*_padding(node, node.operand(4), columns), *_order(node, rows, columns)]
    y = _attended(node, q, k, v, [*masks, *([] if added is None else [added])])
    return [y, k, v]


@microsoft("GroupQueryAttention")
def _grouped(node: Node, q: Any, k: Any, v: Any, *_: Any) -> list[Any]:
    """Attention to what came before, where several heads of q share one of k and v."""
    node.require(all(node.operand(i) is None for i in (3, 4)), _PAST)
    unusual = ("smooth_softmax", "k_quant_type", "v_quant_type", "qk_output")
    is_usual = not any(map(node.attributes.get, unusual)) and node.operand(11) is None
    node.require(is_usual, f"{', '.join(unusual)} and sinks are not supported")
    heads, own = node.get("num_heads", 1), node.get("kv_num_heads", 1)
    if k is None:
        size = shape_of(q)[2] // (heads + 2 * own)
        q, k, v = node("split", q, axis=2, ratios=[n * size for n in (heads, own, own)])
    q, k, v = (_heads(node, x, n) for x, n in ((q, heads), (k, own), (v, own)))
    length = shape_of(q)[2]
    if node.get("do_rotary", 0):
        tables, is_paired = node.operands[7:9], bool(node.get("rotary_interleaved", 0))
        q, k = (_rotated(node, x, node.operand(9), tables, is_paired) for x in (q, k))
    last = node("unsqueeze", node.scalars(node.operand(5)), axes=[1, 2, 3], hint="last")
    masks = [
        causal(node, length, length, 4),
        node("le", node.positions(length, 3, 4), last, hint="seen"),
    ]
    if (reach := node.get("local_window_size", -1)) >= 0:
        first = node("sub", node.positions(length, 2, 4), float(reach), hint="first")
        masks.append(node("gt", node.positions(length, 3, 4), first, hint="near"))
    masks += [] if node.operand(10) is None else [node.operand(10)]
    keys, values = (shared(node, x, heads) for x in (k, v))
    return [_attended(node, q, keys, values, masks), k, v]


@microsoft("RotaryEmbedding")
def _rotary(node: Node, x: Any, places: Any, *tables: Any) -> Any:
    is_usual = node.get("scale", 1.0) == 1.0 and not node.get("is_packed_batching", 0)
    node.require(is_usual, "scale must be 1, and is_packed_batching 0")
    is_paired, rank = bool(node.get("interleaved", 0)), len(shape_of(x))
    if rank == 4:
        return _rotated(node, x, places, tables, is_paired)
    batch, length, size = shape_of(x)
    count = node.get("num_heads", 0) or size // (2 * shape_of(tables[0])[1])
    y = _rotated(node, _heads(node, x, count), places, tables, is_paired)
    return node.reshaped(node.transposed(y, [0, 2, 1, 3]), [batch, length, size])


def _rotated(
    node: Node, x: Any, places: Any, tables: Sequence[Any], is_paired: bool
) -> Any:
    """Pairs of columns, turned by the angle of their place: the halves, or neighbours."""
    length, size = shape_of(x)[2:]
    half = shape_of(tables[0])[1]
    rest = node.piece(x, 3, 2 * half, size, "rest") if size > 2 * half else None
    turned = node.piece(x, 3, 0, 2 * half, "turned") if rest is not None else x
    cos, sin = (_angles(node, table, places, length) for table in tables)
    if is_paired:
        shape = shape_of(turned)
        pairs = node.reshaped(turned, [*shape[:3], half, 2], "pairs")
        one, other = (node.piece(pairs, 4, i, i + 1, "half") for i in (0, 1))
        cos, sin = (node("unsqueeze", t, axes=[4]) for t in (cos, sin))
    else:
        one, other = (node.piece(turned, 3, i, i + half, "half") for i in (0, half))
    first = node("sub", node("mul", one, cos), node("mul", other, sin), hint="first")
    second = node("add", node("mul", other, cos), node("mul", one, sin), hint="second")
    y = node.joined([first, second], 4 if is_paired else 3)
    y = node.reshaped(y, shape_of(turned)) if is_paired else y
    return y if rest is None else node.joined([y, rest], 3)


def _angles(node: Node, table: Any, places: Any, length: Any) -> Any:
    """The rows of a table for the places of a sequence, of all heads."""
    if places is None or shape_of(places) == (1,):
        begin = 0 if places is None else int(np.ravel(node.known(places, "places"))[0])
        rows = node.piece(table, 0, begin, begin + length, "angles")
        return node("unsqueeze", rows, axes=[0, 1])
    return node("unsqueeze", node.other("Gather", table, places), axes=[1])


@microsoft("RelativePositionBias")
def _relative(node: Node, table: Any, rows: Any, columns: Any) -> Any:
    """The numbers of a table for the buckets of distances: one each, and wider ones further on.
    The table is declared as [buckets, heads], and stored as [heads, buckets].
    """
    extents = [node.items(n, i)[0] for i, n in ((1, "query_length"), (2, "key_length"))]
    count, far = shape_of(table)[0], node.get("max_distance", 128)
    places = (node.positions(extents[0], 0, 2), node.positions(extents[1], 1, 2))
    distance = node("sub", *places, hint="distance")
    settings: Any = {
        "count": float(count),
        "farthest": float(far),
        "is_both": bool(node.get("is_bidirectional", 0)),
    }
    bucket = node.expand("distance_bucket", distance, **settings)
    stored = node.reshaped(table, list(shape_of(table)[::-1]), "stored")
    bias = node("gather", stored, node("cast", bucket, dtype="integer"), axis=1)
    return node("unsqueeze", bias, axes=[0])


# ---- Weights of few bits ----


@microsoft("MatMulNBits")
def _few_bits(node: Node, x: Any, codes: Any, scales: Any, *rest: Any) -> Any:
    """A product with a matrix whose columns have blocks of codes, each with a scale."""
    zeros, order, bias, *_ = (*rest, None, None, None)
    node.require(order is None, "g_idx is not supported")
    stored, factors = (
        np.asarray(node.known(x, name))
        for x, name in ((codes, "B"), (scales, "scales"))
    )
    node.require(stored.dtype == np.uint8, "the codes must be bytes")
    bits, rows, columns = node.get("bits", 4), node.get("N", 0), node.get("K", 0)
    width = node.get("block_size", 32)
    numbers = _unpacked(stored.reshape(rows, -1), bits)
    blocks = -(-columns // width)
    if zeros is None:
        origin = np.full((rows, blocks), 2.0 ** (bits - 1))
    else:
        known = np.asarray(node.known(zeros, "zero_points"))
        packed = known.dtype == np.uint8
        own = known.reshape(rows, -1)
        origin = (_unpacked(own, bits) if packed else own.astype(float))[:, :blocks]
    apart = numbers.reshape(rows, blocks, width) - origin[:, :, None]
    whole = apart * factors.astype(float).reshape(rows, blocks, 1)
    matrix = whole.reshape(rows, -1)[:, :columns].astype(np.float32)
    weight = node.reading.variable(node.proto.input[1], matrix)
    return linear(node, x, weight, bias)


def _unpacked(codes: Any, bits: int) -> Any:
    """Codes of few bits in bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits)
    each = (codes[..., None] >> shifts) & (2**bits - 1)
    return each.reshape(len(codes), -1).astype(float)
