"""Nodes of ONNX at the edges of what they are defined for, where a result may be wrong
without a word: each is what ONNX Runtime computes, with the gradients of the differences of
that, or it is refused.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]

onnx: Any = import_module("onnx") if find_spec("onnx") else None
onnxruntime: Any = import_module("onnxruntime") if find_spec("onnxruntime") else None
pytestmark = pytest.mark.skipif(
    not (onnx and onnxruntime), reason="the tests of ONNX files run them"
)

RANDOM = np.random.default_rng(3)


def make(kind: str, operands: str, results: str = "y", **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, operands.split(), results.split(), **attributes)


def scalars(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def save(
    folder: Path,
    nodes: list[Any],
    fed: dict[str, Array],
    version: int = 18,
    **data: Any,
) -> Path:
    """A file with these inputs, and these initializers; its output is y."""
    helper, number = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    inputs = [
        helper.make_tensor_value_info(name, number(x.dtype), x.shape)
        for name, x in fed.items()
    ]
    arrays = [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in data.items()]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "net", inputs, outputs, arrays)
    opsets = [helper.make_opsetid("", version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def agrees(path: Path, fed: dict[str, Array]) -> nnef_grad.Graph:
    """The file computes the same here, and its gradient, written to a file, is in ONNX Runtime
    that of the differences there.
    """
    model = interop.from_onnx(path)
    graph, data = model.graph, model.data
    expected = run(path, fed)["y"]
    found = nnef_grad.evaluate(graph, fed, data)["y"]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    if graph.tensors["y"].dtype != "scalar":
        return graph
    backward = nnef_grad.differentiate(graph, wrt="inputs")
    gradients = path.with_name("gradients.onnx")
    interop.to_onnx(backward.graph, gradients, data, overwrite=True)
    factors = scalars(*expected.shape)
    made = run(gradients, {**fed, "grad_y": factors})
    for name in [n for n, x in fed.items() if x.dtype.kind == "f"]:
        slopes = np.zeros(fed[name].shape)
        for place in np.ndindex(slopes.shape):
            ends = []
            for step in (0.01, -0.01):
                moved = {n: x.copy() for n, x in fed.items()}
                moved[name][place] += step
                ends.append(np.sum(run(path, moved)["y"] * factors, dtype=float))
            slopes[place] = (ends[0] - ends[1]) / 0.02
        np.testing.assert_allclose(made[f"grad_{name}"], slopes, 2e-2, 2e-2)
    return graph


# ---- Indices that count from the end ----


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [[-1, 1], -2, [[0, -3], [2, -1]]])
def test_fed_indices_count_from_the_end(
    axis: int, indices: Any, tmp_path: Path
) -> None:
    fed = {"x": scalars(4, 3), "i": np.array(indices)}
    agrees(save(tmp_path, [make("Gather", "x i", axis=axis)], fed), fed)


def test_computed_indices_count_from_the_end(tmp_path: Path) -> None:
    fed = {"x": scalars(4, 3), "i": np.array([3, 1])}
    nodes = [make("Sub", "i four", "before"), make("Gather", "x before")]
    agrees(save(tmp_path, nodes, fed, four=np.array(4)), fed)


@pytest.mark.parametrize("kind", ["GatherElements", "GatherND", "ScatterElements"])
def test_other_fed_indices_count_from_the_end(kind: str, tmp_path: Path) -> None:
    fed = {"x": scalars(4, 3), "i": np.array([[0, -1, 2], [-3, 1, -4]])}
    if kind == "GatherND":
        fed["i"] = np.array([[0, -1], [-4, 1]])
    if kind == "ScatterElements":
        fed["u"] = scalars(2, 3)
    agrees(save(tmp_path, [make(kind, " ".join(fed))], fed), fed)


@pytest.mark.parametrize("kind", ["Gather", "GatherElements"])
def test_indices_that_are_certainly_no_negative_ones_are_read_as_they_are(
    kind: str, tmp_path: Path
) -> None:
    # Differences must not change which one is the greatest.
    fed = {"x": RANDOM.permutation(12).reshape(4, 3).astype(np.float32)}
    nodes = [make("ArgMax", "x", "i", axis=0), make(kind, "x i")]
    graph = agrees(save(tmp_path, nodes, fed), fed)
    assert {op.name for op in graph.operations}.isdisjoint({"add", "lt"})


@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("index", [4, -5])
def test_known_indices_outside_are_refused(
    kind: str, index: int, tmp_path: Path
) -> None:
    path = save(tmp_path, [make(kind, "x i")], {"x": scalars(4)}, i=[index])
    with pytest.raises(nnef_grad.UnsupportedError, match="indices are outside"):
        interop.from_onnx(path)


# ---- What the compiler stores is no parameter ----

MANY = 16_000


def test_a_table_of_many_places_is_not_trained(tmp_path: Path) -> None:
    """Weight decay would move the numbers that indices are compared with."""
    index, table = np.array([[5, -1]]), scalars(MANY, 2)
    path = save(tmp_path, [make("GatherElements", "x i")], {"i": index}, x=table)
    graph, data = interop.from_onnx(path)
    assert {*data} == {"x"}
    settings: Any = {"loss": "mean_squared_error", "optimizer": "adamw"}
    step = nnef_grad.training_step(graph, data=data, learning_rate=0.01, **settings)
    batches = [{"i": index, "target_y": np.zeros((1, 2), np.float32)}] * 3
    first, second, third = nnef_grad.training.run(step, batches)
    assert first > second > third > 0


def resized(folder: Path) -> Path:
    """A model with a weight, whose matrices of resizing are too large for a text."""
    nodes = [make("Mul", "x w", "u"), make("Resize", "u", mode="cubic")]
    nodes[1].input[:] = ["u", "", "", "s"]
    data: Any = {"w": scalars(1, 1, 90, 90), "s": np.array([1, 1, 150, 150])}
    return save(folder, nodes, {"x": scalars(1, 1, 90, 90)}, **data)


@pytest.mark.parametrize("way", ["read", "folder", "file"])
def test_matrices_of_the_compiler_have_no_gradients(way: str, tmp_path: Path) -> None:
    graph, data = interop.from_onnx(resized(tmp_path))
    if way == "folder":
        nnef_grad.save(graph, tmp_path / "model", data=data)
        graph = nnef_grad.load(tmp_path / "model")
    if way == "file":
        interop.to_onnx(graph, tmp_path / "again.onnx", data)
        graph, data = interop.from_onnx(tmp_path / "again.onnx")
    assert len(data) == 3
    assert {*nnef_grad.differentiate(graph).gradients} == {"x", "w"}
    assert {*nnef_grad.differentiate(graph, wrt="variables").gradients} == {"w"}
    step = nnef_grad.training_step(
        graph, loss="mean_squared_error", optimizer="adamw", data=data, train="*"
    )
    assert step.trained == ("w",)


def test_matrices_of_the_compiler_are_buffers_and_not_merged(tmp_path: Path) -> None:
    torch_module = pytest.importorskip("nnef_grad.torch")
    graph, data = interop.from_onnx(resized(tmp_path))
    module = torch_module.Module(graph, data=data)
    assert [name for name, _ in module.named_parameters()] == ["w"]
    nnef_grad.save(graph, tmp_path / "model", data=data)
    moved = {label: np.asarray(array) + 1 for label, array in data.items()}
    nnef_grad.save(graph, tmp_path / "trained", data=moved)
    changed = nnef_grad.training.merge(
        tmp_path / "model", tmp_path / "trained", tmp_path / "merged"
    )
    assert changed == ["w"]


def test_the_transpose_of_a_large_constant_is_a_parameter(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(scalars(120, 110))
    nodes = [
        make("Constant", "", "w", value=weight),
        make("Transpose", "w", "turned"),
        make("MatMul", "x turned"),
    ]
    graph, _ = interop.from_onnx(save(tmp_path, nodes, {"x": scalars(2, 110)}))
    assert {*nnef_grad.differentiate(graph).gradients} == {"x", "turned"}


# ---- Data types ----


@pytest.mark.parametrize("flags", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_infinities_that_are_asked_for(flags: tuple[int, int], tmp_path: Path) -> None:
    fed = {"x": np.array([-np.inf, np.inf, 1.0, np.nan], np.float32)}
    names = ("detect_positive", "detect_negative")
    settings: Any = dict(zip(names, flags, strict=True))
    node = make("IsInf", "x", **settings)
    agrees(save(tmp_path, [node], fed, 20), fed)


@pytest.mark.parametrize("kind", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_integers_of_few_bits_wrap_around(
    kind: int, dtype: Any, tmp_path: Path
) -> None:
    fed = {"x": np.array([300.7, -1.5, 255, 256, -129.3, 70000, -70000]).astype(dtype)}
    nodes = [make("Cast", "x", "i", to=kind), make("Cast", "i", to=1)]
    graph, _ = interop.from_onnx(save(tmp_path, nodes, fed))
    expected = run(tmp_path / "model.onnx", fed)["y"]
    np.testing.assert_array_equal(nnef_grad.evaluate(graph, fed)["y"], expected)


def test_bytes_of_what_is_between_their_bounds_do_not_wrap(tmp_path: Path) -> None:
    fed = {"x": np.array([-4.0, 3.7, 255.9, 300.0], np.float32)}
    nodes = [make("Clip", "x least most", "z"), make("Cast", "z", to=2)]
    ends: Any = {"least": np.float32(0), "most": np.float32(255)}
    graph = agrees(save(tmp_path, nodes, fed, **ends), fed)
    assert "sub" not in {op.name for op in graph.operations}


def test_known_indices_of_blocks_outside_are_refused(tmp_path: Path) -> None:
    fed = {"x": scalars(4, 2), "u": scalars(1, 2)}
    path = save(tmp_path, [make("ScatterND", "x i u")], fed, i=[[4]])
    with pytest.raises(nnef_grad.UnsupportedError, match="indices are outside"):
        interop.from_onnx(path)


# ---- Settings at their edges ----

REDUCTIONS = (
    "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"
)  # fmt: skip


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_along_no_axes(kind: str, keepdims: int, tmp_path: Path) -> None:
    fed = {"x": np.array([[0.3, 1.4, 2.5], [3.0, 0.7, 0.2]], np.float32)}
    if kind != "LogSum":
        fed["x"][0] *= -1
    settings: Any = {"noop_with_empty_axes": 1, "keepdims": keepdims}
    agrees(save(tmp_path, [make(f"Reduce{kind}", "x", **settings)], fed), fed)


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("version", [13, 18])
def test_reductions_of_a_number(kind: str, version: int, tmp_path: Path) -> None:
    fed = {"x": np.array(1.7 if kind == "LogSum" else -1.7, np.float32)}
    agrees(save(tmp_path, [make(f"Reduce{kind}", "x")], fed, version), fed)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("extent", [1, 2, 3])
def test_transposed_convolutions_as_long_as_their_operand(
    extent: int, auto_pad: str, tmp_path: Path
) -> None:
    """Where the kernel is shorter than the stride, no two runtimes agree."""
    fed = {"x": scalars(1, 1, 4)}
    node = make("ConvTranspose", "x w", strides=[2], auto_pad=auto_pad)
    path = save(tmp_path, [node], fed, w=scalars(1, 1, extent))
    if extent >= 2:
        agrees(path, fed)
    else:
        with pytest.raises(nnef_grad.UnsupportedError, match="shorter than the stride"):
            interop.from_onnx(path)


def test_transposed_convolutions_that_say_their_length_twice(tmp_path: Path) -> None:
    """Runtimes take one or the other."""
    how: Any = {"strides": [2], "auto_pad": "SAME_UPPER", "output_padding": [1]}
    node = make("ConvTranspose", "x w", **how)
    path = save(tmp_path, [node], {"x": scalars(1, 1, 4)}, w=scalars(1, 1, 3))
    with pytest.raises(nnef_grad.UnsupportedError, match="with output_padding"):
        interop.from_onnx(path)


@pytest.mark.parametrize("kind", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("window", [(2, 1, 1), (2, 1, 2), (1, 3, 1), (3, 2, 1)])
def test_pools_as_long_as_their_operand(
    kind: str, window: tuple[int, int, int], tmp_path: Path
) -> None:
    names = ("kernel_shape", "strides", "dilations")
    settings: Any = dict(zip(names, ([n] for n in window), strict=True))
    fed = {"x": scalars(1, 1, 6)}
    nodes = [make(kind, "x", auto_pad="SAME_UPPER", **settings)]
    path = save(tmp_path, nodes, fed, 20)
    if window in ((2, 1, 1), (3, 2, 1)):
        agrees(path, fed)
    else:
        with pytest.raises(nnef_grad.UnsupportedError, match="where windows have"):
            interop.from_onnx(path)


@pytest.mark.parametrize("alpha", [-1.5, -0.5, 0.7])
def test_exponential_units_of_either_sign(alpha: float, tmp_path: Path) -> None:
    fed = {"x": np.array([-2.3, -0.4, 0.3, 1.8], np.float32)}
    agrees(save(tmp_path, [make("Celu", "x", alpha=alpha)], fed), fed)


@pytest.mark.parametrize("first", [-9, -4, 1, 9])
@pytest.mark.parametrize("last", [-9, 0])
@pytest.mark.parametrize("step", [-1, -2])
def test_descending_slices_that_begin_outside(
    first: int, last: int, step: int, tmp_path: Path
) -> None:
    fed = {"x": scalars(3)}
    bounds: Any = {"s": [first], "e": [last], "a": [0], "t": [step]}
    path = save(tmp_path, [make("Slice", "x s e a t")], fed, **bounds)
    if run(path, fed)["y"].size:
        agrees(path, fed)


# ---- Numbers that cannot be written ----

SETTINGS = [("Elu", "alpha"), ("LeakyRelu", "alpha"), ("Selu", "gamma")]


@pytest.mark.parametrize(("kind", "setting"), SETTINGS)
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_settings_that_are_no_finite_numbers(
    kind: str, setting: str, number: float, tmp_path: Path
) -> None:
    """The largest number stands for infinity, and there is none for what is no number."""
    settings: Any = {setting: number}
    node = make(kind, "x", **settings, name="bent")
    path = save(tmp_path, [node], {"x": scalars(3)})
    if np.isnan(number):
        message = r"\(node 'bent'\) is not possible: .* would read 'nan'"
        with pytest.raises(nnef_grad.UnsupportedError, match=message):
            interop.from_onnx(path)
    else:
        graph, _ = interop.from_onnx(path)
        for written in (graph, nnef_grad.differentiate(graph).graph):
            assert nnef_grad.loads(nnef_grad.dumps(written)) == written


@pytest.mark.parametrize("kind", ["Mul", "Where"])
@pytest.mark.parametrize("is_wide", [False, True])
def test_constants_that_are_no_numbers(
    kind: str, is_wide: bool, tmp_path: Path
) -> None:
    nodes = [make("Cast", "x", "b", to=9), make("Expand", "c s", "wide")]
    number = "wide" if is_wide else "c"
    nodes.append(make(kind, f"{'b ' if kind == 'Where' else ''}x {number}"))
    data: Any = {"c": np.float32(np.nan), "s": np.array([3])}
    path = save(tmp_path, nodes, {"x": scalars(3)}, **data)
    graph, _ = interop.from_onnx(path)
    for written in (graph, nnef_grad.differentiate(graph).graph):
        assert nnef_grad.loads(nnef_grad.dumps(written)) == written
    x = np.array([1.0, 0.0, 2.0])
    found, wanted = nnef_grad.evaluate(graph, {"x": x})["y"], [1.0, np.nan, 2.0]
    np.testing.assert_array_equal(found, wanted if kind == "Where" else [np.nan] * 3)


@pytest.mark.parametrize(
    "statement", ["mul(x, 1e39)", "elu(x, alpha = -1e39)", "add(x, c)", "max(x, w)"]
)
def test_numbers_too_large_for_a_file(statement: str, tmp_path: Path) -> None:
    graph = nnef_grad.loads(
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [2]);"
        " c = constant(shape = [2], value = [1.0, 1e39]);"
        f" w = variable(shape = [2], label = 'w'); y = {statement}; }}"
    )
    data = {"w": np.array([1.0, 1e39])}
    with pytest.raises(nnef_grad.UsageError, match="too large for float32"):
        interop.to_onnx(graph, tmp_path / "y.onnx", data)
    assert not [*tmp_path.iterdir()]


# ---- Integers that single precision does not have ----

HASH = [
    make("Mul", "i thirty", "part"),
    make("Mul", "i prime", "hash"),
    make("Add", "part hash", "sum"),
    make("Mod", "sum sixteen", "k"),
    make("Gather", "x k"),
]
FACTORS = {"thirty": 30, "prime": 65_599, "sixteen": 16}


@pytest.mark.parametrize("is_bounded", [False, True])
def test_products_that_may_lose_digits(is_bounded: bool, tmp_path: Path) -> None:
    fed = {"x": scalars(16, 2), "i": np.array([3, 200, 255])}
    nodes = [make("Clip", "fed none most", "i"), *HASH] if is_bounded else HASH
    if is_bounded:
        nodes[0].input[:] = ["fed", "zero", "most"]
        fed["fed"] = fed.pop("i")
    data: Any = {name: np.array(n) for name, n in FACTORS.items()}
    data |= {"zero": np.array(0), "most": np.array(255)}
    graph = agrees(save(tmp_path, nodes, fed, **data), fed)
    named = [warning.message.split()[0] for warning in graph.warnings]
    assert named == ([] if is_bounded else ["'hash'"])


SELECTING = {
    "Hardmax": ("y = Hardmax <axis = 1> (x)", 17),
    "Hardmax of rows": ("y = Hardmax <axis = 1> (x)", 11),
    "ArgMax, the last": (
        "i = ArgMax <axis = 1, select_last_index = 1> (r) y = Cast <to = 1> (i)",
        17,
    ),
    "ArgMin, the last": (
        "i = ArgMin <axis = -1, select_last_index = 1, keepdims = 0> (r)"
        " y = Cast <to = 1> (i)",
        17,
    ),
    "Pad, wrap": (
        "p = Constant <value_ints = [0, 2, 1, 1, 0, 3]> ()"
        ' y = Pad <mode = "wrap"> (x, p)',
        19,
    ),
    "Pad, wrap more than once": (
        "p = Constant <value_ints = [0, 7, 0, 0, 9, 4]> ()"
        ' y = Pad <mode = "wrap"> (x, p)',
        19,
    ),
    "Pad, wrap what negative pads leave": (
        "p = Constant <value_ints = [0, 3, -1, 0, -1, 1]> ()"
        ' y = Pad <mode = "wrap"> (x, p)',
        19,
    ),
}


@pytest.mark.parametrize("name", SELECTING)
def test_selecting_and_repeating(name: str, tmp_path: Path) -> None:
    nodes, version = SELECTING[name]
    text = f"""<ir_version: 8, opset_import: ["": {version}]>
        net (float[2, 4, 3] x) => (float[N] y) {{ r = Round (x) {nodes} }}"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    # Of whole numbers several are the greatest.
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32) * 1.5
    graph, data = interop.from_onnx(path)
    found = nnef_grad.evaluate(graph, {"x": x}, data)["y"]
    # Old ONNX Runtimes wrap only once.
    is_wrapped = name == "Pad, wrap more than once"
    pads = ((0, 0), (7, 9), (0, 4))
    wanted = np.pad(x, pads, "wrap") if is_wrapped else run(path, {"x": x})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    backward = nnef_grad.differentiate(graph)
    assert nnef_grad.check(graph, backward, inputs={"x": x}, variables=data).passed


def test_a_slice_that_is_empty_beside_one_that_goes_backward(tmp_path: Path) -> None:
    fed = {"x": scalars(4, 3)}
    nodes = [
        make("Slice", "x first last axes steps", "none"),
        make("Concat", "x none", axis=1),
    ]
    data: Any = {"first": [-1, 1], "last": [-9, 1], "axes": [0, 1], "steps": [-1, 1]}
    agrees(save(tmp_path, nodes, fed, **data), fed)


def test_an_output_without_elements_is_named(tmp_path: Path) -> None:
    nodes = [make("Slice", "x first last")]
    path = save(tmp_path, nodes, {"x": scalars(4, 3)}, first=[1], last=[1])
    with pytest.raises(nnef_grad.UnsupportedError, match="output 'y' has no elements"):
        interop.from_onnx(path)


def test_what_runtimes_disagree_about_is_refused(tmp_path: Path) -> None:
    axes = np.zeros(0, np.int64)
    path = save(tmp_path, [make("Squeeze", "x a")], {"x": scalars(1, 3)}, a=axes)
    with pytest.raises(nnef_grad.UnsupportedError, match="axes must not be empty"):
        interop.from_onnx(path)


@pytest.mark.parametrize("kind", ["ScatterElements", "ScatterND"])
def test_truth_values_have_no_sums(kind: str, tmp_path: Path) -> None:
    fed = {"x": np.ones(3, bool), "u": np.ones(1, bool)}
    indices: Any = [[0]] if kind == "ScatterND" else [0]
    nodes = [make(kind, "x i u", reduction="add")]
    path = save(tmp_path, nodes, fed, i=indices)
    with pytest.raises(nnef_grad.UnsupportedError, match="truth values"):
        interop.from_onnx(path)


# ---- Norms ----

_NORMS = {
    "ReduceL2": ([make("ReduceL2", "x", "y", axes=[2])], 13),
    "normalized": (
        [
            make("ReduceL2", "x", "norm", axes=[2]),
            make("Clip", "norm least", "divisor"),
            make("Div", "x divisor", "y"),
        ],
        13,
    ),
    "LpPool": ([make("LpPool", "x", kernel_shape=[3], strides=[3])], 18),
    "GlobalLpPool": ([make("GlobalLpPool", "x")], 18),
    "LpNormalization": ([make("LpNormalization", "x")], 18),
} if onnx else {}  # fmt: skip


@pytest.mark.parametrize("name", _NORMS)
def test_norms_of_zeros_have_no_slope(tmp_path: Path, name: str) -> None:
    """As in PyTorch; elsewhere the slope is that of the differences."""
    nodes, version = _NORMS[name]
    x = scalars(2, 2, 3)
    data = {"least": np.float32(1e-3)} if name == "normalized" else {}
    path = save(tmp_path, nodes, {"x": x}, version, **data)
    graph = agrees(path, {"x": x})
    backward = nnef_grad.differentiate(graph, seed="ones")
    x[1] = 0.0
    made = nnef_grad.evaluate(backward, {"x": x}, interop.from_onnx(path).data)
    assert np.isfinite(made["grad_x"]).all()
    assert made["grad_x"][0].any()


@pytest.mark.parametrize("scale", [0.4, 0.6, 1.5])
def test_resize_of_the_first_version_rounds_as_runtimes_do(
    tmp_path: Path, scale: float
) -> None:
    node = make("Resize", "x scales", mode="nearest")
    x, scales = scalars(1, 2, 7), np.array([1, 1, scale], np.float32)
    agrees(save(tmp_path, [node], {"x": x}, 10, scales=scales), {"x": x})
