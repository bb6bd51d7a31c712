"""One number stands for what is infinite, which NNEF cannot write: the largest of single
precision. It is a number like others, and its negative is the smallest one: elements that
have it are chosen once, and compared with borders and with others as any are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runtimes import Stored, compare, needs, run

import nnef_grad
from nnef_grad import interop
from nnef_grad.language.types import LARGEST

PACKAGE = Path(nnef_grad.__file__).parent
HOME = PACKAGE / "language" / "types.py"
# What is larger is meant to be more than anything.
LARGE = 1e37


def numbers(path: Path) -> set[float]:
    """The large numbers that a file writes."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant))
        found = [n.value for n in nodes if isinstance(n.value, float)]
    else:
        found = [float(x) for x in re.findall(r"\d+\.?\d*[eE]\+?\d+", text)]
    return {x for x in found if LARGE < x < inf}


def test_one_module_has_the_number() -> None:
    assert float(np.finfo(np.float32).max) == LARGEST
    assert {p for p in PACKAGE.rglob("*.py") if numbers(p)} == {HOME}
    assert numbers(HOME) == {LARGEST}


def test_fragments_have_no_other_number() -> None:
    found = {p.name: numbers(p) for p in PACKAGE.rglob("*.nnef")}
    assert {x for several in found.values() for x in several} == {LARGEST}


# ---- In the runtimes, in single precision ----

ROWS = np.array(
    [[1.0, -LARGEST, -LARGEST, 3.0], [-LARGEST] * 4, [-2.0, 0.5, -LARGEST, -1.0]]
)


def _torch_functions() -> Mapping[str, Callable[..., Any]]:
    torch = pytest.importorskip("torch")
    index = torch.tensor([[0, 0, 3, 3], [1, 1, 1, 2], [2, 2, 2, 2]])
    attention = torch.nn.functional.scaled_dot_product_attention
    keys = torch.arange(12.0).reshape(3, 4) / 10

    def most(x: Any) -> Any:
        zeros = torch.zeros_like(x)
        return zeros.scatter_reduce(1, index, x, "amax", include_self=False)

    def mean(x: Any) -> Any:
        zeros, new = torch.zeros_like(x), x.clamp(min=-5)
        return zeros.scatter_reduce(1, index, new, "mean", include_self=False)

    return {
        "topk": lambda x: x.topk(4, 1)[0],
        "topk, smallest": lambda x: (-x).topk(4, 1, largest=False)[0],
        "cummax": lambda x: x.cummax(1)[0],
        "cummin": lambda x: (-x).cummin(1)[0],
        "isinf": lambda x: torch.where(torch.isinf(x), 0.0, x),
        "amax": most,
        "mean": mean,
        "max_pool": lambda x: torch.nn.functional.max_pool1d(x[None], 2, 1),
        "attention": lambda x: attention(keys[None], keys[None], keys[None], x[:, :3]),
    }


NAMES = (
    "topk", "topk, smallest", "cummax", "cummin", "isinf", "amax", "mean", "max_pool",
    "attention",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("consumer", ["onnx", "tract", "interpreter"])
@pytest.mark.parametrize("name", NAMES)
def test_in_runtimes(name: str, consumer: str, tmp_path: Path) -> None:
    needs(consumer)
    torch = pytest.importorskip("torch")
    function = _torch_functions()[name]

    class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return function(x)

    rows = torch.tensor(ROWS, dtype=torch.float32)
    model = interop.from_torch(Module(), [rows])
    backward = nnef_grad.differentiate(model.graph, with_outputs=True)
    lowered = nnef_grad.lower(backward.graph, "portable")
    data = {**model.data, **lowered.data}
    nnef_grad.save(lowered.graph, tmp_path / "model", data=data)
    random = np.random.default_rng(0)
    inputs = {
        n: ROWS if n == "x" else random.standard_normal(t.shape)
        for n, t in zip(backward.graph.input_names, backward.graph.inputs, strict=True)
    }
    wanted = nnef_grad.evaluate(backward.graph, inputs, model.data)
    (outcome,) = run(consumer, [Stored(tmp_path / "model", inputs)])
    verdict = compare(outcome, wanted)
    assert verdict.word == "ok", verdict.detail


# ---- In ONNX files ----


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("masked", [-LARGEST, -inf])
def test_top_k_of_onnx(masked: float, largest: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, onnx.TensorProto
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], largest=largest)
    k = onnx.numpy_helper.from_array(np.array([4]), "k")
    graph = helper.make_graph(
        [node],
        "top",
        [helper.make_tensor_value_info("x", number.FLOAT, [2, 5])],
        [
            helper.make_tensor_value_info("y", number.FLOAT, [2, 4]),
            helper.make_tensor_value_info("i", number.INT64, [2, 4]),
        ],
        [k],
    )
    onnx.save(helper.make_model(graph), tmp_path / "top.onnx")
    read, data = interop.from_onnx(tmp_path / "top.onnx")
    x = np.array([[1.0, masked, masked, 3.0, masked], [masked] * 5])
    x = x if largest else -x
    found = nnef_grad.evaluate(read, {"x": x}, data)
    assert found["i"].tolist() == [[3, 0, 1, 2], [0, 1, 2, 3]]
    assert np.array_equal(found["y"], np.take_along_axis(x, found["i"], 1))
    assert isfinite(masked) or not np.isfinite(found["y"][1]).any()


@pytest.mark.parametrize(
    ("reduction", "wanted"),
    [("max", [9.0, 3.0, 4.0]), ("min", [2.0, -7.0, 4.0]), ("mul", [36.0, -42.0, 4.0])],
)
def test_scatter_elements_of_onnx(
    reduction: str, wanted: list[float], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    helper, number = onnx.helper, onnx.TensorProto
    operands = ["x", "i", "u"]
    node = helper.make_node("ScatterElements", operands, ["y"], reduction=reduction)
    graph = helper.make_graph(
        [node],
        "scatter",
        [
            helper.make_tensor_value_info("x", number.FLOAT, [3]),
            helper.make_tensor_value_info("i", number.INT64, [4]),
            helper.make_tensor_value_info("u", number.FLOAT, [4]),
        ],
        [helper.make_tensor_value_info("y", number.FLOAT, [3])],
    )
    onnx.save(helper.make_model(graph), tmp_path / "scatter.onnx")
    read, data = interop.from_onnx(tmp_path / "scatter.onnx")
    inputs = {
        "x": np.array([2.0, 3.0, 4.0]),
        "i": np.array([0, 1, 1, -3]),
        "u": np.array([9.0, 2.0, -7.0, 2.0]),
    }
    assert nnef_grad.evaluate(read, inputs, data)["y"].tolist() == wanted
