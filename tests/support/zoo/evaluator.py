"""What an ONNX file computes, in torch and double precision, so that autograd differentiates it.

Codes are numbers with gradients: these go straight through rounding, and not beyond the first and
the last code. An operator is a row or a function here, and shares nothing with the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

OPERATORS: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "And": torch.logical_and,
    "Concat": lambda *xs, axis: torch.cat(xs, axis),
    "ConstantOfShape": lambda shape, value=None: _filled(shape.tolist(), value),
    "Cos": torch.cos,
    "Equal": torch.eq,
    "Erf": torch.erf,
    "Expand": lambda x, shape: x * torch.ones(shape.tolist(), dtype=x.dtype),
    "Flatten": lambda x, axis=1: x.reshape(math.prod(x.shape[:axis]), -1),
    "Gelu": lambda x, approximate="none": functional.gelu(x, approximate=approximate),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": lambda x: x,
    "IsNaN": torch.isnan,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Log": torch.log,
    "MatMul": torch.matmul,
    "Max": lambda *xs: torch.stack(torch.broadcast_tensors(*xs)).amax(0),
    "Min": lambda *xs: torch.stack(torch.broadcast_tensors(*xs)).amin(0),
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Pow": lambda x, y: x ** y.to(x.dtype),
    "Range": lambda *ends: torch.arange(*(end.item() for end in ends)),
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Shape": lambda x, start=0, end=None: torch.tensor(x.shape[start:end]),
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Softmax": lambda x, axis=-1: torch.softmax(x, axis),
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "Tanh": torch.tanh,
    "Transpose": lambda x, perm: x.permute(perm),
    "Where": torch.where,
    # Those of ONNX Runtime.
    "BiasGelu": lambda x, bias: functional.gelu(x + bias),
    "FastGelu": lambda x, bias=0.0: functional.gelu(x + bias, approximate="tanh"),
    "QuickGelu": lambda x, alpha=1.702: x * torch.sigmoid(alpha * x),
}

Function = Callable[..., Any]


def operator(kind: str) -> Callable[[Function], Function]:
    """Enters the function of an operator."""

    def enter(function: Function) -> Function:
        OPERATORS[kind] = function
        return function

    return enter


# ---- Shapes ----


def _filled(shape: list[int], value: Any) -> Any:
    if value is None:
        return torch.zeros(shape, dtype=torch.float64)
    return _tensor(value).reshape(()).expand(shape)


def _axes(axes: Any) -> Any:
    return axes.tolist() if isinstance(axes, torch.Tensor) else axes


@operator("Reshape")
def reshape(x: Any, shape: Any, allowzero: int = 0) -> Any:
    pairs = enumerate(shape.tolist())
    return x.reshape([x.shape[i] if n == 0 else n for i, n in pairs])


@operator("Unsqueeze")
def unsqueeze(x: Any, axes: Any) -> Any:
    axes, rank = _axes(axes), x.ndim + len(_axes(axes))
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze")
def squeeze(x: Any, axes: Any = None) -> Any:
    return x.squeeze() if axes is None else x.squeeze(_axes(axes))


@operator("Slice")
def piece(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    given = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    for axis, start, end, step in zip(
        given, starts.tolist(), ends.tolist(), strides, strict=True
    ):
        places = range(x.shape[axis])[start:end:step]
        x = x.index_select(axis, torch.tensor([*places], dtype=torch.int64))
    return x


@operator("Split")
def split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0) -> Any:
    if sizes is None:
        return torch.split(x, -(-x.shape[axis] // num_outputs), axis)
    return torch.split(x, sizes.tolist(), axis)


@operator("Gather")
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    flat = (indices % x.shape[axis]).reshape(-1)
    shape = [*x.shape[: axis % x.ndim], *indices.shape, *x.shape[axis % x.ndim + 1 :]]
    return x.index_select(axis, flat).reshape(shape)


@operator("GatherND")
def gathered_by_rows(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    assert not batch_dims
    return x[tuple(indices.unbind(-1))]


@operator("Pad")
def pad(x: Any, pads: Any, value: Any = 0.0, *_: Any, **__: Any) -> Any:
    ends = pads.reshape(2, -1).T.flip(0).reshape(-1).tolist()
    return functional.pad(x, ends, value=float(value))


@operator("ReduceMean")
def reduce_mean(x: Any, axes: Any, keepdims: int = 1, **_: Any) -> Any:
    return x.mean(_axes(axes), keepdim=bool(keepdims))


@operator("Div")
def div(x: Any, y: Any) -> Any:
    whole = not x.is_floating_point()
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


@operator("Cast")
def cast(x: Any, to: int, **_: Any) -> Any:
    kind = onnx.helper.tensor_dtype_to_np_dtype(to).kind
    if kind == "f":
        return x.double()
    return x.bool() if kind == "b" else x.long()


# ---- Layers ----


@operator("Gemm")
def gemm(
    a: Any,
    b: Any,
    c: Any = 0.0,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    return alpha * (a.T if transA else a) @ (b.T if transB else b) + beta * c


@operator("Conv")
def conv(
    x: Any, w: Any, bias: Any = None, *, pads: Any = None, strides: Any = 1, dilations: Any = 1,
    group: int = 1, **_: Any,
) -> Any:  # fmt: skip
    rank = x.ndim - 2
    ends = pads or [0] * (2 * rank)
    x = functional.pad(
        x, [n for i in reversed(range(rank)) for n in (ends[i], ends[rank + i])]
    )
    convolution = (functional.conv1d, functional.conv2d)[rank - 1]
    return convolution(x, w, bias, strides, 0, dilations, group)


@operator("FusedConv")
def fused_conv(
    x: Any,
    w: Any,
    bias: Any = None,
    added: Any = 0.0,
    *,
    activation: str,
    **settings: Any,
) -> Any:
    return OPERATORS[activation](conv(x, w, bias, **settings) + added)


@operator("MaxPool")
def max_pool(x: Any, kernel_shape: Any, pads: Any, strides: Any, **_: Any) -> Any:
    return functional.max_pool2d(x, kernel_shape, strides, pads[: len(kernel_shape)])


@operator("LayerNormalization")
def layer_normalization(
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    **_: Any,
) -> Any:
    return functional.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


@operator("SkipLayerNormalization")
def skip_layer_normalization(
    x: Any, skip: Any, scale: Any, shift: Any = None, bias: Any = 0.0, *, epsilon: float
) -> Any:
    total = x + skip + bias
    return layer_normalization(total, scale, shift, epsilon=epsilon), None, None, total


@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Any, scale: Any, *, epsilon: float, **_: Any
) -> Any:
    return functional.rms_norm(x, x.shape[-1:], scale, epsilon)


@operator("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    x: Any, skip: Any, scale: Any, bias: Any = 0.0, *, epsilon: float
) -> Any:
    total = x + skip + bias
    return (
        simplified_layer_normalization(total, scale, epsilon=epsilon),
        None,
        None,
        total,
    )


@operator("EmbedLayerNormalization")
def embed_layer_normalization(
    ids: Any, segments: Any, words: Any, places: Any, kinds: Any, scale: Any, shift: Any,
    mask: Any = None, *_: Any, epsilon: float, **__: Any,
) -> Any:  # fmt: skip
    total = words[ids] + places[: ids.shape[1]]
    if segments is not None:
        total = total + kinds[segments]
    count = None if mask is None else mask.sum(1)
    return layer_normalization(total, scale, shift, epsilon=epsilon), count, total


@operator("Attention")
def attention(
    x: Any, w: Any, bias: Any, mask: Any = None, _: Any = None, added: Any = None,
    *, num_heads: int, mask_filter_value: float = -10000.0, **__: Any,
) -> Any:  # fmt: skip
    """Without a cache, of queries, keys and values side by side."""
    batch, length = x.shape[:2]
    parts = (x @ w + bias).chunk(3, -1)
    q, k, v = (p.reshape(batch, length, num_heads, -1).transpose(1, 2) for p in parts)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if mask is not None:
        seen = (
            mask[:, None, None]
            if mask.ndim == 2
            else torch.arange(length) < mask[:, None, None, None]
        )
        scores = scores + torch.where(seen > 0, 0.0, mask_filter_value)
    if added is not None:
        scores = scores + added
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, -1)


# ---- Codes ----


def _along(values: Any, x: Any, axis: int) -> Any:
    shape = [1] * x.ndim
    if values.numel() > 1:
        shape[axis] = -1
    return values.reshape(shape)


def rounded(x: Any) -> Any:
    """The nearest whole number; gradients go straight."""
    return x + (x.round() - x).detach()


@operator("QuantizeLinear")
def quantize_linear(
    x: Any, scale: Any, zero: Any, *, axis: int = 1, codes: Any, **_: Any
) -> Any:
    """Saturated as the type of the zero point, `codes`."""
    # Lest infinity less infinity is no number.
    level = (x / _along(scale, x, axis)).clamp(-(2.0**20), 2.0**20)
    return (rounded(level) + _along(zero, x, axis)).clamp(codes.min, codes.max)


@operator("DequantizeLinear")
def dequantize_linear(
    x: Any, scale: Any, zero: Any = 0, *, axis: int = 1, **_: Any
) -> Any:
    origin = _along(torch.as_tensor(zero), x, axis)
    return (x - origin).double() * _along(scale, x, axis)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Any) -> Any:
    own = x.detach()
    least, greatest = own.min().clamp(max=0), own.max().clamp(min=0)
    scale = (greatest - least) / 255
    zero = (-least / scale).round().clamp(0, 255)
    return (rounded(x / scale) + zero).clamp(0, 255), scale, zero


@operator("MatMulInteger")
def mat_mul_integer(a: Any, b: Any, first: Any = 0, second: Any = 0) -> Any:
    return (a - first).double() @ (b - second).double()


@operator("ConvInteger")
def conv_integer(
    x: Any, w: Any, first: Any = 0, second: Any = 0, **settings: Any
) -> Any:
    origin = _along(torch.as_tensor(second), w, 0)
    return conv((x - first).double(), (w - origin).double(), **settings)


@operator("QEmbedLayerNormalization")
def coded_embed_layer_normalization(*given: Any, **settings: Any) -> Any:
    return embed_layer_normalization(*given[:8], **settings)


@operator("QAttention")
def coded_attention(x: Any, w: Any, bias: Any, *given: Any, **settings: Any) -> Any:
    scale, _, mask, zero = given[:4]
    return attention((x - zero) * scale, w, bias, mask, **settings)


# Of constant codes, their scale and their zero point: the places of operands.
CODES = {
    "QAttention": [(1, 4, 7)],
    "QEmbedLayerNormalization": [(2 + i, 8 + i, 13 + i) for i in range(5)],
}


# ---- Files ----


def _tensor(proto: Any) -> Any:
    array = numpy_helper.to_array(proto)
    kinds: Mapping[str, Any] = {"f": np.float64, "b": bool}
    return torch.tensor(np.asarray(array, kinds.get(array.dtype.kind, np.int64)))


class Evaluation:
    """The tensors of a graph, by name, of which some are leaves."""

    def __init__(
        self, model: Any, inputs: Mapping[str, Any], leaves: Collection[str]
    ) -> None:
        graph = model.graph
        self.arrays = {x.name: numpy_helper.to_array(x) for x in graph.initializer}
        self.values: dict[str, Any] = {}
        self.leaves = dict.fromkeys(leaves)
        for name, x in inputs.items():
            self._store(name, x.double() if x.is_floating_point() else x)
        for stored in graph.initializer:
            self._store(stored.name, _tensor(stored))
        for node in graph.node:
            self._compute(node)

    def _store(self, name: str, x: Any) -> None:
        is_leaf = name in self.leaves and x.is_floating_point()
        self.values[name] = x.detach().clone().requires_grad_() if is_leaf else x
        if is_leaf:
            self.leaves[name] = self.values[name]

    def _compute(self, node: Any) -> None:
        settings = {a.name: _attribute(a) for a in node.attribute}
        if node.op_type == "Constant":
            self._store(node.output[0], _tensor(settings["value"]))
            return
        if node.op_type == "QuantizeLinear":
            settings["codes"] = np.iinfo(self.arrays[node.input[2]].dtype)
        given = [self.values[name] if name else None for name in node.input]
        for places in CODES.get(node.op_type, []):
            if node.input[places[0]] in self.leaves:
                given[places[0]] = self._meant(node, given, places)
        found = OPERATORS[node.op_type](*_without_last_nones(given), **settings)
        results = found if isinstance(found, tuple | list) else [found]
        for name, x in zip(node.output, results, strict=False):
            if x is not None:
                self._store(name, x)

    def _meant(self, node: Any, given: list[Any], places: tuple[int, ...]) -> Any:
        """The numbers that constant codes mean, which are a leaf by the name of the codes."""
        operands = [given[place] for place in places]
        made = OPERATORS["DequantizeLinear"](*_without_last_nones(operands), axis=-1)
        name = node.input[places[0]]
        if self.leaves[name] is None:
            self.leaves[name] = made.detach().requires_grad_()
        return self.leaves[name]


def _without_last_nones(given: list[Any]) -> list[Any]:
    while given and given[-1] is None:
        given.pop()
    return given


def _attribute(attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
