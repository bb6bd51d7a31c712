"""ONNX files whose graph depends on values: branches, loops that end by a value, and inputs
that become constants, which decide them. Against autograd in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

import onnx
import torch
from click.testing import CliRunner
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError, UsageError
from nnef_grad.commandline.cli import main
from nnef_grad.graph.extents import as_numbers

Array = npt.NDArray[Any]


def saved(folder: Path, text: str, **weights: Array) -> Path:
    """A file of a graph in ONNX's text."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    stored = [onnx.numpy_helper.from_array(array, n) for n, array in weights.items()]
    model.graph.initializer.extend(stored)
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def gradients(path: Path, feeds: dict[str, Any], **settings: Any) -> dict[str, Array]:
    """The gradients of the inputs, for a random cotangent, in double precision, in ONNX
    Runtime in single precision the same, and the outputs of both those of the file.
    """
    model = interop.from_onnx(path, **settings)
    graph = model.graph
    backward = nnef_grad.differentiate(graph, wrt="inputs", with_outputs=True)
    seeds = {
        seed: normal(7, *as_numbers(graph.tensors[output].shape))
        for output, seed in backward.seeds.items()
    }
    own = {n: x for n, x in feeds.items() if n in graph.input_names}
    found = nnef_grad.evaluate(backward.graph, {**own, **seeds}, model.data)
    written = path.with_name("backward.onnx")
    interop.to_onnx(backward, written, model.data, overwrite=True)
    single = {
        n: np.asarray(x, np.float32 if np.asarray(x).dtype == float else None)
        for n, x in {**own, **seeds}.items()
    }
    for name, y in run(written, single).items():
        np.testing.assert_allclose(y, found[name], rtol=2e-4, atol=1e-5)
    whole = {
        n: np.asarray(x, np.float32 if np.asarray(x).dtype == float else None)
        for n, x in feeds.items()
    }
    for name, y in run(path, whole).items():
        np.testing.assert_allclose(y, found[name], rtol=2e-4, atol=1e-5)
    return {"seed": seeds["grad_y"], **found}


def expected(function: Callable[[Any], Any], x: Array, seed: Array) -> Array:
    leaf = torch.tensor(x, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(leaf), leaf, torch.tensor(seed))
    return np.asarray(gradient)


# ---- Branches ----

BRANCHES = """net (float[2, 3] x, int64 rate) => (float[2, 3] y) <int64 fast = {16000}> {
    is_fast = Equal (rate, fast)
    y = If (is_fast) <
        then_branch = fast () => (float[2, 3] a) { a = Sqrt (x) },
        else_branch = slow () => (float[2, 3] b) { c = Abs (x) b = Log (c) }
    >
}"""


@pytest.mark.parametrize("rate", [16000, 8000])
@pytest.mark.parametrize("is_known", [False, True])
def test_the_branch_of_a_condition_alone_has_gradients(
    tmp_path: Path, rate: int, is_known: bool
) -> None:
    path = saved(tmp_path, BRANCHES)
    # What is not taken is infinite or no number at zero, and below.
    x = np.array([[0.5, 1.0, 2.0], [3.0, 0.25, 1.5]])
    x *= 1 if rate == 16000 else -1
    settings = {"constants": {"rate": rate}} if is_known else {}
    found = gradients(path, {"x": x, "rate": np.int64(rate)}, **settings)
    function = torch.sqrt if rate == 16000 else lambda leaf: leaf.abs().log()
    np.testing.assert_allclose(
        found["grad_x"], expected(function, x, found["seed"]), rtol=1e-12
    )


@pytest.mark.parametrize("rate", [16000, 8000])
def test_so_has_its_second_derivative(tmp_path: Path, rate: int) -> None:
    model = interop.from_onnx(saved(tmp_path, BRANCHES))
    first = nnef_grad.differentiate(model.graph, wrt=["x"], seed="ones")
    second = nnef_grad.differentiate(first.graph, wrt=["x"], seed="ones")
    # Zero is where the other branch has no derivative.
    x = np.array([[0.5, 1.0, 2.0], [3.0, 0.25, 1.5]])
    x = x if rate == 16000 else -x
    found = nnef_grad.evaluate(second.graph, {"x": x, "rate": np.int64(rate)})
    wanted = -0.25 * x**-1.5 if rate == 16000 else -1 / x**2
    np.testing.assert_allclose(found[second.gradients["x"]], wanted, rtol=1e-12)


def test_that_both_branches_are_computed_is_said(tmp_path: Path) -> None:
    graph = interop.from_onnx(saved(tmp_path, BRANCHES)).graph
    (warning,) = graph.warnings
    assert "'If': both branches are computed; with 'rate' as a constant" in str(warning)
    known = interop.from_onnx(tmp_path / "net.onnx", constants={"rate": 16000}).graph
    assert [op.name for op in known.operations] == ["external", "sqrt"]
    assert not known.warnings


def test_branches_of_several_shapes_are_refused(tmp_path: Path) -> None:
    text = BRANCHES.replace("b = Log (c)", "b = ReduceSum (c)")
    path = saved(tmp_path, text.replace("[2, 3] b", "[1, 1] b"))
    message = r"one returns scalar \[2, 3\], and the other one scalar \[1, 1\]"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(path)
    assert interop.from_onnx(path, constants={"rate": 8000}).graph.outputs[0].rank == 2


def test_a_refusal_inside_of_a_branch_names_the_input(tmp_path: Path) -> None:
    text = BRANCHES.replace("b = Log (c)", "b = Add (c, five)")
    path = saved(tmp_path, text, five=normal(0, 5).astype(np.float32))
    message = (
        r"'Add' is not possible: .* 'If' both branches .* with 'rate' as a constant"
    )
    with pytest.raises(nnef_grad.UnsupportedError, match=message) as caught:
        interop.from_onnx(path)
    assert interop.from_onnx(path, constants=caught.value.constants).graph.input_names


def test_sizes_are_asked_for_where_no_constant_is_known(tmp_path: Path) -> None:
    text = """net (float[N, 2, H, W] x, int64[1] axes)
        => (float[N, M] y, float[A, B, C, D] z) {
            a = Flatten (x) y = Gemm <transB = 1> (a, w) z = ReduceSum (x, axes)
        }"""
    path = saved(tmp_path, text, w=np.ones((3, 24), np.float32))
    refused = CliRunner().invoke(main, [str(path)], prog_name="nnef-grad")
    assert refused.exit_code == 2
    assert "make 'axes' a constant" in refused.stderr
    sizes = "--symbol N=1 --symbol H=64 --symbol W=64"
    assert refused.stderr.splitlines()[-1].endswith(f"net.onnx {sizes}")


@pytest.mark.parametrize("change", ["b = Add (c, five)", "b = Flatten <axis = 0> (c)"])
def test_a_refused_branch_ends_with_a_command_that_works(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a branch is refused, or both are right and differ in shape."""
    text = BRANCHES.replace("b = Log (c)", change).replace("[2, 3] b", "[N, M] b")
    saved(tmp_path, text, five=normal(0, 5).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    words = ["net.onnx", "-o", "net_bwd.nnef"]
    refused = CliRunner().invoke(main, words, prog_name="nnef-grad")
    command = "nnef-grad net.onnx -o net_bwd.nnef --constant rate=16000"
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1].endswith(f"as an example: {command}")
    assert not Path("net_bwd.nnef").exists()
    assert CliRunner().invoke(main, command.split()[1:]).exit_code == 0


# ---- Loops that end by a value ----

LOOP = """net (float[2, 3] x) => (float[2, 3] y)
    <int64 most = {%d}, float factor = {1.5}, float limit = {10.0}> {
    y = Loop (most, , x) <body = step (int64 i, bool on, float[2, 3] s)
        => (bool goes_on, float[2, 3] t) {
            scaled = Mul (s, factor)
            square = Mul (x, x)
            t = Add (scaled, square)
            sum = ReduceSum <keepdims = 0> (t)
            goes_on = Less (sum, limit)
        }>
}"""


def looped(most: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        state = x
        for _ in range(most):
            state = state * 1.5 + x * x
            if not state.sum() < 10:
                break
        return state

    return function


@pytest.mark.parametrize("most", [3, 8, 1200])
@pytest.mark.parametrize("size", [0.3, 0.8, 3.0])
def test_loops_that_end_by_a_value(tmp_path: Path, most: int, size: float) -> None:
    path, x = saved(tmp_path, LOOP % most), np.abs(normal(1, 2, 3)) * size
    found = gradients(path, {"x": x})
    wanted = expected(looped(most), x, found["seed"])
    np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-11)
    graph = interop.from_onnx(path).graph
    assert sum("all iterations are computed" in str(w) for w in graph.warnings) == 1
    assert len(graph.operations) < 100


def test_check_takes_loops_that_end_by_a_value(tmp_path: Path) -> None:
    graph = interop.from_onnx(saved(tmp_path, LOOP % 1200)).graph
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph), variables={})
    assert checked.passed


def test_a_loop_that_collects_rows_must_have_a_known_end(tmp_path: Path) -> None:
    text = LOOP % 3
    text = text.replace("y = Loop", "y, rows = Loop").replace(
        "(bool goes_on, float[2, 3] t) {",
        "(bool goes_on, float[2, 3] t, float[2, 3] row) { row = Neg (s)",
    )
    text = text.replace("=> (float[2, 3] y)", "=> (float[2, 3] y, float[n, 2, 3] rows)")
    message = "how often it is repeated depends on values, and it returns"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(saved(tmp_path, text))


def test_a_loop_without_a_bound_is_refused(tmp_path: Path) -> None:
    message = "its condition must be known before the model is run"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(saved(tmp_path, (LOOP % 3).replace("(most, ,", "(, ,")))


# ---- Constants ----

MASKED = """net (float[N, 4] x, int64[N, 4] mask, int64 k) => (float[N, 4] y) {
    m = Cast <to = 1> (mask)
    y0 = Mul (x, m)
    one = Constant <value_ints = [1]> ()
    axis = Constant <value_ints = [0]> ()
    first = Unsqueeze (k, axis)
    last = Add (first, one)
    part = Slice (y0, first, last, one)
    y = Add (y0, part)
}"""


def test_an_array_fixes_the_sizes_of_other_inputs(tmp_path: Path) -> None:
    path = saved(tmp_path, MASKED)
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0]])
    constants = {"mask": mask, "k": 2}
    graph = interop.from_onnx(path, constants=constants).graph
    assert graph.input_names == ("x",)
    assert graph.tensors["x"].shape == (2, 4)
    x = normal(3, 2, 4)
    found = gradients(
        path, {"x": x, "mask": mask, "k": np.int64(2)}, constants=constants
    )
    m = torch.tensor(mask)
    wanted = expected(lambda v: v * m + (v * m)[:, 2:3], x, found["seed"])
    np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-12)


def test_a_number_leaves_sizes_open(tmp_path: Path) -> None:
    path = saved(tmp_path, MASKED)
    graph = interop.from_onnx(path, constants={"mask": 1, "k": 0}).graph
    assert str(graph.tensors["x"].shape[0]) == "N"


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"mask": np.ones((2, 5), int)}, r"has the shape \[2, 5\]: the input has"),
        ({"k": 0.5}, "is of type integer, and 0.5 is not"),
        ({"k": float("nan")}, "is of type integer, and nan is not"),
        ({"k": "one"}, "is of type integer, and one is not"),
        ({"key": 1}, "there is no input 'key'"),
    ],
)
def test_constants_that_do_not_fit_are_refused(
    tmp_path: Path, constants: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        interop.from_onnx(saved(tmp_path, MASKED), constants=constants)


def test_a_value_that_must_be_known_names_the_inputs_behind_it(tmp_path: Path) -> None:
    text = """net (float[2, 3] x, int64 count) => (float[2, 3] y) {
        y = Loop (count, , x) <body = step (int64 i, bool on, float[2, 3] s)
            => (bool goes_on, float[2, 3] t) { goes_on = Identity (on) t = Mul (s, x) }>
    }"""
    path = saved(tmp_path, text)
    with pytest.raises(NnefGradError, match="run: make 'count' a constant"):
        interop.from_onnx(path)
    found = gradients(
        path, {"x": normal(2, 2, 3), "count": np.int64(2)}, constants={"count": 2}
    )
    wanted = expected(lambda v: v * v * v, normal(2, 2, 3), found["seed"])
    np.testing.assert_allclose(found["grad_x"], wanted, rtol=1e-12)
