"""What each kind of node is given: the first operand, and others by the names of the schema.

A name is an operand or an attribute, as the schema of the version has it. A function returns
None if it has no use for such an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .draw import Array, Draw

Given = dict[str, Any] | None
Rule = Callable[[Draw, Array], Given]


def alone(draw: Draw, x: Array) -> Given:
    return {}


def beside(name: str) -> Rule:
    """Another operand, which broadcasts."""

    def given(draw: Draw, x: Array) -> Given:
        other = draw.floats(*draw.spread(x.shape))
        other[np.abs(other) < 0.3] = 0.7  # for divisors
        return {
            name: other.astype(x.dtype) if x.dtype.kind != "i" else _whole(other, x)
        }

    return given


def _whole(other: Array, x: Array) -> Array:
    return np.where(np.rint(other) == 0, 2, np.rint(other)).astype(x.dtype)


def reduction(draw: Draw, x: Array) -> Given:
    return {"axes": draw.axes(x.ndim)} if draw.chance(0.8) else {}


def window(draw: Draw, x: Array) -> dict[str, Any]:
    """The attributes that all sliding windows share."""
    rank = x.ndim - 2
    found: dict[str, Any] = {"kernel_shape": draw.integers(1, 3, rank)}
    if draw.chance(0.7):
        found["strides"] = draw.integers(1, 3, rank)
    if draw.chance(0.4):
        found["dilations"] = draw.integers(1, 2, rank)
    mode = draw.pick(("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    if mode != "NOTSET" or draw.chance(0.2):
        found["auto_pad"] = mode
    if mode == "NOTSET" and draw.chance(0.7):
        highest = min(found["kernel_shape"]) - 1
        found["pads"] = draw.integers(0, highest, 2 * rank)
    return found


def pool(draw: Draw, x: Array) -> Given:
    return window(draw, x) if x.ndim in (3, 4) else None


def lp_pool(draw: Draw, x: Array) -> Given:
    found = pool(draw, x)
    return found and {**found, "p": draw.integer(1, 3)}


def conv(draw: Draw, x: Array) -> Given:
    if x.ndim not in (3, 4):
        return None
    found, channels = window(draw, x), x.shape[1]
    group = draw.pick([g for g in range(1, channels + 1) if channels % g == 0])
    results = group * draw.integer(1, 2)
    found["W"] = draw.floats(results, channels // group, *found["kernel_shape"])
    if draw.chance(0.5):
        found["B"] = draw.floats(results)
    return {**found, "group": group}


def conv_transpose(draw: Draw, x: Array) -> Given:
    found = conv(draw, x)
    if found is None:
        return None
    group, rank, channels = found["group"], x.ndim - 2, x.shape[1]
    per_group = draw.integer(1, 2)
    found["W"] = draw.floats(channels, per_group, *found["kernel_shape"])
    if "B" in found:
        found["B"] = draw.floats(group * per_group)
    if draw.chance(0.4):
        found["output_padding"] = [
            draw.integer(0, s - 1) for s in found.get("strides", [1] * rank)
        ]
    return found


def pad(draw: Draw, x: Array) -> Given:
    mode = draw.pick(("constant", "constant", "reflect", "edge", "wrap"))
    found: dict[str, Any] = {"mode": mode}
    has_axes = draw.version >= 18 and draw.chance(0.3)
    axes = draw.axes(x.ndim, 1) if has_axes else None
    extents = x.shape if axes is None else [x.shape[a] for a in axes]
    low = -1 if draw.chance(0.3) else 0
    highest = 2 if mode == "constant" else 1
    found["pads"] = [
        draw.integer(max(low, -(e // 3)), min(highest, e - 1))
        for e in (*extents, *extents)
    ]
    if axes is not None:
        found["axes"] = axes
    if draw.chance(0.5) and mode == "constant":
        found["constant_value"] = found["value"] = np.asarray(1.5, x.dtype)
    return found


def cut(draw: Draw, x: Array) -> Given:
    axes, far = draw.axes(x.ndim, 1), (-(2**62), 2**62)
    steps = [draw.pick((1, 1, 2, 3, -1, -2)) for _ in axes]
    ends = [
        (draw.pick(far) if draw.chance(0.2) else draw.integer(-7, 7)) for _ in axes * 2
    ]
    starts, stops = ends[: len(axes)], ends[len(axes) :]
    return {"starts": starts, "ends": stops, "axes": axes, "steps": steps}


def gather(draw: Draw, x: Array) -> Given:
    axis = draw.axis(x.ndim)
    return {"axis": axis, "indices": draw.indices(x.shape[axis], *draw.shape(0, 2))}


def gather_elements(draw: Draw, x: Array) -> Given:
    axis = draw.axis(x.ndim)
    shape = [draw.integer(1, extent) for extent in x.shape]
    return {"axis": axis, "indices": draw.indices(x.shape[axis], *shape)}


def gather_nd(draw: Draw, x: Array) -> Given:
    batch = draw.integer(0, x.ndim - 1)
    depth = draw.integer(1, x.ndim - batch)
    shape = (*x.shape[:batch], *draw.shape(0, 2))
    parts = [draw.indices(x.shape[batch + d], *shape) for d in range(depth)]
    return {"batch_dims": batch, "indices": np.stack(parts, -1)}


def reduction_of(draw: Draw) -> str:
    """Of scatters, which have had sums since version 16 and extrema since 18."""
    known = 1 if draw.version < 16 else 3 if draw.version < 18 else 5
    return str(draw.pick(("none", "add", "mul", "max", "min")[:known]))


def scatter_elements(draw: Draw, x: Array) -> Given:
    found = gather_elements(draw, x) or {}
    reduced = reduction_of(draw)
    axis, shape = found["axis"], found["indices"].shape
    if reduced == "none":  # the order of assignments to one place is not defined
        order = draw.random.random(x.shape).argsort(axis)
        order = order[tuple(slice(s) for s in shape)]
        found["indices"] = order - x.shape[axis] * (draw.random.random(shape) < 0.4)
    found["updates"] = draw.floats(*shape).astype(x.dtype)
    return {**found, "reduction": reduced}


def scatter_nd(draw: Draw, x: Array) -> Given:
    depth, count, reduced = (
        draw.integer(1, x.ndim),
        draw.integer(1, 4),
        reduction_of(draw),
    )
    places = list(np.ndindex(*x.shape[:depth]))
    chosen = draw.random.permutation(len(places))[:count]
    if reduced != "none":
        chosen = draw.random.integers(0, len(places), count)
    indices = np.array([places[c] for c in chosen])
    indices = indices - x.shape[:depth] * (draw.random.random(indices.shape) < 0.4)
    updates = draw.floats(len(indices), *x.shape[depth:]).astype(x.dtype)
    return {"indices": indices, "updates": updates, "reduction": reduced}


def resize(draw: Draw, x: Array) -> Given:
    scales = [1.0, 1.0] + [draw.pick((0.5, 0.6, 1, 1.5, 2, 2.7)) for _ in x.shape[2:]]
    found: dict[str, Any] = {"mode": draw.pick(("nearest", "linear", "cubic"))}
    if x.ndim not in (3, 4) or (found["mode"] == "cubic" and x.ndim == 3):
        return None
    transforms = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    found["coordinate_transformation_mode"] = draw.pick(
        (*transforms, "half_pixel_symmetric")
    )
    rounds = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    found["nearest_mode"] = draw.pick(rounds)
    found["exclude_outside"] = int(found["mode"] == "cubic" and draw.chance(0.3))
    found["antialias"] = int(found["mode"] != "nearest" and draw.chance(0.2))
    # Before version 18 there are no axes, and ONNX Runtime ends the process at short scales.
    has_axes = draw.version >= 18 and draw.chance(0.3)
    axes = [*range(2, x.ndim)] if has_axes else [*range(x.ndim)]
    if len(axes) < x.ndim:
        found["axes"] = [a - x.ndim * draw.chance(0.4) for a in axes]
    if draw.chance(0.5):
        sizes = [max(1, int(x.shape[a] * scales[a] + 0.3)) for a in axes]
        return {**found, "sizes": sizes}
    return {**found, "scales": np.array([scales[a] for a in axes], np.float32)}


def batch_normalization(draw: Draw, x: Array) -> Given:
    if x.ndim < 2:
        return None
    c = x.shape[1]
    middle = {"scale": draw.floats(c), "B": draw.floats(c)}
    moments = (draw.floats(c), draw.positive(c))
    names = [*zip(("mean", "input_mean"), moments[:1] * 2, strict=False)]
    names += [*zip(("var", "input_var"), moments[1:] * 2, strict=False)]
    return {**middle, **dict(names)}


def instance_normalization(draw: Draw, x: Array) -> Given:
    c = x.shape[1] if x.ndim > 2 else 0
    return {"scale": draw.floats(c), "B": draw.floats(c)} if c else None


def group_normalization(draw: Draw, x: Array) -> Given:
    if x.ndim < 3 or not x.size:
        return None
    c = x.shape[1]
    groups = draw.pick([g for g in range(1, c + 1) if c % g == 0])
    return {"scale": draw.floats(c), "bias": draw.floats(c), "num_groups": groups}


def layer_normalization(draw: Draw, x: Array) -> Given:
    axis = draw.axis(x.ndim)
    shape = x.shape[axis % x.ndim :]
    found = {"axis": axis, "Scale": draw.floats(*shape), "scale": draw.floats(*shape)}
    return {**found, "B": draw.floats(*shape)} if draw.chance(0.5) else found


def lp_normalization(draw: Draw, x: Array) -> Given:
    return {"p": draw.integer(1, 2), "axis": draw.axis(x.ndim)}


def lrn(draw: Draw, x: Array) -> Given:
    return {"size": draw.pick((1, 3, 5))} if x.ndim in (3, 4) else None


def top_k(draw: Draw, x: Array) -> Given:
    axis = draw.axis(x.ndim)
    count = draw.integer(1, x.shape[axis])
    return {"axis": axis, "K": np.array([count]), "k": count}


def cumsum(draw: Draw, x: Array) -> Given:
    return {"axis": np.array(draw.axis(x.ndim))}


def one_hot(draw: Draw, x: Array) -> Given:
    depth = draw.integer(1, 4)
    found = {"depth": np.array(depth), "values": draw.floats(2)}
    return {"": draw.random.integers(-depth - 1, depth + 2, x.shape), **found}


def trilu(draw: Draw, x: Array) -> Given:
    return {"k": np.array(draw.integer(-5, 5))} if x.ndim > 1 else None


def einsum(draw: Draw, x: Array) -> Given:
    letters = "abcdefgh"[: x.ndim]
    other = "".join(letters[i] for i in draw.random.permutation(x.ndim)) + "z"
    shape = [x.shape[letters.index(c)] if c != "z" else 2 for c in other]
    kept = "".join(c for c in letters + "z" if draw.chance(0.6))
    right = "" if draw.chance(0.2) else f"->{kept}"
    return {"equation": f"{letters},{other}{right}", "Inputs": [draw.floats(*shape)]}


def clip(draw: Draw, x: Array) -> Given:
    ends = {"min": draw.floats(), "max": draw.floats()}
    return {k: np.asarray(v, x.dtype) for k, v in ends.items() if draw.chance(0.7)}


def where(draw: Draw, x: Array) -> Given:
    condition = draw.random.random(draw.spread(x.shape)) < 0.5
    return {
        "": condition,
        "X": x,
        "Y": draw.floats(*draw.spread(x.shape)).astype(x.dtype),
    }


def split(draw: Draw, x: Array) -> Given:
    axis = draw.axis(x.ndim)
    first = draw.integer(0, x.shape[axis])
    return {"axis": axis, "split": [first, x.shape[axis] - first]}


def concat(draw: Draw, x: Array) -> Given:
    axis, shape = draw.axis(x.ndim), list(x.shape)
    shape[axis] = draw.integer(0, 3)
    return {"axis": axis, "inputs": [draw.floats(*shape).astype(x.dtype)]}


def expand(draw: Draw, x: Array) -> Given:
    shape = [draw.integer(1, 3) if e == 1 else draw.pick((1, e)) for e in x.shape]
    return {"shape": draw.integers(1, 2, draw.integer(0, 1)) + shape}


def tile(draw: Draw, x: Array) -> Given:
    return {"repeats": draw.integers(0 if draw.chance(0.1) else 1, 3, x.ndim)}


def cast(draw: Draw, x: Array) -> Given:
    return {"to": draw.pick((1, 6, 7, 9, 10, 11, 3, 2))}


def dft(draw: Draw, x: Array) -> Given:
    if x.ndim < 2:
        return None
    real = x.reshape(*x.shape, 1) if draw.chance(0.6) else np.stack([x, x * 0.5], -1)
    axis = (
        draw.integer(-x.ndim, -2) if draw.chance(0.5) else draw.integer(1, x.ndim - 1)
    )
    inverse = int(draw.chance(0.4))
    sided = int(not inverse and real.shape[-1] == 1 and draw.chance(0.4))
    found = {"": real, "inverse": inverse, "onesided": sided, "axis": np.array(axis)}
    return (
        {**found, "dft_length": np.array(draw.integer(1, 6))}
        if draw.chance(0.4)
        else found
    )


def quantize(draw: Draw, x: Array) -> Given:
    type_ = draw.pick((np.int8, np.uint8))
    per_axis = x.ndim and draw.chance(0.5)
    axis = draw.axis(x.ndim) if per_axis else 0
    shape = (x.shape[axis],) if per_axis else ()
    scale, zero = draw.positive(*shape) * 0.1, draw.random.integers(0, 9, shape)
    return {"y_scale": scale, "y_zero_point": zero.astype(type_), "axis": axis}


def dequantize(draw: Draw, x: Array) -> Given:
    found = quantize(draw, x) or {}
    zero = found["y_zero_point"]
    codes = draw.random.integers(0, 127, x.shape).astype(zero.dtype)
    named = {"x_scale": found["y_scale"], "x_zero_point": zero}
    return {"": codes, "axis": found["axis"], **named}


def product(draw: Draw, x: Array) -> Given:
    rank = draw.integer(1, 3)
    shape = (
        *draw.spread(x.shape[:-2]),
        *([x.shape[-1], 3] if rank > 1 else [x.shape[-1]]),
    )
    return {"B": draw.floats(*shape[-3:] if rank > 1 else shape[-1:])}


def gemm(draw: Draw, x: Array) -> Given:
    if x.ndim != 2:
        return None
    a, b = draw.integer(0, 1), draw.integer(0, 1)
    inner, rows = x.shape[1 - a], x.shape[a]
    shape = (3, inner) if b else (inner, 3)
    found = {"transA": a, "transB": b, "B": draw.floats(*shape)}
    return {**found, "C": draw.floats(*draw.spread((rows, 3)))}


def reshape(draw: Draw, x: Array) -> Given:
    shape = [0 if draw.chance(0.3) else e for e in x.shape] or [1]
    return {"shape": [-1] if draw.chance(0.3) else shape + [1] * draw.integer(0, 1)}


def transpose(draw: Draw, x: Array) -> Given:
    return (
        {"perm": draw.random.permutation(x.ndim).tolist()} if draw.chance(0.8) else {}
    )


def shuffle(draw: Draw, x: Array) -> Given:
    mode = draw.pick(("DCR", "CRD"))
    return {
        "": draw.floats(1, 4 * draw.integer(1, 2), 2, 3),
        "blocksize": 2,
        "mode": mode,
    }


# fmt: off
UNARY = (  # what has attributes alone
    "Abs", "Neg", "Sign", "Relu", "Sigmoid", "Tanh", "Exp", "Softplus", "Softsign", "Elu",
    "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Shrink",
    "Mish", "Gelu", "Floor", "Ceil", "Round", "Erf", "Sin", "Cos", "Atan", "Identity",
    "Reciprocal", "Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "Flatten", "IsInf",
    "MeanVarianceNormalization", "GlobalAveragePool", "GlobalMaxPool", "Size", "Shape",
)
BINARY = (
    "Add", "Sub", "Mul", "Div", "Mod", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Equal",
)
REDUCED = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSumExp", "Squeeze",
)
KINDS: dict[str, Rule] = {
    **dict.fromkeys(UNARY, alone), **dict.fromkeys(BINARY, beside("B")),
    "Pow": beside("Y"), "PRelu": beside("slope"), **dict.fromkeys(REDUCED, reduction),
    "Conv": conv, "ConvTranspose": conv_transpose, "LpPool": lp_pool,
    **dict.fromkeys(("MaxPool", "AveragePool"), pool),
    "Pad": pad, "Slice": cut, "Split": split, "Concat": concat, "Expand": expand,
    "Tile": tile, "Reshape": reshape, "Transpose": transpose, "DepthToSpace": shuffle,
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd,
    "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Resize": resize,
    "BatchNormalization": batch_normalization, "LRN": lrn,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization, "LpNormalization": lp_normalization,
    "LayerNormalization": layer_normalization, "TopK": top_k, "CumSum": cumsum,
    "OneHot": one_hot, "Trilu": trilu, "Einsum": einsum, "Clip": clip, "Where": where,
    "Cast": cast, "DFT": dft, "QuantizeLinear": quantize, "DequantizeLinear": dequantize,
    "MatMul": product, "Gemm": gemm,
}
# fmt: on
