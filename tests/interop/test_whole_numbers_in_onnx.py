"""Integers that single precision does not hold: in ONNX files they keep all their digits."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.processes import shell

import nnef_grad
from nnef_grad import interop

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

LOSES = "beyond 2^24 it loses digits"


class _Hashed(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Rows of a table at hashes of tokens, weighted by numbers that are no indices."""

    def __init__(self, multiplier: int) -> None:
        super().__init__()
        self.multiplier = multiplier
        self.table = torch.nn.Embedding(16, 3)

    def forward(self, i: Any) -> Any:
        mixed = i * 31 + i // 7 * self.multiplier
        return self.table(mixed % 16) * (1.0 + mixed[..., None] * 1e-9)


def _tokens() -> npt.NDArray[np.int64]:
    return np.random.default_rng(3).integers(0, 60_000, (4, 5))


def _compare(path: Any, module: Any, tokens: npt.NDArray[np.int64]) -> None:
    """The outputs and gradients of a file are those of PyTorch in double precision."""
    session = onnxruntime.InferenceSession(path)
    names = [x.name for x in session.get_inputs()]
    seed = np.random.default_rng(4).normal(size=(4, 5, 3))
    fed = dict(zip(names, (tokens, seed.astype(np.float32)), strict=True))
    grad, y = session.run(None, fed)
    module = module.double()
    wanted = module(torch.tensor(tokens))
    wanted.backward(torch.tensor(seed))
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(grad, module.table.weight.grad.numpy(), rtol=1e-4)


@pytest.mark.parametrize("multiplier", [65599, 2654435761])
def test_hashes_of_tokens_from_pytorch(tmp_path: Any, multiplier: int) -> None:
    module, tokens = _Hashed(multiplier), _tokens()
    model = interop.from_torch(module, (torch.tensor(tokens),))
    assert any(LOSES in w.message for w in model.graph.warnings)
    backward = nnef_grad.differentiate(model.graph, with_outputs=True)
    interop.to_onnx(backward, tmp_path / "b.onnx", model.data)
    _compare(tmp_path / "b.onnx", module, tokens)


def _hashed_file(path: Any, module: Any) -> None:
    nodes = [
        ("Mul", ["i", "a"], "x"),
        ("Div", ["i", "b"], "y"),
        ("Mul", ["y", "c"], "z"),
        ("Add", ["x", "z"], "mixed"),
        ("Mod", ["mixed", "d"], "row"),
        ("Gather", ["table", "row"], "rows"),
        ("Cast", ["mixed"], "number"),
        ("Mul", ["number", "e"], "part"),
        ("Add", ["part", "f"], "factors"),
        ("Unsqueeze", ["factors", "axes"], "factor"),
        ("Mul", ["rows", "factor"], "out"),
    ]
    numbers: dict[str, Any] = {"a": 31, "b": 7, "c": module.multiplier, "d": 16}
    arrays: dict[str, Any] = {name: np.array(x) for name, x in numbers.items()}
    arrays |= {"e": np.float32(1e-9), "f": np.float32(1.0), "axes": np.array([2])}
    arrays["table"] = module.table.weight.detach().numpy()
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(kind, x, [y], **({"to": 1} if kind == "Cast" else {}))
            for kind, x, y in nodes
        ],
        "hashed",
        [onnx.helper.make_tensor_value_info("i", 7, [4, 5])],
        [onnx.helper.make_tensor_value_info("out", 1, [4, 5, 3])],
        [onnx.numpy_helper.from_array(x, n) for n, x in arrays.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def test_hashes_of_tokens_in_files(tmp_path: Any) -> None:
    """The warning is for texts, whose scalars are in single precision."""
    module = _Hashed(65599)
    _hashed_file(tmp_path / "m.onnx", module)
    command = [sys.executable, "-m", "nnef_grad", "m.onnx"]
    command += ["--wrt", "table", "--with-outputs"]
    for out, is_warned in (("b.nnef", True), ("b.onnx", False)):
        done = shell(shlex.join([*command, "-o", out]), tmp_path)
        assert (done.returncode, LOSES in done.stderr) == (0, is_warned)
    _compare(tmp_path / "b.onnx", module, _tokens())


def test_small_integers_stay_in_single_precision(tmp_path: Any) -> None:
    """Where a bound tells that they are small, no type is changed."""

    class Near(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, i: Any) -> Any:
            return x[(i * 3 + 1) % 4]

    x, i = torch.rand(4, 2), torch.arange(5)
    model = interop.from_torch(Near(), (x, i))
    assert not model.graph.warnings
    interop.to_onnx(nnef_grad.differentiate(model.graph), tmp_path / "b.onnx")
    file = onnx.load(tmp_path / "b.onnx")
    types = [a.i for n in file.graph.node for a in n.attribute if a.name == "to"]
    assert onnx.TensorProto.DOUBLE not in types


def test_places_in_a_table_of_open_sizes(tmp_path: Any) -> None:
    """The number of places may be large, and the constants beside it are in its precision."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        net (float[n, m] x, int64[3, 2] i) => (float[3] y) { y = GatherND(x, i) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = interop.from_onnx(tmp_path / "m.onnx")
    interop.to_onnx(nnef_grad.differentiate(model.graph), tmp_path / "b.onnx")
    x, seed = np.ones((3, 4), np.float32), np.array([1, 2, 4], np.float32)
    fed = {"x": x, "i": np.array([[0, 1], [2, -1], [0, 1]]), "grad_y": seed}
    (found,) = onnxruntime.InferenceSession(tmp_path / "b.onnx").run(None, fed)
    wanted = np.zeros((3, 4))
    wanted[0, 1], wanted[2, 3] = 5, 2
    np.testing.assert_array_equal(found, wanted)


# ---- Integers of fewer bits go on with the first one after the last one ----

_LIMITS: dict[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (0, 60_000),
}
_SUMS = {
    **{op: f"k = {op} (i, j)" for op in ("Add", "Sub", "Mul")},
    "hash": """c = Constant <value = int32 {65599}> ()
        d = Constant <value = int32 {31}> ()
        a = Mul (i, c)
        b = Mul (j, d)
        s = Add (a, b)
        k = Mul (s, d)""",
}


@pytest.mark.parametrize(
    ("kind", "op"),
    [*((k, op) for k in _LIMITS for op in ("Add", "Sub", "Mul")), ("int32", "hash")],
)
def test_sums_and_products_wrap_around(kind: str, op: str, tmp_path: Any) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 14]>
        net ({kind}[9] i, {kind}[9] j, float[9] x) => (float[9] y) {{
            {_SUMS[op]}
            f = Cast <to = 1> (k)
            y = Mul (f, x)
        }}"""
    )
    onnx.save(model, tmp_path / "model.onnx")
    read = interop.from_onnx(tmp_path / "model.onnx")
    backward = nnef_grad.differentiate(read.graph, with_outputs=True)
    written = tmp_path / "backward.onnx"
    interop.to_onnx(backward, written, read.data, in_file=read.in_file)
    random = np.random.default_rng(0)
    fed: dict[str, Any] = {
        name: random.integers(*_LIMITS[kind], 9, endpoint=True).astype(kind)
        for name in ("i", "j")
    }
    fed |= {name: random.normal(size=9).astype(np.float32) for name in ("x", "grad_y")}
    with np.errstate(over="ignore"):
        wanted = _wrapped_numbers(op, fed["i"], fed["j"]).astype(np.float32)
    session = onnxruntime.InferenceSession(written)
    names = [x.name for x in session.get_outputs()]
    own = {x.name: fed[x.name] for x in session.get_inputs()}
    found = dict(zip(names, session.run(None, own), strict=True))
    np.testing.assert_allclose(found["y"], wanted * fed["x"], rtol=1e-6)
    np.testing.assert_allclose(found["grad_x"], wanted * fed["grad_y"], rtol=1e-6)


def _wrapped_numbers(op: str, i: Any, j: Any) -> Any:
    """As numpy computes them in the type of the operands."""
    if op == "hash":
        c, d = np.int32(65599), np.int32(31)
        return (i * c + j * d) * d
    return {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](i, j)


@pytest.mark.parametrize("most", [60_000, 2**31 - 1])
def test_products_of_matrices_wrap_around(most: int, tmp_path: Any) -> None:
    """Exactly, below 2^53."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 14]>
        net (int32[3, 6] i, float[1] x) => (float[3, 2] y) <int32[6, 2] c> {
            k = MatMul (i, c)
            f = Cast <to = 1> (k)
            y = Mul (f, x)
        }"""
    )
    random = np.random.default_rng(0)
    i, c = (random.integers(0, 60_000, n).astype(np.int32) for n in ((3, 6), (6, 2)))
    c[0] = most
    i[:, 0] = 40_000
    model.graph.initializer.append(onnx.numpy_helper.from_array(c, "c"))
    onnx.save(model, tmp_path / "model.onnx")
    read = interop.from_onnx(tmp_path / "model.onnx")
    backward = nnef_grad.differentiate(read.graph, with_outputs=True)
    written = tmp_path / "backward.onnx"
    interop.to_onnx(backward, written, read.data, in_file=read.in_file)
    with np.errstate(over="ignore"):
        wanted = (i @ c).astype(np.float32)
    x, seed = np.array([3], np.float32), random.normal(size=(3, 2)).astype(np.float32)
    forward = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (y,) = forward.run(None, {"i": i, "x": x})
    np.testing.assert_array_equal(y, wanted * 3)
    session = onnxruntime.InferenceSession(written)
    found = session.run(["y", "grad_x"], {"i": i, "x": x, "grad_y": seed})
    np.testing.assert_array_equal(found[0], y)
    np.testing.assert_allclose(found[1], [(wanted * seed).sum()], rtol=1e-5)


@pytest.mark.parametrize("rows", ["400", "N"])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums_of_large_integers(
    rows: str, reverse: int, tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\n'
        f"net (int64[{rows}, 2] i, float[{rows}, 2] x)"
        f" => (int64[{rows}, 2] c, float[{rows}, 2] y) {{"
        " a = Constant <value = int64 {0}> ()"
        f" c = CumSum <reverse = {reverse}> (i, a)"
        " f = Cast <to = 1> (c) y = Mul (x, f) }"
    )
    path, written = tmp_path / "model.onnx", tmp_path / "written.onnx"
    onnx.save(model, path)
    read = interop.from_onnx(path)
    interop.to_onnx(read.graph, written, read.data)
    assert "CumSum" in {node.op_type for node in onnx.load(written).graph.node}
    random = np.random.default_rng(0)
    fed = {"i": random.integers(60_000, 65_000, (400, 2)), "x": np.ones((400, 2), "f")}
    wanted, found = (
        onnxruntime.InferenceSession(own).run(["c"], fed)[0] for own in (path, written)
    )
    np.testing.assert_array_equal(found, wanted)
