"""Forms for which ONNX Runtime has faster kernels, and where they are not taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.checks import document

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.runtimes import find_runtime

pytest.importorskip("onnxruntime")


def lowered(text: str) -> str:
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    return nnef_grad.dumps(nnef_grad.lower(backward, "onnx").graph)


def in_onnx_runtime(text: str, **fed: object) -> dict[str, np.ndarray]:
    backward = nnef_grad.differentiate(nnef_grad.loads(text)).graph
    arrays = [np.asarray(fed[name], np.float32) for name in backward.input_names]
    run = find_runtime("onnxruntime").compile(backward)
    return dict(zip(backward.output_names, run(arrays), strict=True))


RELU = document(
    "x = external(shape = [2, 6]);\nw = variable(shape = [6, 4], label = 'w');\n"
    "h = relu(x);\ny = matmul(h, w);"
)


def test_a_gradient_from_a_product_is_multiplied_by_a_mask() -> None:
    text = lowered(RELU)
    assert "mul(grad_x_mask, grad_h)" in text
    assert "select" not in text


def of_any_size(shape: str, stride: int) -> str:
    text = document(
        f"x = external(shape = {shape});\nw = external(shape = [6, 4, 3, 3]);\n"
        f"y = conv(x, w, 0.0, padding = [(1, 1), (1, 1)], stride = [{stride}, {stride}]);",
        "x, w",
    )
    symbols = "".join(f"extension tract_symbol {name};\n" for name in "NHW")
    return text.replace("graph net", f"{symbols}graph net")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", ["[N, 4, 9, 8]", "[2, 4, H, W]", "[N, 4, H, W]"])
def test_filters_as_large_as_an_image_of_any_size(shape: str, stride: int) -> None:
    """The gradient of a filter is one convolution of the images side by side, whose filter
    has extents that are known when it runs.
    """
    graph = nnef_grad.loads(of_any_size(shape, stride))
    backward = nnef_grad.differentiate(graph, wrt=["w"]).graph
    lowered = nnef_grad.lower(backward, "onnx").graph
    names = [op.name for op in lowered.operations]
    assert names.count("conv") == 1
    assert "matmul" not in names
    run, draw = find_runtime("onnxruntime").compile(backward), np.random.default_rng(0)
    for batch, height in ((2, 9), (3, 9)) if "9" in shape else ((2, 7), (2, 12)):
        x = torch.from_numpy(draw.standard_normal((batch, 4, height, 8)))
        w = torch.from_numpy(draw.standard_normal((6, 4, 3, 3))).requires_grad_()
        y = torch.nn.functional.conv2d(x, w, padding=1, stride=stride)
        dy = torch.from_numpy(draw.standard_normal(tuple(y.shape)))
        fed = {"x": x, "w": w, "grad_y": dy}
        (found,) = run(
            [fed[n].detach().numpy().astype(np.float32) for n in backward.input_names]
        )
        (expected,) = torch.autograd.grad(y, w, dy)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)


MASKED = document(
    "x = external(shape = [2, 3]);\nc = external<logical>(shape = [2, 3]);\n"
    "m = external(shape = [2, 3]);\nd = select(c, m, 0.0);\ny = add(x, d);",
    "x, c, m",
)


def test_a_mask_of_infinite_numbers_is_chosen_from() -> None:
    graph = nnef_grad.loads(MASKED)
    run = find_runtime("onnxruntime").compile(graph)
    kept = np.array([[True, False, False], [False, True, False]])
    (found,) = run(
        [np.ones((2, 3), np.float32), kept, np.full((2, 3), -np.inf, np.float32)]
    )
    assert (found == np.where(kept, -np.inf, 1.0)).all()


INTEGERS = document(
    "x = external(shape = [2, 3]);\nw = variable(shape = [3, 4], label = 'w');\n"
    "c = external<logical>(shape = [2, 4]);\np = matmul(x, w);\n"
    "i = cast<integer>(p);\nn = neg(p);\nj = cast<integer>(n);\n"
    "k = select(c, i, j);\ny = cast<scalar>(k);",
    "x, c",
)


def test_integers_are_chosen_from() -> None:
    graph = nnef_grad.loads(INTEGERS)
    values = random_values(graph, 0)
    run = find_runtime("onnxruntime").compile(graph, values.variables)
    x, c = values.inputs.values()
    (found,) = run([x.astype(np.float32), c])
    (wanted,) = nnef_grad.evaluate(graph, values.inputs, values.variables).values()
    assert (found == wanted).all()


GUARDED = document(
    "x = external(shape = [2, 3]);\nq = rcp(x);\nc = gt(x, 1.0);\n"
    "y = select(c, q, 0.0);\nz = sqrt(y);",
    "x",
    "z",
)


def test_what_is_not_finite_stays_out_of_a_branch_that_is_not_taken() -> None:
    """The slope of a root at zero is infinite, and no number as a product with a mask."""
    x = [[0.0, -1.0, 2.0], [4.0, 0.5, 0.0]]
    found = in_onnx_runtime(GUARDED, x=x, grad_z=np.full((2, 3), 3.0))
    gradient = found["grad_x"]
    assert np.isfinite(gradient).all()
    assert (gradient[np.array(x) <= 1.0] == 0.0).all()
    for value, slope in zip(np.array(x).ravel(), gradient.ravel(), strict=True):
        if value > 1.0:
            np.testing.assert_allclose(slope, -1.5 * value**-1.5, 1e-5)


LAYER = document(
    "x = external(shape = [1, 14, 14, 64]);\nw = external(shape = [1, 1, 64, 96]);\ny = matmul(x, w);",
    "x, w",
)


def test_the_gradient_of_a_matrix_is_one_product() -> None:
    """The rows of all batches are the rows of one matrix, also of a batch of one."""
    text = lowered(LAYER)
    assert "sum_reduce" not in text
    random = np.random.default_rng(0)
    fed = {
        "x": random.standard_normal((1, 14, 14, 64)),
        "w": random.standard_normal((1, 1, 64, 96)),
        "grad_y": random.standard_normal((1, 14, 14, 96)),
    }
    wanted = np.einsum("abci,abcj->ij", fed["x"], fed["grad_y"])
    found = in_onnx_runtime(LAYER, **fed)["grad_w"]
    assert found.shape == (1, 1, 64, 96)
    np.testing.assert_allclose(found[0, 0], wanted, 1e-4, 1e-4)


def test_rows_of_all_batches_are_multiplied_at_once(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    nnef_grad.interop.to_onnx(nnef_grad.loads(LAYER), tmp_path / "x.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "x.onnx").graph.node]
    assert kinds == ["Squeeze", "MatMul"]


def test_a_clamp_by_numbers_is_one_operation(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = document("x = external(shape = [3]);\ny = clamp(x, 0.0, 6.0);")
    nnef_grad.interop.to_onnx(nnef_grad.loads(text), tmp_path / "x.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "x.onnx").graph.node]
    assert kinds == ["Clip"]


@pytest.mark.parametrize("symbols", [{}, {"B": 3}], ids=["open", "of three"])
@pytest.mark.parametrize("target", ["onnx", "tract"])
def test_a_product_of_a_repeated_matrix_that_is_summed(
    target: str, symbols: dict[str, int]
) -> None:
    """The repetition is no part of the product, which has as many batches."""
    text = """version 1.0;
extension tract_registry tract_core;
extension tract_symbol B;

graph net( x ) -> ( y )
{
    x = external(shape = [B, 4, 2]);
    w = variable(shape = [1, 2, 3], label = 'w');
    h = max_reduce(x, axes = [0]);
    t = tile(h, repeats = [B, 1, 1]);
    y = matmul(t, w);
}
"""
    graph = nnef_grad.loads(text, symbols=symbols)
    backward = nnef_grad.differentiate(graph).graph
    lowered = nnef_grad.lower(backward, target).graph
    known = nnef_grad.loads(text, symbols={"B": 3})
    values = random_values(nnef_grad.differentiate(known).graph, seed=1)
    expected = nnef_grad.evaluate(backward, values.inputs, values.variables)
    found = nnef_grad.evaluate(lowered, values.inputs, values.variables)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12)
