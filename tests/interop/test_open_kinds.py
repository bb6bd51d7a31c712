"""What ONNX files of other people say of their sizes, a small network for each kind: one
backward document has the gradients of each size, and what is learned is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import numpy_helper
from support.open_files import OpenFile

from nnef_grad import check, differentiate, interop, loads, lower
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.symbols import example_sizes, with_numbers
from nnef_grad.runtimes import find_runtime


class Kind(NamedTuple):
    """A network: its inputs, its nodes in ONNX's text, the shapes of its weights, the sizes
    that it is tried at, and what is learned of it.
    """

    inputs: str
    nodes: str
    weights: dict[str, list[int]]
    sizes: list[dict[str, int]]
    facts: tuple[str, ...] = ()
    version: int = 17


def _sizes(**numbers: tuple[int, ...]) -> list[dict[str, int]]:
    return [
        dict(zip(numbers, column, strict=True))
        for column in zip(*numbers.values(), strict=True)
    ]


KINDS = {
    "strides": Kind(
        "float[N, 3, H, W] x",
        """a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
        b = Relu (a)
        c = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b)
        y = GlobalAveragePool (c)""",
        {"w": [4, 3, 3, 3]},
        _sizes(N=(1, 2, 1, 3), H=(1, 7, 8, 13), W=(1, 9, 10, 12)),
    ),
    # As in docs/open-sizes.md.
    "windows": Kind(
        "float[N, 1, H] x",
        """c = Conv <strides = [2], pads = [1, 1]> (x, w)
        y = MaxPool <kernel_shape = [4]> (c)""",
        {"w": [2, 1, 3]},
        _sizes(N=(1, 2, 3, 1), H=(7, 8, 9, 64)),
        ("H is at least 7",),
    ),
    # tract takes no open filter, so the gradient has a product for each of 150 places.
    "a wide filter": Kind(
        "float[N, 1, T] x",
        "y = Conv (x, w)",
        {"w": [2, 1, 150]},
        _sizes(N=(1, 2), T=(150, 163)),
    ),
    "channel by channel": Kind(
        "float[N, 4, 6, W] x",
        """a = Conv <strides = [2, 1], pads = [1, 1, 1, 1], group = 4> (x, v)
        y = Conv <pads = [2, 2, 2, 2], group = 4> (a, w)""",
        {"v": [4, 1, 3, 3], "w": [4, 1, 5, 5]},
        _sizes(N=(1, 2, 1), W=(1, 6, 11)),
    ),
    "same": Kind(
        "float[N, 2, T] x",
        """a = Conv <strides = [3], auto_pad = "SAME_UPPER"> (x, w)
        b = AveragePool <kernel_shape = [2], strides = [2], auto_pad = "SAME_LOWER"> (a)
        y = Tanh (b)""",
        {"w": [3, 2, 5]},
        _sizes(N=(1, 2, 1, 2), T=(1, 6, 7, 20)),
    ),
    # The product of two such sizes is not known to be positive.
    "same, then a mean": Kind(
        "float[N, 2, H, W] x",
        """a = Conv <strides = [2, 2], auto_pad = "SAME_LOWER"> (x, w)
        b = Conv <strides = [2, 2], auto_pad = "SAME_LOWER"> (a, w)
        c = Conv <strides = [4, 4], auto_pad = "SAME_LOWER"> (b, v)
        d = Conv <strides = [4, 4], auto_pad = "SAME_LOWER"> (c, v)
        e = Tanh (d)
        y = ReduceMean <axes = [2, 3], keepdims = 0> (e)""",
        {"w": [2, 2, 3, 3], "v": [2, 2, 4, 4]},
        _sizes(N=(1, 2, 1), H=(1, 9, 22), W=(3, 17, 8)),
    ),
    "ceil": Kind(
        "float[N, 2, T] x",
        """a = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)
        b = AveragePool <kernel_shape = [3], strides = [2], ceil_mode = 1, pads = [1, 1]> (a)
        y = Mul (b, b)""",
        {},
        _sizes(N=(1, 2, 1, 2), T=(2, 8, 9, 22)),
        ("T is at least 2",),
    ),
    "transposed": Kind(
        "float[N, 2, H, W] x",
        """a = ConvTranspose <strides = [2, 3], output_padding = [1, 0]> (x, w)
        y = Sigmoid (a)""",
        {"w": [2, 3, 3, 2]},
        _sizes(N=(1, 2, 1, 3), H=(1, 3, 4, 5), W=(1, 4, 5, 6)),
    ),
    "weight": Kind(
        "float[N, D] x",
        "y = MatMul (x, w)",
        {"w": [6, 3]},
        _sizes(N=(1, 4)),
        ("D is 6",),
    ),
    "two batches": Kind(
        "float[A, 3] x, float[B, 2] z",
        """a = Concat <axis = 1> (x, z)
        y = MatMul (a, w)""",
        {"w": [5, 2]},
        _sizes(A=(1, 4)),
        ("B is A",),
    ),
    "two lengths": Kind(
        "float[N, S, 3] x, float[N, T, 3] z",
        """a = Concat <axis = 1> (x, z)
        b = Transpose <perm = [0, 2, 1]> (a)
        c = Conv <strides = [2]> (b, w)
        y = ReduceMean <axes = [2], keepdims = 0> (c)""",
        {"w": [2, 3, 5]},
        _sizes(N=(1, 2, 1), S=(1, 3, 8), T=(4, 4, 7)),
        ("S + T is at least 5",),
    ),
    "reflection": Kind(
        "float[N, 2, T] x",
        """p = Constant <value = int64[6] {0, 0, 4, 0, 0, 3}> ()
        a = Pad <mode = "reflect"> (x, p)
        y = Conv <strides = [2]> (a, w)""",
        {"w": [2, 2, 3]},
        _sizes(N=(1, 2, 1), T=(5, 8, 11)),
        ("T is at least 5",),
    ),
    "to the end": Kind(
        "float[N, T, 3] x",
        """i = Constant <value = int64[1] {1}> ()
        j = Constant <value = int64[1] {1000000000}> ()
        a = Slice (x, i, j, i)
        b = Tanh (a)
        y = ReduceSum <keepdims = 0> (b, i)""",
        {},
        _sizes(N=(1, 2), T=(2, 7)),
    ),
    "backward": Kind(
        "float[N, T] x",
        """i = Constant <value = int64[1] {-2}> ()
        j = Constant <value = int64[1] {-9223372036854775807}> ()
        k = Constant <value = int64[1] {1}> ()
        l = Constant <value = int64[1] {-1}> ()
        a = Slice (x, i, j, k, l)
        b = Concat <axis = 1> (a, x)
        y = Tanh (b)""",
        {},
        _sizes(N=(1, 2), T=(2, 7)),
    ),
    "pyramid": Kind(
        "float[N, 2, H, W] x",
        """a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, v)
        b = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (a, w)
        s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        c = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (b, , s)
        y = Add (a, c)""",
        {"v": [2, 2, 3, 3], "w": [2, 2, 3, 3]},
        _sizes(N=(1, 2, 1, 1), H=(4, 7, 8, 1), W=(8, 3, 4, 12)),
        ("(H + 1)/2 and 2*((H + 3)/4) are equal, or one is 1",),
    ),
    "u-net": Kind(
        "float[N, 2, H, W] x",
        """a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, v)
        s = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        b = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , s)
        c = Concat <axis = 1> (x, b)
        y = Conv (c, w)""",
        {"v": [2, 2, 3, 3], "w": [1, 4, 1, 1]},
        _sizes(N=(1, 2), H=(2, 6), W=(4, 8)),
        ("H is a multiple of 2", "W is a multiple of 2"),
    ),
    "halves": Kind(
        "float[N, T] x",
        """a, b = Split <axis = 1> (x)
        y = Mul (a, b)""",
        {},
        _sizes(N=(1, 2), T=(2, 6)),
        ("T is a multiple of 2",),
    ),
    "two parts": Kind(
        "float[N, T] x",
        """a, b = Split <axis = 1, num_outputs = 2> (x)
        c = Sin (a)
        d = Exp (b)
        y = Concat <axis = 1> (d, c)""",
        {},
        _sizes(N=(1, 2, 1), T=(2, 5, 8)),
        ("T is at least 2",),
        version=18,
    ),
    "sums up to each": Kind(
        "float[N, T, 2] x",
        """i = Constant <value = int64 {1}> ()
        a = CumSum (x, i)
        b = CumSum <exclusive = 1, reverse = 1> (a, i)
        y = Mul (a, b)""",
        {},
        _sizes(N=(1, 2, 1), T=(1, 2, 7)),
    ),
    **{
        f"to the size of another, {how}, {places}": Kind(
            "float[N, 2, H, W] x, float[N, 2, P, Q] z",
            f"""b = Shape <end = 2> (x)
            c = Shape <start = 2> (z)
            s = Concat <axis = 0> (b, c)
            a = Resize <mode = "{how}", coordinate_transformation_mode = "{places}", nearest_mode = "round_prefer_ceil"> (x, , , s)
            y = Mul (a, z)""",
            {},
            _sizes(
                N=(1, 2, 1, 1),
                H=(1, 4, 7, 5),
                W=(3, 6, 5, 1),
                P=(2, 6, 1, 5),
                Q=(3, 1, 8, 1),
            ),
        )
        for how in ("linear", "nearest", "cubic")
        for places in (
            "align_corners",
            "asymmetric",
            "half_pixel",
            "pytorch_half_pixel",
        )
    },
    "corners": Kind(
        "float[N, 2, H, W] x",
        """s = Constant <value = float[4] {1.0, 1.0, 2.0, 3.0}> ()
        a = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , s)
        y = Tanh (a)""",
        {},
        _sizes(N=(1, 2, 1), H=(1, 3, 4), W=(1, 2, 5)),
    ),
    "one and a half, and a half": Kind(
        "float[N, 2, H, W] x",
        """s = Constant <value = float[4] {1.0, 1.0, 1.5, 0.5}> ()
        a = Resize <mode = "linear"> (x, , s)
        y = Tanh (a)""",
        {},
        _sizes(N=(1, 2, 1), H=(1, 3, 4), W=(2, 5, 6)),
        ("W is at least 2",),
    ),
    "to a number": Kind(
        "float[N, 2, H, W] x",
        """b = Shape <end = 2> (x)
        c = Constant <value = int64[2] {4, 5}> ()
        s = Concat <axis = 0> (b, c)
        a = Resize <mode = "linear"> (x, , , s)
        y = Conv (a, w)""",
        {"w": [1, 2, 4, 5]},
        _sizes(N=(1, 2, 1), H=(1, 4, 9), W=(7, 3, 5)),
    ),
    "one open axis of two": Kind(
        "float[N, 2, 3, W] x, float[N, 2, 5, Q] z",
        """s = Shape (z)
        a = Resize <mode = "linear"> (x, , , s)
        y = Mul (a, z)""",
        {},
        _sizes(N=(1, 2, 1), W=(1, 4, 9), Q=(7, 3, 5)),
    ),
    # What is made shorter teaches nothing: S may be more than 1.
    "repeated": Kind(
        "float[N, 1, 3] x, float[N, S, 3] z, float[N, T] v",
        """o = Constant <value = int64[1] {1}> ()
        t = Shape <start = 1, end = 2> (v)
        r = Concat <axis = 0> (o, t, o)
        a = Tile (x, r)
        b = Tanh (z)
        y = Mul (a, b)""",
        {},
        _sizes(N=(1, 2, 1), S=(3, 1, 4), T=(3, 5, 1)),
        ("T and S are equal, or one is 1",),
    ),
    "top-down": Kind(
        "float[N, 2, H, W] x",
        """a = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
        s = Shape (x)
        b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (a, , , s)
        y = Mul (x, b)""",
        {"w": [2, 2, 3, 3]},
        _sizes(N=(1, 2, 1), H=(1, 4, 7), W=(2, 3, 9)),
    ),
    "positions": Kind(
        "float[N, T, 3] x",
        """z = Constant <value = int64[1] {0}> ()
        s = Shape <start = 1, end = 2> (x)
        p = Slice (w, z, s, z)
        y = Mul (x, p)""",
        {"w": [9, 3]},
        _sizes(N=(1, 2), T=(1, 9)),
        ("T is at most 9",),
    ),
    "range": Kind(
        "float[N, 2, T] x",
        """a = Conv <strides = [2], pads = [1, 1]> (x, w)
        s = Shape <start = 2, end = 3> (a)
        z = Constant <value = int64[0] {}> ()
        n = Reshape (s, z)
        f = Cast <to = 1> (n)
        i = Constant <value = float {0.0}> ()
        k = Constant <value = float {1.0}> ()
        r = Range (i, f, k)
        y = Mul (a, r)""",
        {"w": [3, 2, 3]},
        _sizes(N=(1, 2), T=(1, 8)),
    ),
    # As many patches as there are positions, in any rows and columns.
    "patches": Kind(
        "float[N, 2, H, W] x",
        """a = Conv <strides = [4, 4]> (x, w)
        s = Constant <value = int64[3] {0, 5, -1}> ()
        b = Reshape (a, s)
        c = Transpose <perm = [0, 2, 1]> (b)
        n = Shape <start = 0, end = 1> (x)
        k = Constant <value = int64[2] {1, 5}> ()
        e = Concat <axis = 0> (n, k)
        t = Expand (first, e)
        d = Concat <axis = 1> (t, c)
        y = Add (d, p)""",
        {"w": [5, 2, 4, 4], "first": [1, 1, 5], "p": [1, 13, 5]},
        _sizes(N=(1, 2, 3), H=(12, 27, 4), W=(16, 8, 49)),
        ("12 is a multiple of W/4", "H/4 is 12/(W/4)"),
    ),
    # Messages along the edges of a graph, of which there may be more than it has nodes.
    "edges": Kind(
        "float[A, 2] x, int64[E] e",
        """m = Gather (x, e)
        p = Mul (m, m)
        one = Constant <value = int64[1] {1}> ()
        u = Unsqueeze (e, one)
        s = Shape (p)
        i = Expand (u, s)
        t = Shape (x)
        z = ConstantOfShape (t)
        y = ScatterElements <axis = 0, reduction = "add"> (z, i, p)""",
        {},
        _sizes(A=(2, 2, 5), E=(1, 7, 3)),
        version=18,
    ),
    "flat": Kind(
        "float[N, 2, H, 8] x",
        """a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        b = Flatten (a)
        y = Gemm <transB = 1> (b, w)""",
        {"w": [3, 24]},
        _sizes(N=(1, 2), H=(6, 7)),
        ("H is at least 6, at most 7",),
    ),
    "empty": Kind(
        "float[N, 2, 3] x",
        """n = Shape <start = 0, end = 1> (x)
        m = Constant <value = int64[2] {0, 3}> ()
        s = Concat <axis = 0> (n, m)
        e = ConstantOfShape (s)
        a = Concat <axis = 1> (e, x)
        y = Tanh (a)""",
        {},
        _sizes(N=(1, 3)),
    ),
    **{
        f"in order, from the {name}": Kind(
            "float[N, T, 2] x",
            f"""k = Shape <start = 1, end = 2> (x)
            a, i = TopK <axis = 1, largest = {number}> (x, k)
            b = Cast <to = 1> (i)
            c = Mul (a, b)
            y = Add (c, a)""",
            {},
            _sizes(N=(1, 2, 1), T=(1, 2, 7)),
        )
        for name, number in (("largest", 1), ("smallest", 0))
    },
    **{
        f"{cell} of sequences of several lengths": Kind(
            "float[T, N, 3] x, int64[N] n",
            f"""i = Constant <value = int64[1] {{1}}> ()
            m = Add (n, i)
            l = Cast <to = 6> (m)
            a, h = {cell} <hidden_size = 2, direction = "bidirectional"> (x, w, r, b, l)
            y = Add (a, h)""",
            {"w": [2, 2 * gates, 3], "r": [2, 2 * gates, 2], "b": [2, 4 * gates]},
            _sizes(N=(2, 1, 3), T=(2, 3, 5)),
        )
        for cell, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    },
    # As tf2onnx writes layers of Keras.
    **{
        name: Kind(
            "float[N, T, 3] x",
            f"""t = Transpose <perm = [1, 0, 2]> (x)
            s = Shape (t)
            z = Constant <value = int64 {{0}}> ()
            o = Constant <value = int64 {{1}}> ()
            count = Gather (s, z)
            items = Gather (s, o)
            n = Cast <to = 6> (count)
            first = Constant <value = int32 {{0}}> ()
            least = Constant <value = float {{0.0}}> ()
            f = Cast <to = 1> (n)
            begins = Less (least, f)
            both = And (begins, begins)
            e0 = Constant <value = int64[1] {{0}}> ()
            batch = Unsqueeze (items, e0)
            lengths = Expand (count, batch)
            turned = ReverseSequence <batch_axis = 1, time_axis = 0> (t, lengths)
            h0 = Gather (t, z)
            i_, h_, n_, w_, rows = Loop ({limit}, {begins}, first, h0, n, w) <body = step (
                    int64 number, bool on, int32 i, float[N, 3] h, int32 m, float[3, 3] v
                ) => (bool {goes}, int32 j, float[N, 3] k, int32 m2, float[3, 3] v2, float[N, 3] row) {{
                    one = Constant <value = int32 {{1}}> ()
                    j = Add (i, one)
                    part = Gather (turned, i)
                    a = MatMul (h, v)
                    b = Add (a, part)
                    k = Tanh (b)
                    row = Mul (k, part)
                    jf = Cast <to = 1> (j)
                    mf = Cast <to = 1> (m)
                    goes = Less (jf, mf)
                    nf = Cast <to = 1> (number)
                    before = Less (nf, mf)
                    on2 = And (before, goes)
                    m2 = Identity (m)
                    v2 = Identity (v)
                }}>
            g = Cast <to = 1> (i_)
            e = Mul (h_, g)
            y = Add (rows, e)""",
            {"w": [3, 3]},
            _sizes(N=(1, 2, 1), T=(1, 2, 5)),
        )
        for name, limit, begins, goes in (
            ("a loop by a counter", "", "begins", "goes"),
            ("a loop by a counter and a limit", "count", "both", "on2"),
        )
    },
    **{
        f"each sequence turned around, its steps along {time}": Kind(
            "float[N, T, 3] x, int64[N] n" if time else "float[T, N, 3] x, int64[N] n",
            f"""i = Constant <value = int64[1] {{2}}> ()
            m = Add (n, i)
            a = ReverseSequence <batch_axis = {1 - time}, time_axis = {time}> (x, m)
            y = Mul (a, a)""",
            {},
            _sizes(N=(2, 1, 3), T=(3, 4, 9)),
        )
        for time in (0, 1)
    },
    "squeezed": Kind(
        "float[N, 3, T] x",
        """a = Conv (x, w)
        s = Shape <start = 2, end = 3> (a)
        one = Constant <value = int64[1] {1}> ()
        two = Constant <value = int64[1] {2}> ()
        same = Equal (s, one)
        b = If (same) <
            then_branch = t () => (t1) { t1 = Squeeze (a, two) },
            else_branch = e () => (e1) { e1 = Identity (a) }
        >
        y = Gemm <transB = 1> (b, v)""",
        {"w": [4, 3, 5], "v": [2, 4]},
        _sizes(N=(1, 3)),
        ("T is 5",),
    ),
}


def written(kind: Kind, path: Path) -> Path:
    """The file of a network, with random weights."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {kind.version}]>\nnet ({kind.inputs}) => (float[] y) {{ {kind.nodes} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, shape in kind.weights.items():
        weight = random.standard_normal(shape).astype(np.float32) / 2
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", KINDS)
def test_one_document_for_each_size(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    opened = OpenFile(written(kind, tmp_path / "model.onnx"), tmp_path)
    for number, sizes in enumerate(kind.sizes):
        opened.compare(sizes, seed=number)
    for fact in kind.facts:
        assert any(own.startswith(f"{fact}, for '") for own in opened.graph.facts)


def test_examples_fit_each_other(tmp_path: Path) -> None:
    read = interop.from_onnx(written(KINDS["patches"], tmp_path / "model.onnx"))
    sizes = example_sizes(read.graph)
    assert (sizes["H"] // 4) * (sizes["W"] // 4) == 12
    backward = differentiate(read.graph)
    assert "all agree" in check(read.graph, backward, variables=read.data).conclusion


# What tract takes no open sizes for: mirrors, sizes that are divided by others, and those that
# a fact makes equal.
NOT_IN_TRACT = {
    "reflection": "a reflection of T . 6 elements is not known",
    "backward": "a reflection of T - 1 elements is not known",
    "a loop by a counter": "a reflection of T - 1 elements is not known",
    "a loop by a counter and a limit": "a reflection of T - 1 elements is not known",
    "pyramid": "tract cannot divide by the extent",
    "repeated": "tract cannot divide by the extent",
    "u-net": "tract cannot load",
    "flat": "tract cannot load",
    "same, then a mean": "tract cannot load",
    "patches": "tract cannot divide by the extent",
}


@pytest.mark.parametrize("name", KINDS)
def test_the_same_in_tract(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tract")
    kind = KINDS[name]
    read = interop.from_onnx(written(kind, tmp_path / "model.onnx"))
    backward = differentiate(read.graph, with_outputs=True).graph
    if name in NOT_IN_TRACT:
        with pytest.raises(NnefGradError, match=NOT_IN_TRACT[name]):
            find_runtime("tract").compile(backward, read.data)
        return
    tract, onnxruntime = (
        find_runtime(runtime).compile(backward, read.data)
        for runtime in ("tract", "onnxruntime")
    )
    for sizes in kind.sizes:
        inputs = with_numbers(backward, sizes).inputs
        random = np.random.default_rng(len(inputs[0].shape))
        fed = [
            random.standard_normal(x.shape).astype(np.float32)
            if x.dtype == "scalar"
            else random.integers(0, 2, x.shape)
            for x in inputs
        ]
        for found, wanted in zip(tract(fed), onnxruntime(fed), strict=True):
            assert found.shape == wanted.shape
            most = np.abs(wanted).max(initial=1e-6)
            np.testing.assert_allclose(found / most, wanted / most, atol=1e-5)


def test_what_a_loop_sees_in_openvino(tmp_path: Path) -> None:
    """Weights of a direction, which are a part of a variable: its loops take no such thing."""
    pytest.importorskip("openvino")
    text = """f = LSTM <direction = "bidirectional", hidden_size = 3> (x, w, r)
        y = Tanh (f)"""
    weights = {"w": [2, 12, 4], "r": [2, 12, 3]}
    kind = Kind("float[T, N, 4] x", text, weights, _sizes(N=(2,), T=(33,)))
    read = interop.from_onnx(written(kind, tmp_path / "model.onnx"))
    backward = differentiate(read.graph, with_outputs=True).graph
    random = np.random.default_rng(0)
    fed = [
        random.standard_normal(x.shape).astype(np.float32)
        for x in with_numbers(backward, kind.sizes[0]).inputs
    ]
    found, wanted = (
        find_runtime(runtime).compile(backward, read.data)(fed)
        for runtime in ("openvino", "onnxruntime")
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_refused_for_tract_alone() -> None:
    """One of two operands may have a single element: its gradient has as many as it has."""
    text = """version 1.0;
    extension tract_symbol T;
    extension tract_symbol S;
    graph net( x, z ) -> ( y )
    {
        x = external(shape = [2, T]);
        z = external(shape = [2, S]);
        y = mul(x, z);
    }"""
    backward = differentiate(loads(text)).graph
    lower(backward, "onnx")
    with pytest.raises(
        NnefGradError, match="tract cannot divide by the extent T"
    ) as caught:
        lower(backward, "tract")
    assert caught.value.problems[0].remedy == "symbol"


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no number for a matrix": (
        "float[N, 2, H, W] x",
        "a = Flatten (x)\n y = Gemm <transB = 1> (a, w)",
        {"w": [3, 24]},
    ),
    "another size": (
        "float[N, 2, H, W] x",
        """s = Constant <value = float[4] {1.0, 1.0, 1.3, 1.3}> ()
        y = Resize <mode = "linear"> (x, , s)""",
        {},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_asked_for(name: str, tmp_path: Path) -> None:
    inputs, nodes, weights = REFUSED[name]
    path = written(Kind(inputs, nodes, weights, []), tmp_path / "model.onnx")
    with pytest.raises(NnefGradError) as caught:
        interop.from_onnx(path)
    assert caught.value.problems[0].remedy == "symbol"
    assert caught.value.sizes == {"N": 1, "H": 64, "W": 64}


def test_sizes_that_contradict_each_other(tmp_path: Path) -> None:
    nodes = "a = MatMul (x, v)\n b = MatMul (x, w)\n y = Add (a, b)"
    weights = {"v": [6, 3], "w": [5, 3]}
    path = written(Kind("float[N, D] x", nodes, weights, []), tmp_path / "model.onnx")
    with pytest.raises(NnefGradError, match=r"6 in A and 5 in B.*D is 6, for 'MatMul'"):
        interop.from_onnx(path)
