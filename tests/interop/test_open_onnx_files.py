"""ONNX files whose extents stay open, and their loops: one backward document for all sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError, UsageError
from nnef_grad.graph.ir import LOOP
from nnef_grad.graph.symbols import with_numbers

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")
torch: Any = pytest.importorskip("torch")
# Of the exporter, about itself.
pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = (2, 5), (1, 5), (4, 3)
RANDOM = np.random.default_rng(0)


# ---- Modules ----


class Tokens(torch.nn.Module):  # type: ignore[misc]
    """A layer of a language model: positions and masks of as many tokens as there are."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.table, self.where = nn.Embedding(20, 8), nn.Parameter(torch.randn(16, 8))
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 20)

    def forward(self, tokens: Any) -> Any:
        batch, count = tokens.shape
        x = self.table(tokens) + self.where[:count]
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (p.view(batch, count, 2, 4).transpose(1, 2) for p in parts)
        mask = torch.tril(torch.ones(count, count, dtype=torch.bool))
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~mask, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, count, 8)
        return self.head(mixed)


class Images(torch.nn.Module):  # type: ignore[misc]
    """Convolutions, both ways of upsampling, and a flat layer."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.up, self.head = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Linear(2048, 3)

    def forward(self, x: Any) -> Any:
        small = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        wide = torch.nn.functional.interpolate(small, scale_factor=2.0)
        return self.head(torch.cat([wide, self.up(small)], 1).flatten(1))


class Sequences(torch.nn.Module):  # type: ignore[misc]
    """Recurrent layers, whose loop has as many steps as there are."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.first = nn.LSTM(3, 4, bidirectional=True, batch_first=True)
        self.second, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.second(self.first(x)[0])[0])


def draw(kind: type, batch: int, count: int) -> Any:
    if kind is Tokens:
        return torch.randint(0, 20, (batch, count))
    return torch.randn(*((batch, 3, 16, 16) if kind is Images else (batch, count, 3)))


@pytest.fixture(scope="module", params=[Tokens, Images, Sequences])
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, Any]:
    """A module, the model that is read from its file, and its backward graph."""
    torch.manual_seed(0)
    module = request.param().eval()
    # The exporter makes one initializer of tensors of equal values.
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.1, 0.6)
    path = tmp_path_factory.mktemp("open") / "model.onnx"
    torch.onnx.export(
        module,
        (draw(request.param, *SIZES[0]),),
        path,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "N"} if request.param is Images else {0: "N", 1: "T"}},
    )
    model = interop.from_onnx(path)
    return module, model, nnef_grad.differentiate(model.graph, wrt="variables")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_document_for_all_sizes(
    exported: Any, size: tuple[int, int], tmp_path: Path
) -> None:
    module, (graph, data), backward = exported
    x = draw(type(module), *size)
    y = module(x)
    seed = torch.randn_like(y)
    wanted = torch.autograd.grad(y, [*module.parameters()], seed)
    named = dict(zip(dict(module.named_parameters()), wanted, strict=True))
    feeds = {"x": x.numpy(), "grad_y": seed.numpy()}
    text = nnef_grad.loads(nnef_grad.dumps(backward.graph))
    for found in (
        nnef_grad.evaluate(text, feeds, data),
        in_onnx_runtime(backward, feeds, data, tmp_path),
    ):
        for name, tensor in named.items():
            # The exporter turns weights of some layers, and joins those of others.
            label = {v: k for k, v in graph.labels.items()}.get(name)
            if label is not None:
                close(found[backward.gradients[label]], tensor.numpy())
    shown = [str(extent) for extent in graph.inputs[0].shape[:2]]
    assert shown == (["N", "3"] if isinstance(module, Images) else ["N", "T"])


def in_onnx_runtime(
    backward: Any, feeds: Mapping[str, Any], data: Any, folder: Path
) -> dict[str, Any]:
    path = folder / "backward.onnx"
    interop.to_onnx(backward, path, data, overwrite=True)
    return run(path, feeds)


def close(found: Any, wanted: Any) -> None:
    assert np.abs(found - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max())


# ---- Numbers for what is open ----


def test_numbers_of_symbols(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 3, None]}, path
    )
    assert shape(path) == ["batch", "3", "x_2"]
    assert shape(path, batch=4) == ["4", "3", "x_2"]
    assert shape(path, symbols={"batch": 2, "x_2": 7}) == ["2", "3", "7"]
    assert shape(path, input_shapes={"x": [2, 3, 4]}) == ["2", "3", "4"]
    with pytest.raises(UsageError, match=r"there is no symbol 'batches'.*'batch'"):
        shape(path, symbols={"batches": 2})


def shape(path: Path, **settings: Any) -> list[str]:
    (x,) = interop.from_onnx(path, **settings).graph.inputs
    return [*map(str, x.shape)]


def test_what_is_computed_of_extents(tmp_path: Path) -> None:
    """Half as many rows, and as many columns as there are then: a number must be even."""
    helper, path = onnx.helper, tmp_path / "model.onnx"
    two = onnx.numpy_helper.from_array(np.array([2], np.int64), "two")
    rest = onnx.numpy_helper.from_array(np.array([-1], np.int64), "rest")
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Div", ["n", "two"], ["half"], name="halved"),
        helper.make_node("Concat", ["half", "rest"], ["whole"], axis=0),
        helper.make_node("Reshape", ["x", "whole"], ["y"], name="again"),
    ]
    write(nodes, {"x": ["N"]}, path, [two, rest])
    graph, _ = interop.from_onnx(path)
    backward = nnef_grad.differentiate(graph).graph
    assert any("for 'Reshape' (node 'again')" in fact for fact in graph.facts)
    for count in (2, 3, 6):
        seed = RANDOM.standard_normal((count // 2, count // (count // 2)))
        found = nnef_grad.evaluate(backward, {"x": np.zeros(count), "grad_y": seed})
        assert np.array_equal(found["grad_x"], seed.reshape(-1))
    with pytest.raises(NnefGradError, match="must be a multiple of"):
        with_numbers(backward, {"N": 5})
    graph, _ = interop.from_onnx(path, symbols={"N": 6})
    assert graph.outputs[0].shape == (3, 2)


@pytest.mark.parametrize("count", [1, 4])
def test_an_extent_that_may_be_1_is_expanded(count: int, tmp_path: Path) -> None:
    """To four rows from one, or from four: then each is one of them."""
    helper, path = onnx.helper, tmp_path / "model.onnx"
    wanted = onnx.numpy_helper.from_array(np.array([4, 3], np.int64), "wanted")
    nodes = [
        helper.make_node("Expand", ["x", "wanted"], ["rows"]),
        helper.make_node("Tanh", ["rows"], ["bent"]),
        helper.make_node("ReduceMean", ["bent"], ["y"], axes=[0]),
    ]
    write(nodes, {"x": ["N", 3]}, path, [wanted])
    graph, _ = interop.from_onnx(path)
    assert graph.facts == ("N and 4 are equal, or one is 1, for 'Expand'",)
    backward = nnef_grad.differentiate(graph)
    x = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
    y = x.expand(4, 3).tanh().mean(0, keepdim=True)
    seed = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, seed)
    feeds = {"x": x.detach().numpy(), "grad_y": seed.numpy()}
    found = nnef_grad.evaluate(backward, feeds)["grad_x"]
    np.testing.assert_allclose(found, gradient, rtol=1e-12)
    single = {name: array.astype(np.float32) for name, array in feeds.items()}
    close(in_onnx_runtime(backward, single, {}, tmp_path)["grad_x"], gradient.numpy())


@pytest.mark.parametrize("last", ["Relu", "Softmax"])
def test_which_axes_are_squeezed_is_learned(last: str, tmp_path: Path) -> None:
    """Without axes, those of extent 1: an open one would be one of them for that number."""
    helper, path = onnx.helper, tmp_path / "model.onnx"
    nodes = [
        helper.make_node("Squeeze", ["x"], ["row"]),
        helper.make_node(
            last, ["row"], ["y"], **({"axis": 0} if last == "Softmax" else {})
        ),
    ]
    write(nodes, {"x": ["N", 1, 3]}, path)
    graph, _ = interop.from_onnx(path)
    assert [str(extent) for extent in graph.outputs[0].shape] == ["N", "3"]
    assert graph.facts == ("N is at least 2, for 'Squeeze'",)
    graph, _ = interop.from_onnx(path, symbols={"N": 1})
    assert graph.outputs[0].shape == (3,)


def write(
    nodes: Any,
    inputs: Mapping[str, Any],
    path: Path,
    stored: Any = (),
    made: Any = None,
) -> None:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [
            helper.make_tensor_value_info(n, kind, s)
            for n, s in (made or {"y": None}).items()
        ],
        stored,
    )
    versions = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)


# ---- Loops ----


def agrees(path: Path, sizes: Mapping[str, Any]) -> nnef_grad.Graph:
    """The graph of a file: its results are those of ONNX Runtime, and its gradients, in
    ONNX Runtime as well, are central differences.
    """
    model = interop.from_onnx(path)
    graph, data = model.graph, model.data
    feeds = {n: RANDOM.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    theirs = [*run(path, feeds).values()]
    for name, wanted in zip(graph.output_names, theirs, strict=True):
        close(nnef_grad.evaluate(graph, feeds, data)[name], wanted)
    backward = nnef_grad.differentiate(graph, wrt="all")
    seeds = {
        seed: RANDOM.standard_normal(y.shape).astype(np.float32)
        for seed, y in zip(backward.seeds.values(), theirs, strict=True)
    }
    found = nnef_grad.evaluate(backward, {**feeds, **seeds}, data, dtype=np.float64)
    there = in_onnx_runtime(backward, {**feeds, **seeds}, data, path.parent)
    for name, gradient in backward.gradients.items():
        close(there[gradient], found[gradient])
        way = RANDOM.standard_normal(found[gradient].shape)
        ends = [
            moved(graph, feeds, data, name, step * way, [*seeds.values()])
            for step in (1e-5, -1e-5)
        ]
        slope = (ends[0] - ends[1]) / 2e-5
        assert slope == pytest.approx((found[gradient] * way).sum(), 1e-5, 1e-6), name
    return graph


def moved(
    graph: Any, feeds: Any, data: Any, name: str, step: Any, seeds: list[Any]
) -> float:
    """The sum of all results times their seeds, where a tensor is another one."""
    label = graph.labels.get(name)
    own, key = (data, label) if label else (feeds, name)
    changed = {**own, key: np.asarray(own[key], np.float64) + step}
    fed, stored = (feeds, changed) if label else (changed, data)
    found = nnef_grad.evaluate(graph, fed, stored, dtype=np.float64)
    pairs = zip(found.values(), seeds, strict=True)
    return float(sum((y * seed).sum() for y, seed in pairs))


def weights(name: str, *extents: int) -> Any:
    array = RANDOM.standard_normal(extents).astype(np.float32)
    return onnx.numpy_helper.from_array(array, name)


@pytest.mark.parametrize("steps", [4, "T"])
@pytest.mark.parametrize("direction", [0, 1])
def test_scan(steps: Any, direction: int, tmp_path: Path) -> None:
    """With a matrix around it, a parameter in it, and results along two axes."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT

    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, kind, [2, 3])

    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "W"], ["turned"]),
            helper.make_node("Add", ["turned", "part"], ["sum"]),
            helper.make_node("Mul", ["sum", "U"], ["scaled"]),
            helper.make_node("Tanh", ["scaled"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
            helper.make_node("Mul", ["part", "next"], ["product"]),
        ],
        "body",
        [value("state"), value("part")],
        [value("next"), value("row"), value("product")],
        [weights("U", 3)],
    )
    node = helper.make_node(
        "Scan",
        ["first", "x"],
        ["last", "rows", "products"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[direction],
        scan_output_axes=[0, -2],
        scan_output_directions=[1, 0],
    )
    made = {"last": [2, 3], "rows": [steps, 2, 3], "products": [2, steps, 3]}
    path = tmp_path / "model.onnx"
    inputs = {"first": [2, 3], "x": [2, steps, 3]}
    write([node], inputs, path, [weights("W", 3, 3)], made)
    graph = agrees(path, {"first": (2, 3), "x": (2, 4, 3)})
    assert [op.name for op in graph.operations].count(LOOP) == 1


@pytest.mark.parametrize("count", [3, "T", 1200])
def test_loop(count: Any, tmp_path: Path) -> None:
    """A few iterations are put one after the other; many, or an open number, are a loop."""
    helper, types = onnx.helper, onnx.TensorProto
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"]),
            helper.make_node("Mul", ["state", "row"], ["product"]),
            helper.make_node("Sin", ["product"], ["next"]),
            helper.make_node("Identity", ["goes_on"], ["still"]),
            helper.make_node("Cos", ["next"], ["seen"]),
        ],
        "body",
        [
            value("i", types.INT64, []),
            value("goes_on", types.BOOL, []),
            value("state", types.FLOAT, [3]),
        ],
        [
            value("still", types.BOOL, []),
            value("next", types.FLOAT, [3]),
            value("seen", types.FLOAT, [3]),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["extents"], start=0, end=1),
        helper.make_node("Squeeze", ["extents"], ["count"]),
        helper.make_node("Loop", ["count", "", "first"], ["last", "all"], body=body),
    ]
    path, made = tmp_path / "model.onnx", {"last": [3], "all": [count, 3]}
    write(nodes, {"first": [3], "x": [count, 3]}, path, made=made)
    number = 5 if isinstance(count, str) else count
    graph = agrees(path, {"first": (3,), "x": (number, 3)})
    is_loop = LOOP in [op.name for op in graph.operations]
    assert is_loop == (count != 3)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "activations": {"activations": True},
    "peepholes": {"peepholes": True},
    "reset": {"linear_before_reset": 1},
}


@pytest.mark.parametrize("steps", [3, "T"])
@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        *(
            (kind, name)
            for kind in ("LSTM", "GRU", "RNN")
            for name in ("plain", "activations")
        ),
        ("LSTM", "peepholes"),
        ("GRU", "reset"),
    ],
)
def test_recurrent_layers(kind: str, setting: str, steps: Any, tmp_path: Path) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    settings = dict(SETTINGS[setting])
    operands = ["x", "W", "R", "B", "", "h"] + ["c"] * (kind == "LSTM")
    stored = [
        weights("W", 2, 3 * gates, 2),
        weights("R", 2, 3 * gates, 3),
        weights("B", 2, 6 * gates),
    ]
    if settings.pop("peepholes", False):
        operands.append("P")
        stored.append(weights("P", 2, 9))
    if settings.pop("activations", False):
        usual = ["HardSigmoid", "Softsign", "Softplus"][: min(gates, 3)]
        settings["activations"] = usual[: {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]] * 2
    made = {"rows": [steps, 2, 2, 3], "last": [2, 2, 3]}
    if kind == "LSTM":
        made["cell"] = [2, 2, 3]
    node = onnx.helper.make_node(
        kind, operands, [*made], hidden_size=3, direction="bidirectional", **settings
    )
    states = {name: [2, 2, 3] for name in operands if name in ("h", "c")}
    path = tmp_path / "model.onnx"
    write([node], {"x": [steps, 2, 2], **states}, path, stored, made)
    number = 4 if steps == "T" else steps
    agrees(path, {"x": (number, 2, 2), **states})


def test_an_open_extent_is_true(tmp_path: Path) -> None:
    """Extents are positive, whatever they are."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    net (float[N, 3] x) => (float[N, 3] y) {
        shape = Shape (x)
        zero = Constant <value_int = 0> ()
        count = Gather (shape, zero)
        is_there = Cast <to = 9> (count)
        y = If (is_there) <
            then_branch = then () => (float[N, 3] a) { a = Sin (x) },
            else_branch = else () => (float[N, 3] b) { b = Neg (x) }
        >
    }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    graph = interop.from_onnx(path).graph
    assert [op.name for op in graph.operations] == ["external", "sin"]


# ---- A row that every extent has ----

ROWS = [np.int64(0), np.int64(-1), np.array([0]), np.array([[-1]])]


@pytest.mark.parametrize("extents", [("n", "t", 4), (2, 5, 4)], ids=["open", "closed"])
@pytest.mark.parametrize("index", ROWS, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_and_the_last_row(
    axis: int, index: Any, extents: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["row"], axis=axis),
        helper.make_node("Tanh", ["row"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info("x", kind, extents)]
    results = [helper.make_tensor_value_info("y", kind, None)]
    stored = [onnx.numpy_helper.from_array(index, "i")]
    graph = helper.make_graph(nodes, "net", ends, results, stored)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "m.onnx")
    model = interop.from_onnx("m.onnx")
    backward = nnef_grad.differentiate(model.graph)
    kinds = {operation.name for operation in backward.graph.operations}
    assert kinds.isdisjoint({"gather", "matmul", "eq"}), "a row is a slice"
    interop.to_onnx(nnef_grad.lower(backward.graph, "onnx").graph, "b.onnx")
    for sizes in ((1, 1), (2, 5)):
        x = RANDOM.standard_normal((*(sizes if extents[0] == "n" else (2, 5)), 4))
        y = np.tanh(np.take(x, index, axis))
        dy = RANDOM.standard_normal(y.shape)
        wanted = np.zeros_like(x)
        place: list[Any] = [slice(None)] * 3
        place[axis] = np.ravel(index)
        wanted[tuple(place)] = np.reshape(
            dy * (1 - y * y), np.take(x, np.ravel(index), axis).shape
        )
        fed = {"x": np.float32(x), "grad_y": np.float32(dy)}
        found = run(Path("b.onnx"), fed)["grad_x"]
        np.testing.assert_allclose(found, wanted, atol=1e-6)
