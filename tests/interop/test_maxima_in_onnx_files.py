"""Gradients of maxima in ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from support.checks import document
from support.onnx_files import run as in_runtime

import nnef_grad
from nnef_grad import interop

Array = npt.NDArray[Any]

onnx: Any = import_module("onnx") if find_spec("onnx") else None
onnxruntime: Any = import_module("onnxruntime") if find_spec("onnxruntime") else None
torch: Any = import_module("torch") if find_spec("torch") else None
pytestmark = pytest.mark.skipif(
    not (onnx and onnxruntime), reason="the tests of ONNX files run them"
)


class Pool(NamedTuple):
    """A pool over spatial axes, in the terms of torch."""

    extents: list[int]
    size: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    @property
    def text(self) -> str:
        padding = [(0, 0), (0, 0), *((p, p) for p in self.padding)]
        x = f"x = external(shape = {[2, 3, *self.extents]});"
        sliding = f"stride = {[1, 1, *self.stride]}, dilation = {[1, 1, *self.dilation]}, padding = {padding}"
        pool = f"max_pool(x, size = {[1, 1, *self.size]}, border = 'ignore', {sliding})"
        return document(f"{x}\ny = {pool};")


POOLS = [
    Pool([8, 6], [2, 2], [2, 2], [0, 0], [1, 1]),
    Pool([9, 3], [3, 3], [3, 1], [0, 0], [1, 1]),
    Pool([9, 6], [2, 2], [2, 2], [0, 0], [1, 1]),
    Pool([6, 9], [2, 3], [2, 3], [1, 0], [1, 1]),
    Pool([9, 9], [3, 3], [2, 2], [0, 0], [1, 1]),
    Pool([8, 8], [3, 3], [2, 2], [1, 1], [1, 1]),
    Pool([8, 8], [3, 2], [1, 1], [1, 1], [1, 1]),
    Pool([9, 9], [2, 3], [2, 1], [1, 0], [3, 2]),
    Pool([8, 8], [2, 2], [3, 3], [0, 0], [2, 2]),
    Pool([12], [3], [3], [0], [1]),
    Pool([11], [3], [2], [1], [2]),
    Pool([4, 6, 4], [2, 3, 2], [2, 3, 2], [0, 0, 0], [1, 1, 1]),
    Pool([5, 5, 6], [3, 2, 3], [2, 1, 2], [1, 1, 0], [1, 2, 1]),
]


def run(
    graph: nnef_grad.Graph, feeds: dict[str, Array], folder: Path
) -> dict[str, Array]:
    path = folder / "model.onnx"
    interop.to_onnx(graph, path, overwrite=True)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return in_runtime(path, feeds, threads=2)


def values(graph: nnef_grad.Graph) -> dict[str, Array]:
    """Few different numbers for `x`, so that there are many ties, and any for others."""
    generator = np.random.default_rng(0)
    return {
        name: np.asarray(
            generator.integers(-2, 2, t.shape)
            if name == "x"
            else generator.standard_normal(t.shape),
            np.float32,
        )
        for name, t in zip(graph.input_names, graph.inputs, strict=True)
    }


def check(graph: nnef_grad.Graph, folder: Path) -> None:
    """The outputs are those of our evaluator."""
    feeds = values(graph)
    found, expected = run(graph, feeds, folder), nnef_grad.evaluate(graph, feeds)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(torch is None, reason="torch is the oracle")
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_of_equal_maxima_the_first_has_the_gradient(pool: Pool, tmp_path: Path) -> None:
    graph = nnef_grad.differentiate(nnef_grad.loads(pool.text)).graph
    feeds = values(graph)
    found = run(graph, feeds, tmp_path)
    x = torch.tensor(feeds["x"], dtype=torch.float64, requires_grad=True)
    torch_pool = getattr(torch.nn.functional, f"max_pool{len(pool.size)}d")
    y = torch_pool(x, pool.size, pool.stride, pool.padding, pool.dilation)
    y.backward(torch.tensor(feeds["grad_y"], dtype=torch.float64))
    np.testing.assert_allclose(found["grad_x"], x.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("border", ["ignore", "constant"])
@pytest.mark.parametrize(
    "pool",
    [
        "size = [1, 1, 2, 3], stride = [1, 1, 2, 3], padding = []",
        "size = [1, 1, 3, 3], stride = [1, 1, 2, 2], padding = []",
        "size = [1, 1, 3, 2], padding = [(0, 0), (0, 0), (0, 2), (1, 0)]",
        "size = [1, 1, 3, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 3)], dilation = [1, 1, 1, 4]",
        "size = [1, 3, 2, 2], stride = [1, 1, 2, 2], padding = []",
        "size = [2, 1, 1, 1], stride = [2, 1, 1, 1], padding = []",
    ],
)
def test_padding_and_windows_across_channels(
    pool: str, border: str, tmp_path: Path
) -> None:
    text = f"x = external(shape = [2, 3, 8, 9]);\ny = max_pool(x, border = '{border}', {pool});"
    graph = nnef_grad.differentiate(nnef_grad.loads(document(text))).graph
    check(graph, tmp_path)


SHAPE, HALVED = "x = external(shape = [1, 2, 4, 6]);", "[1, 2, 2, 3]"
BLOCKS = "size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = []"


def test_an_index_that_is_fed_is_one_of_a_window(tmp_path: Path) -> None:
    text = f"i = external<integer>(shape = {HALVED});\ny = external(shape = {HALVED});\nz = desample(y, i, {BLOCKS});"
    graph = nnef_grad.loads(document(text, inputs="i, y", outputs="z"))
    feeds: dict[str, Array] = {
        "i": np.arange(12).reshape(1, 2, 2, 3) % 4,
        "y": np.ones((1, 2, 2, 3), np.float32),
    }
    found = run(graph, feeds, tmp_path)
    expected = nnef_grad.evaluate(graph, feeds)
    assert found["z"].tolist() == expected["z"].tolist()


def test_an_index_that_is_handed_on_is_one_of_a_window(tmp_path: Path) -> None:
    text = f"{SHAPE}\nm, i = max_pool_with_index(x, border = 'ignore', {BLOCKS});\nt = mul(m, m);\nz = desample(t, i, {BLOCKS});\ns = sample(z, i, {BLOCKS});"
    graph = nnef_grad.loads(document(text, outputs="m, i, z, s"))
    check(graph, tmp_path)


def test_windows_of_another_pool_are_not_its_own(tmp_path: Path) -> None:
    other = BLOCKS.replace("size = [1, 1, 2, 2]", "size = [1, 1, 1, 2]")
    text = f"{SHAPE}\ni = argmax_pool(x, border = 'ignore', {other});\ny = max_pool(x, border = 'ignore', {BLOCKS});\nz = desample(y, i, {BLOCKS});"
    graph = nnef_grad.loads(document(text, outputs="z"))
    check(graph, tmp_path)


def test_a_gradient_of_a_gradient(tmp_path: Path) -> None:
    squared = POOLS[0].text.replace("y = max_pool(x", "t = mul(x, x);\ny = max_pool(t")
    first = nnef_grad.differentiate(nnef_grad.loads(squared)).graph
    second = nnef_grad.differentiate(first).graph
    check(second, tmp_path)
