"""ONNX files, read and written: node by node against ONNX Runtime, and what is refused."""

from __future__ import annotations

import errno
import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from support.checks import document
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]

TEXT = document(
    "x = external(shape = [2, 3]);\nw = variable(shape = [1, 3], label = 'a/W');\ny = mul(x, w);"
)

onnx: Any = import_module("onnx") if find_spec("onnx") else None
onnxruntime: Any = import_module("onnxruntime") if find_spec("onnxruntime") else None
needs_onnx = pytest.mark.skipif(
    not (onnx and onnxruntime), reason="the tests of ONNX files run them"
)


class Node(NamedTuple):
    """A model of one node. Operands are shapes, of inputs, or arrays, which are data."""

    kind: str
    version: int
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    results: int = 1


def node(kind: str, version: int, *operands: Any, **attributes: Any) -> Node:
    results: int = attributes.pop("results", 1)
    return Node(kind, version, operands, attributes, results)


def integers(*items: int) -> Array:
    return np.array(items, np.int64)


def scalars(*items: float) -> Array:
    return np.array(items, np.float32)


IMAGE = (2, 3, 6, 7)
KERNEL = np.linspace(-1, 1, 72, dtype=np.float32).reshape(4, 3, 3, 2)
SPREAD = KERNEL.reshape(3, 4, 3, 2)
THREE = scalars(0.5, 1.5, -1.0)
POOL = {"kernel_shape": [3, 2], "strides": [2, 3]}
REDUCTIONS = [
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
    *("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"),
]

PLACES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)
RESIZINGS: list[dict[str, Any]] = [
    *({"coordinate_transformation_mode": how} for how in PLACES),
    {"cubic_coeff_a": -0.5, "nearest_mode": "ceil"},
]
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

NODES = [
    *(node(kind, 18, (2, 3, 4), integers(-1, 0), keepdims=0) for kind in REDUCTIONS),
    *(node(kind, 18, (2, 3, 4)) for kind in REDUCTIONS),
    *(node(kind, 11, (2, 3, 4), axes=[1]) for kind in REDUCTIONS),
    node("ReduceMean", 18, (2, 3), noop_with_empty_axes=1),
    node("ReduceProd", 18, (2, 3, 4), integers(-1, 0), keepdims=0),
    node("ReduceProd", 18, (2, 3)),
    node("ReduceProd", 18, (2, 1, 3), integers(1)),
    node("Col2Im", 18, (2, 12, 12), integers(4, 5), integers(2, 2)),
    node("Col2Im", 18, (1, 8, 12), integers(4, 5), integers(2, 2), pads=[1, 0, 0, 1], strides=[1, 2], dilations=[1, 1]),
    *(node("Softmax", version, (2, 3, 4)) for version in (11, 13)),
    node("Resize", 11, IMAGE, scalars(), scalars(1, 1, 2, 2), mode="linear"),
    *(node("LogSoftmax", version, (2, 3, 4), axis=1) for version in (11, 13)),
    *(
        node("AveragePool", 13, IMAGE, pads=pads, ceil_mode=1, count_include_pad=counts, **POOL)
        for pads in ([0, 0, 0, 0], [1, 0, 1, 1])
        for counts in (0, 1)
    ),
    node("AveragePool", 13, IMAGE, kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1),
    *(node(kind, 13, IMAGE, auto_pad="SAME_LOWER", **POOL) for kind in ("MaxPool", "AveragePool")),
    node("LpPool", 18, IMAGE, p=3, **POOL),
    node("GlobalLpPool", 13, IMAGE, p=3),
    *(
        node("Conv", 13, IMAGE, KERNEL, auto_pad=pads, strides=[2, 1])
        for pads in ("SAME_LOWER", "SAME_UPPER", "VALID")
    ),
    *(
        node("ConvTranspose", 13, IMAGE, SPREAD, strides=[2, 2], **attributes)
        for attributes in (
            {"auto_pad": "SAME_LOWER"},
            {"output_shape": [12, 14]},
            {"output_shape": [11, 13], "output_padding": [1, 1]},
            {"pads": [1, 0, 1, 1], "output_padding": [1, 0]},
        )
    ),
    node("ConvTranspose", 13, IMAGE, SPREAD, strides=[3, 3], output_shape=[20, 22]),
    *(node(kind, 13, (3, 4), (4,), (3, 1)) for kind in ("Max", "Min", "Sum", "Mean")),
    node("Max", 13, (3, 4)),
    node("Sum", 13, (4,), (3, 4)),
    node("Clip", 6, (3, 4), min=-0.5),
    node("Clip", 13, (3, 4), None, np.float32(0.3)),
    node("Clip", 13, (3, 4)),
    node("Elu", 13, (3, 4), alpha=0.3),
    node("Celu", 13, (3, 4), alpha=0.3),
    node("Selu", 13, (3, 4), alpha=1.2, gamma=2.0),
    node("HardSigmoid", 13, (3, 4)),
    node("HardSwish", 14, (3, 4)),
    node("ThresholdedRelu", 13, (3, 4), alpha=0.3),
    *(node("Gelu", 20, (3, 4), approximate=how) for how in ("none", "tanh")),
    *(node(kind, 18, (3, 4)) for kind in ("Erf", "Mish", "Softsign", "Reciprocal")),
    *(node("Flatten", 13, (2, 3, 4), axis=axis) for axis in (0, 1, 2, -1)),
    node("Reshape", 13, (1, 1), np.zeros(0, np.int64)),
    node("Reshape", 13, (), integers(1, 1)),
    node("Squeeze", 13, (2, 1, 3, 1)),
    node("Unsqueeze", 13, (2, 3), integers(3, 0)),
    node("Split", 13, (4, 6), results=2, axis=1),
    node("Split", 18, (4, 7), results=3, axis=1, num_outputs=3),
    node("Expand", 13, (3, 1), integers(2, 3, 4)),
    node("Expand", 13, (), integers(2, 2)),
    node("Gather", 13, (4, 5), integers(-1, 0, -2), axis=-1),
    node("Gather", 13, (4, 5), np.int64(-1)),
    node("Slice", 13, (3, 5), integers(10), integers(-100), integers(1), integers(-1)),
    node("Slice", 13, (3, 5), integers(-100), integers(3), integers(1)),
    node("Slice", 13, (3, 5), integers(1), integers(3)),
    node("Slice", 9, (3, 5), starts=[1], ends=[4], axes=[1]),
    node("Pad", 18, (2, 3, 4), integers(1, 2, 3, 0), None, integers(2, 0)),
    node("Pad", 13, (2, 3), integers(1, 0, 0, 2), np.float32(1.5)),
    node("Pow", 13, (3, 4), np.int64(2)),
    *(
        node("MatMul", 13, one, two)
        for one, two in [((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4,)), ((4,), (2, 4, 3))]
    ),
    *(
        node("Gemm", 13, (4, 4), (4, 4), (4,), transA=a, transB=b, alpha=alpha)
        for a in (0, 1)
        for b in (0, 1)
        for alpha in (1.0, 0.5)
    ),
    node("LayerNormalization", 17, IMAGE, np.ones((6, 7), np.float32), axis=2),
    node("InstanceNormalization", 13, IMAGE, THREE, THREE),
    node("GroupNormalization", 21, (2, 4, 3, 3), (4,), (4,), num_groups=2),
    node("MeanVarianceNormalization", 13, IMAGE),
    node("RMSNormalization", 23, (2, 3, 4), (4,)),
    *(node("DepthToSpace", 13, (2, 8, 3, 4), blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    node("SpaceToDepth", 13, (2, 2, 4, 6), blocksize=2),
    node("LSTM", 14, (3, 2, 4), (1, 20, 4), (1, 20, 5), hidden_size=5),
    node("LSTM", 14, (3, 2, 4), (1, 20, 4), (1, 20, 5), (1, 40), None, (1, 2, 5), (1, 2, 5), results=3, hidden_size=5),
    *(
        node(kind, 14, (3, 2, 4), (n, 5 * gates, 4), (n, 5 * gates, 5), results=2, hidden_size=5, direction=way, **({"linear_before_reset": 1} if kind == "GRU" else {}))
        for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
        for way, n in (("reverse", 1), ("bidirectional", 2))
    ),
    node("GRU", 14, (3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30), results=2, hidden_size=5, linear_before_reset=1),
    node("RNN", 14, (3, 2, 4), (1, 5, 4), (1, 5, 5), results=2, hidden_size=5),
    node("Resize", 10, (1, 2, 4, 4), scalars(1, 1, 3, 3)),
    node("Resize", 10, (1, 2, 4, 4), scalars(1, 1, 2, 2), mode="linear"),
    node("Resize", 13, (1, 2, 4, 4), None, scalars(1, 1, 0.5, 0.5)),
    node("Resize", 13, (1, 2, 4, 4), None, None, integers(1, 2, 8, 4), mode="linear"),
    *(
        node("Resize", 19, (1, 2, 4, 5), None, None, integers(1, 2, 7, 3), mode=mode, **more)
        for mode in ("nearest", "linear", "cubic")
        for more in RESIZINGS
    ),
    node("Resize", 13, (1, 2, 4, 5), None, scalars(1, 1, 1.3, 0.7), mode="cubic", exclude_outside=1),
    node("Resize", 19, (1, 2, 4, 5), None, scalars(1, 1, 1.5, 0.8), nearest_mode="floor", coordinate_transformation_mode="half_pixel_symmetric"),
    node("Resize", 13, (4, 5), None, scalars(2, 1.5), mode="linear"),
    node("Resize", 13, (1, 2, 3, 4, 4), None, scalars(1, 1, 2, 0.5, 1.5), mode="linear"),
    *(node("Resize", 13, (1, 2, 4, 6), None, scalars(1, 1, 0.5, 0.5), nearest_mode=how) for how in ROUNDINGS),
    node("GridSample", 20, (2, 3, 4, 5), (2, 3, 2, 2), mode="cubic"),
    *(
        node("GridSample", 20, (2, 3, 4, 5), (2, 3, 2, 2), mode=mode, padding_mode=padding, align_corners=corners)
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
    ),
    *(node("AffineGrid", 20, (2, 2, 3), integers(2, 3, 4, 5), align_corners=corners) for corners in (0, 1)),
    node("AffineGrid", 20, (2, 2, 3), integers(2, 3, 1, 5)),
    *(
        node("Einsum", 13, *shapes, equation=equation)
        for equation, *shapes in (
            ("bqhd,bkhd->bhqk", (2, 4, 2, 3), (2, 5, 2, 3)),
            ("ij,jk", (2, 3), (3, 4)),
            ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
            ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
            ("bii->bi", (2, 3, 3)),
            ("ii", (3, 3)),
            ("ij->ji", (2, 3)),
            ("i,j->ij", (2,), (3,)),
            ("ijk,k->", (2, 3, 4), (4,)),
            ("bi,bi->b", (2, 3), (2, 3)),
        )
    ),
    node("GatherElements", 13, (3, 4), integers(0, -1, 2, 3).reshape(2, 2), axis=1),
    node("GatherElements", 13, (3, 4, 2), integers(*[0, 1, 2, 0, -1, 1] * 4).reshape(3, 4, 2), axis=0),
    *(
        node("ScatterElements", 18, (3, 4), integers(0, -1, 2, 1).reshape(2, 2), (2, 2), axis=axis, reduction=how)
        for axis, how in ((1, "none"), (-1, "add"), (0, "add"))
    ),
    node("GatherND", 13, (3, 4), integers(0, 1, 2, -1, 0, 1).reshape(3, 2)),
    node("GatherND", 13, (3, 4, 2), integers(0, -1, 1, 0).reshape(2, 2, 1)),
    *(
        node("ScatterND", 18, (3, 4), integers(*index).reshape(shape), updates, reduction=how)
        for how in ("none", "add")
        for index, shape, updates in (
            ((0, -1), (2, 1), (2, 4)),
            ((0, 1, 2, -1), (2, 2), (2,)),
            ((0, 1, 0, 2, 1, 1, 1, 2), (2, 2, 2), (2, 2)),
            ((0, 1, 0, 3, 2, 1, 2, 3), (4, 2), (4,)),
        )
    ),
    node("ScatterND", 18, (3, 4), integers(1, 2, 1).reshape(3, 1), (3, 4), reduction="add"),
    *(
        node("CumSum", 14, (3, 4), np.int64(axis), exclusive=exclusive, reverse=reverse)
        for axis, exclusive, reverse in ((0, 0, 0), (-1, 1, 0), (1, 0, 1), (1, 1, 1))
    ),
    node("Mod", 13, (3, 4), scalars(0.7, -0.4, 1.1, 2.0), fmod=1),
    *(
        node("NegativeLogLikelihoodLoss", 13, (3, 4, 2), integers(0, 1, 3, 3, 2, 1).reshape(3, 2), *weight, reduction=how, **more)
        for how in ("none", "mean", "sum")
        for weight in ((), ((4,),))
        for more in ({}, {"ignore_index": 3})
    ),
    node("SoftmaxCrossEntropyLoss", 13, (3, 4), integers(0, 3, -100), (4,), results=2, ignore_index=-100),
]  # fmt: skip


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    data: dict[str, Any],
    outputs: list[str],
    version: int,
) -> Any:
    """A model, and where a shape is None it is left open."""
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value(name, kind, shape) for name, shape in inputs.items()],
        [value(name, kind, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in data.items()],
    )
    opsets = [onnx.helper.make_opsetid("", version)]
    return onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=8 if version < 21 else 10
    )


def model_of_node(found: Node) -> Any:
    names = ["" if o is None else f"x{i}" for i, o in enumerate(found.operands)]
    given = dict(zip(names, found.operands, strict=True))
    inputs = {name: o for name, o in given.items() if isinstance(o, tuple)}
    data = {name: o for name, o in given.items() if name and not isinstance(o, tuple)}
    outputs = [f"y{i}" for i in range(found.results)]
    made = onnx.helper.make_node(found.kind, names, outputs, **found.attributes)
    return model_of([made], inputs, data, outputs, found.version)


def named(found: Node) -> str:
    shown = " ".join(f"{k}={v}" for k, v in found.attributes.items())
    return f"{found.kind} {found.version} {shown}"


@needs_onnx
@pytest.mark.parametrize("found", NODES, ids=named)
def test_nodes_compute_what_onnx_runtime_computes(found: Node, tmp_path: Path) -> None:
    if onnx.defs.onnx_opset_version() < found.version:
        pytest.skip(f"onnx {onnx.__version__} is too old")
    if is_wrong_there(found):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has it wrong")
    onnx.save(model_of_node(found), tmp_path / "model.onnx")
    agrees(tmp_path)


def is_wrong_there(found: Node) -> bool:
    """Whether an older version is no oracle, which is the last one for Python 3.10."""
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    counts = {
        "ceil_mode": 1,
        "count_include_pad": 1,
    }.items() <= found.attributes.items()
    return version < (1, 31) and (counts or "noop_with_empty_axes" in found.attributes)


def agrees(folder: Path) -> nnef_grad.Backward:
    """The graph computes what the file does, and its gradients are the same in ONNX
    Runtime as here, where they agree with central differences.
    """
    graph, data = interop.from_onnx(folder / "model.onnx")
    generator = np.random.default_rng(0)

    def values(graph: nnef_grad.Graph, known: Collection[str] = ()) -> dict[str, Array]:
        return {
            name: np.asarray(generator.standard_normal(t.shape), np.float32)
            for name, t in zip(graph.input_names, graph.inputs, strict=True)
            if name not in known
        }

    feeds = values(graph)
    close(run(folder / "model.onnx", feeds), nnef_grad.evaluate(graph, feeds, data))
    backward = nnef_grad.differentiate(graph)
    assert nnef_grad.check(graph, backward, variables=data).passed
    interop.to_onnx(backward.graph, folder / "backward.onnx", data, overwrite=True)
    feeds |= values(backward.graph, feeds)
    found = run(folder / "backward.onnx", feeds)
    close(found, nnef_grad.evaluate(backward, feeds, data))
    return backward


def close(found: dict[str, Array], expected: Mapping[str, Array]) -> None:
    for name, array in found.items():
        assert array.shape == expected[name].shape
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-4)


# ---- ONNX files: what exporters write ----


def make(kind: str, operands: str, results: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, operands.split(), results.split(), **attributes)


def save(folder: Path, nodes: list[Any], inputs: dict[str, Any], **data: Any) -> None:
    onnx.save(model_of(nodes, inputs, data, ["y"], 13), folder / "model.onnx")


@needs_onnx
def test_shapes_that_are_computed_are_constants(tmp_path: Path) -> None:
    nodes = [
        make("Shape", "x", "s"),
        make("Gather", "s zero", "n"),
        make("Concat", "n rest", "t", axis=0),
        make("Reshape", "x t", "z"),
        make("ConstantOfShape", "t", "c"),
        make("Add", "z c", "y"),
    ]
    save(tmp_path, nodes, {"x": (2, 3, 4)}, zero=integers(0), rest=integers(12))
    agrees(tmp_path)
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert graph.outputs[0].shape == (2, 12)


@needs_onnx
def test_a_number_of_elements_is_known(tmp_path: Path) -> None:
    nodes = [
        make("Size", "x", "n"),
        make("Div", "n four", "m"),
        make("Unsqueeze", "m zero", "rows"),
        make("Concat", "rows columns", "t", axis=0),
        make("Reshape", "x t", "y"),
    ]
    data = {"four": np.int64(4), "zero": integers(0), "columns": integers(4)}
    save(tmp_path, nodes, {"x": (2, 3, 4)}, **data)
    agrees(tmp_path)
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert graph.outputs[0].shape == (6, 4)


@needs_onnx
def test_slices_without_elements(tmp_path: Path) -> None:
    """A shift by nothing, as exporters write it."""
    nodes = [
        make("Slice", "x zero all", "whole"),
        make("Slice", "x zero zero", "none"),
        make("Concat", "whole none", "joined", axis=0),
        make("ReduceSum", "none zero", "nothing"),
        make("Add", "joined nothing", "y"),
    ]
    save(tmp_path, nodes, {"x": (3, 4)}, zero=integers(0), all=integers(2**62))
    agrees(tmp_path)


@needs_onnx
def test_elements_of_long_constants_are_folded(tmp_path: Path) -> None:
    """The evaluator of onnx chooses among 31 at most."""
    nodes = [make("GatherElements", "table i", "j"), make("Gather", "x j", "y")]
    table, indices = np.arange(64)[::-1] % 5, np.arange(64) * 3 % 64
    save(tmp_path, nodes, {"x": (5, 2)}, table=table, i=indices)
    agrees(tmp_path)
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert [op.name for op in graph.operations][-1] == "gather"
    assert len(graph.operations) == 3


@needs_onnx
def test_branches_whose_condition_is_known_are_taken(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": onnx.helper.make_graph(
            [make(kind, "x", f"{name}_y")],
            name,
            [],
            [onnx.helper.make_tensor_value_info(f"{name}_y", 1, None)],
        )
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [make("Equal", "one one", "c"), make("If", "c", "y", **branches)]
    save(tmp_path, nodes, {"x": (2, 3)}, one=integers(1).reshape(()))
    agrees(tmp_path)
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert "relu" in [op.name for op in graph.operations]


@needs_onnx
def test_masks_of_minus_infinity(tmp_path: Path) -> None:
    nodes = [
        make("Trilu", "all", "m", upper=0),
        make("Cast", "m", "mask", to=onnx.TensorProto.BOOL),
        make("Where", "mask x low", "z"),
        make("Softmax", "z", "y"),
    ]
    data = {"all": np.ones((4, 4), np.int64), "low": np.float32(-np.inf)}
    onnx.save(model_of(nodes, {"x": (4, 4)}, data, ["y"], 14), tmp_path / "model.onnx")
    agrees(tmp_path)


@needs_onnx
def test_integers_are_constants(tmp_path: Path) -> None:
    table = np.arange(12).reshape(3, 4) % 5
    made = onnx.numpy_helper.from_array(table, "i")
    node = onnx.helper.make_node("Constant", [], ["i"], value=made)
    for before, data in (([node], {}), ([], {"i": table})):
        nodes = [*before, make("Gather", "x i", "y")]
        save(tmp_path, nodes, {"x": (5, 2)}, **data)
        backward = agrees(tmp_path)
        assert not backward.graph.variables
        nnef_grad.lower(backward.graph, "tract")


@needs_onnx
def test_constants_in_all_forms(tmp_path: Path) -> None:
    nodes = [
        make("Constant", "", "a", value_float=2.5),
        make("Constant", "", "b", value_floats=[1.0, 2.0, 3.0]),
        make("Constant", "", "s", value_ints=[3, 2]),
        make("Mul", "x a", "t"),
        make("Add", "t b", "u"),
        make("Reshape", "u s", "y"),
    ]
    save(tmp_path, nodes, {"x": (2, 3)})
    agrees(tmp_path)


@needs_onnx
def test_scalars_become_integers_towards_zero(tmp_path: Path) -> None:
    nodes = [make("Cast", "x", "i", to=7), make("Cast", "i", "y", to=1)]
    save(tmp_path, nodes, {"x": (4,)})
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    found = nnef_grad.evaluate(graph, {"x": [-1.5, -0.5, 0.5, 1.5]})
    assert found["y"].tolist() == [-1, 0, 0, 1]


@needs_onnx
def test_labels_are_paths_of_their_own(tmp_path: Path) -> None:
    names = [
        "w",
        "W",
        "\N{LATIN SMALL LETTER A WITH DIAERESIS}",
        "ü",
        "../w",
        "/abs//w",
        ".",
    ]
    nodes = [make("Add", f"t{i} {name}", f"t{i + 1}") for i, name in enumerate(names)]
    data = {name: np.full(3, i, np.float32) for i, name in enumerate(names)}
    model = model_of(nodes, {"t0": (3,)}, data, [f"t{len(names)}"], 13)
    onnx.save(model, tmp_path / "model.onnx")
    graph, found = interop.from_onnx(tmp_path / "model.onnx")
    assert list(found) == ["w", "W_1", "_", "__1", "w_2", "abs/w", "variable"]
    nnef_grad.save(graph, tmp_path / "model", data=found)
    stored = nnef_grad.load_data(tmp_path / "model")
    assert {label: stored[label][0] for label in found} == dict(
        zip(found, range(7), strict=True)
    )
    agrees(tmp_path)


@needs_onnx
def test_extents_that_are_left_open_are_given(tmp_path: Path) -> None:
    nodes = [
        make("Shape", "x", "s"),
        make("Reshape", "x s", "t"),
        make("Relu", "t", "y"),
    ]
    save(tmp_path, nodes, {"x": ("batch", 3)})
    path = tmp_path / "model.onnx"
    graph, _ = interop.from_onnx(path, input_shapes={"x": [7, 3]})
    assert graph.outputs[0].shape == (7, 3)
    for shapes, message in (
        ({"x": [7]}, r"the input 'x' has the rank 2, and \[7\] is given"),
        ({"z": [7]}, "there is no input 'z'; the inputs are 'x'"),
    ):
        with pytest.raises(nnef_grad.UsageError, match=message):
            interop.from_onnx(path, input_shapes=shapes)


@needs_onnx
@pytest.mark.parametrize("word", ["?", "None", "-1", "*"])
def test_words_that_name_no_extent(word: str, tmp_path: Path) -> None:
    """Of two that are not known, neither is said to be the other."""
    nodes = [make("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[2, 2])]
    save(tmp_path, nodes, {"x": (word, 3, word, word)})
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert [str(extent) for extent in graph.inputs[0].shape] == [
        "x_0",
        "3",
        "x_2",
        "x_3",
    ]
    save(tmp_path, nodes, {"x": ("n", 3, "n", "n")})
    graph, _ = interop.from_onnx(tmp_path / "model.onnx")
    assert [str(extent) for extent in graph.inputs[0].shape] == ["n", "3", "n", "n"]


@needs_onnx
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [("Inverse", ("x",), "u", {}), ("Det", ("u",), "y", {})],
            "has unsupported operations: 'Inverse', 'Det'",
        ),
        ([("Relu", ("z",), "y", {})], "reads 'z', which nothing makes"),
        (
            [("Gelu", ("x",), "y", {"domain": "com.own"})],
            "has unsupported operations: 'com.own.Gelu'",
        ),
        (
            [("Dropout", ("x", "r", "t"), "y", {})],
            "'Dropout' is not .* must not be in training mode",
        ),
        (
            [("ScatterElements", ("x", "j", "x"), "y", {"name": "write"})],
            r"'ScatterElements' \(node 'write'\) is not .* indices must differ",
        ),
        (
            [("NonZero", ("x",), "y", {"name": "found"})],
            r"\(node 'found'\) is not .* its result depends on values: multiply by a mask",
        ),
    ],
)
def test_what_is_not_converted_is_said(
    nodes: list[Any], message: str, tmp_path: Path
) -> None:
    made = [
        onnx.helper.make_node(kind, operands, [result], **attributes)
        for kind, operands, result, attributes in nodes
    ]
    data = {
        "i": np.int64(0),
        "p": integers(0, 0, 1, 0, 0, 1),
        "r": np.float32(0.5),
        "t": np.bool_(True),
        "f": scalars(1, 1, 2),
        "w": scalars(1, 2),
        "j": np.zeros((2, 3, 3), np.int64),
    }
    model = model_of(made, {"x": (2, 3, 3)}, data, ["y"], 19)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(nnef_grad.UnsupportedError, match=message) as caught:
        interop.from_onnx(tmp_path / "model.onnx")
    assert "model.onnx" in str(caught.value)


@needs_onnx
def test_files_that_are_none_of_onnx(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("this is no model")
    (tmp_path / "empty.onnx").write_text("")
    for name, message in (
        ("missing.onnx", "cannot read .*missing.onnx': No such file"),
        ("text.onnx", "text.onnx' cannot be read as an ONNX file"),
        ("empty.onnx", "empty.onnx' is not an ONNX file: it has no graph"),
        ("", "is a folder, but must be a file"),
    ):
        with pytest.raises(nnef_grad.UsageError, match=message):
            interop.from_onnx(tmp_path / name)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(nnef_grad.UsageError, match=r"pip install onnx"):
        interop.from_onnx(tmp_path / "model.onnx")
    with pytest.raises(nnef_grad.UsageError, match=r"pip install onnx"):
        interop.to_onnx(nnef_grad.loads(TEXT), tmp_path / "model.onnx")


@needs_onnx
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    graph, path = nnef_grad.loads(TEXT), tmp_path / "model.onnx"
    interop.to_onnx(graph, path, {"a/w": np.ones((1, 3))})
    before = path.read_bytes()
    for data, message in (
        ({}, "there are no data for the variables with the labels 'a/W'"),
        ({"a/W": np.ones((3, 1))}, "have the shape"),
    ):
        with pytest.raises(nnef_grad.UsageError, match=message):
            interop.to_onnx(graph, path, data, overwrite=True)
    with pytest.raises(nnef_grad.UsageError, match="exists already"):
        interop.to_onnx(graph, path, {"a/w": np.ones((1, 3))})
    with pytest.raises(nnef_grad.UsageError, match="cannot write"):
        interop.to_onnx(
            graph, tmp_path / "none" / "model.onnx", {"a/w": np.ones((1, 3))}
        )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@needs_onnx
def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nnef_grad.targets.onnx.storage._write", full)
    with pytest.raises(nnef_grad.UsageError, match=r"cannot write .*No space left"):
        interop.to_onnx(
            nnef_grad.loads(TEXT), tmp_path / "model.onnx", {"a/w": np.ones((1, 3))}
        )
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_data_in_double_precision_are_written_in_single(tmp_path: Path) -> None:
    interop.to_onnx(
        nnef_grad.loads(TEXT), tmp_path / "model.onnx", {"a/w": np.full((1, 3), 0.1)}
    )
    found = run(tmp_path / "model.onnx", {"x": np.ones((2, 3), np.float32)})
    assert found["y"].tolist() == np.full((2, 3), np.float32(0.1)).tolist()


@needs_onnx
def test_initializers_without_axes_are_numbers(tmp_path: Path) -> None:
    made = [onnx.helper.make_node("Mul", ["x", "gain"], ["y"])]
    model = model_of(made, {"x": (2, 3)}, {"gain": np.float32(1.5)}, ["y"], 13)
    onnx.save(model, tmp_path / "model.onnx")
    graph, data = interop.from_onnx(tmp_path / "model.onnx")
    assert data == {}
    (warning,) = graph.warnings
    assert warning.message == "'gain' becomes a number, which has no gradient"


@needs_onnx
def test_initializers_without_axes_that_follow_each_other(tmp_path: Path) -> None:
    nodes = [make("Mul", "x a", "t"), make("Add", "t b", "u"), make("Sub", "u c", "y")]
    numbers = {name: np.float32(i) for i, name in enumerate("abc", 2)}
    save(tmp_path, nodes, {"x": (2, 3)}, **numbers)
    _, data = interop.from_onnx(tmp_path / "model.onnx")
    assert data == {}
    agrees(tmp_path)


@needs_onnx
def test_results_that_are_left_out_twice(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("RNN", ["x", "w", "r"], ["", name], hidden_size=5)
        for name in ("a", "b")
    ]
    shapes = {"x": (3, 2, 4), "w": (1, 5, 4), "r": (1, 5, 5)}
    save(tmp_path, [*nodes, make("Add", "a b", "y")], shapes)
    agrees(tmp_path)


@needs_onnx
def test_a_vector_that_one_operation_reads_twice(tmp_path: Path) -> None:
    nodes = [make("BatchNormalization", "x b b m v", "y")]
    save(tmp_path, nodes, {"x": IMAGE}, b=THREE, m=THREE, v=abs(THREE))
    agrees(tmp_path)


DILATED = {"auto_pad": "SAME_UPPER", "kernel_shape": [2], "dilations": [2]}


@needs_onnx
@pytest.mark.parametrize(
    ("nodes", "messages"),
    [
        (
            [
                ("NonZero", ("x",), "t", {}),
                ("Resize", ("x", "", "f"), "y", {"mode": "cubic", "antialias": 1}),
            ],
            [
                "'NonZero' is not possible: the shape of its result depends on values",
                "'Resize' is not possible: antialias must be 0",
            ],
        ),
        (
            [("Unsqueeze", ("x",), "y", {})],
            ["'Unsqueeze' is not possible: axes is missing"],
        ),
    ],
)
def test_all_that_is_refused_is_said(
    nodes: list[Any], messages: list[str], tmp_path: Path
) -> None:
    made = [
        onnx.helper.make_node(kind, operands, [result], **attributes)
        for kind, operands, result, attributes in nodes
    ]
    model = model_of(made, {"x": (1, 3, 4)}, {"f": scalars(1, 1, 2)}, ["y"], 19)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(nnef_grad.UnsupportedError) as caught:
        interop.from_onnx(tmp_path / "model.onnx")
    for message in messages:
        assert message in str(caught.value)
