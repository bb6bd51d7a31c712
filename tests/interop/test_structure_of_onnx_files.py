"""ONNX files: loops and sequences, which are expanded; inputs that nothing reads; and
initializers that are no single parameter.
"""

from __future__ import annotations

import tracemalloc
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

FLOAT, INT, BOOL = 1, 7, 9


def make(kind: str, operands: str, results: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, operands.split(), results.split(), **attributes)


def value(name: str, kind: int = FLOAT, shape: Any = None) -> Any:
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def save(path: Path, nodes: list[Any], inputs: list[Any], data: dict[str, Any]) -> Path:
    arrays = [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in data.items()]
    graph = onnx.helper.make_graph(nodes, "net", inputs, [value("y")], arrays)
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, path / "model.onnx")
    return path / "model.onnx"


def scalars(items: Any) -> Array:
    return np.array(items, np.float32)


def agrees(path: Path) -> nnef_grad.Graph:
    """The file computes the same here, and its gradients agree with central differences."""
    model = interop.from_onnx(path)
    graph, data = model.graph, model.data
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.standard_normal(t.shape).astype(np.float32)
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }
    found = nnef_grad.evaluate(graph, feeds, data)
    for name, expected in run(path, feeds).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
    backward = nnef_grad.differentiate(graph)
    assert nnef_grad.check(graph, backward, variables=data).passed
    return graph


# ---- Control flow ----


def loop(condition: str = "on") -> Any:
    """A body that multiplies its state by the input, and yields it plus the iteration."""
    nodes = [
        make("Mul", "s x", "t"),
        make("Cast", "i", "f", to=FLOAT),
        make("Add", "t f", "row"),
        make("Less", "i limit", "less"),
        make("Identity", condition, "goes"),
    ]
    inputs = [value("i", INT, []), value("on", BOOL, []), value("s")]
    return onnx.helper.make_graph(
        nodes, "body", inputs, [value("goes", BOOL, []), value("t"), value("row")]
    )


@pytest.mark.parametrize(("condition", "rows"), [("on", 3), ("less", 2)])
def test_loops_are_unrolled(condition: str, rows: int, tmp_path: Path) -> None:
    nodes = [
        make("Loop", "n yes x", "last all", body=loop(condition)),
        make("ReduceSum", "all axis", "sum", keepdims=0),
        make("Add", "sum last", "y"),
    ]
    data = {"n": np.int64(3), "yes": np.bool_(True), "limit": np.int64(1), "axis": [0]}
    graph = agrees(save(tmp_path, nodes, [value("x", FLOAT, (2, 3))], data))
    assert sum(op.name == "mul" for op in graph.operations) == rows


def test_loops_of_unknown_length_are_refused(tmp_path: Path) -> None:
    nodes = [
        make("ReduceSum", "x", "sum", keepdims=0),
        make("Cast", "sum", "n", to=INT),
        make("Loop", "n yes x", "y all", body=loop(), name="steps"),
    ]
    data = {"yes": np.bool_(True), "limit": np.int64(1)}
    path = save(tmp_path, nodes, [value("x", FLOAT, (2, 3))], data)
    message = (
        r"'Loop' \(node 'steps'\) is not possible: its length must be known .* fixed"
    )
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(path)


@pytest.mark.parametrize(
    "nodes",
    [
        [
            ("SequenceConstruct", "x z", "s", {}),
            ("SequenceInsert", "s x one", "t", {}),
            ("SequenceAt", "t last", "a", {}),
            ("ConcatFromSequence", "t", "b", {"axis": 0}),
            ("Concat", "a b", "y", {"axis": 0}),
        ],
        [
            ("SequenceEmpty", "", "e", {}),
            ("SequenceInsert", "e x", "s", {}),
            ("Identity", "s", "t", {}),
            ("SequenceInsert", "t z", "u", {}),
            ("ConcatFromSequence", "u", "y", {"axis": 1, "new_axis": 1}),
        ],
        [
            ("SplitToSequence", "v", "s", {"axis": 0, "keepdims": 0}),
            ("SequenceLength", "s", "n", {}),
            ("Cast", "n", "f", {"to": FLOAT}),
            ("SequenceAt", "s", "one", {}),
        ],
        [
            ("SplitToSequence", "v two", "s", {"axis": 1}),
            ("ConcatFromSequence", "s", "y", {"axis": 0}),
        ],
        [
            ("SequenceConstruct", "two ones", "s", {}),
            ("SequenceAt", "s one", "a", {}),
            ("Cast", "a", "f", {"to": FLOAT}),
            ("Mul", "v f", "y", {}),
        ],
        [
            ("SplitToSequence", "eight sizes", "s", {"axis": 0}),
            ("SequenceAt", "s one", "a", {}),
            ("Cast", "a", "f", {"to": FLOAT}),
            ("Mul", "v f", "y", {}),
        ],
    ],
    ids=["construct", "insert", "split", "split-in-parts", "known", "known-parts"],
)
def test_sequences_become_their_tensors(nodes: Any, tmp_path: Path) -> None:
    if nodes[-1][0] == "SequenceAt":
        nodes = [*nodes[:-1], ("SequenceAt", "s one", "a", {}), ("Mul", "a f", "y", {})]
    made = [make(kind, a, b, **attributes) for kind, a, b, attributes in nodes]
    data = {
        "one": np.int64(1),
        "last": np.int64(-1),
        "two": np.int64(2),
        "ones": np.ones((2, 4), np.int64),
        "eight": np.arange(8),
        "sizes": np.array([3, 4, 1]),
    }
    inputs = [value(name, FLOAT, (2, 4)) for name in ("x", "z")]
    agrees(save(tmp_path, [make("Mul", "x z", "v"), *made], inputs, data))


def test_a_loop_without_iterations(tmp_path: Path) -> None:
    nodes = [make("Loop", "n yes x", "y all", body=loop())]
    data = {"yes": np.bool_(True), "limit": np.int64(1), "n": np.int64(0)}
    inputs = [value("x", FLOAT, (2, 3))]
    agrees(save(tmp_path, nodes, inputs, data))
    path = save(tmp_path, [*nodes, make("Shape", "all", "s")], inputs, data)
    message = "'Loop' is not possible: it has no iterations, whose results are coll"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(path)


# ---- Data types ----

# What of integers is one in ONNX: half of it is rounded.
WHOLE: list[tuple[str, str, dict[str, Any]]] = [
    ("Clip", "i low high", {}),
    ("MatMul", "i turned", {}),
    ("Mod", "number i", {}),
    ("OneHot", "i depth both", {}),
    ("ReduceL1", "i", {}),
    ("ReduceL2", "i", {}),
    ("ReduceMean", "i", {}),
    ("Relu", "i", {}),
    ("ScatterElements", "i places updates", {"axis": 1}),
    ("ScatterND", "i places updates", {"reduction": "add"}),
    ("TopK", "i count", {}),
]


@pytest.mark.parametrize(("kind", "operands", "attributes"), WHOLE)
def test_integers_stay_whole(
    kind: str, operands: str, attributes: dict[str, Any], tmp_path: Path
) -> None:
    results = "r j" if kind == "TopK" else "r"
    nodes = [
        make("Cast", "x", "i", to=INT),
        make("Transpose", "i", "turned"),
        make("Size", "x", "number"),
        make(kind, operands, results, **attributes),
        make("Div", "r two", "half"),
        make("Cast", "half", "y", to=FLOAT),
    ]
    data = {
        "low": np.int64(-1),
        "high": np.int64(5),
        "depth": np.int64(8),
        "both": np.array([3, 5]),
        "places": np.array([[0, 1], [1, 2]]),
        "updates": np.array([11, 13] if kind == "ScatterND" else [[11, 13], [15, 17]]),
        "count": np.array([2]),
        "two": np.int64(2),
    }
    path = save(tmp_path, nodes, [value("x", FLOAT, (2, 3))], data)
    is_as_defined(path)


def test_scalars_of_integers_that_are_scanned_stay_scalars(tmp_path: Path) -> None:
    inner = [make("Cast", "e", "f", to=FLOAT), make("Sin", "f", "s")]
    inputs, outputs = [value("e", INT, [3])], [value("s", FLOAT, [3])]
    body = onnx.helper.make_graph(inner, "body", inputs, outputs)
    nodes = [
        make("Cast", "x", "i", to=INT),
        make("Scan", "i", "y", body=body, num_scan_inputs=1),
    ]
    agrees(save(tmp_path, nodes, [value("x", FLOAT, (2, 3))], {}))


def is_as_defined(path: Path) -> None:
    x = np.array([[1, 7, 3], [6, -3, 5]], np.float32)
    graph, stored = interop.from_onnx(path)
    (expected,) = onnx.reference.ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_allclose(
        nnef_grad.evaluate(graph, {"x": x}, stored)["y"],
        expected,
        rtol=1e-5,
        atol=1e-6,
    )


def damaged(model: Any) -> None:
    model.graph.initializer[0].data_type = 99


def truncated(model: Any) -> None:
    model.graph.initializer[0].dims[0] = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged, "'w' has an unknown data type, 99"),
        (truncated, "cannot be read as an"),
    ],
)
def test_initializers_that_are_damaged(
    change: Any, message: str, tmp_path: Path
) -> None:
    nodes, inputs = [make("Mul", "x w", "y")], [value("x", FLOAT, [2])]
    path = save(tmp_path, nodes, inputs, {"w": scalars([1, 2])})
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    with pytest.raises(nnef_grad.UsageError, match=message):
        interop.from_onnx(path)


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    nodes, inputs = [make("Mul", "x w", "y")], [value("x", FLOAT, [2])]
    path = save(tmp_path, nodes, inputs, {"w": np.array([1, 2j], np.complex64)})
    with pytest.raises(nnef_grad.UnsupportedError, match="'w' is of type complex64"):
        interop.from_onnx(path)


def test_positions_far_apart_are_no_grid(tmp_path: Path) -> None:
    count, extent = 200, 2000
    random = np.random.default_rng(0)
    places = [random.permutation(extent)[:count] for _ in range(3)]
    data = {"places": np.stack(places, 1), "updates": scalars(range(count))}
    nodes = [make("ScatterND", "x places updates", "y")]
    path = save(tmp_path, nodes, [value("x", FLOAT, [extent] * 3)], data)
    tracemalloc.start()
    try:
        with pytest.raises(
            nnef_grad.UnsupportedError, match=r"which has no 7\d+ exactly"
        ):
            interop.from_onnx(path)
        # A grid of all places would have eight million positions.
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "operands", "place", "number"),
    [
        ("GatherND", "x places", [4096, -1], 16785408),
        ("ScatterND", "x places updates", [4090, 0], 16756730),
    ],
)
def test_known_positions_are_counted_as_far_as_they_go(
    kind: str, operands: str, place: list[int], number: int, tmp_path: Path
) -> None:
    data = {"places": [place, [0, 1]], "updates": scalars([1, 2])}
    path = save(
        tmp_path, [make(kind, operands, "y")], [value("x", FLOAT, [4097, 4097])], data
    )
    assert str(number) in nnef_grad.dumps(interop.from_onnx(path).graph)


# ---- Inputs ----


def test_an_input_whose_file_has_no_shape_for_it(tmp_path: Path) -> None:
    path = save(tmp_path, [make("Relu", "x", "y")], [value("x")], {})
    with pytest.raises(nnef_grad.UsageError, match="has no shape for the input 'x'"):
        interop.from_onnx(path)
    graph, _ = interop.from_onnx(path, input_shapes={"x": [2, 3]})
    assert graph.outputs[0].shape == (2, 3)


def test_an_input_that_nothing_reads_is_fed(tmp_path: Path) -> None:
    nodes = [make("Add", "x w", "y")]
    inputs = [value("x", FLOAT, (2, 3)), value("unused", INT, (4,))]
    path = save(tmp_path, nodes, inputs, {"w": scalars([1, 2, 3])})
    graph, data = interop.from_onnx(path)
    assert graph.input_names == ("x", "unused")
    backward = nnef_grad.differentiate(graph)
    interop.to_onnx(backward.graph, tmp_path / "backward.onnx", data)
    seed = scalars([[1, 2, 3], [4, 5, 6]])
    feeds = {"x": seed, "unused": np.arange(4), "grad_y": seed}
    found = run(tmp_path / "backward.onnx", feeds)
    np.testing.assert_array_equal(found["grad_w"], [5, 7, 9])


# ---- Initializers ----

HALF = np.full(3, 0.5, np.float32)
ONE = {"w": HALF.reshape(1, 3).repeat(3, 0)}


@pytest.mark.parametrize(
    ("nodes", "data", "messages"),
    [
        (
            [("Gemm", "x w b", "t"), ("LayerNormalization", "t g b", "y")],
            {"b": scalars([1, 2, 3]), "g": scalars([3, 2, 1])},
            ["'b' is read 2 times, by 'Gemm' and 'LayerNormalization'"],
        ),
        (
            [("Add", "x b", "t"), ("Identity", "b", "c"), ("Add", "t c", "y")],
            {"b": HALF},
            ["'b' is read 2 times, by 'Add'"],
        ),
        (
            [
                ("Add", "x b", "t"),
                ("Mul", "t b", "u"),
                ("Add", "u c", "v"),
                ("Mul", "v c", "y"),
            ],
            {"b": HALF, "c": -HALF},
            ["'b' is read 2 times, by 'Add' and 'Mul', and 1 more: if an exporter"],
        ),
        (
            [
                ("Add", "x n0", "t"),
                ("Mul", "t n1", "u"),
                ("Add", "u n2", "v"),
                ("Mul", "v n3", "y"),
            ],
            {f"n{i}": np.float32(i + 2) for i in range(4)},
            ["'n0', 'n1', 'n2' and 1 more become numbers, which have no gradient"],
        ),
        ([("Add", "x b", "t"), ("Add", "t b", "y")], {"b": scalars([1, 2, 3])}, []),
        ([("MatMul", "x w", "t"), ("Gemm", "t w", "y")], {}, []),
        (
            [("BatchNormalization", "x g b m v", "y")],
            {"g": scalars([1, 2, 3]), "b": HALF, "m": -HALF, "v": HALF * 3},
            ["statistics or masks, not parameters: 'm', 'v'; use wrt to leave out"],
        ),
        (
            [("Add", "x mask", "y")],
            {"mask": scalars([[0, -np.inf, 0]])},
            ["statistics or masks, not parameters: 'mask'"],
        ),
    ],
    ids=[
        "kinds",
        "uniform",
        "several",
        "numbers",
        "shared",
        "matrix",
        "statistics",
        "mask",
    ],
)
def test_doubtful_parameters_are_named(
    nodes: Any, data: dict[str, Array], messages: list[str], tmp_path: Path
) -> None:
    made = [make(*node) for node in nodes]
    inputs = [value("x", FLOAT, (2, 3))]
    graph, _ = interop.from_onnx(save(tmp_path, made, inputs, {**ONE, **data}))
    assert len(graph.warnings) == len(messages)
    for warning, message in zip(graph.warnings, messages, strict=True):
        assert message in warning.message


# ---- Idioms ----

ROOT, INVERSE = 1.4142135, 0.70710678
DIVIDED = [("Div", "x root", "u"), ("Erf", "u", "e"), ("Add", "e one", "p")]
MULTIPLIED = [("Mul", "inverse x", "u"), ("Erf", "u", "e"), ("Add", "one e", "p")]
GELUS = {
    "x * p * 0.5": [*DIVIDED, ("Mul", "x p", "a"), ("Mul", "a half", "y")],
    "p * x / 2": [*MULTIPLIED, ("Mul", "p x", "a"), ("Div", "a two", "y")],
    "0.5 * p * x": [*MULTIPLIED, ("Mul", "half p", "a"), ("Mul", "a x", "y")],
    "(0.5 * x) * p": [*DIVIDED, ("Mul", "half x", "h"), ("Mul", "h p", "y")],
    "p * (x / 2)": [*DIVIDED, ("Div", "x two", "h"), ("Mul", "p h", "y")],
    "beside another use": [
        *DIVIDED, ("Mul", "x p", "a"), ("Mul", "a half", "g"), ("Mul", "g a", "y"),
    ],
    "of a gelu": [
        *DIVIDED, ("Mul", "x p", "a"), ("Mul", "a half", "g"), ("Mul", "g inverse", "u2"),
        ("Erf", "u2", "e2"), ("Add", "e2 one", "p2"), ("Mul", "p2 g", "a2"), ("Mul", "a2 half", "y"),
    ],
}  # fmt: skip
OTHERS = {
    "squared": [*DIVIDED, ("Mul", "x p", "a"), ("Mul", "a x", "y")],
    "quartered": [*DIVIDED, ("Mul", "p half", "a"), ("Mul", "a half", "y")],
    "without a half": [*DIVIDED, ("Mul", "x p", "y")],
    "of something else": [*DIVIDED, ("Mul", "half p", "a"), ("Mul", "a u", "y")],
    "divided by x": [*DIVIDED, ("Mul", "half p", "a"), ("Div", "a x", "y")],
    "half divided": [*DIVIDED, ("Mul", "x p", "a"), ("Div", "two a", "y")],
    "of the product itself": [*DIVIDED, ("Mul", "p p", "a"), ("Mul", "a half", "y")],
    "of another multiple": [
        ("Mul", "x two", "u"), ("Erf", "u", "e"), ("Add", "e one", "p"),
        ("Mul", "x p", "a"), ("Mul", "a half", "y"),
    ],
    "of an input": [("Erf", "x", "e"), ("Add", "e one", "p"), ("Mul", "x p", "a"), ("Mul", "a half", "y")],
    "less one": [
        ("Div", "x root", "u"), ("Erf", "u", "e"), ("Sub", "e one", "p"),
        ("Mul", "x p", "a"), ("Mul", "a half", "y"),
    ],
}  # fmt: skip
NUMBERS = {"root": ROOT, "inverse": INVERSE, "one": 1.0, "half": 0.5, "two": 2.0}


def gelus_in(
    path: Path, chain: list[tuple[str, str, str]], numbers: dict[str, Any]
) -> int:
    """How many there are in the graph, which computes the same."""
    used = {name for _, operands, _ in chain for name in operands.split()}
    data = {name: scalars(n) for name, n in numbers.items() if name in used}
    nodes = [make(*node) for node in chain]
    graph = agrees(save(path, nodes, [value("x", shape=[2, 30])], data))
    return [op.name for op in graph.operations].count("gelu")


@pytest.mark.parametrize("name", GELUS)
def test_a_chain_that_is_a_gelu(tmp_path: Path, name: str) -> None:
    assert gelus_in(tmp_path, GELUS[name], NUMBERS) == 1 + (name == "of a gelu")


@pytest.mark.parametrize("name", OTHERS)
def test_a_chain_that_is_none(tmp_path: Path, name: str) -> None:
    assert gelus_in(tmp_path, OTHERS[name], NUMBERS) == 0


def test_chains_are_looked_for_near_their_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnef_grad.frontends.onnx import idioms

    compare, compared = idioms._is_near, list[Any]()

    def counted(*product: Any) -> bool:
        compared.append(product)
        return compare(*product)

    monkeypatch.setattr(idioms, "_is_near", counted)
    steps = range(20)
    nodes = [make("Identity", "x", "y0")]
    for step in steps:
        names = {"x": f"y{step}", "y": f"y{step + 1}"}
        for kind, operands, result in GELUS["x * p * 0.5"]:
            words = [*operands.split(), result]
            *read, written = [
                names.get(n, n if n in NUMBERS else f"{n}{step}") for n in words
            ]
            nodes.append(make(kind, " ".join(read), written))
    nodes.append(make("Identity", f"y{len(steps)}", "y"))
    path = save(tmp_path, nodes, [value("x", shape=[2])], NUMBERS)
    graph, _ = interop.from_onnx(path)
    assert [op.name for op in graph.operations].count("gelu") == len(steps)
    assert len(compared) < 5 * len(steps)


def test_a_number_that_may_be_a_parameter_is_no_constant(tmp_path: Path) -> None:
    assert gelus_in(tmp_path, GELUS["x * p * 0.5"], {**NUMBERS, "half": [0.5]}) == 0
