"""How operations of ONNX become operations of NNEF, where nnef_tools has that wrong, or
lacks it.

The fields are those of `nnef_tools.conversion.converter.Transform`: I and O are the
operands and results, and what begins with an exclamation mark is an expression, in which
the functions of functions.py are known. Where inputs or outputs are left out, they are the
first operand and the first result.
"""

from __future__ import annotations

from typing import Any


def _unary(name: str, **attributes: Any) -> dict[str, Any]:
    """An operation of one operand; each attribute with its default in ONNX. One that
    NNEF calls otherwise is a pair: its name there, and its default.
    """
    pairs = {k: v if isinstance(v, tuple) else (k, v) for k, v in attributes.items()}
    return {
        "type": name,
        "defaults": {theirs: default for theirs, (_, default) in pairs.items()},
        "attribs": {ours: f"!float({theirs})" for theirs, (ours, _) in pairs.items()},
    }


def _recurrent(
    name: str, gates: int, states: int, activations: list[str], linear: int = 0
) -> dict[str, Any]:
    """A loop over the first axis, which is unrolled. After the operands come the first
    states.
    """
    last = "I[0].shape[1], hidden_size"
    return {
        "type": name,
        "defaults": {
            "direction": "forward",
            "layout": 0,
            "clip": None,
            "activations": None,
            "input_forget": 0,
            "linear_before_reset": 0,
        },
        "cond": {
            '!direction == "forward"': "direction must be forward",
            "!layout == 0": "layout must be 0",
            "!clip is None": "clip must be left out",
            "!input_forget == 0": "input_forget must be 0",
            f"!linear_before_reset == {linear}": f"linear_before_reset is not {linear}",
            f"!activations in (None, {activations})": "activations must be the usual",
            "!not given(I, 4)": "sequences must be of one length",
            "!not given(I, 7)": "peepholes must be left out",
        },
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!I[2]",
            f"!or_zeros(I, 3, 1, {2 * gates} * hidden_size)",
            *(f"!or_zeros(I, {5 + i}, 1, {last})" for i in range(states)),
        ),
        "outputs": (
            f"!or_unused(O, 0, I[0].shape[0], 1, {last})",
            *(f"!or_unused(O, {1 + i}, 1, {last})" for i in range(states)),
        ),
        "attribs": {"steps": "!I[0].shape[0]"},
    }


def _reduction(name: str) -> dict[str, Any]:
    return {
        "type": name,
        "defaults": {"axes": None, "keepdims": 1, "noop_with_empty_axes": 0},
        "using": {"_axes": "!reduced(axes, I, noop_with_empty_axes)"},
        "outputs": "!squeeze_output(O[0], _axes, keepdims)",
        "attribs": {"axes": "!_axes"},
    }


_WINDOW_DEFAULTS = {
    "strides": "![1] * (I[0].rank - 2)",
    "dilations": "![1] * (I[0].rank - 2)",
    "pads": "![0, 0] * (I[0].rank - 2)",
    "auto_pad": "NOTSET",
}


def _convolution(name: str, padding: str) -> dict[str, Any]:
    return {
        "type": name,
        "defaults": {**_WINDOW_DEFAULTS, "group": 1, "output_shape": None},
        "using": {"_window": "!(I[1].shape[2:], strides, dilations)"},
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!unsqueeze_vector(I[2]) if given(I, 2) else None",
        ),
        "attribs": {
            "stride": "!strides",
            "dilation": "!dilations",
            "padding": padding,
            "groups": "!group",
        },
    }


def _pool(name: str) -> dict[str, Any]:
    """Zeros that are counted are put around first: those that a size rounded up takes
    besides are not counted.
    """
    return {
        "type": name,
        "defaults": {
            **_WINDOW_DEFAULTS,
            "ceil_mode": 0,
            "storage_order": 0,
            "count_include_pad": 0,
            "p": 2,
        },
        "cond": {
            "!storage_order == 0": "storage_order must be 0",
            "!len(O) == 1 or is_unused(O[1])": "the indices must not be used",
        },
        "using": {
            "_counts": "!ceil_mode == 1 and count_include_pad == 1 and any(pads)",
            "_window": "!(kernel_shape, strides, dilations)",
        },
        "inputs": "!zeros_around(I[0], pads) if _counts else I[0]",
        "attribs": {
            "size": "![1, 1] + kernel_shape",
            "stride": "![1, 1] + strides",
            "dilation": "![1, 1] + dilations",
            "padding": "![(0, 0)] * 2 + same_paddings(I, O, _window,"
            ' auto_pad == "SAME_LOWER") if auto_pad.startswith("SAME") else'
            " window_paddings(I, O, _window, pads, _counts) if ceil_mode == 1 else"
            " paddings(pads, range(2, I[0].rank), I[0].rank)",
            "border": '!"constant" if count_include_pad and not ceil_mode else "ignore"',
            "p": '!float(p) if _type_ == "LpPool" else None',
        },
    }


_NORMALIZATION = {
    "type": "layer_normalization",
    "cond": {"!len(O) == 1 or all(map(is_unused, O[1:]))": "only Y must be used"},
}


_ZERO, _ONE = (
    f"as_tensor({number}, np.float32, inline=True)" for number in ("0.0", "1.0")
)

# What NNEF calls the points that coincide in interpolation.
_METHODS = {
    "half_pixel": "symmetric",
    "pytorch_half_pixel": "symmetric",
    "asymmetric": "asymmetric",
    "align_corners": "aligned",
}


# What a transform has, unless it says otherwise.
USUAL = {"inputs": "!I[0]", "outputs": "!O[0]"}

# By operations of ONNX: in place of what nnef_tools has, where that is wrong or lacks
# settings or versions, and besides. The fields are those of `nnef_tools` transforms.
TRANSFORMS: dict[str, dict[str, Any]] = {
    "ReduceMin": _reduction("min_reduce"),
    "ReduceMax": _reduction("max_reduce"),
    "ReduceMean": _reduction("mean_reduce"),
    "ReduceSum": _reduction("sum_reduce"),
    "ReduceL1": _reduction("l1_reduce"),
    "ReduceL2": _reduction("l2_reduce"),
    "ReduceSumSquare": _reduction("square_reduce"),
    "ReduceLogSum": _reduction("log_reduce"),
    "ReduceLogSumExp": _reduction("log_sum_exp"),
    "Conv": _convolution(
        "conv",
        '!same_paddings(I, O, _window, auto_pad == "SAME_LOWER")'
        ' if auto_pad.startswith("SAME") else list(zip(pads, pads[len(pads) // 2:]))',
    ),
    "ConvTranspose": _convolution(
        "deconv",
        "!transposed_paddings(I, O, _window, pads, auto_pad, output_shape is not None)",
    ),
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "LpPool": _pool("lp_pool"),
    "Reciprocal": _unary("rcp"),
    "Erf": _unary("erf"),
    "Softsign": _unary("softsign"),
    "Mish": _unary("mish"),
    "Swish": _unary("swish", alpha=1.0),
    "HardSwish": _unary("hard_swish"),
    "HardSigmoid": _unary("hard_sigmoid", alpha=0.2, beta=0.5),
    "Elu": _unary("elu", alpha=1.0),
    "Celu": _unary("celu", alpha=1.0),
    "Selu": _unary("selu", alpha=1.67326319, gamma=("lambda", 1.05070102)),
    "ThresholdedRelu": _unary("thresholded_relu", alpha=1.0),
    "Gelu": {
        "type": '!"gelu" if approximate == "none" else "gelu_by_tanh"',
        "defaults": {"approximate": "none"},
    },
    # Before version 13 the axis is the first of all that are summed over.
    **{
        name: {
            "type": kind,
            "defaults": {"axis": None},
            "using": {
                "_given": "!axis if axis is not None else -1 if _opset >= 13 else 1",
                "_axis": "!ensure_positive(_given, I[0].rank)",
            },
            "attribs": {
                "axes": "![_axis] if _opset >= 13 else list(range(_axis, I[0].rank))"
            },
        }
        for name, kind in {"Softmax": "softmax", "LogSoftmax": "log_softmax"}.items()
    },
    "BatchNormalization": {
        "type": "batch_normalization",
        "defaults": {"epsilon": 1e-5, "training_mode": 0},
        "cond": {"!training_mode == 0": "training_mode must be 0"},
        "inputs": tuple(
            f"!unsqueeze_vector(I[{i}])" if i else "!I[0]" for i in (0, 3, 4, 2, 1)
        ),
        "attribs": {"epsilon": "!epsilon"},
    },
    "LayerNormalization": {
        **_NORMALIZATION,
        "defaults": {"axis": -1, "epsilon": 1e-5},
        "inputs": (
            "!I[0]",
            "!broadcast(I[1], I[0].rank)",
            f"!broadcast(I[2], I[0].rank) if given(I, 2) else {_ZERO}",
        ),
        "attribs": {
            "axes": "!list(range(ensure_positive(axis, I[0].rank), I[0].rank))",
            "epsilon": "!epsilon",
        },
    },
    "RMSNormalization": {
        "type": "rms_normalization",
        "defaults": {"axis": -1, "epsilon": 1e-5},
        "inputs": ("!I[0]", "!broadcast(I[1], I[0].rank)"),
        "attribs": {
            "axes": "!list(range(ensure_positive(axis, I[0].rank), I[0].rank))",
            "epsilon": "!epsilon",
        },
    },
    "InstanceNormalization": {
        **_NORMALIZATION,
        "defaults": {"epsilon": 1e-5},
        "inputs": ("!I[0]", "!unsqueeze_vector(I[1])", "!unsqueeze_vector(I[2])"),
        "attribs": {"axes": "!list(range(2, I[0].rank))", "epsilon": "!epsilon"},
    },
    "MeanVarianceNormalization": {
        **_NORMALIZATION,
        "defaults": {"axes": [0, 2, 3]},
        "inputs": ("!I[0]", f"!{_ONE}", f"!{_ZERO}"),
        "attribs": {"axes": "!ensure_positive(axes, I[0].rank)", "epsilon": 0.0},
    },
    "GroupNormalization": {
        "type": "group_normalization",
        "defaults": {"epsilon": 1e-5},
        "cond": {"!_opset >= 21": "the version must be 21 at least"},
        "inputs": ("!I[0]", "!unsqueeze_vector(I[1])", "!unsqueeze_vector(I[2])"),
        "attribs": {
            "groups": "!num_groups",
            "shape": "![0] + list(I[0].shape[1:])",
            "epsilon": "!epsilon",
        },
    },
    "LSTM": _recurrent("lstm", 4, 2, ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": _recurrent("gru", 3, 1, ["Sigmoid", "Tanh"], linear=1),
    "RNN": _recurrent("rnn", 1, 1, ["Tanh"]),
    "Dropout": {
        "type": "copy",
        "cond": {
            "!not given(I, 2) or not as_const(I[2])": "it must not train",
            "!len(O) == 1 or is_unused(O[1])": "the mask must not be used",
        },
    },
    "Clip": {
        "type": '!"clamp" if _low and _high else "max" if _low else'
        ' "min" if _high else "copy"',
        "defaults": {"min": None, "max": None},
        "using": {
            "_low": "!bound(I, 1, min) is not None",
            "_high": "!bound(I, 2, max) is not None",
        },
        "inputs": ("!I[0]", "!bound(I, 1, min)", "!bound(I, 2, max)"),
    },
    # A vector is a row in front, and a column after.
    "MatMul": {
        "type": "matmul",
        "using": {
            "_rank": "!max(2, I[0].rank, I[1].rank)",
            "_row": "!I[0].rank == 1",
            "_column": "!I[1].rank == 1",
        },
        "inputs": (
            "!broadcast(unsqueeze_input(I[0], [0]) if _row else I[0], _rank)",
            "!broadcast(unsqueeze_input(I[1], [1]) if _column else I[1], _rank)",
        ),
        "outputs": "!squeeze_output(O[0],"
        " [_rank - 2] * int(_row) + [_rank - 1] * int(_column))",
    },
    "Gemm": {
        "type": '!"linear" if _linear else "gemm" if _scaled else'
        ' "matmul_add" if _bias else "matmul"',
        "defaults": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
        "using": {
            "_bias": "!given(I, 2)",
            "_scaled": "!alpha != 1.0 or (_bias and beta != 1.0)",
            "_linear": "!_bias and not _scaled and I[2].rank == 1 and transB"
            " and not transA",
        },
        "inputs": (
            "!I[0]",
            "!I[1]",
            "!unsqueeze_vector(I[2]) if _linear else broadcast(I[2], 2) if _bias else"
            f" {_ZERO} if _scaled else None",
        ),
        "attribs": {
            "transposeA": "!bool(transA) if not _linear else None",
            "transposeB": "!bool(transB) if not _linear else None",
            "alpha": "!float(alpha) if _scaled else None",
            "beta": "!float(beta) if _scaled else None",
        },
    },
    "Pow": {
        "type": "pow",
        "inputs": (
            "!broadcast(I[0], O[0].rank)",
            "!broadcast(in_scalars(I[1]), O[0].rank)",
        ),
    },
    # Scalars become integers by leaving out what is after the point.
    "Cast": {
        "type": '!"copy" if _made == _given else'
        ' "truncate" if (_given, _made) == ("scalar", "integer") else "cast"',
        "using": {
            "_given": "!nnef_dtype(I[0].dtype)",
            "_made": "!nnef_dtype(O[0].dtype)",
        },
        "attribs": {
            "dtype": '!O[0].dtype if _made != _given and _made != "integer" or'
            ' _given == "logical" and _made == "integer" else None',
        },
    },
    # Before version 11 there were no modes, and elements counted from their edges.
    "Resize": {
        "type": '!"multilinear_upsample" if mode == "linear" else'
        ' "nearest_upsample" if _up else "nearest_downsample"',
        "defaults": {
            "mode": "nearest",
            "coordinate_transformation_mode": None,
            "nearest_mode": "round_prefer_floor",
            "antialias": 0,
        },
        "using": {
            "_METHODS": _METHODS,
            "_places": '!"asymmetric" if _opset < 11 else'
            ' coordinate_transformation_mode or "half_pixel"',
            "_nearest": '!"floor" if _opset < 11 else nearest_mode',
            "_up": "!is_integer_upsample(I[0].shape, O[0].shape)",
            "_down": "!is_integer_downsample(I[0].shape, O[0].shape)",
        },
        "cond": {
            '!mode in ("nearest", "linear")': "mode must be nearest or linear",
            '!_up or (_down and mode == "nearest")': "the factor must be an integer",
            "!I[0].shape[:2] == O[0].shape[:2]": "batch and channels must stay",
            "!_places in _METHODS": "the coordinates must not be cropped",
            "!antialias == 0": "antialias must be 0",
            '!mode != "nearest" or not (_up or _down) or not _places in _METHODS or'
            " repeats_nearest(I, O, _places, _nearest)": "other elements are nearest",
        },
        "attribs": {
            "factor": "!upsample_factor(I[0].shape[2:], O[0].shape[2:]) if _up else"
            " downsample_factor(I[0].shape[2:], O[0].shape[2:])",
            "method": '!_METHODS[_places] if mode == "linear" else None',
        },
    },
    "SpaceToDepth": {
        "type": "space_to_depth",
        "attribs": {"block": "!blocksize"},
    },
    "Flatten": {
        "type": "reshape",
        "defaults": {"axis": 1},
        "attribs": {"shape": "![0, -1] if axis == 1 else list(O[0].shape)"},
    },
    "Reshape": {
        "type": "reshape",
        "defaults": {"shape": "!as_const(I[1])", "allowzero": 0},
        "cond": {"!allowzero == 0 or 0 not in shape": "no extent must be 0"},
        "attribs": {
            "shape": "!flexible_batch(shape, I[0].shape[0])"
            " if shape and I[0].shape else list(O[0].shape)"
        },
    },
    "Squeeze": {
        "type": "squeeze",
        "defaults": {"axes": None},
        "using": {
            "_ones": "![i for i, n in enumerate(I[0].shape) if n == 1]",
            "_axes": "!axes if axes is not None else items(I, 1, _ones)",
        },
        "attribs": {"axes": "!sorted(ensure_positive(_axes, I[0].rank))"},
    },
    "Unsqueeze": {
        "type": "unsqueeze",
        "defaults": {"axes": "!as_const(I[1])"},
        "attribs": {"axes": "!sorted(ensure_positive(axes, O[0].rank))"},
    },
    "Split": {
        "type": "split",
        "defaults": {"axis": 0},
        "outputs": ["!O[:]"],
        "attribs": {
            "axis": "!ensure_positive(axis, I[0].rank)",
            "ratios": "![made.shape[axis] for made in O]",
        },
    },
    "Expand": {
        "type": "tile",
        "using": {"_shape": "![1] * (O[0].rank - I[0].rank) + list(I[0].shape)"},
        "inputs": "!of_rank(I[0], O[0].rank)",
        "attribs": {"repeats": "![m // n for m, n in zip(O[0].shape, _shape)]"},
    },
    "Gather": {
        "type": "gather",
        "defaults": {"axis": 0},
        "inputs": ("!I[0]", "!counted_from_zero(I[1], I[0].shape[axis])"),
        "attribs": {"axis": "!ensure_positive(axis, I[0].rank)"},
    },
    "Slice": {
        "type": "slice",
        "defaults": {"starts": None, "ends": None, "axes": None},
        "using": {
            "_starts": "!starts if starts is not None else as_const(I[1])",
            "_ends": "!ends if ends is not None else as_const(I[2])",
            "_given": "!axes or items(I, 3, list(range(len(_starts))))",
            "_axes": "!ensure_positive(_given, I[0].rank)",
            "_steps": "!items(I, 4, [1] * len(_starts))",
            "_slices": "!slices(I[0].shape, _axes, _starts, _ends, _steps)",
        },
        "attribs": {
            "axes": "!_axes",
            "begin": "![begin for begin, end in _slices]",
            "end": "![end for begin, end in _slices]",
            "stride": "!_steps",
        },
    },
    "Pad": {
        "type": "pad",
        "defaults": {"mode": "constant", "value": 0.0, "pads": None},
        "cond": {'!mode != "wrap"': "mode must not be wrap"},
        "using": {
            "_pads": "!pads or as_const(I[1])",
            "_value": "!ensure_scalar(items(I, 2, value))",
        },
        "attribs": {
            "padding": "!paddings(_pads, items(I, 3, None), I[0].rank)",
            "value": "!float(_value)",
            "border": '!"replicate" if mode == "edge" else mode',
        },
    },
}
